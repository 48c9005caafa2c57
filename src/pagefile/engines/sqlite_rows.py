"""How records, streams and key spaces are numbered in the file, and rows read back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apsw
import msgspec

from pagefile.content import Action, Content
from pagefile.engine import LOG, Row, Stream

NUMBER_BITS = 32
LOW_32 = (1 << NUMBER_BITS) - 1
POSITION_BITS = 40

_read_sources = msgspec.json.Decoder(tuple[str, ...]).decode


def fetch(connection: apsw.Connection, sql: str, *bindings: Any) -> list[Any]:
    """All rows of one statement; read to the end, or apsw would not finish it."""
    return connection.execute(sql, bindings).fetchall()


def record_ids(stream_id: int, first: int = 0, last: int = LOW_32) -> tuple[int, int]:
    """The ids of a stream's records numbered first … last."""
    base = stream_id << NUMBER_BITS
    return base + first, base + last


def commit_ids(tenant: int) -> tuple[int, int]:
    """The ids of a tenant's commits; the first is position 0, which never exists."""
    base = tenant << POSITION_BITS
    return base, base + (1 << POSITION_BITS) - 1


def space_of_log(stream_id: int) -> int:
    """The key space of one log's entries."""
    return stream_id * 4


def space_of_user(partition: int) -> int:
    """The key space of one user's documents."""
    return partition * 4 + 1


def space_of_tenant(tenant: int) -> int:
    """The key space of what the whole tenant finds."""
    return tenant * 4 + 2


class UserGone(LookupError):
    """The user behind a partition was erased since the record was read."""


def row_from(columns: tuple[Any, ...], user_of: Callable[[int], str | None]) -> Row:
    """A record from its columns, in the order of the query `rows`."""
    number = columns[0] & LOW_32
    if columns[13] is None:  # The salt goes with the content.
        return Row(number, columns[1], columns[2], columns[3], columns[4], None)
    sources = columns[8]
    try:
        user = user_of(columns[5])
    except UserGone:
        return Row(number, columns[1], columns[2], columns[3], columns[4], None)
    content = Content(
        columns[4],
        user,
        columns[6],
        columns[7],
        () if sources is None else _read_sources(sources),
        columns[9] or b"",
        columns[10] or b"",
        columns[11],
        columns[12],
        columns[13],
    )
    return Row(number, columns[1], columns[2], columns[3], columns[4], content)


def stream_from(
    columns: tuple[Any, ...], connection: apsw.Connection, sql: dict[str, str]
) -> Stream:
    """A stream from its columns and its last record."""
    stream = Stream(columns[1], columns[2], columns[3], columns[6])
    stream.id, stream.base, stream.base_at = columns[0], columns[4], columns[5]
    stream.dropped, stream.pruned, stream.salt = columns[7], columns[8], columns[9] or b""
    if stream.base:
        stream.first = stream.base_at
    end = fetch(connection, sql["stream_end"], *record_ids(stream.id))
    if end:
        number, action = end[0]
        stream.length = number + (stream.kind == LOG)
        stream.deleted = action == Action.DELETE
    # The last record is not always the last number: a log pruned to its end
    # may still hold older ones that a fork shares.
    stream.length = max(stream.length, stream.base_at, stream.pruned)
    return stream
