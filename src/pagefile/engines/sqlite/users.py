"""The users of one tenant in an SQLite file: their numbers, and where they have records."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import apsw

from pagefile.engines.sqlite.rows import UserGone, fetch, user_from


class Users:
    """What a write transaction knows of a tenant's users; None stands for nobody."""

    def __init__(self, writer: apsw.Connection, sql: dict[str, str]) -> None:
        self._writer = writer
        self._sql = sql
        #: The tenant's number, or 0 before its first commit.
        self.tenant = 0
        #: Partition numbers looked up so far.
        self.known: dict[str | None, int] = {}
        #: (partition, stream id) of which the file knows, or will with `new_holdings`.
        self.held: set[tuple[int, int]] = set()
        self.new_holdings: list[tuple[int, int]] = []
        self._names: dict[int, str | None] = {}

    def __len__(self) -> int:
        return len(self.known) + len(self.held) + len(self._names)

    def _all(self, query: str, *bindings: Any) -> list[Any]:
        return fetch(self._writer, self._sql[query], *bindings)

    def find(self, user: str | None) -> int | None:
        """The user's partition, if there is one."""
        partition = self.known.get(user)
        if partition is None:
            found = self._all("partition", self.tenant, user)
            if not found:
                return None
            partition = self.known[user] = found[0][0]
        return partition

    def number(self, user: str | None) -> int:
        """The user's partition, made if need be."""
        partition = self.find(user)
        if partition is None:
            partition = self.known[user] = self._all("add_partition", self.tenant, user)[0][0]
        return partition

    def name(self, partition: int) -> str | None:
        """The user behind a partition."""
        if partition not in self._names:
            found = self._all("partition_user", partition)
            if not found:
                raise UserGone
            self._names[partition] = user_from(found[0][0])
        return self._names[partition]

    def hold(self, partition: int, stream_id: int) -> None:
        """Note that the user has a record in the stream."""
        self.new_holdings.append((partition, stream_id))
        self.held.add((partition, stream_id))

    def release(self, stream_id: int, users: Iterable[str | None]) -> None:
        """Forget those of the users who have no record left in the stream, or anywhere.

        The file must know of all holdings.
        """
        assert not self.new_holdings
        for user in users:
            partition = self.number(user)
            if not self._all("still_holds", stream_id, partition)[0][0]:
                self._all("remove_holding", partition, stream_id)
                self.held.discard((partition, stream_id))
                self._all("forget_partition", partition)
                del self.known[user]
