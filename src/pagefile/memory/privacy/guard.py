"""The condition that keeps what was forgotten from coming back."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from pagefile.errors import Conflict, Forbidden
from pagefile.memory.privacy.tombstones import Forgotten, document_of, forgotten_of
from pagefile.store.batch import VersionIs
from pagefile.store.store import Store

_USERS_KNOWN = 10_000


class Guard:
    """What is thought to be forgotten of each user.

    Most users have forgotten nothing, so nothing is read for them: a commit on
    condition of what is thought finds out, and is tried again with what is so.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: OrderedDict[str | None, Forgotten] = OrderedDict()

    @property
    def knows_of_any(self) -> bool:
        """Whether anything is thought to be forgotten of anybody."""
        return bool(self._known)

    def condition(self, user: str | None) -> VersionIs:
        """That no more was forgotten of this user than is thought."""
        known = self._known.get(user)
        return VersionIs(document_of(user), 0 if known is None else known.version)

    def learns(self, conflict: Conflict, user: str | None) -> bool:
        """Whether the conflict was about this user's forgetting, which is then known."""
        if conflict.target != document_of(user):
            return False
        self._known[user] = forgotten_of(self._store, user)
        self._known.move_to_end(user)
        while len(self._known) > _USERS_KNOWN:
            self._known.popitem(last=False)
        return True

    def forgotten(self, user: str | None, documents: Iterable[str]) -> set[str]:
        """Which of the documents are known to have been forgotten."""
        known = self._known.get(user)
        if known is None or known.is_empty:
            return set()
        return {name for name in documents if known.among([name]) is not None}

    def refuse(self, user: str | None, documents: Iterable[str]) -> None:
        """Refuse what was forgotten of this user.

        Raises:
            Forbidden: one of the documents was.
        """
        known = self._known.get(user)
        if known is None or known.is_empty:
            return
        found = known.among(documents)
        if found is not None:
            raise Forbidden(
                f"{found.rsplit('/', 1)[1]!r} was forgotten, and is not stored again",
                "leave it; what is meant anew needs a new id",
            )
