"""The content of one record, and the digest that proves it.

A record's digest is SHA-256 over a random salt, its envelope and its body. The
salt is stored with the record and goes with it: after an erasure the digest
stays in the commit log, but nobody can test a guess against it.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Mapping
from typing import Any

import msgspec

from pagefile.errors import Corrupt
from pagefile.store import codec
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
