"""The tables of a store: made on first use, brought up to date, refused when newer."""

from __future__ import annotations

import psycopg
from psycopg import errors as pg
from psycopg import sql as compose

from pagefile.engines.common import load_migrations
from pagefile.engines.postgres.connection import Link, Session, query
from pagefile.engines.postgres.errors import translate
from pagefile.errors import Forbidden, Invalid, Unsupported

#: What somebody who only uses the store needs.
_RIGHTS = (
    "GRANT USAGE ON SCHEMA {schema} TO {role}",
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}",
)
#: What it means to make something that another process has made at the same time.
_MADE_BY_ANOTHER = (
    pg.UniqueViolation,
    pg.DuplicateSchema,
    pg.DuplicateTable,
    pg.DuplicateObject,
    pg.DuplicateFunction,
    pg.SerializationFailure,
    pg.InternalError_,
)
_MOST_ATTEMPTS = 100


def read_format(link: Link, session: Session) -> tuple[int | None, int]:
    """The store's format, None when there is none, and the one this version knows.

    Raises:
        Unsupported: the store has a newer format.
        Invalid: the schema is another program's.
    """
    known = len(load_migrations("postgres"))
    try:
        return _format_of(session, link.address.schema, known, link.place) or None, known
    except pg.InsufficientPrivilege as error:
        raise Forbidden(
            f"{link.place}: this user may not look at schema {link.address.schema!r}",
            "run `pagefile migrate URL --grant THIS_USER` as its owner",
        ) from error
    except psycopg.Error as error:
        raise translate(error, link.place) from error


def grant(link: Link, session: Session, role: str) -> None:
    """Let another user read and write the store, but not change its tables."""
    names = {"schema": compose.Identifier(link.address.schema), "role": compose.Identifier(role)}
    try:
        with session.connection.transaction():
            for statement in _RIGHTS:
                session.connection.execute(compose.SQL(statement).format(**names))
    except (pg.InsufficientPrivilege, pg.UndefinedObject) as error:
        raise Forbidden(
            f"{link.place}: {role!r} cannot be given rights ({error.diag.message_primary})",
            "create the role, and run this as the owner of the tables",
        ) from error
    except psycopg.Error as error:
        raise translate(error, link.place) from error


def prepare_format(link: Link, session: Session) -> None:
    """Create what is missing, in one transaction; any number of processes may come at once.

    Raises:
        Unsupported: the store has a newer format; nothing was changed.
        Forbidden: this user may not create the tables.
        Invalid: the schema is another program's.
    """
    for left in reversed(range(_MOST_ATTEMPTS)):
        try:
            _prepare(link, session)
            return
        except _MADE_BY_ANOTHER as error:
            # Without locks, processes that make the same thing at once hinder each other.
            if link.locks or not left:
                raise translate(error, link.place) from error
        except psycopg.Error as error:
            raise translate(error, link.place) from error


def _prepare(link: Link, session: Session) -> None:
    migrations = load_migrations("postgres")
    connection, schema = session.connection, link.address.schema
    try:
        if _format_of(session, schema, len(migrations), link.place) == len(migrations):
            return
        with connection.transaction():
            if link.locks:
                # One process at a time; whoever waited finds everything made.
                session.fetch("turn", link.address.number_for("\x00format"))
            number = _format_of(session, schema, len(migrations), link.place)
            if number is None:
                connection.execute(
                    compose.SQL("CREATE SCHEMA {}").format(compose.Identifier(schema))
                )
            for script in migrations[number or 0 :]:
                connection.execute(query(script), prepare=False)
            connection.execute("DELETE FROM format")
            connection.execute("INSERT INTO format (number) VALUES ($1)", (len(migrations),))
    except pg.InsufficientPrivilege as error:
        raise Forbidden(
            f"{link.place}: this user may not make the tables in schema {schema!r}",
            "run `pagefile migrate URL --grant THIS_USER` as a user that may "
            "(docs/howto/postgresql.md)",
        ) from error


def _format_of(session: Session, schema: str, known: int, place: str) -> int | None:
    """The store's format: None without a schema, 0 for an empty one."""
    run = session.connection.execute
    found = run(
        "SELECT n.oid::bigint, (SELECT count(*) FROM pg_class c WHERE c.relnamespace = n.oid), "
        "to_regclass(quote_ident($1) || '.format') IS NOT NULL "
        "FROM pg_namespace n WHERE n.nspname = $1",
        (schema,),
    ).fetchall()
    if not found:
        return None
    _, relations, ours = found[0]
    if not ours:
        if relations:
            raise Invalid(
                "url",
                f"schema {schema!r} of {place} holds another program's tables",
                "name another with ?schema=…",
            )
        return 0
    rows = run("SELECT number FROM format").fetchall()
    number = int(rows[0][0]) if rows else 0
    if number > known:
        raise Unsupported(
            f"{place} has format {number}, this Pagefile knows {known}",
            "upgrade Pagefile; nothing was changed",
        )
    return number
