"""PostgreSQL with pgvector as vector arm: beside a store on that server, or any other.

    vector_points   tenant, owner, id, embedding
    vector_marks    tenant, owner, and how far the log was followed
    vector_model    the one model whose vectors these are

Always exact: the primary key leads to one user's rows, and these are compared.
A graph over all users would be thinned out by the filter until a small one gets
nothing. Tenants are walled off by row-level security, as in the store.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, LiteralString, TypeVar

from pagefile.errors import Forbidden, Invalid, Unavailable, Unsupported
from pagefile.recall.arms.arm import NOTHING, Found, Mark, Part
from pagefile.recall.embed.embedder import Floats
from pagefile.recall.extras import required
from pagefile.store.arguments import require_seconds

_T = TypeVar("_T")
_MOST_CONNECTIONS = 8

_MAKE = """
CREATE TABLE IF NOT EXISTS vector_model (
    is_only    boolean PRIMARY KEY DEFAULT true CHECK (is_only),
    name       text NOT NULL,
    dimensions integer NOT NULL
);
CREATE TABLE IF NOT EXISTS vector_points (
    tenant    text COLLATE "C" NOT NULL,
    owner     text COLLATE "C" NOT NULL,
    id        uuid NOT NULL,
    embedding vector NOT NULL,
    PRIMARY KEY (tenant, owner, id)
);
CREATE TABLE IF NOT EXISTS vector_marks (
    tenant     text COLLATE "C" NOT NULL,
    owner      text COLLATE "C" NOT NULL,
    generation bigint NOT NULL,
    seen       bigint NOT NULL,
    position   bigint NOT NULL,
    count      bigint NOT NULL,
    PRIMARY KEY (tenant, owner)
);
"""
_WALL = """
ALTER TABLE {table} ENABLE ROW LEVEL SECURITY;
ALTER TABLE {table} FORCE ROW LEVEL SECURITY;
DROP POLICY IF EXISTS one_tenant ON {table};
CREATE POLICY one_tenant ON {table} USING (tenant = current_setting('pagefile.tenant', true));
"""
_NEAREST = """
SELECT id, 1 - (embedding <=> %(query)s::vector) FROM vector_points
WHERE tenant = %(tenant)s AND owner = %(owner)s
ORDER BY embedding <=> %(query)s::vector, id LIMIT %(count)s
"""
_NAMED = """
SELECT id, 1 - (embedding <=> %(query)s::vector) FROM vector_points
WHERE tenant = %(tenant)s AND owner = %(owner)s AND id = ANY(%(named)s::uuid[])
"""
_PUT = """
INSERT INTO vector_points (tenant, owner, id, embedding)
SELECT %(tenant)s, %(owner)s, given.id, given.embedding::vector
FROM unnest(%(ids)s::uuid[], %(vectors)s::text[]) AS given (id, embedding)
ON CONFLICT DO NOTHING
"""
_SET_MARK = """
INSERT INTO vector_marks (tenant, owner, generation, seen, position, count)
VALUES (%(tenant)s, %(owner)s, %(generation)s, %(seen)s, %(position)s, %(count)s)
ON CONFLICT (tenant, owner) DO UPDATE SET generation = excluded.generation,
    seen = excluded.seen, position = excluded.position, count = excluded.count
"""
#: The store's schema, and the one that has the types of pgvector, wherever that was put.
_ENTER = """
SELECT set_config('search_path', %s || ', ' || coalesce((
    SELECT quote_ident(n.nspname) FROM pg_extension e
    JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'), 'public'), false),
    set_config('statement_timeout', %s, false)
"""
_OF_PART = "WHERE tenant = %(tenant)s AND owner = %(owner)s"


class PgvectorArm:
    """Vectors in tables of a PostgreSQL server that has pgvector.

    `url` is as a store's: `postgresql://user@host/database?schema=pagefile`. The
    tables are made when they are first filled.
    """

    name = "pgvector"

    def __init__(self, url: str, *, timeout_seconds: float = 10.0) -> None:
        if not isinstance(url, str) or not url.startswith(("postgresql://", "postgres://")):
            raise Invalid("url", "it leads to no PostgreSQL", "write postgresql://user@host/name")
        require_seconds(timeout_seconds, "timeout_seconds")
        self._driver = required("psycopg", "postgres")
        from pagefile.engines.postgres.connection import address_of

        self._address = address_of(url)
        self._place = str(self._address)
        self._timeout_ms = max(1, int(timeout_seconds * 1_000))
        self._free = threading.BoundedSemaphore(_MOST_CONNECTIONS)
        self._idle: list[Any] = []
        self._closed = False

    def __repr__(self) -> str:
        return f"<PgvectorArm {self._place} schema {self._address.schema!r}>"

    # Making room

    def prepare(self, model: str, dimensions: int) -> None:
        held = self._or_nothing("", self._held)
        if held is None:
            self._run("", self._make)
            self._run("", lambda c: _settle(c, model, dimensions))
            held = self._run("", self._held)
        if held != (model, dimensions):
            named = "nothing" if held is None else f"{held[0]!r} ({held[1]} dimensions)"
            raise Unsupported(
                f"{self._place} holds vectors of {named}, not of {model!r} ({dimensions})",
                "keep them in another schema, or drop vector_points, vector_marks, vector_model",
            )

    def _held(self, connection: Any) -> tuple[str, int] | None:
        found = connection.execute("SELECT name, dimensions FROM vector_model").fetchone()
        return None if found is None else (str(found[0]), int(found[1]))

    def _make(self, connection: Any) -> None:
        errors = self._driver.errors
        with connection.transaction():
            number = self._address.number_for("vectors")
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (number,))
            quoted = '"' + self._address.schema.replace('"', '""') + '"'
            try:
                connection.execute(_own(f"CREATE SCHEMA IF NOT EXISTS {quoted}"))
                connection.execute("CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public")
                connection.execute(_MAKE)
            except errors.InsufficientPrivilege as error:
                raise Forbidden(
                    f"{self._place} does not let this user make tables or extensions",
                    "CREATE EXTENSION vector as a superuser, and open once as the schema's owner",
                ) from error
            except (errors.UndefinedFile, errors.FeatureNotSupported) as error:
                raise Unsupported(
                    f"{self._place} has no pgvector", "install pgvector on the server"
                ) from error
            for table in ("vector_points", "vector_marks"):
                connection.execute(_own(_WALL.format(table=table)))

    # Keeping

    def upsert(self, part: Part, ids: Sequence[bytes], vectors: Floats) -> None:
        texts = ["[" + ",".join(map(repr, row)) + "]" for row in vectors.tolist()]
        given = {**_of(part), "ids": _uuids(ids), "vectors": texts}
        self._write(part, _PUT, given)

    def delete(self, part: Part, ids: Sequence[bytes]) -> None:
        text: LiteralString = f"DELETE FROM vector_points {_OF_PART} AND id = ANY(%(ids)s::uuid[])"
        given = {**_of(part), "ids": _uuids(ids)}
        self._or_nothing(part.tenant, lambda c: c.execute(text, given))

    def forget(self, part: Part) -> None:
        def both(connection: Any) -> None:
            with connection.transaction():
                connection.execute(f"DELETE FROM vector_points {_OF_PART}", _of(part))
                connection.execute(f"DELETE FROM vector_marks {_OF_PART}", _of(part))

        self._or_nothing(part.tenant, both)

    def set_mark(self, part: Part, mark: Mark) -> None:
        numbers = {"seen": mark.seen, "position": mark.position, "count": mark.count}
        self._write(part, _SET_MARK, {**_of(part), "generation": mark.generation, **numbers})

    def _write(self, part: Part, text: LiteralString, given: dict[str, Any]) -> None:
        try:
            self._run(part.tenant, lambda c: c.execute(text, given))
        except _Missing as error:
            raise Unavailable(
                f"the tables of vectors at {self._place} are gone",
                "do it again: they are made anew and filled from the store",
            ) from error

    # Asking

    def nearest(self, part: Part, query: Floats, count: int, named: Sequence[bytes] = ()) -> Found:
        given = {**_of(part), "query": str(query.tolist()), "count": count, "named": _uuids(named)}

        def ask(connection: Any) -> Found:
            with connection.pipeline():
                first = connection.execute(_NEAREST, given) if count else None
                second = connection.execute(_NAMED, given) if named else None
                nearest = [] if first is None else first.fetchall()
                others = [] if second is None else second.fetchall()
            return Found(
                [(one.bytes, float(score)) for one, score in nearest],
                {one.bytes: float(score) for one, score in others},
            )

        found = self._or_nothing(part.tenant, ask)
        return NOTHING if found is None else found

    def ids(self, part: Part) -> set[bytes]:
        found = self._rows(part.tenant, f"SELECT id FROM vector_points {_OF_PART}", _of(part))
        return {one.bytes for (one,) in found}

    def count(self, part: Part) -> int:
        found = self._rows(part.tenant, f"SELECT count(*) FROM vector_points {_OF_PART}", _of(part))
        return int(found[0][0]) if found else 0

    def mark(self, part: Part) -> Mark | None:
        text: LiteralString = (
            f"SELECT generation, seen, position, count FROM vector_marks {_OF_PART}"
        )
        found = self._rows(part.tenant, text, _of(part))
        return Mark(*found[0]) if found else None

    def owners(self, tenant: str) -> list[str]:
        text: LiteralString = "SELECT owner FROM vector_marks WHERE tenant = %(tenant)s"
        return sorted(owner for (owner,) in self._rows(tenant, text, {"tenant": tenant}))

    def close(self) -> None:
        self._closed = True
        while self._idle:
            with suppress(IndexError):
                self._idle.pop().close()

    # Connections

    def _rows(self, tenant: str, text: LiteralString, given: dict[str, Any]) -> list[Any]:
        found = self._or_nothing(tenant, lambda c: c.execute(text, given).fetchall())
        return found or []

    def _or_nothing(self, tenant: str, work: Callable[[Any], _T]) -> _T | None:
        """What it gives; None where the tables are not made yet, or no more."""
        try:
            return self._run(tenant, work)
        except _Missing:
            return None

    def _run(self, tenant: str, work: Callable[[Any], _T]) -> _T:
        """Do it on a connection; on a fresh one when those that were idle are dead."""
        while self._idle:
            try:
                with self._connection() as connection:
                    return self._entered(connection, tenant, work)
            except _Dead:
                continue
        try:
            with self._connection(fresh=True) as connection:
                return self._entered(connection, tenant, work)
        except _Dead as dead:
            raise Unavailable(
                f"no server answers at {self._place} ({dead})",
                "start it, then retry; alpha=0 searches by words alone meanwhile",
            ) from dead

    def _entered(self, connection: Any, tenant: str, work: Callable[[Any], _T]) -> _T:
        connection.execute("SELECT set_config('pagefile.tenant', %s, false)", (tenant,))
        return work(connection)

    @contextmanager
    def _connection(self, *, fresh: bool = False) -> Iterator[Any]:
        from pagefile.engines.postgres.errors import translate

        if self._closed:
            raise Forbidden(f"{self!r} is closed", "make another")
        if not self._free.acquire(timeout=self._timeout_ms / 1_000):
            raise Unavailable(f"{_MOST_CONNECTIONS} requests are under way for too long", "retry")
        connection: Any = None
        errors = self._driver.errors
        try:
            with suppress(IndexError):
                connection = None if fresh else self._idle.pop()
            connection = connection or self._connect()
            yield connection
        except (errors.UndefinedTable, errors.UndefinedObject, errors.InvalidSchemaName) as error:
            raise _Missing from error
        except self._driver.Error as error:
            if connection is not None and connection.closed:
                raise _Dead(type(error).__name__) from error
            raise translate(error, self._place) from error
        finally:
            if connection is not None and not connection.closed:
                if connection.info.transaction_status == 0 and not self._closed:
                    self._idle.append(connection)
                else:
                    connection.close()
            self._free.release()

    def _connect(self) -> Any:
        from pagefile.engines.postgres.errors import cannot_connect

        try:
            connection = self._driver.connect(**self._address.parameters, autocommit=True)
        except self._driver.Error as error:
            raise cannot_connect(error, self._place) from error
        quoted = '"' + self._address.schema.replace('"', '""') + '"'
        connection.execute(_ENTER, (quoted, str(self._timeout_ms)))
        return connection


class _Missing(Exception):
    """The tables are not there."""


class _Dead(Exception):
    """The connection ended."""


def _settle(connection: Any, model: str, dimensions: int) -> None:
    """Record the model, unless somebody was faster."""
    text = "INSERT INTO vector_model (name, dimensions) VALUES (%s, %s) ON CONFLICT DO NOTHING"
    connection.execute(text, (model, dimensions))


def _of(part: Part) -> dict[str, Any]:
    return {"tenant": part.tenant, "owner": part.owner}


def _uuids(ids: Sequence[bytes]) -> list[uuid.UUID]:
    return [uuid.UUID(bytes=one) for one in ids]


def _own(text: str) -> LiteralString:
    """A statement of this module, for a driver that asks whether it is one."""
    return text  # type: ignore[return-value, unused-ignore]
