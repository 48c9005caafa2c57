"""What the store hands out: frozen values around the content of a record. No I/O here."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

import msgspec

from pagefile.errors import Corrupt, NotFound
from pagefile.store import codec
from pagefile.store.codec import sort_key
from pagefile.store.codec.canonical_json import encode_json
from pagefile.store.codec.decoder import msgpack_decoder
from pagefile.store.codec.sort_key import KeyValue

SALT_BYTES = 16
DIGEST_BYTES = 32

pack = msgspec.msgpack.Encoder().encode
unpack = msgpack_decoder(list[tuple[int | bytes, ...]]).decode
#: What `unpack` raises on bytes that are no manifest, or on what is not even bytes.
NO_MANIFEST = (msgspec.DecodeError, TypeError)
_three_numbers = struct.Struct(">QQQ").pack


class Action:
    """What a manifest entry did; the numbers are part of the stored format."""

    APPEND = 1
    PUT = 2
    DELETE = 3
    FORK = 4
    DROP = 5
    PRUNE = 6
    ERASE = 7


#: What stands in a manifest entry, by its action.
_PARTS: dict[int | bytes, tuple[type, ...]] = {
    Action.APPEND: (int, int, int, bytes),
    Action.PUT: (int, int, int, bytes),
    Action.DELETE: (int, int, int, bytes),
    Action.FORK: (int, int, int, bytes, int, int),
    Action.DROP: (int, int),
    Action.PRUNE: (int, int, int),
    Action.ERASE: (int, int, int, int),
}


def read_manifest(position: int, manifest: bytes) -> list[tuple[int | bytes, ...]]:
    """What the commit at a position did, each entry with the parts of its action.

    Raises:
        Corrupt: it cannot be what was stored.
    """
    try:
        entries = unpack(manifest)
        whole = all(tuple(map(type, entry)) == _PARTS[entry[0]] for entry in entries)
    except (*NO_MANIFEST, LookupError) as error:
        raise _no_manifest(position) from error
    if not whole:
        raise _no_manifest(position)
    return entries


def _no_manifest(position: int) -> Corrupt:
    return Corrupt(
        f"the commit at position {position} is damaged: what it did cannot be read",
        "run `verify` to see how far it goes, then restore a copy",
    )


class Content(msgspec.Struct, frozen=True, gc=False):
    """Envelope and body as they are stored, encoded once and never changed."""

    action: int
    user: str | None
    kind: str
    actor: str
    sources: tuple[str, ...]
    keys: bytes
    tenant_keys: bytes
    notes: bytes
    type_name: str
    body: bytes
    salt: bytes


def digest_of(name: str, content: Content) -> bytes:
    """The digest of a record of the stream `name`; it covers no number the store assigns."""
    envelope = pack(
        (
            content.action,
            name,
            content.user,
            content.kind,
            content.actor,
            content.sources,
            content.keys,
            content.tenant_keys,
            content.notes,
            content.type_name,
        )
    )
    return hashlib.sha256(content.salt + envelope + content.body).digest()


def name_digest(name: str, salt: bytes) -> bytes:
    """The digest of a stream's name, for a fork that has no record of its own yet."""
    return hashlib.sha256(salt + name.encode()).digest()


def genesis(tenant: str) -> bytes:
    """The digest before a tenant's first commit: a history cannot pass for another tenant's."""
    return hashlib.sha256(b"pagefile tenant " + tenant.encode()).digest()


def chain(previous: bytes, position: int, time_us: int, key: str, manifest: bytes) -> bytes:
    """The digest of a commit: everything before it, its place, time and key, what it did."""
    numbers = _three_numbers(position, time_us, len(key))
    return hashlib.sha256(previous + numbers + key.encode() + manifest).digest()


#: Parts of keys that JSON has as they are.
_PLAIN_PARTS = frozenset({str, int})


def mapping_to_bytes(mapping: Mapping[str, Any]) -> bytes:
    """Keys or notes as they stand in the record; empty for none."""
    return codec.encode(dict(mapping))[1] if mapping else b""


def keys_to_bytes(keys: Mapping[str, KeyValue]) -> bytes:
    """`mapping_to_bytes` of keys that were checked, whose values are scalars or tuples of them."""
    plain: dict[str, Any] = {}
    for field, value in keys.items():
        if field[:1] == "$":
            return mapping_to_bytes(keys)
        if type(value) in _PLAIN_PARTS:
            plain[field] = value
        elif type(value) is tuple and _PLAIN_PARTS.issuperset(map(type, value)):
            plain[field] = {"$tuple": value}
        else:
            return mapping_to_bytes(keys)
    return encode_json(plain) if plain else b""


def mapping_from_bytes(raw: bytes) -> dict[str, Any]:
    """The inverse of `mapping_to_bytes`."""
    mapping: dict[str, Any] = codec.decode("", raw) if raw else {}
    return mapping


def stored_mapping(raw: bytes) -> dict[str, Any]:
    """The keys or notes of a stored record.

    Raises:
        Corrupt: they cannot be what was stored.
    """
    mapping: object = mapping_from_bytes(raw) if isinstance(raw, bytes) else None
    if not isinstance(mapping, dict):
        raise Corrupt("stored keys or notes are no mapping", "stop writing and restore a copy")
    return mapping


#: How far an erasure reaches: no copy in the store's own files, or nothing that can be read.
Erasure = Literal["bytes", "logical"]
Durability = Literal["power", "process", "none"]
StreamKind = Literal["log", "document"]


class _Stored(msgspec.Struct, frozen=True, gc=False):
    """What entries and document versions have in common: envelope, then body."""

    position: int
    time_us: int
    content: Content | None

    def __repr__(self) -> str:
        own = ", ".join(f"{f}={getattr(self, f)!r}" for f in self.__struct_fields__[3:])
        shown = (
            "erased" if self.content is None else self.content.body[:200].decode("utf-8", "replace")
        )
        return f"<{type(self).__name__} {own}, position={self.position}: {shown}>"

    @property
    def time(self) -> datetime:
        """When the store took it, in UTC."""
        return sort_key.moment(self.time_us)

    @property
    def erased(self) -> bool:
        """True when the content is gone and only the number is left."""
        return self.content is None

    @property
    def user(self) -> str | None:
        return self._present.user

    @property
    def kind(self) -> str:
        return self._present.kind

    @property
    def actor(self) -> str:
        return self._present.actor

    @property
    def sources(self) -> tuple[str, ...]:
        return self._present.sources

    @property
    def keys(self) -> Mapping[str, KeyValue]:
        return stored_mapping(self._present.keys)

    @property
    def tenant_keys(self) -> Mapping[str, KeyValue]:
        return stored_mapping(self._present.tenant_keys)

    @property
    def notes(self) -> Mapping[str, Any]:
        return stored_mapping(self._present.notes)

    @property
    def type_name(self) -> str:
        return self._present.type_name

    @property
    def body(self) -> bytes:
        """The value as canonical JSON."""
        return self._present.body

    @property
    def value(self) -> Any:
        """The body decoded afresh: changing it changes nothing stored."""
        content = self._present
        return codec.decode(content.type_name, content.body)

    @property
    def _present(self) -> Content:
        if self.content is None:
            raise NotFound(
                f"the content stored at position {self.position} was erased",
                "look at `erased` before reading the content",
            )
        return self.content


class Entry(_Stored, frozen=True, gc=False):
    """One entry of a log."""

    log: str
    index: int
    #: The log that holds it: another one when `log` is a fork and shares it.
    origin: str

    @property
    def digest(self) -> bytes:
        return digest_of(self.origin, self._present)


class Document(_Stored, frozen=True, gc=False):
    """One version of a document."""

    name: str
    version: int

    @property
    def deleted(self) -> bool:
        """True for the version that says the document is gone."""
        return self.content is not None and self.content.action == Action.DELETE

    @property
    def value(self) -> Any:
        """The body decoded afresh: changing it changes nothing stored."""
        if self.deleted:
            raise NotFound(
                f"document {self.name!r} was deleted by version {self.version}",
                "look at `deleted` before reading the value",
            )
        return super().value

    @property
    def digest(self) -> bytes:
        return digest_of(self.name, self._present)


class Commit(msgspec.Struct, frozen=True):
    """What a commit did. `indexes` and `versions` follow the order of the operations."""

    position: int
    time_us: int
    indexes: tuple[int, ...]
    versions: tuple[int, ...]
    key: str
    digest: bytes
    repeated: bool = False

    @property
    def time(self) -> datetime:
        return sort_key.moment(self.time_us)


class Head(msgspec.Struct, frozen=True):
    """The end of a tenant's commit log: keep it elsewhere to prove nothing was cut off."""

    position: int
    digest: bytes


class Touched(msgspec.Struct, frozen=True):
    """One thing a commit did. `name` is None once the name itself was erased.

    `first` and `last` bound the numbers: indexes of a log, versions of a document.
    """

    action: Literal["append", "put", "delete", "fork", "drop", "prune", "erase"]
    stream: StreamKind
    name: str | None
    first: int
    last: int


class Change(msgspec.Struct, frozen=True):
    """One commit, as `changes` lists it."""

    position: int
    time_us: int
    touched: tuple[Touched, ...]


class Page(msgspec.Struct, frozen=True):
    """Part of a listing. `cursor` continues it; None means that was all."""

    items: tuple[Entry | Document, ...]
    cursor: str | None


class Receipt(msgspec.Struct, frozen=True):
    """What `erase` removed, and how far the removal reaches.

    `level` is "bytes" when no copy is left in the store's own files, "logical"
    when `remaining` names the steps that finish it.
    """

    position: int | None
    removed: tuple[Touched, ...]
    records: int
    size_bytes: int
    level: Erasure
    remaining: tuple[str, ...] = ()


class Problem(msgspec.Struct, frozen=True):
    """One thing that `verify` or `check` found."""

    position: int | None
    what: str


class Report(msgspec.Struct, frozen=True):
    """The result of `verify` or `check`; true when nothing was found."""

    commits: int
    records: int
    problems: tuple[Problem, ...]
    head: Head
    #: The position that a copy which was cut off has still to reach; 0 for what is whole.
    unfinished: int = 0

    def __bool__(self) -> bool:
        return not self.problems


class Stats(msgspec.Struct, frozen=True):
    """Numbers about one tenant, and the engine that holds it."""

    engine: str
    durability: Durability
    position: int
    logs: int
    documents: int
    #: What keeps vectors in the commit of their entries; "" where nothing does.
    vectors: str = ""
    #: As in `Report`.
    unfinished: int = 0
