"""Bringing a store to the format this version writes, by somebody who may change tables.

Opening a store does the same when it is allowed to. Where the application is not,
an operator runs this before the application's new version starts.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from pagefile.errors import Invalid, Unsupported, shown
from pagefile.handle import Options, open_engine

_MOST_ROLE_BYTES = 63


class MigrationReport(msgspec.Struct, frozen=True):
    """What format a store had (None: there was none) and has now; `known` is this version's.

    All three are None for an engine that has no format to bring up to date.
    """

    engine: str
    before: int | None
    after: int | None
    known: int | None

    @property
    def is_current(self) -> bool:
        """Whether nothing is left to do."""
        return self.after == self.known


def migrate(url: str, *, check: bool = False, grant: str | None = None) -> MigrationReport:
    """Make a store's tables, or bring them up to date, in one transaction.

    With `check` nothing is changed. `grant` names a PostgreSQL user who may then
    read and write the store without being able to change its tables.

    Raises:
        Unsupported: the store has a newer format; nothing was changed.
        Forbidden: this user may not change the tables.
        Invalid: the URL names no store, or another program's.
    """
    scheme, mark, rest = url.partition("://")
    is_postgres = bool(mark) and scheme in ("postgresql", "postgres")
    if grant is not None and (check or not is_postgres):
        raise Invalid("grant", "there is nobody to grant rights to", "leave it out")
    if is_postgres:
        return _migrate_postgres(url, check, grant)
    if url == "memory:" or (mark and scheme != "sqlite"):
        with_engine = open_engine(url, Options())
        with_engine.close()
        return MigrationReport(with_engine.name, None, None, None)
    return _migrate_file(url, rest.removeprefix("/") if mark else url, check)


def _migrate_file(url: str, name: str, check: bool) -> MigrationReport:
    from pagefile.engines.sqlite.format import read_format

    path = Path(name).expanduser().absolute()
    before, known = read_format(path)
    after = before
    if not check and before != known:
        open_engine(url, Options()).close()
        after, _ = read_format(path)
    return MigrationReport("sqlite", before, after, known)


def _migrate_postgres(url: str, check: bool, role: str | None) -> MigrationReport:
    if role is not None and not 0 < len(role.encode()) <= _MOST_ROLE_BYTES:
        raise Invalid("grant", f"{shown(role)} names no user", "give the name of a role")
    try:
        from pagefile.engines.postgres import schema as formats
        from pagefile.engines.postgres.connection import Link, address_of
        from pagefile.engines.postgres.vectors import VectorTable
    except ImportError as error:
        raise Unsupported(
            f"the PostgreSQL driver cannot be loaded ({error})", "pip install 'pagefile[postgres]'"
        ) from error
    from pagefile.engines.common import load_queries

    lock_seconds = Options().lock_seconds
    link = Link(
        address_of(url), load_queries("postgres"), durability=None, lock_seconds=lock_seconds
    )
    session = link.connect()
    try:
        before, known = formats.read_format(link, session)
        after = before
        if not check:
            formats.prepare_format(link, session)
            if link.address.vectors:
                VectorTable(link).make(session)
            after, _ = formats.read_format(link, session)
        if role is not None:
            formats.grant(link, session, role)
    finally:
        session.connection.close()
    return MigrationReport("postgresql", before, after, known)
