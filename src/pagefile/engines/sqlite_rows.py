"""How records, streams and key spaces are numbered in the file, and rows read back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import apsw
import msgspec

from pagefile.content import Action, Content
from pagefile.engine import LOG, Row, Stream
from pagefile.errors import Corrupt
from pagefile.typed import json_decoder

#: A number no record of a stream reaches.
MOST_RECORDS = 1 << 32
POSITION_BITS = 40
#: From a commit's id to those of records that do not begin one.
_FURTHER = 1 << 62

_read_sources = json_decoder(tuple[str, ...]).decode


def fetch(connection: apsw.Connection, sql: str, *bindings: Any) -> list[Any]:
    """All rows of one statement; read to the end, or apsw would not finish it."""
    return connection.execute(sql, bindings).fetchall()


def commit_ids(tenant: int) -> tuple[int, int]:
    """The ids of a tenant's commits; the first is position 0, which never exists."""
    base = tenant << POSITION_BITS
    return base, base + (1 << POSITION_BITS) - 1


def further_ids(tenant: int) -> tuple[int, int]:
    """The ids of a tenant's records that do not begin their commit."""
    low, high = commit_ids(tenant)
    return low - _FURTHER, high - _FURTHER


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
    """A record from its columns, in the order of the query `rows`.

    Raises:
        Corrupt: the columns cannot be what was stored.
    """
    number = columns[0]
    if columns[14] is None:  # The salt goes with the content.
        return Row(number, columns[1], columns[2], columns[3], columns[4], None)
    if None in (columns[6], columns[7], columns[12], columns[13]):
        raise damaged(columns, "part of its content is gone")
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
        () if sources is None else _sources(columns),
        columns[9] or b"",
        columns[10] or b"",
        columns[11] or b"",
        columns[12],
        columns[13],
        columns[14],
    )
    return Row(number, columns[1], columns[2], columns[3], columns[4], content)


def _sources(columns: tuple[Any, ...]) -> tuple[str, ...]:
    try:
        return _read_sources(columns[8])
    except msgspec.DecodeError as error:
        raise damaged(columns, f"its sources are no list ({error})") from error


def damaged(columns: tuple[Any, ...], how: str) -> Corrupt:
    """The error for a record that cannot be read."""
    return Corrupt(
        f"the record at position {columns[1]} is damaged: {how}",
        "run `verify` to see how far it goes, then restore a copy",
    )


def stream_from(
    columns: tuple[Any, ...], connection: apsw.Connection, sql: dict[str, str]
) -> Stream:
    """A stream from its columns and its last record."""
    stream = Stream(columns[1], columns[2], columns[3], columns[6])
    stream.id, stream.base, stream.base_at = columns[0], columns[4], columns[5]
    stream.dropped, stream.pruned, stream.salt = columns[7], columns[8], columns[9] or b""
    if stream.base:
        stream.first = stream.base_at
    end = fetch(connection, sql["stream_end"], stream.id)
    if end:
        number, action = end[0]
        stream.length = number + (stream.kind == LOG)
        stream.deleted = action == Action.DELETE
    # The last record is not always the last number: a log pruned to its end
    # may still hold older ones that a fork shares.
    stream.length = max(stream.length, stream.base_at, stream.pruned)
    return stream
