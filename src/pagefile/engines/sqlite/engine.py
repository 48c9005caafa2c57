"""The SQLite engine: one file, many processes, durable to a power cut."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import apsw
import msgspec

from pagefile.engines.common import load_queries
from pagefile.engines.sqlite.file import SqliteFile
from pagefile.engines.sqlite.poller import Watch
from pagefile.engines.sqlite.rows import (
    MOST_RECORDS,
    UserGone,
    broken,
    commit_from,
    commit_ids,
    fetch,
    further_ids,
    last_from,
    require_numbers,
    row_from,
    space_of_log,
    space_of_tenant,
    space_of_user,
    stream_from,
    transaction,
    user_from,
)
from pagefile.engines.sqlite.writer import SqliteWriter
from pagefile.errors import Corrupt, PagefileError
from pagefile.store.engine import (
    DOCUMENT,
    Hit,
    KeyRange,
    Lone,
    Prepared,
    RawCommit,
    Row,
    Sealed,
    Stream,
    TenantHead,
    index_keys,
)
from pagefile.store.records import Durability, Erasure, Problem, StreamKind

#: How SQLite mentions a page that it could not get, and why.
_ERROR_CODE = re.compile(r"error code=(\d+)")
_COUNTED = (
    ("records_astray", "records stand where they do not belong"),
    ("records_elsewhere", "records are numbered as another tenant's"),
    ("users_astray", "records have no user of this tenant"),
    ("holdings_wrong", "notes on which user has records where are wrong"),
    ("used_keys_wrong", "idempotency keys are missing or invented"),
)


def examine(connection: apsw.Connection, sql: dict[str, str], tenant: str) -> Iterator[Problem]:
    """Everything wrong with one tenant's part of the file, and with the file as such."""
    for (line,) in fetch(connection, "PRAGMA integrity_check(20)"):
        if (failed := _ERROR_CODE.search(line)) and int(failed[1]) & 0xFF == apsw.SQLITE_IOERR:
            raise apsw.exception_for(int(failed[1]))  # The disk's answer: nothing is known of it.
        if line != "ok":
            yield Problem(None, f"SQLite finds: {line}")
    homeless = fetch(connection, sql["records_homeless"])[0][0]
    if homeless:
        yield Problem(None, f"{homeless} logs, documents or records belong to no tenant")
    found = fetch(connection, sql["tenant_by_name"], tenant)
    if not found:
        return
    number, logs, documents = found[0][:3]
    names = ("tenant", "first", "last", "further_first", "further_last")
    numbers = (number, *commit_ids(number), *further_ids(number))
    places = dict(zip(names, numbers, strict=True))
    for query, what in _COUNTED:
        count = connection.execute(sql[query], places).fetchall()[0][0]
        if count:
            yield Problem(None, f"{count} {what}")
    for query, noted in (("living_logs", logs), ("living_documents", documents)):
        counted = fetch(connection, sql[query], number)[0][0]
        if counted != noted:
            yield Problem(None, f"{query}: {counted} counted, {noted} noted")
    yield from _wrong_keys(connection, sql, number)


def _wrong_keys(connection: apsw.Connection, sql: dict[str, str], tenant: int) -> Iterator[Problem]:
    """Every key that should be there is, and there are no others: the numbers agree."""
    expected = 0
    for columns in connection.execute(sql["keyed_records"], (tenant,)):
        position, ordinal = columns[1:3]
        record, stream, kind, until = columns[15:19]
        try:
            content = row_from(columns, lambda _: None).content
            keys = index_keys(kind, content) if content is not None else []
            spaces = {
                "log": space_of_log(stream),
                "user": space_of_user(columns[5]),
                "tenant": space_of_tenant(tenant),
            }
        except (PagefileError, TypeError) as unreadable:
            where = position if type(position) is int else None
            yield Problem(where, f"the keys of record {record} cannot be read: {unreadable}")
            continue
        for key in keys:
            expected += 1
            place: tuple[object, ...] = (spaces[key.scope], key.field, key.value)
            query = "has_key"
            if kind == DOCUMENT and until is not None:
                query, place = "has_past_key", (*place, until)
            try:
                found = fetch(connection, sql[query], *place, position, ordinal, record)[0][0]
            except OverflowError:  # No space of keys has such a number.
                found = 0
            if not found:
                yield Problem(position, f"key {key.field!r} does not lead to its record")
    found = fetch(connection, sql["all_keys"], tenant)[0][0]
    if found > expected:
        yield Problem(None, f"{found - expected} keys lead to no record of theirs")


_LAST_CHARACTER = "\U0010ffff"
_MOST_CACHED_USERS = 100_000


class SqliteEngine:
    """All tenants of one file."""

    name: ClassVar[str] = "sqlite"
    promises: ClassVar[frozenset[str]] = frozenset(f"S{n}" for n in range(1, 12))
    levels: ClassVar[tuple[Durability, ...]] = ("power", "process")
    erasure: ClassVar[Erasure] = "bytes"
    instant: ClassVar[bool] = False
    shared: ClassVar[bool] = True

    def __init__(
        self,
        path: Path,
        *,
        clock: Callable[[], int],
        key_lifetime_us: int,
        durability: Durability = "power",
        lock_seconds: float = 30.0,
        vfs: str | None = None,
    ) -> None:
        self._sql = load_queries("sqlite")
        self._file = SqliteFile(path, durability, vfs=vfs, lock_seconds=lock_seconds)
        self.durability: Durability = durability
        self._watch = Watch(self._file)
        self._writer = SqliteWriter(self._file, self._watch, self._sql, clock, key_lifetime_us)
        self._users: dict[int, str | None] = {}
        self._tenant_numbers: dict[str, int] = {}

    def apply(self, items: Sequence[tuple[str, Prepared]]) -> list[Sealed | PagefileError]:
        return self._writer.apply(items)

    def apply_lone(self, tenant: str, one: Lone) -> Sealed:
        return self._writer.apply_lone(tenant, one)

    def tenants(self) -> list[str]:
        """Names of all tenants; for the admin handle only."""
        return [name for (name,) in self._file.read(self._sql["tenant_names"], ())]

    def head(self, tenant: str) -> TenantHead:
        head = TenantHead(tenant)
        # One transaction: the counters and the last commit belong together.
        with self._file.reader() as connection, transaction(connection):
            found = fetch(connection, self._sql["tenant_by_name"], tenant)
            if not found:
                return head
            require_numbers(f"tenant {tenant!r}", *found[0])
            number, head.logs, head.documents, head.last_erase, _ = found[0]
            low, high = commit_ids(number)
            last = fetch(connection, self._sql["last_commit"], low, high)
            head.oid = fetch(connection, self._sql["last_oid"], number)[0][0] or 0
            require_numbers(f"the last stream of tenant {tenant!r}", head.oid)
        if last:
            head.position, head.time_us, head.digest = last_from(last[0])
        return head

    def stamp(self, tenant: str) -> int:
        return self._file.stamp()

    def stream(
        self, tenant: str, kind: StreamKind, name: str, at: int | None = None
    ) -> Stream | None:
        query = "stream_by_name" if at is None else "stream_by_name_at"
        return self._one_stream(tenant, query, (kind, name, *(() if at is None else (at,))))

    def stream_number(self, tenant: str, oid: int) -> Stream | None:
        return self._one_stream(tenant, "stream_by_oid", (oid,))

    def _one_stream(self, tenant: str, query: str, rest: tuple[Any, ...]) -> Stream | None:
        number = self._tenant_number(tenant)
        if number is None:
            return None
        with self._file.reader() as connection:
            found = fetch(connection, self._sql[query], number, *rest)
            return stream_from(found[0], connection, self._sql) if found else None

    def _tenant_number(self, tenant: str) -> int | None:
        number = self._tenant_numbers.get(tenant)
        if number is None:
            found = self._file.read(self._sql["tenant_by_name"], (tenant,))
            if found:
                if len(self._tenant_numbers) >= _MOST_CACHED_USERS:
                    self._tenant_numbers.clear()
                # A tenant keeps its number for ever, so it is looked up once.
                number = self._tenant_numbers[tenant] = int(found[0][0])
        return number

    def current(self, tenant: str, names: Sequence[str]) -> list[Row | None]:
        number = self._tenant_number(tenant)
        if number is None:
            return [None] * len(names)
        if len(names) == 1:
            found = self._file.read(self._sql["current_row"], (number, names[0]))
            return [self._row(found[0]) if found else None]
        # One statement: one snapshot, and its lock is taken once instead of once a name.
        asked = msgspec.json.encode(names).decode()
        found = self._file.read(self._sql["current_rows"], (number, asked))
        rows: list[Row | None] = [None] * len(names)
        for place, *columns in found:
            rows[place] = self._row(tuple(columns))
        return rows

    def rows(self, tenant: str, stream: Stream, first: int, last: int, limit: int) -> list[Row]:
        if last < first or last < 0:
            return []
        place = (stream.id, max(first, 0), min(last, MOST_RECORDS))
        if limit < 0:
            found = self._file.read(self._sql["rows_from_end"], (*place, -limit))
            found.reverse()
        else:
            found = self._file.read(self._sql["rows"], (*place, limit))
        return [self._row(columns) for columns in found]

    def _row(self, columns: tuple[Any, ...]) -> Row:
        return row_from(columns, self._user)

    def _user(self, partition: int) -> str | None:
        try:
            return self._users[partition]
        except KeyError:
            if len(self._users) >= _MOST_CACHED_USERS:
                self._users.clear()
            found = self._file.read(self._sql["partition_user"], (partition,))
            if not found:
                # Erased between the two reads: the record is, by now, too.
                raise UserGone from None
            user = self._users[partition] = user_from(found[0][0])
            return user

    def find(self, tenant: str, span: KeyRange, limit: int, at: int | None) -> list[Hit]:
        space = self._space(tenant, span)
        if space is None:
            return []
        if span.after is not None:
            after = span.after
        else:
            after = (b"\xff\xff", 0, 0) if span.reverse else (b"", -1, -1)
        below = span.below if span.below is not None else MOST_RECORDS
        bindings: tuple[Any, ...] = (
            space,
            span.field,
            span.low,
            span.high,
            *after,
            span.above,
            below,
            limit,
        )
        name = "find_back" if span.reverse else "find"
        if at is not None:
            name, bindings = name + "_at", (*bindings, at)
        found = self._file.read(self._sql[name], bindings)
        hits = [Hit(columns[0], columns[1], self._row(columns[2:])) for columns in found]
        if not all(type(hit.value) is bytes and type(hit.oid) is int for hit in hits):
            raise broken(f"the index of {span.field!r}", "a key in it is none")
        return hits

    def _space(self, tenant: str, span: KeyRange) -> int | None:
        number = self._tenant_number(tenant)
        if number is None:
            return None
        if span.scope == "tenant":
            return space_of_tenant(number)
        if span.scope == "log":
            found = self._file.read(self._sql["stream_by_oid"], (number, span.owner))
            return space_of_log(found[0][0]) if found else None
        found = self._file.read(self._sql["partition"], (number, span.owner))
        return space_of_user(found[0][0]) if found else None

    def names(
        self, tenant: str, kind: StreamKind, prefix: str, after: str, limit: int
    ) -> list[str]:
        number = self._tenant_number(tenant)
        bounds = (number, kind, prefix, after, _after_prefix(prefix), limit)
        found = [name for (name,) in self._file.read(self._sql["names"], bounds)]
        if not all(type(name) is str for name in found):
            raise broken(f"the name of a {kind}", "it is no text")
        return found

    def commits(self, tenant: str, since: int, limit: int) -> list[RawCommit]:
        number = self._tenant_number(tenant)
        if number is None:
            return []
        low, high = commit_ids(number)
        found = self._file.read(self._sql["commits"], (low + since + 1, high, limit))
        return [commit_from(columns) for columns in found]

    def wait(self, tenant: str, position: int, timeout: float) -> bool:
        return self._watch.until(lambda: self.head(tenant).position >= position, timeout)

    def owes(self, tenant: str) -> bool:
        found = self._file.read(self._sql["traces"], (tenant,))
        return bool(found and found[0][0])

    def scrub(self, tenant: str, timeout: float) -> tuple[str, ...]:
        try:
            # Before: what is removed while the file is being written again is for the next time.
            owed = self._file.read(self._sql["all_traces"], ())
            if self._file.rewrite(timeout, self._sql["clear_traces"], owed):
                return ()
            reason = "another reader or writer is in the way"
        except PagefileError as failure:
            # The erasure itself is committed; only its last step is still to do.
            reason = failure.fact
        return (
            f"old pages of {self._file.path} and its journal are not overwritten yet "
            f"({reason}): the next erase does it",
        )

    def check(self, tenant: str) -> list[Problem]:
        problems: list[Problem] = []
        try:
            with self._file.reader() as connection, transaction(connection):
                problems.extend(examine(connection, self._sql, tenant))
        except Corrupt as damage:
            # What was found before it stays.
            problems.append(Problem(None, f"it could not be examined any further: {damage.fact}"))
        return problems

    def size_bytes(self) -> int:
        return self._file.size_bytes()

    def close(self) -> None:
        self._watch.close()
        self._file.close()


def _after_prefix(prefix: str) -> str | bytes:
    """What sorts just behind everything that begins with the prefix."""
    stem = prefix.rstrip(_LAST_CHARACTER)
    if not stem:
        return b""  # In SQLite every blob sorts behind every text: no bound at all.
    code = ord(stem[-1]) + 1
    return stem[:-1] + chr(0xE000 if code == 0xD800 else code)
