"""What was forgotten, so that a write that is sent again cannot bring it back.

    memory/forgotten/<digest of the user>        in nobody's partition: it outlives the user

The ids are kept as salted digests, eight bytes each, oldest first. Whoever has
the store and an id can tell that it was forgotten; nobody can read ids from it.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from pagefile import chance
from pagefile.batch import Put
from pagefile.memory.document import plain, shaped
from pagefile.memory.owner import owner_key
from pagefile.records import Document
from pagefile.store import Store

_DIGEST_BYTES = 8
#: Eight megabytes of digests; the oldest leave first, long after any replay.
MOST_REMEMBERED = 1_000_000


class Forgotten(msgspec.Struct, frozen=True):
    """The ids that one user's partition must not take again."""

    document: str
    version: int
    salt: bytes
    digests: bytes

    def among(self, names: Iterable[str]) -> str | None:
        """The first of these documents that must not come back."""
        known = _parts(self.digests)
        return next((name for name in names if _digest(self.salt, name) in known), None)

    def with_names(self, names: Iterable[str]) -> Put:
        """The operation that adds these documents to what must not come back."""
        salt = self.salt or chance.random_bytes(16)
        added = b"".join(_digest(salt, name) for name in names)
        kept = (self.digests + added)[-MOST_REMEMBERED * _DIGEST_BYTES :]
        form = _Stored(base64.b64encode(salt).decode(), base64.b64encode(kept).decode())
        return Put(self.document, plain(form), kind="forgotten")


def forgotten_of(store: Store, user_id: str | None) -> Forgotten:
    """What this user's partition must not take again, as it is stored now."""
    name = document_of(user_id)
    found = store.get(name)
    if found is None or found.erased:
        return Forgotten(name, 0, b"", b"")
    return _read(found)


def document_of(user_id: str | None) -> str:
    """The name of the document that says what was forgotten."""
    return f"memory/forgotten/{owner_key(user_id)}"


def _read(document: Document) -> Forgotten:
    form = shaped(document, _Stored)
    salt, digests = base64.b64decode(form.salt), base64.b64decode(form.digests)
    return Forgotten(document.name, document.version, salt, digests)


@lru_cache(maxsize=64)
def _parts(digests: bytes) -> frozenset[bytes]:
    """The digests one by one; kept, for every write asks for them again."""
    size = _DIGEST_BYTES
    return frozenset(digests[at : at + size] for at in range(0, len(digests), size))


def _digest(salt: bytes, name: str) -> bytes:
    return hashlib.sha256(salt + name.encode()).digest()[:_DIGEST_BYTES]


class _Stored(msgspec.Struct):
    salt: str
    digests: str
