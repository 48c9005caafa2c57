"""Vectors kept with the data in PostgreSQL: a table of pgvector, written in the same transaction.

Nobody has it unless somebody asks for it, by `?vectors=pgvector` or by what is
above the store; then every handle that is opened finds it, and writes to it.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors as pg

from pagefile.engines.common import load_migrations, load_queries
from pagefile.engines.postgres.connection import Link, Session, query, whole
from pagefile.engines.postgres.errors import translate
from pagefile.engines.postgres.rows import Embedding
from pagefile.errors import Forbidden, Unsupported
from pagefile.store.batch import Vector
from pagefile.store.engine import Near

_FOLDER = "postgres/vectors"
_PAIR = struct.Struct(">qd")
_ASK = "open with ?vectors=pgvector, or Memory(…, vectors='pgvector'), to keep them here"


class VectorTable:
    """The table of one store, where there is one."""

    name = "pgvector"

    def __init__(self, link: Link) -> None:
        self._link = link
        self.is_kept = False
        #: Why there is none, or it cannot be used.
        self.why_not = ""

    def look(self, session: Session) -> None:
        """Find out whether vectors are kept here, and whether this user may.

        Raises:
            Unsupported: a newer Pagefile made the table.
        """
        schema, known = self._link.address.schema, len(load_migrations(_FOLDER))
        place, available, allowed = session.fetch("vectors_here", schema)[0]
        self.is_kept = bool(place and allowed)
        if self.is_kept and _format_of(session, schema, known, self._link.place) < known:
            self.is_kept = False
            self.why_not = "their format is old: run `pagefile migrate 'URL?vectors=pgvector'`"
        elif self.is_kept:
            own = load_queries(_FOLDER)
            self._link.sql.update((name, _placed(text, place)) for name, text in own.items())
            self.why_not = ""
        elif allowed is not None:
            self.why_not = (
                "this user may not use them: run `pagefile migrate URL --grant THIS_USER`"
            )
        elif place:
            self.why_not = f"pgvector is there, and nobody asked for it: {_ASK}"
        elif available:
            self.why_not = (
                "pgvector is not in this database: CREATE EXTENSION vector as a superuser"
            )
        else:
            self.why_not = "the server has no pgvector: install it there"

    def make(self, session: Session) -> None:
        """Make the table, or bring it up to date; any number of processes may come at once.

        Raises:
            Unsupported: the server has no pgvector or no locks, or a newer Pagefile made the table.
            Forbidden: this user may make neither the extension nor the table.
        """
        place, schema = self._link.place, self._link.address.schema
        if not self._link.locks:
            raise Unsupported(
                f"{place} has advisory locks that lock nothing, so vectors cannot be kept in step",
                "leave vectors=pgvector out, or keep them in Qdrant or in another PostgreSQL",
            )
        migrations = load_migrations(_FOLDER)
        connection = session.connection
        try:
            if _format_of(session, schema, len(migrations), place) < len(migrations):
                with connection.transaction():
                    lock = self._link.address.number_for("\x00format")
                    connection.execute("SELECT pg_advisory_xact_lock($1)", (lock,))
                    number = _format_of(session, schema, len(migrations), place)
                    connection.execute(
                        "CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public", prepare=False
                    )
                    where = session.fetch("vectors_here", schema)[0][0]
                    for script in migrations[number:]:
                        connection.execute(query(_placed(script, where)), prepare=False)
                    connection.execute("DELETE FROM vector_format")
                    connection.execute(
                        "INSERT INTO vector_format (number) VALUES ($1)", (len(migrations),)
                    )
        except pg.InsufficientPrivilege as error:
            raise Forbidden(
                f"{place}: this user may not make pgvector or its table in schema {schema!r}",
                "CREATE EXTENSION vector as a superuser, then run `pagefile migrate "
                "'URL?vectors=pgvector' --grant THIS_USER` as the schema's owner",
            ) from error
        except (pg.UndefinedFile, pg.FeatureNotSupported) as error:
            raise Unsupported(
                f"{place} has no pgvector",
                "install pgvector on the server, or keep vectors in this process",
            ) from error
        except psycopg.Error as error:
            raise translate(error, place) from error
        self.look(session)
        if not self.is_kept:
            raise Forbidden(f"{place} keeps vectors, but {self.why_not}", "or use another user")

    # Asking

    def nearest(
        self,
        session: Session,
        tenant: int,
        log: str,
        asked: bytes,
        count: int,
        named: Sequence[int],
    ) -> Near:
        """The nearest of a log, and those of some entries, in one round trip."""
        about = (tenant, log, Embedding(asked))
        run, sql = session.connection.execute, self._link.sql
        one = two = None
        with session.connection.pipeline():
            if count:
                one = run(query(sql["nearest_vectors"]), (*about, count), binary=True)
            if named:
                two = run(query(sql["named_vectors"]), (*about, whole(named)), binary=True)
            return Near(list(_pairs(one)), dict(_pairs(two)))

    def numbers(self, session: Session, tenant: int, log: str, first: int) -> list[int]:
        """Which entries of a log have a vector."""
        packed = session.fetch("vector_numbers", tenant, log, first)[0][0]
        found = array("q", packed or b"")
        if sys.byteorder == "little":
            found.byteswap()
        return found.tolist()

    # Afterwards

    def fill(
        self, session: Session, tenant: str, number: int, log: str, given: Mapping[int, Vector]
    ) -> None:
        """Store vectors of entries that came without, in the tenant's turn: nothing is erased."""
        rows = [(number, log, at, one.slot, Embedding(one.numbers)) for at, one in given.items()]
        with self._in_turn(session, tenant):
            cursor = session.connection.cursor()
            cursor.executemany(query(self._link.sql["fill_vector"]), rows)

    def remove(
        self, session: Session, tenant: str, number: int, log: str, doomed: Sequence[int]
    ) -> None:
        """Let some go, in the tenant's turn."""
        with self._in_turn(session, tenant):
            text = query(self._link.sql["remove_vectors"])
            session.connection.execute(text, (number, log, whole(doomed)))

    @contextmanager
    def _in_turn(self, session: Session, tenant: str) -> Iterator[None]:
        """A transaction that begins with the wait for the tenant's turn."""
        with session.connection.transaction():
            lock = self._link.address.number_for(tenant)
            session.connection.execute(query(self._link.sql["turn"]), (lock,))
            yield


def _pairs(cursor: psycopg.Cursor[tuple[Any, ...]] | None) -> Iterator[tuple[int, float]]:
    row = None if cursor is None else cursor.fetchone()
    return _PAIR.iter_unpack((row[0] if row else None) or b"")


def _placed(text: str, place: str) -> str:
    """SQL of this package, with the schema of pgvector in its place."""
    return text.replace("{pgvector}", place)


def _format_of(session: Session, schema: str, known: int, place: str) -> int:
    run = session.connection.execute
    is_made = run("SELECT to_regclass(quote_ident($1) || '.vector_format') IS NOT NULL", (schema,))
    if not is_made.fetchall()[0][0]:
        return 0
    rows = run("SELECT number FROM vector_format").fetchall()
    number = int(rows[0][0]) if rows else 0
    if number > known:
        raise Unsupported(
            f"{place} keeps vectors in format {number}, this Pagefile knows {known}",
            "upgrade Pagefile; nothing was changed",
        )
    return number
