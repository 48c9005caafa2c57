"""What PostgreSQL's errors mean for the caller."""

from __future__ import annotations

import psycopg
from psycopg import errors as pg

from pagefile.errors import (
    Corrupt,
    Forbidden,
    Invalid,
    LimitExceeded,
    PagefileError,
    Unavailable,
    Unsupported,
)

#: Worth trying again at once, on the same connection.
TRANSIENT = (pg.SerializationFailure, pg.DeadlockDetected)
#: The content does not fit the server; the same again would fail the same way.
UNFIT = (pg.ProgramLimitExceeded, psycopg.DataError)
_DENIED = (pg.InvalidPassword, pg.InvalidAuthorizationSpecification)
_AGAIN_LATER = (pg.CannotConnectNow, pg.TooManyConnections, pg.AdminShutdown, pg.CrashShutdown)


def is_lost(error: psycopg.Error, connection: psycopg.Connection[object]) -> bool:
    """Whether the connection is gone, so that nobody told how the statement ended."""
    return connection.closed or isinstance(
        error, (pg.AdminShutdown, pg.CrashShutdown, pg.CannotConnectNow)
    )


def cannot_connect(error: psycopg.Error, place: str) -> PagefileError:
    """The typed error for a connection that was not made."""
    said = _line(error)
    # Before authentication the driver has no code for what the server says, only words.
    if isinstance(error, _DENIED) or "authentication failed" in said or "no password" in said:
        return Forbidden(
            f"{place} does not let this user in ({said})",
            "check user and password in the URL, PGPASSWORD or ~/.pgpass, and pg_hba.conf",
        )
    if "pg_hba.conf" in said or "no encryption" in said:
        return Forbidden(
            f"{place} does not let this client in ({said})",
            "add a line to the server's pg_hba.conf",
        )
    if isinstance(error, pg.InvalidCatalogName) or (
        "database" in said and "does not exist" in said
    ):
        return Invalid("url", f"{place}: there is no such database", "createdb it, or name another")
    if "role" in said and "does not exist" in said:
        return Forbidden(f"{place} knows no such user ({said})", "createuser it, or name another")
    if isinstance(error, psycopg.ProgrammingError):
        return Invalid("url", f"{place}: {said}", "mend that part of the URL")
    if isinstance(error, _AGAIN_LATER):
        return Unavailable(f"{place} takes no connection now ({said})", "retry in a moment")
    return Unavailable(
        f"no server answers at {place} ({said})", "start it, or check host and port, then retry"
    )


def translate(error: psycopg.Error, place: str, *, unknown: bool = False) -> PagefileError:
    """The typed error for a statement that failed; `unknown` when it may have committed."""
    said = _line(error)
    if isinstance(error, pg.LockNotAvailable):
        return Unavailable(
            "others held the tenant's lock for too long", "retry; nothing was stored"
        )
    if isinstance(error, (pg.DiskFull, pg.OutOfMemory)):
        return Unavailable(
            f"{place} has no room left ({said})",
            "nothing of the batch is stored; make room, then retry",
        )
    if isinstance(error, pg.InsufficientPrivilege):
        return Forbidden(
            f"{place} does not allow that ({said})",
            "GRANT SELECT, INSERT, UPDATE, DELETE on the store's tables to this user",
        )
    if isinstance(error, pg.ReadOnlySqlTransaction):
        return Forbidden(f"{place} is read-only ({said})", "connect to the primary server")
    if isinstance(error, (pg.DataCorrupted, pg.IndexCorrupted)):
        return Corrupt(f"{place} is damaged ({said})", "stop writing and restore a copy")
    if isinstance(error, (pg.UndefinedTable, pg.UndefinedColumn, pg.InvalidSchemaName)):
        return Unsupported(
            f"{place} no longer holds this store's tables ({said})",
            "open it again, or restore the schema",
        )
    if isinstance(error, pg.ProgramLimitExceeded):
        return LimitExceeded(
            f"the bytes of one key or name on this server ({said})",
            limit=2_600,
            wanted=2_601,
            next_step="keep key value, field and name together below that",
        )
    if isinstance(error, psycopg.DataError):
        return Invalid("value", f"{place} cannot store it ({said})", "change the value")
    return Unavailable(
        f"{place} failed: {type(error).__name__}: {said}",
        "look at the server, then commit again with the same key",
        outcome="unknown" if unknown else "nothing",
    )


def _line(error: psycopg.Error) -> str:
    """The server's own words in one short line; libpq repeats no password in them."""
    said = " ".join(str(error.diag.message_primary or error).split())
    return said if len(said) <= 200 else f"{said[:200]}…"
