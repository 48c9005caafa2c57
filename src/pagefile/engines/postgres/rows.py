"""Rows and streams read back from their columns, and values in the binary form they are sent in."""

from __future__ import annotations

import struct
import sys
from typing import Any

import msgspec
from psycopg.adapt import Buffer, Dumper
from psycopg.pq import Format

from pagefile.errors import Corrupt
from pagefile.store.codec.decoder import json_decoder
from pagefile.store.codec.vector import floats_of
from pagefile.store.engine import LOG, IndexKey, Row, Stream, TenantHead
from pagefile.store.records import Action, Content

#: A number no record of a stream reaches.
MOST_RECORDS = 1 << 32
#: Where keys of the whole tenant are.
TENANT_SPACE = 2

_read_sources = json_decoder(tuple[str, ...]).decode


def space_of_log(oid: int) -> int:
    """The key space of one log's entries."""
    return oid * 4


def space_of_user(number: int) -> int:
    """The key space of one user's documents."""
    return number * 4 + 1


def space_for(key: IndexKey, oid: int, user: int) -> int:
    """Where a key of a record belongs."""
    if key.scope == "log":
        return space_of_log(oid)
    return space_of_user(user) if key.scope == "user" else TENANT_SPACE


def row_from(columns: tuple[Any, ...]) -> Row:
    """A record from its columns, in the order of the query `rows`.

    Raises:
        Corrupt: the columns cannot be what was stored.
    """
    number, position, ordinal, time_us, action, user, kind, actor, sources = columns[:9]
    if columns[14] is None:  # The salt goes with the content.
        return Row(number, position, ordinal, time_us, action, None)
    if None in columns[6:15]:
        raise _damaged(position, "part of its content is gone")
    try:
        read = _read_sources(sources) if sources else ()
    except msgspec.DecodeError as error:
        raise _damaged(position, f"its sources are no list ({error})") from error
    content = Content(action, user, kind, actor, read, *columns[9:12], *columns[12:15])
    return Row(number, position, ordinal, time_us, action, content)


def _damaged(position: int, how: str) -> Corrupt:
    return Corrupt(
        f"the record at position {position} is damaged: {how}",
        "run `verify` to see how far it goes, then restore a copy",
    )


def stream_from(columns: tuple[Any, ...]) -> Stream:
    """A stream from its columns and its last record's."""
    stream = Stream(columns[0], columns[1], columns[2], columns[5])
    stream.base, stream.base_at = columns[3], columns[4]
    stream.dropped, stream.pruned, stream.salt = columns[6:9]
    if stream.base:
        stream.first = stream.base_at
    number, action = columns[9:11]
    if number is not None:
        stream.length = number + (stream.kind == LOG)
        stream.deleted = action == Action.DELETE
    # The last record is not always the last number: a log pruned to its end
    # may still hold older ones that a fork shares.
    stream.length = max(stream.length, stream.base_at, stream.pruned)
    return stream


def fill_head(head: TenantHead, columns: tuple[Any, ...]) -> None:
    """The moving end of a tenant, from the query `head`."""
    _, head.logs, head.documents, head.last_erase = columns[:4]
    if columns[6] is not None:
        head.position, head.time_us, head.digest = columns[6:9]
    head.oid = columns[9] or 0


#: How many numbers, and a word that is not used; the numbers follow, all big endian.
_HEAD = struct.Struct(">HH")
#: One dimension, no NULL, items of bigint; then how many, counted from 1.
_ARRAY = struct.Struct(">iiIii")
_BIGINT, _BIGINTS = 20, 1016


class Embedding:
    """The numbers of a vector on their way to the server, in the form pgvector receives."""

    __slots__ = ("raw",)

    def __init__(self, numbers: bytes) -> None:
        values = floats_of(numbers)
        if sys.byteorder == "little":
            values.byteswap()
        self.raw = _HEAD.pack(len(values), 0) + values.tobytes()


class EmbeddingDumper(Dumper):
    """Binary, and of no type of its own: the statement says which."""

    format = Format.BINARY
    oid = 0

    def dump(self, obj: Embedding) -> Buffer | None:
        return obj.raw


class Bigints:
    """Whole numbers as one array of bigint."""

    __slots__ = ("raw",)

    def __init__(self, numbers: tuple[int, ...]) -> None:
        count = len(numbers)
        items = struct.pack(">" + "iq" * count, *(part for n in numbers for part in (8, n)))
        # An empty array has no dimension.
        head = (1, 0, _BIGINT, count, 1)
        self.raw = _ARRAY.pack(*head) + items if count else struct.pack(">iiI", 0, 0, _BIGINT)


class BigintsDumper(Dumper):
    """bigint[], whatever the statement says."""

    format = Format.BINARY
    oid = _BIGINTS

    def dump(self, obj: Bigints) -> Buffer | None:
        return obj.raw
