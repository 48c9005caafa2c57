"""What was forgotten, so that a write that is sent again cannot bring it back.

    memory/forgotten/<digest of the user>        the tenant's: it outlives the user

The ids are kept as salted digests, eight bytes each, oldest first. Whoever has
the store and an id can tell that it was forgotten; nobody can read ids from it.
A version holds what one call forgot, so that forgetting costs what it forgets;
now and then one holds all of them, and those before it are let go. Versions that
stand in nobody's partition, as all did once, are put together in the next one.
"""

from __future__ import annotations

import base64
import hashlib
from collections import OrderedDict
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from pagefile.errors import Conflict, Forbidden
from pagefile.memory.documents import owner_key, plain, shaped
from pagefile.store import clock
from pagefile.store.arguments import OF_TENANT
from pagefile.store.batch import Operation, Prune, Put, VersionIs
from pagefile.store.store import Store

#: Documents, one per user of whom something was forgotten.
FORGOTTEN = "memory/forgotten/"
_DIGEST_BYTES = 8
#: Eight megabytes of digests; the oldest leave first, long after any replay.
MOST_REMEMBERED = 1_000_000
#: So many versions add to one that has all before them; then they are put together.
_MOST_PARTS = 1_000
_USERS_KNOWN = 10_000


class Forgotten(msgspec.Struct, frozen=True):
    """The ids that one user's partition must not take again.

    `whole` are the digests of version `since`, which has all up to it, `more` those
    that came in versions after it. Without `since` the next version has all again.
    """

    document: str
    version: int
    salt: bytes = b""
    since: int = 0
    whole: bytes = b""
    more: bytes = b""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing that must not come back."""
        return not self.whole and not self.more

    def among(self, names: Iterable[str]) -> str | None:
        """The first of these documents that must not come back."""
        if self.is_empty:
            return None
        whole, more = _parts(self.whole), _parts(self.more)
        for name in names:
            digest = _digest(self.salt, name)
            if digest in whole or digest in more:
                return name
        return None

    def with_names(self, names: Iterable[str]) -> list[Operation]:
        """What adds these documents to what must not come back."""
        salt = self.salt or clock.random_bytes(16)
        added = b"".join(_digest(salt, name) for name in names)
        since = self.since
        if not since or self.version - since >= _MOST_PARTS:
            since = 0
            added = (self.whole + self.more + added)[-MOST_REMEMBERED * _DIGEST_BYTES :]
        form = _Stored(base64.b64encode(salt).decode(), base64.b64encode(added).decode(), since)
        put = Put(self.document, plain(form), user=OF_TENANT, kind="forgotten")
        # The version that has all of them stands alone: those before it say nothing more.
        is_alone = self.since in (0, self.version) and self.version > 1
        return [Prune(self.version, document=self.document), put] if is_alone else [put]


def forgotten_of(store: Store, user_id: str | None) -> Forgotten:
    """What this user's partition must not take again, as it is stored now."""
    name = document_of(user_id)
    while True:
        found = store.get(name)
        if found is None or found.erased:
            # Of what was erased from outside the number stays taken.
            return Forgotten(name, 0 if found is None else found.version)
        form = shaped(found, _Stored)
        salt, digests = base64.b64decode(form.salt), base64.b64decode(form.digests)
        is_kept = found.user == OF_TENANT
        if not form.since:
            return Forgotten(name, found.version, salt, found.version * is_kept, digests)
        wanted = range(form.since, found.version)
        before = _versions(store, name, wanted)
        if len(before) == len(wanted):  # Else it was put together meanwhile.
            more = b"".join((*before[1:], digests))
            since = form.since * is_kept
            return Forgotten(name, found.version, salt, since, before[0], more)


def _versions(store: Store, name: str, numbers: range) -> list[bytes]:
    """The digests in these versions, as far as they were not let go; of an erased one, none."""
    found = store.history(name, after=numbers.start - 1, limit=len(numbers))
    return [
        b"" if each.erased else base64.b64decode(shaped(each, _Stored).digests)
        for each in found
        if each.version in numbers
    ]


def document_of(user_id: str | None) -> str:
    """The name of the document that says what was forgotten."""
    return f"{FORGOTTEN}{owner_key(user_id)}"


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


@lru_cache(maxsize=64)
def _parts(digests: bytes) -> frozenset[bytes]:
    """The digests one by one; kept, for every write asks for them again."""
    size = _DIGEST_BYTES
    return frozenset(digests[at : at + size] for at in range(0, len(digests), size))


def _digest(salt: bytes, name: str) -> bytes:
    return hashlib.sha256(salt + name.encode()).digest()[:_DIGEST_BYTES]


class _Stored(msgspec.Struct, omit_defaults=True):
    """`since` is the version that has all that came before; 0 where this one has."""

    salt: str
    digests: str
    since: int = 0
