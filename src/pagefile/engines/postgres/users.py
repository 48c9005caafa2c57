"""The users of one tenant in PostgreSQL: their numbers, and where they have records."""

from __future__ import annotations

from collections.abc import Iterable

from pagefile.engines.postgres.transaction import Pending


class Users:
    """What a write transaction knows of a tenant's users; None stands for nobody."""

    def __init__(self, pending: Pending, last: int) -> None:
        self._pending = pending
        #: Numbers given out so far.
        self.last = last
        #: Numbers looked up so far.
        self.known: dict[str | None, int] = {}
        #: (user's number, oid) of which the server already knows, or will.
        self.held: set[tuple[int, int]] = set()
        #: Numbers of users who may be forgotten by what is collected: the server will say.
        self._released: dict[str | None, int] = {}

    def __len__(self) -> int:
        return len(self.known) + len(self.held) + len(self._released)

    def find(self, user: str | None) -> int | None:
        """The user's number, if there is one."""
        number = self.known.get(user)
        if number is None:
            read = self._pending.read
            if self._released.pop(user, None) is not None:
                read = self._pending.read_after
            found = read("user_number", user or "")
            if not found:
                return None
            number = self.known[user] = int(found[0][0])
        return number

    def number(self, user: str | None) -> int:
        """The user's number, given out if need be."""
        number = self.find(user)
        if number is None:
            self.last += 1
            number = self.known[user] = self.last
            self._pending.add("add_user", number, user or "")
        return number

    def holder(self, user: str | None) -> int:
        """The number of a user who still has a record, and so was not forgotten."""
        return self.known.get(user) or self._released.get(user) or self.number(user)

    def hold(self, number: int, oid: int) -> None:
        """Note that the user has a record in the stream."""
        self._pending.add("add_holding", number, oid)
        self.held.add((number, oid))

    def release(self, oid: int, users: Iterable[str | None]) -> None:
        """Forget those of the users who have no record left in the stream, or anywhere."""
        for user in users:
            number = self.holder(user)
            self._pending.add("remove_holding", number, oid, user or "")
            self._pending.add("forget_user", number)
            self.held.discard((number, oid))
            self.known.pop(user, None)
            self._released[user] = number
