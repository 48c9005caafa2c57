"""What SQLite's errors mean for the caller."""

from __future__ import annotations

import apsw

from pagefile.errors import Corrupt, Forbidden, Invalid, PagefileError, Unavailable


def translate(error: apsw.Error, path: str, *, committing: bool = False) -> PagefileError:
    """The typed error for a driver error; `committing` when the outcome may be open."""
    if isinstance(error, apsw.FullError):
        return Unavailable(
            f"the disk that holds {path} is full",
            "nothing of the batch is stored; make room, then retry",
        )
    if isinstance(error, (apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError)):
        return Forbidden(f"{path} cannot be written to", "check the permissions of file and folder")
    if isinstance(error, apsw.NotADBError):
        return Invalid("url", f"{path} is not a database", "name another file, or a new one")
    if isinstance(error, apsw.CorruptError):
        return Corrupt(f"{path} is damaged ({error})", "stop writing and restore a copy")
    if isinstance(error, apsw.CantOpenError):
        return Unavailable(f"{path} cannot be opened ({error})", "check folder and permissions")
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return Unavailable(f"{path} stayed locked ({error})", "retry")
    return Unavailable(
        f"{path} failed: {type(error).__name__}: {error}",
        "look at the disk, then commit again with the same key",
        outcome="unknown" if committing else "nothing",
    )
