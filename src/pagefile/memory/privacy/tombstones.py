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
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from pagefile.memory.owner import OF_TENANT, owner_key
from pagefile.memory.serializer import plain, shaped
from pagefile.store import clock
from pagefile.store.batch import Operation, Prune, Put
from pagefile.store.store import Store

#: Documents, one per user of whom something was forgotten.
FORGOTTEN = "memory/forgotten/"
_DIGEST_BYTES = 8
#: Eight megabytes of digests; the oldest leave first, long after any replay.
MOST_REMEMBERED = 1_000_000
#: So many versions add to one that has all before them; then they are put together.
_MOST_PARTS = 1_000


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
