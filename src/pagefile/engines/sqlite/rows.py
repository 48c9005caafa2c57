"""How records, streams, users and keys stand in the file, and are written and read back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import apsw
import msgspec

from pagefile.errors import Corrupt
from pagefile.store.codec.decoder import json_decoder
from pagefile.store.engine import DOCUMENT, LOG, RawCommit, Row, Stream
from pagefile.store.records import NO_MANIFEST, Action, Content, unpack

#: A number no record of a stream reaches.
MOST_RECORDS = 1 << 32
POSITION_BITS = 40
#: From a commit's id to those of records that do not begin one.
_FURTHER = 1 << 62

_COMMIT = (int, int, str, bytes, bytes)
_STREAM = (int, int, str, str, int, int, int, int, int)

_read_sources = json_decoder(tuple[str, ...]).decode


def fetch(connection: apsw.Connection, sql: str, *bindings: Any) -> list[Any]:
    """All rows of one statement; read to the end, or apsw would not finish it."""
    return connection.execute(sql, bindings).fetchall()


@contextmanager
def transaction(connection: apsw.Connection, begin: str = "BEGIN") -> Iterator[None]:
    """All or nothing of what is written, one snapshot of what is read."""
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # After a disk error SQLite has rolled back already, and a second time would fail.
        with suppress(apsw.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        raise


def commit_ids(tenant: int) -> tuple[int, int]:
    """The ids of a tenant's commits; the first is position 0, which never exists."""
    base = tenant << POSITION_BITS
    return base, base + (1 << POSITION_BITS) - 1


def further_ids(tenant: int) -> tuple[int, int]:
    """The ids of a tenant's records that do not begin their commit."""
    low, high = commit_ids(tenant)
    return low - _FURTHER, high - _FURTHER


#: A key space is this many times the number of what it is of, and one of these.
SPACES = 4
LOG_SPACE, USER_SPACE, TENANT_SPACE = 0, 1, 2


def space_of_log(stream_id: int) -> int:
    """The key space of one log's entries."""
    return stream_id * SPACES + LOG_SPACE


def space_of_user(partition: int) -> int:
    """The key space of one user's documents."""
    return partition * SPACES + USER_SPACE


def space_of_tenant(tenant: int) -> int:
    """The key space of what the whole tenant finds."""
    return tenant * SPACES + TENANT_SPACE


class UserGone(LookupError):
    """The user behind a partition was erased since the record was read."""


def row_from(columns: tuple[Any, ...], user_of: Callable[[int], str | None]) -> Row:
    """A record from its columns, in the order of the query `rows`.

    Raises:
        Corrupt: the columns cannot be what was stored.
    """
    number, position, ordinal, time_us, action = columns[:5]
    # One by one: each of the shorter ways to say it takes twice as long, for every row read.
    if not (
        type(number) is int
        and type(position) is int
        and type(ordinal) is int
        and type(time_us) is int
        and type(action) is int
    ):
        raise damaged(columns, "its place is no number")
    salt = columns[14]
    if salt is None:  # The salt goes with the content.
        return Row(number, position, ordinal, time_us, action, None)
    kind, actor, type_name, body = columns[6], columns[7], columns[12], columns[13]
    if not (
        type(kind) is str
        and type(actor) is str
        and type(type_name) is str
        and type(body) is bytes
        and type(salt) is bytes
    ):
        raise damaged(columns, "part of its content is gone")
    sources = columns[8]
    try:
        user = user_of(columns[5])
    except UserGone:
        return Row(number, position, ordinal, time_us, action, None)
    content = Content(
        action,
        user,
        kind,
        actor,
        () if sources is None else _sources(columns),
        columns[9] or b"",
        columns[10] or b"",
        columns[11] or b"",
        type_name,
        body,
        salt,
    )
    return Row(number, position, ordinal, time_us, action, content)


def _sources(columns: tuple[Any, ...]) -> tuple[str, ...]:
    try:
        return _read_sources(columns[8])
    except (msgspec.DecodeError, TypeError) as error:
        raise damaged(columns, f"its sources are no list ({error})") from error


def damaged(columns: tuple[Any, ...], how: str) -> Corrupt:
    """The error for a record that cannot be read."""
    return broken(f"the record at position {columns[1]!r}", how)


def broken(what: str, how: str) -> Corrupt:
    """The error for anything that cannot be read."""
    return Corrupt(
        f"{what} is damaged: {how}", "run `verify` to see how far it goes, then restore a copy"
    )


def commit_from(columns: tuple[Any, ...]) -> RawCommit:
    """A commit from its columns, in the order of the query `commits`.

    Raises:
        Corrupt: the columns cannot be what was stored.
    """
    if tuple(map(type, columns)) != _COMMIT:
        raise broken(f"the commit at position {columns[0]!r}", "part of it is gone")
    return RawCommit(*columns)


def last_from(columns: tuple[Any, ...]) -> tuple[int, int, bytes]:
    """The end of a tenant's commit log, in the order of the query `last_commit`.

    Raises:
        Corrupt: the columns cannot be what was stored.
    """
    position, time_us, digest = columns
    if type(digest) is not bytes or type(position) is not int or type(time_us) is not int:
        raise broken(f"the commit at position {position!r}", "part of it is gone")
    return position, time_us, digest


def require_numbers(what: str, *values: object) -> None:
    """Refuse what was stored as a number and is none.

    Raises:
        Corrupt: it cannot be what was stored.
    """
    if not all(type(value) is int for value in values):
        raise broken(what, "a number of it is none")


def user_from(value: object) -> str | None:
    """The user behind a partition.

    Raises:
        Corrupt: it cannot be what was stored.
    """
    if value is not None and type(value) is not str:
        raise broken("the name of a user", "it is no text")
    return value


def stream_from(columns: tuple[Any, ...]) -> Stream:
    """A stream from its columns and those of its last record.

    Raises:
        Corrupt: the columns cannot be what was stored.
    """
    salt = columns[9]
    if (
        tuple(map(type, columns[:9])) != _STREAM
        or columns[2] not in (LOG, DOCUMENT)
        or not (salt is None or type(salt) is bytes)
    ):
        raise broken(f"stream {columns[1]!r}", "part of it is gone")
    # Whoever follows forks to their bases would never come to an end.
    if not 0 <= columns[4] < max(columns[1], 1):
        raise broken(f"stream {columns[1]}", f"it is no fork of {columns[4]}")
    stream = Stream(columns[1], columns[2], columns[3], columns[6])
    stream.id, stream.base, stream.base_at = columns[0], columns[4], columns[5]
    stream.dropped, stream.pruned, stream.salt = columns[7], columns[8], salt or b""
    if stream.base:
        stream.first = stream.base_at
    number, action = columns[10:]
    if number is not None:
        require_numbers(f"the end of stream {stream.oid}", number)
        stream.length = number + (stream.kind == LOG)
        stream.deleted = action == Action.DELETE
    # The last record is not always the last number: a log pruned to its end
    # may still hold older ones that a fork shares.
    stream.length = max(stream.length, stream.base_at, stream.pruned)
    return stream


class News(NamedTuple):
    """What some commits did, where all they did was to add records."""

    #: The new length of each log that was appended to.
    lengths: dict[int, int]
    #: Documents with a new version, to be looked at again.
    changed: set[int]
    #: The newest stream that was written to.
    newest: int


def news_of(commits: Sequence[RawCommit]) -> News | None:
    """What they did; None when more than adding, or when it cannot be read."""
    lengths: dict[int, int] = {}
    changed: set[int] = set()
    try:
        for commit in commits:
            for entry in unpack(commit.manifest):
                action, oid, number = int(entry[0]), int(entry[1]), int(entry[2])
                if action == Action.APPEND:
                    lengths[oid] = number + 1
                elif action == Action.PUT:
                    changed.add(oid)
                else:
                    return None
    except (*NO_MANIFEST, IndexError, ValueError):
        return None
    return News(lengths, changed, max((*lengths, *changed), default=0))
