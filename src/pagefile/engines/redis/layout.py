"""How a tenant's data stands in Redis: the names of keys, and bytes that sort as they should.

All keys of a tenant carry one hash tag made of its name, so that they are on one
shard and one script can reach them all:

    h  the digest of the last commit            c  the commits, a stream numbered by position
    s  streams by number                        n  the newest stream of each name
    r:N  the records of stream N, by number     z:log, z:document  names of living streams
    u  which users have records where           f  which streams are forks of which
    k  secondary keys                           p  the same as they once were
    i  idempotency keys                         q, o, t  whose turn it is to commit
    w  the last position that removed something since files were written again, or 0

The sorted sets `z u f k p` have one score throughout, so that Redis keeps their members in
the order of their bytes.
"""

from __future__ import annotations

import hashlib
import struct
from typing import NamedTuple

from pagefile.store.engine import IndexKey, Row, Scope
from pagefile.store.records import StreamKind

_number = struct.Struct(">Q").pack
_read_number = struct.Struct(">Q").unpack
_place = struct.Struct(">QIQI")
#: Neither occurs in UTF-8, so both end a text without doubt.
_END, _NOBODY = b"\xff", b"\xfe"
#: Sorts behind everything that begins like the member it is put behind.
BEHIND = b"\xff"
PLACE_BYTES = _place.size


class Keys:
    """The keys of one tenant."""

    __slots__ = (
        "base",
        "commits",
        "forks",
        "head",
        "held",
        "live",
        "names",
        "past",
        "queue",
        "shown",
        "streams",
        "traces",
        "turn",
        "turns",
        "used",
    )

    def __init__(self, prefix: str, tenant: str) -> None:
        tag = hashlib.sha256(tenant.encode()).hexdigest()[:32]
        self.base = base = f"{escaped(prefix)}:{{{tag}}}:".encode()
        self.head, self.commits = base + b"h", base + b"c"
        self.streams, self.names = base + b"s", base + b"n"
        self.held, self.forks = base + b"u", base + b"f"
        self.live, self.past, self.used = base + b"k", base + b"p", base + b"i"
        self.queue, self.turn, self.turns = base + b"q", base + b"o", base + b"t"
        self.traces = base + b"w"
        self.shown: dict[StreamKind, bytes] = {
            "log": base + b"z:log",
            "document": base + b"z:document",
        }

    def rows(self, oid: int) -> bytes:
        """Where the records of a stream are."""
        return b"%sr:%d" % (self.base, oid)

    def fixed(self) -> list[bytes]:
        """All keys but those of records."""
        found = [getattr(self, name) for name in self.__slots__ if name not in ("base", "shown")]
        return found + list(self.shown.values())


def tenants_key(prefix: str) -> bytes:
    """Where the names of all tenants are; on a shard of its own."""
    return f"{escaped(prefix)}:tenants".encode()


def escaped(prefix: str) -> str:
    """A prefix without braces: what stands in the first pair of them decides on the shard."""
    return prefix.replace("%", "%25").replace("{", "%7B").replace("}", "%7D")


def name_field(kind: StreamKind, name: str) -> bytes:
    """Where a name is found."""
    return kind[:1].encode() + name.encode()


def of_user(user: str | None) -> bytes:
    """A user as the beginning of a member."""
    return _NOBODY if user is None else user.encode() + _END


def holding(user: str | None, oid: int) -> bytes:
    """That the user has records in the stream."""
    return of_user(user) + _number(oid)


def fork_of(base: int, child: int) -> bytes:
    """That one stream is a fork of the other."""
    return _number(base) + _number(child)


def last_number(member: bytes) -> int:
    """The number that a holding or a fork ends with."""
    return int(_read_number(member[-8:])[0])


def space(scope: Scope, owner: str | int | None, field: str) -> bytes:
    """The beginning that all keys of one field share, within a log, a user or the tenant."""
    if scope == "log":
        assert isinstance(owner, int)
        whose = b"L" + _number(owner)
    elif scope == "user":
        assert not isinstance(owner, int)
        whose = b"U" + of_user(owner)
    else:
        whose = b"T"
    return whose + field.encode() + _END


def ordered(value: bytes) -> bytes:
    """The value with an end that sorts first: a prefix comes before what continues it."""
    return value.replace(b"\x00", b"\x00\xff") + b"\x00\x00"


def bucket(key: IndexKey, oid: int, user: str | None) -> bytes:
    """The beginning that all records under one key value share."""
    owner: str | int | None = None
    if key.scope == "log":
        owner = oid
    elif key.scope == "user":
        owner = user
    return space(key.scope, owner, key.field) + ordered(key.value)


def place(row: Row, oid: int) -> bytes:
    """Where a record is, in the order of commits."""
    return _place.pack(row.position, row.ordinal, oid, row.number)


def order(position: int, ordinal: int) -> bytes:
    """The part of a place that cursors know."""
    return _number(position) + ordinal.to_bytes(4, "big")


def until(position: int) -> bytes:
    """When a key stopped leading to a record; before the place, so that the last is found."""
    return _number(position)


class Found(NamedTuple):
    """A member of a key index, read back; sorts in the order of `find`."""

    value: bytes
    position: int
    ordinal: int
    oid: int
    number: int
    until: int


def found_in(member: bytes, start: int, *, past: bool) -> Found:
    """A member of `k` or `p`, whose space is `start` bytes long."""
    position, ordinal, oid, number = _place.unpack(member[-_place.size :])
    end, left = len(member) - _place.size, 0
    if past:
        end -= 8
        left = int(_read_number(member[end : end + 8])[0])
    value = member[start : end - 2].replace(b"\x00\xff", b"\x00")
    return Found(value, position, ordinal, oid, number, left)
