"""What a manager and its clients say to each other: MessagePack in frames, never pickle.

A frame is its length in four bytes, then its bytes. A client asks, the manager
answers, one at a time. Everything is decoded into a named shape or refused; no
shape can name code to run.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pagefile.store.codec.decoder import msgpack_decoder
from pagefile.store.engine import (
    LOG,
    Hit,
    KeyRange,
    Prepared,
    RawCommit,
    Row,
    Sealed,
    Stream,
    TenantHead,
)
from pagefile.store.records import Problem, StreamKind

VERSION = 1
MAGIC = "pagefile manager"
#: Before the key is proved, nobody needs more.
MOST_GREETING_BYTES = 1_024
#: How many bytes of records go into one answer, unless a single record has more.
ANSWER_BYTES = 8 * 1024 * 1024
#: How long the manager keeps one wait, so that a dead connection is noticed.
MOST_WAIT_SECONDS = 20.0

HEADER = struct.Struct(">I")
HEADER_BYTES = HEADER.size
GOOD, REFUSED = b"\x00", b"\x01"

encode = msgspec.msgpack.Encoder().encode


def framed(payload: bytes) -> bytes:
    """The payload with its length before it."""
    return HEADER.pack(len(payload)) + payload


# The greeting


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The manager's first words; `instance` is another after every start."""

    magic: str
    version: int
    nonce: bytes
    instance: bytes
    most_bytes: int


class Proof(msgspec.Struct, frozen=True, array_like=True):
    """The client's answer: who it is, which store it wants, and that it knows the key."""

    nonce: bytes
    client: bytes
    space: str
    digest: bytes


# Requests


class Apply(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=1):
    """Commit these; `number` grows with every call of a client, and stays when it is repeated."""

    number: int
    now_us: int
    key_lifetime_us: int
    items: Sequence[tuple[str, Prepared]]


class HeadOf(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=2):
    tenant: str


class StreamOf(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=3):
    tenant: str
    kind: StreamKind
    name: str
    at: int | None = None


class StreamNumber(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=4):
    tenant: str
    oid: int


class Current(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=5):
    tenant: str
    names: Sequence[str]


class Rows(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=6):
    tenant: str
    oid: int
    first: int
    last: int
    limit: int


class Find(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=7):
    tenant: str
    span: KeyRange
    limit: int
    at: int | None


class Names(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=8):
    tenant: str
    kind: StreamKind
    prefix: str
    after: str
    limit: int


class Commits(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=9):
    tenant: str
    since: int
    limit: int


class Wait(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=10):
    tenant: str
    position: int
    seconds: float


class Tenants(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=11):
    pass


class Check(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=12):
    tenant: str


class SizeBytes(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=13):
    pass


class Gather(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=14):
    tenant: str
    places: Sequence[tuple[int, int]]


class Streams(msgspec.Struct, frozen=True, array_like=True, gc=False, tag=15):
    tenant: str
    oids: Sequence[int]


Request = (
    Apply
    | HeadOf
    | StreamOf
    | StreamNumber
    | Current
    | Rows
    | Find
    | Names
    | Commits
    | Wait
    | Tenants
    | Check
    | SizeBytes
    | Gather
    | Streams
)


class Refusal(msgspec.Struct, frozen=True, array_like=True):
    """An error: its code, its message, and the fields that its class has."""

    code: str
    message: str
    fields: Mapping[str, str | int | list[dict[str, str | int]]]


class Outcome(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one batch came to."""

    sealed: Sealed | None
    refusal: Refusal | None = None


#: How each shape is read. Built once: making a decoder takes longer than using it.
decode_hello = msgpack_decoder(Hello).decode
decode_proof = msgpack_decoder(Proof).decode
decode_request = msgpack_decoder(Request).decode
decode_refusal = msgpack_decoder(Refusal).decode
decode_outcomes = msgpack_decoder(list[Outcome]).decode
decode_fields = msgpack_decoder(tuple[Any, ...] | None).decode
decode_list_of_fields = msgpack_decoder(list[tuple[Any, ...] | None]).decode
decode_current = msgpack_decoder(list[Row | None]).decode
decode_rows = msgpack_decoder(tuple[list[Row], bool]).decode
decode_hits = msgpack_decoder(tuple[list[Hit], bool]).decode
decode_names = msgpack_decoder(tuple[list[str], bool]).decode
decode_commits = msgpack_decoder(tuple[list[RawCommit], bool]).decode
decode_bytes = msgpack_decoder(bytes).decode
decode_flag = msgpack_decoder(bool).decode
decode_texts = msgpack_decoder(list[str]).decode
decode_problems = msgpack_decoder(list[Problem]).decode
decode_number = msgpack_decoder(int).decode


# What an engine hands out that is no struct

_HEAD_FIELDS = TenantHead.__slots__
#: `rows` stays with the manager.
_STREAM_FIELDS = tuple(name for name in Stream.__struct_fields__ if name not in ("rows", "id"))


def head_to_fields(head: TenantHead) -> list[Any]:
    return [getattr(head, name) for name in _HEAD_FIELDS]


def head_from_fields(tenant: str, fields: Sequence[Any]) -> TenantHead:
    head = TenantHead(tenant)
    for name, value in zip(_HEAD_FIELDS, fields, strict=True):
        setattr(head, name, value)
    return head


def stream_to_fields(stream: Stream | None) -> list[Any] | None:
    return None if stream is None else [getattr(stream, name) for name in _STREAM_FIELDS]


def stream_from_fields(fields: Sequence[Any] | None) -> Stream | None:
    if fields is None:
        return None
    stream = Stream(0, LOG, "", 0)
    for name, value in zip(_STREAM_FIELDS, fields, strict=True):
        setattr(stream, name, value)
    return stream
