"""What SQLite's errors mean for the caller."""

from __future__ import annotations

import re
import struct

import apsw

from pagefile.errors import Corrupt, Forbidden, Invalid, PagefileError, Unavailable

#: What Python says of values that cannot have been stored.
MISSHAPEN = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, struct.error)
#: What SQLite says of tables that are not ours.
_FOREIGN = re.compile("^no such (table|column)|has no column named")
#: What SQLite says when a file contradicts itself: its rules are ours, and we keep them.
_CONTRADICTIONS = (apsw.CorruptError, apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError)


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
    if isinstance(error, _CONTRADICTIONS):
        return Corrupt(f"{path} is damaged ({error})", "stop writing and restore a copy")
    if isinstance(error, apsw.SQLError) and _FOREIGN.search(str(error)):
        return Corrupt(
            f"{path} has not the tables of a store ({error})", "stop writing and restore a copy"
        )
    if isinstance(error, apsw.CantOpenError):
        return Unavailable(f"{path} cannot be opened ({error})", "check folder and permissions")
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return Unavailable(f"{path} stayed locked ({error})", "retry")
    return Unavailable(
        f"{path} failed: {type(error).__name__}: {error}",
        "look at the disk, then commit again with the same key",
        outcome="unknown" if committing else "nothing",
    )


def misshapen(error: Exception, path: str) -> Corrupt:
    """The typed error for values in the file that cannot have been stored."""
    return Corrupt(
        f"{path} holds what cannot have been stored ({type(error).__name__}: {error})",
        "run `verify` and `check` to see what is damaged, then restore a copy",
    )
