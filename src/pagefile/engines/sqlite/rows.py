"""How records, streams, users and keys stand in the file, and are written and read back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import apsw
import msgspec

from pagefile.errors import Corrupt
from pagefile.store.codec.decoder import json_decoder
from pagefile.store.engine import DOCUMENT, LOG, IndexKey, RawCommit, Row, Scope, Stream, index_keys
from pagefile.store.records import Action, Content

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


def stream_from(
    columns: tuple[Any, ...], connection: apsw.Connection, sql: dict[str, str]
) -> Stream:
    """A stream from its columns and its last record.

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
    end = fetch(connection, sql["stream_end"], stream.id)
    if end:
        number, action = end[0]
        require_numbers(f"the end of stream {stream.oid}", number)
        stream.length = number + (stream.kind == LOG)
        stream.deleted = action == Action.DELETE
    # The last record is not always the last number: a log pruned to its end
    # may still hold older ones that a fork shares.
    stream.length = max(stream.length, stream.base_at, stream.pruned)
    return stream


def columns_of(content: Content) -> tuple[Any, ...]:
    """The last columns of a record, from `kind` on."""
    return (
        content.kind,
        content.actor,
        msgspec.json.encode(content.sources).decode() if content.sources else None,
        content.keys or None,
        content.tenant_keys or None,
        content.notes or None,
        content.type_name,
        content.salt,
        content.body,
    )


def emptied(record: int, stream_id: int, row: Row) -> list[Any]:
    """The columns of a record whose content is gone."""
    place = [record, stream_id, row.number, row.position, row.ordinal, row.time_us, row.action]
    return place + [None] * 13


class Users:
    """What a write transaction knows of a tenant's users; None stands for nobody."""

    def __init__(self, writer: apsw.Connection, sql: dict[str, str]) -> None:
        self._writer = writer
        self._sql = sql
        #: The tenant's number, or 0 before its first commit.
        self.tenant = 0
        #: Partition numbers looked up so far.
        self.known: dict[str | None, int] = {}
        #: (partition, stream id) of which the file knows, or will with `new_holdings`.
        self.held: set[tuple[int, int]] = set()
        self.new_holdings: list[tuple[int, int]] = []
        self._names: dict[int, str | None] = {}

    def __len__(self) -> int:
        return len(self.known) + len(self.held) + len(self._names)

    def _all(self, query: str, *bindings: Any) -> list[Any]:
        return fetch(self._writer, self._sql[query], *bindings)

    def find(self, user: str | None) -> int | None:
        """The user's partition, if there is one."""
        partition = self.known.get(user)
        if partition is None:
            found = self._all("partition", self.tenant, user)
            if not found:
                return None
            partition = self.known[user] = found[0][0]
        return partition

    def number(self, user: str | None) -> int:
        """The user's partition, made if need be."""
        partition = self.find(user)
        if partition is None:
            partition = self.known[user] = self._all("add_partition", self.tenant, user)[0][0]
        return partition

    def name(self, partition: int) -> str | None:
        """The user behind a partition."""
        if partition not in self._names:
            found = self._all("partition_user", partition)
            if not found:
                raise UserGone
            self._names[partition] = user_from(found[0][0])
        return self._names[partition]

    def hold(self, partition: int, stream_id: int) -> None:
        """Note that the user has a record in the stream."""
        self.new_holdings.append((partition, stream_id))
        self.held.add((partition, stream_id))

    def release(self, stream_id: int, users: Iterable[str | None]) -> None:
        """Forget those of the users who have no record left in the stream, or anywhere.

        The file must know of all holdings.
        """
        assert not self.new_holdings
        for user in users:
            partition = self.number(user)
            if not self._all("still_holds", stream_id, partition)[0][0]:
                self._all("remove_holding", partition, stream_id)
                self.held.discard((partition, stream_id))
                self._all("forget_partition", partition)
                del self.known[user]


class KeyIndex:
    """Counts, retires and removes keys. Reads the file, so what was collected goes in first."""

    def __init__(self, writer: apsw.Connection, sql: dict[str, str], users: Users) -> None:
        self._writer = writer
        self._sql = sql
        self._users = users
        #: Documents' versions of the commit under way: stream id to row, partition, record id.
        self.open_versions: dict[int, tuple[Row, int, int]] = {}

    def _all(self, query: str, *bindings: Any) -> list[Any]:
        return fetch(self._writer, self._sql[query], *bindings)

    def count(self, key: IndexKey, user: str | None, most: int) -> int:
        """How many records the key finds now, at most `most`."""
        space = self._space(key, user)
        if space is None:
            return 0
        return int(self._all("count_key", space, key.field, key.value, most)[0][0])

    def last_change(self, key: IndexKey, user: str | None) -> int:
        """The last position that changed what the key finds."""
        space = self._space(key, user)
        if space is None:
            return 0
        return int(self._all("last_key_change", space, key.field, key.value)[0][0])

    def _space(self, key: IndexKey, user: str | None) -> int | None:
        if key.scope == "tenant":
            return space_of_tenant(self._users.tenant)
        partition = self._users.find(user)
        return None if partition is None else space_of_user(partition)

    def spaces(self, stream_id: int, partition: int) -> dict[Scope, int]:
        """Where keys of a record in the stream belong, by their scope."""
        return {
            "log": space_of_log(stream_id),
            "user": space_of_user(partition),
            "tenant": space_of_tenant(self._users.tenant),
        }

    def retire(self, stream: Stream, version: int, until: int) -> None:
        """The keys of the version that `until` replaces lead to it only in the past."""
        if stream.id in self.open_versions:
            row, partition, record = self.open_versions[stream.id]
        else:
            found = self._all("rows", stream.id, version, version, 1)
            if not found:
                return
            row = row_from(found[0], self._users.name)
            partition, record = found[0][5], found[0][15]
        if row.content is None:
            return
        spaces = self.spaces(stream.id, partition)
        for key in index_keys(stream.kind, row.content):
            place = (spaces[key.scope], key.field, key.value)
            self._all("remove_key", *place, row.position, row.ordinal)
            self._all("add_past_key", *place, until, row.position, row.ordinal, record)

    def remove(self, stream: Stream, rows: Sequence[Row]) -> None:
        """The rows' keys lead nowhere any more, in the present and in the past."""
        for row in rows:
            if row.content is None or not (row.content.keys or row.content.tenant_keys):
                continue
            partition = self._users.number(row.content.user)
            until = 0
            if stream.kind == DOCUMENT and row.number < stream.length:
                until = self._all("next_position", stream.id, row.number + 1)[0][0]
            spaces = self.spaces(stream.id, partition)
            for key in index_keys(stream.kind, row.content):
                place = (spaces[key.scope], key.field, key.value)
                self._all("remove_key", *place, row.position, row.ordinal)
                if until:
                    self._all("remove_past_key", *place, until, row.position, row.ordinal)
