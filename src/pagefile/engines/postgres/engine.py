"""The PostgreSQL engine: many machines, one server, durable to a power cut."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from pagefile.engines.common import load_queries
from pagefile.engines.postgres.connection import Link, Session, address_of, whole
from pagefile.engines.postgres.notifications import Watch
from pagefile.engines.postgres.rows import (
    MOST_RECORDS,
    TENANT_SPACE,
    fill_head,
    row_from,
    space_for,
    space_of_log,
    space_of_user,
    stream_from,
)
from pagefile.engines.postgres.schema import prepare_format
from pagefile.engines.postgres.vectors import VectorTable
from pagefile.engines.postgres.writer import Writer
from pagefile.errors import PagefileError
from pagefile.store.batch import Vector
from pagefile.store.engine import (
    DOCUMENT,
    Hit,
    KeyRange,
    Near,
    Prepared,
    RawCommit,
    Row,
    Sealed,
    Stream,
    TenantHead,
    index_keys,
)
from pagefile.store.records import Durability, Erasure, Problem, StreamKind

_COUNTED = (
    ("records_astray", "records stand where they do not belong"),
    ("gaps", "positions have no commit"),
    ("holdings_wrong", "notes on which user has records where are wrong"),
    ("used_keys_wrong", "idempotency keys are missing or invented"),
)


#: Only where the table is there.
_VECTORS = (("vectors_astray", "vectors have no entry"),)


def examine(session: Session, tenant: str, *, vectors: bool = False) -> Iterator[Problem]:
    """Everything wrong with one tenant's rows; inside one snapshot."""
    found = session.fetch("head", tenant)
    if not found:
        return
    number, logs, documents = found[0][:3]
    for name, what in (*_COUNTED, *(_VECTORS if vectors else ())):
        count = session.fetch(name, number)[0][0]
        if count:
            yield Problem(None, f"{count} {what}")
    for name, noted in (("living_logs", logs), ("living_documents", documents)):
        counted = session.fetch(name, number)[0][0]
        if counted != noted:
            yield Problem(None, f"{name}: {counted} counted, {noted} noted")
    yield from _wrong_keys(session, number)


def _wrong_keys(session: Session, tenant: int) -> Iterator[Problem]:
    """Every key that should be there is, and there are no others."""
    users = dict(session.fetch("all_users", tenant))
    stored: set[tuple[Any, ...]] = set(session.fetch("all_keys", tenant))
    stored |= set(session.fetch("all_past_keys", tenant))
    for columns in session.fetch("keyed_records", tenant):
        number, position, ordinal = columns[:3]
        oid, kind, until = columns[15:18]
        try:
            content = row_from(columns[:15]).content
            keys = index_keys(kind, content) if content is not None else []
        except PagefileError as unreadable:
            yield Problem(position, f"the keys of a record cannot be read: {unreadable}")
            continue
        for key in keys:
            space = space_for(key, oid, users.get(columns[5] or "", 0))
            place: tuple[Any, ...] = (space, key.field, key.value)
            if kind == DOCUMENT and until is not None:
                place = (*place, until)
            place = (*place, position, ordinal, oid, number)
            if place not in stored:
                yield Problem(position, f"key {key.field!r} does not lead to its record")
            stored.discard(place)
    if stored:
        yield Problem(None, f"{len(stored)} keys lead to no record of theirs")


_LAST_CHARACTER = "\U0010ffff"
_MOST_CACHED = 100_000


class PostgresEngine:
    """All tenants of one schema of one database."""

    name: ClassVar[str] = "postgresql"
    promises: ClassVar[frozenset[str]] = frozenset(f"S{n}" for n in range(1, 12))
    levels: ClassVar[tuple[Durability, ...]] = ("power", "process", "none")
    #: Content and keys go at once; dead rows and journals are the server's, and `scrub` names them.
    erasure: ClassVar[Erasure] = "logical"
    instant: ClassVar[bool] = False
    shared: ClassVar[bool] = True

    def __init__(
        self,
        url: str,
        *,
        clock: Callable[[], int],
        key_lifetime_us: int,
        durability: Durability | None = None,
        lock_seconds: float = 30.0,
    ) -> None:
        address = address_of(url)
        sql = load_queries("postgres")
        self._link = Link(address, sql, durability=durability, lock_seconds=lock_seconds)
        self._link.url = url
        session = self._link.connect()
        ready = False
        try:
            prepare_format(self._link, session)
            self._vectors = VectorTable(self._link)
            if address.vectors:
                self._vectors.make(session)
            else:
                self._vectors.look(session)
            ready = True
        finally:
            if not ready:
                session.connection.close()
        assert self._link.durability is not None
        self.durability: Durability = self._link.durability
        self._watch = Watch(self._link)
        self._writer = Writer(self._link, session, clock, key_lifetime_us, self._watch.announce)
        #: Handles queue at their committer; a copy into the store comes from beside it.
        self._applying = threading.Lock()
        self._numbers: dict[str, int] = {}

    @property
    def url(self) -> str:
        """With the password, if it has one: never shown."""
        return self._link.url

    def __repr__(self) -> str:
        return f"<PostgresEngine {self._link.place} schema {self._link.address.schema!r}>"

    def apply(self, items: Sequence[tuple[str, Prepared]]) -> list[Sealed | PagefileError]:
        # A forked child is refused before it could wait for what its parent was doing.
        self._link.require_usable()
        with self._applying:
            return self._writer.apply(items)

    def tenants(self) -> list[str]:
        """Names of all tenants; for the admin handle only."""

        def ask(session: Session) -> list[str]:
            # For this transaction only: a pooled connection must not stay an operator's.
            with session.connection.transaction():
                session.connection.execute("SET LOCAL pagefile.admin = 'on'")
                return [name for (name,) in session.fetch("tenant_names")]

        return self._link.ask(None, ask)

    def head(self, tenant: str) -> TenantHead:
        head = TenantHead(tenant)
        found = self._link.read(tenant, "head", tenant)
        if found:
            fill_head(head, found[0])
        return head

    def stream(
        self, tenant: str, kind: StreamKind, name: str, at: int | None = None
    ) -> Stream | None:
        if at is None:
            return self._one_stream(tenant, "stream_by_name", kind, name)
        return self._one_stream(tenant, "stream_by_name_at", kind, name, at)

    def stream_number(self, tenant: str, oid: int) -> Stream | None:
        return self._one_stream(tenant, "stream_by_oid", oid)

    def _one_stream(self, tenant: str, query: str, *rest: Any) -> Stream | None:
        found = self._about(tenant, query, *rest)
        return stream_from(found[0]) if found else None

    def _about(self, tenant: str, query: str, *rest: Any) -> list[tuple[Any, ...]]:
        """The rows of a query that begins with the tenant's number; none without a number."""
        number = self._number(tenant)
        return self._link.read(tenant, query, number, *rest) if number else []

    def _number(self, tenant: str) -> int:
        number = self._numbers.get(tenant, 0)
        if not number:
            found = self._link.read(tenant, "tenant_number", tenant)
            if found:
                if len(self._numbers) >= _MOST_CACHED:
                    self._numbers.clear()
                # A tenant keeps its number for ever, so it is looked up once.
                number = self._numbers[tenant] = int(found[0][0])
        return number

    def rows(self, tenant: str, stream: Stream, first: int, last: int, limit: int) -> list[Row]:
        if last < first or last < 0:
            return []
        place = (stream.oid, max(first, 0), min(last, MOST_RECORDS))
        if limit < 0:
            found = self._about(tenant, "rows_from_end", *place, -limit)
            found.reverse()
        else:
            found = self._about(tenant, "rows", *place, limit)
        return [row_from(columns) for columns in found]

    def current(self, tenant: str, names: Sequence[str]) -> list[Row | None]:
        columns = self._about(tenant, "current_rows", list(names))
        found = {each[15]: row_from(each) for each in columns}
        return [found.get(name) for name in names]

    def gather(self, tenant: str, places: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Row]:
        oids, numbers = [oid for oid, _ in places], [number for _, number in places]
        found = self._about(tenant, "rows_at", whole(oids), whole(numbers))
        return {(columns[15], columns[0]): row_from(columns) for columns in found}

    def streams(self, tenant: str, oids: Sequence[int]) -> dict[int, Stream]:
        found = self._about(tenant, "streams_by_oids", whole(oids))
        return {columns[0]: stream_from(columns) for columns in found}

    def find(self, tenant: str, span: KeyRange, limit: int, at: int | None) -> list[Hit]:
        space = self._space(tenant, span)
        if space is None:
            return []
        if span.after is not None:
            after = span.after
        else:
            after = (b"\xff\xff", 0, 0) if span.reverse else (b"", -1, -1)
        below = span.below if span.below is not None else MOST_RECORDS
        bindings = (space, span.field, span.low, span.high, *after, span.above, below, limit)
        name = "find_back" if span.reverse else "find"
        if at is None:
            found = self._about(tenant, name, *bindings)
        else:
            found = self._about(tenant, f"{name}_at", *bindings, at)
        return [Hit(columns[0], columns[1], row_from(columns[2:])) for columns in found]

    def _space(self, tenant: str, span: KeyRange) -> int | None:
        if span.scope == "tenant":
            return TENANT_SPACE
        if span.scope == "log":
            assert isinstance(span.owner, int)
            return space_of_log(span.owner)
        found = self._about(tenant, "user_number", span.owner or "")
        return space_of_user(found[0][0]) if found else None

    def names(
        self, tenant: str, kind: StreamKind, prefix: str, after: str, limit: int
    ) -> list[str]:
        bounds: tuple[Any, ...] = (kind, prefix, after, limit)
        end = _after_prefix(prefix)
        if end:
            found = self._about(tenant, "names_below", *bounds, end)
        else:
            found = self._about(tenant, "names", *bounds)
        return [name for (name,) in found]

    def commits(self, tenant: str, since: int, limit: int) -> list[RawCommit]:
        found = self._about(tenant, "commits", since, limit)
        return [RawCommit(*columns) for columns in found]

    def wait(self, tenant: str, position: int, timeout: float) -> bool:
        def reached() -> bool:
            found = self._link.read(tenant, "position", tenant)
            if found:
                self._number(tenant)  # From now on only this tenant's commits wake it.
            return (found[0][0] if found else 0) >= position

        if reached():
            return True
        return self._watch.until(lambda: self._numbers.get(tenant, 0), reached, timeout)

    # Vectors

    @property
    def vectors(self) -> str:
        return self._vectors.name if self._vectors.is_kept else ""

    @property
    def no_vectors(self) -> str:
        return self._vectors.why_not

    def keep_vectors(self) -> None:
        if not self._vectors.is_kept:
            self._link.ask(None, self._vectors.make)

    def nearest(
        self, tenant: str, log: str, query: bytes, count: int, numbers: Sequence[int]
    ) -> Near:
        number, table = self._number(tenant), self._vectors
        if not number:
            return Near([], {})
        return self._link.ask(
            tenant, lambda session: table.nearest(session, number, log, query, count, numbers)
        )

    def vector_numbers(self, tenant: str, log: str, first: int) -> list[int]:
        number, table = self._number(tenant), self._vectors
        if not number:
            return []
        return self._link.ask(tenant, lambda session: table.numbers(session, number, log, first))

    def fill_vectors(self, tenant: str, log: str, vectors: Mapping[int, Vector]) -> None:
        number, table = self._number(tenant), self._vectors
        self._link.ask(tenant, lambda session: table.fill(session, tenant, number, log, vectors))

    def remove_vectors(self, tenant: str, log: str, numbers: Sequence[int]) -> None:
        number, table = self._number(tenant), self._vectors
        self._link.ask(tenant, lambda session: table.remove(session, tenant, number, log, numbers))

    # Keeping

    def owes(self, tenant: str) -> bool:
        """Always, once there was something: no SQL says what the server's files still hold."""
        return self.head(tenant).position > 0

    def scrub(self, tenant: str, timeout: float) -> tuple[str, ...]:
        """Nothing: what is left is the server's, and not to be reached by SQL."""
        schema = self._link.address.schema
        return (
            f"dead rows and old index pages: VACUUM FULL the tables of schema {schema!r}",
            "the write-ahead log: CHECKPOINT, then wait until its segments are reused",
            "copies: standbys follow by themselves; archives and backups must expire",
        )

    def check(self, tenant: str) -> list[Problem]:
        def ask(session: Session) -> list[Problem]:
            with session.connection.transaction():
                # One snapshot for all questions.
                session.connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                return list(examine(session, tenant, vectors=self._vectors.is_kept))

        return self._link.ask(tenant, ask)

    def size_bytes(self) -> int:
        return int(self._link.read(None, "size_bytes", self._link.address.schema)[0][0])

    def close(self) -> None:
        self._watch.close()
        self._writer.close()
        self._link.close()


def _after_prefix(prefix: str) -> str:
    """What sorts just behind everything that begins with the prefix; '' when nothing does."""
    stem = prefix.rstrip(_LAST_CHARACTER)
    if not stem:
        return ""
    code = ord(stem[-1]) + 1
    return stem[:-1] + chr(0xE000 if code == 0xD800 else code)
