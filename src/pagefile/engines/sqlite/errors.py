"""What SQLite's errors mean for the caller."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import apsw

from pagefile.errors import Corrupt, Forbidden, Invalid, PagefileError, Unavailable

#: What Python says of values that cannot have been stored.
MISSHAPEN = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, struct.error)
#: What SQLite says of tables that are not ours.
_FOREIGN = re.compile("^no such (table|column)|has no column named")
#: What SQLite says when a file contradicts itself: its rules are ours, and we keep them.
_CONTRADICTIONS = (apsw.CorruptError, apsw.ConstraintError, apsw.MismatchError, apsw.TooBigError)

Doing = Literal["open", "read", "commit"]
_AGAIN: dict[Doing, str] = {
    "open": "open it again",
    "read": "try again",
    "commit": "commit again with the same key",
}
#: What the system says of a read that failed, and SQLite takes for damage.
_READ_FAILURES = (errno.EIO, errno.ENXIO, errno.ERANGE)
#: Places in `sqlite3_io_methods`, which is part of SQLite's stable interface.
_READ, _FILE_CONTROL = 2, 10
_read = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
)
_control = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p)
_PAST_EVERY_END = 1 << 60


def translate(
    error: apsw.Error,
    path: str,
    *,
    doing: Doing = "read",
    committing: bool = False,
    connection: apsw.Connection | None = None,
) -> PagefileError:
    """The typed error for a driver error; `committing` when the outcome may be open."""
    if isinstance(error, apsw.FullError):
        stored = "nothing of the batch is stored; " if doing == "commit" else ""
        return Unavailable(
            f"the disk that holds {path} is full", f"{stored}make room, then {_AGAIN[doing]}"
        )
    if isinstance(error, (apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError)):
        return Forbidden(f"{path} cannot be written to", "check the permissions of file and folder")
    if isinstance(error, apsw.NotADBError):
        return Invalid("url", f"{path} is not a database", "name another file, or a new one")
    if isinstance(error, apsw.CorruptError) and connection and _failed_to_read(connection):
        return Unavailable(
            f"{path} could not be read (an I/O error)", f"look at the disk, then {_AGAIN[doing]}"
        )
    if isinstance(error, _CONTRADICTIONS):
        return Corrupt(f"{path} is damaged ({error})", "stop writing and restore a copy")
    if isinstance(error, apsw.SQLError) and _FOREIGN.search(str(error)):
        return Corrupt(
            f"{path} has not the tables of a store ({error})", "stop writing and restore a copy"
        )
    if isinstance(error, apsw.CantOpenError):
        if shortage := no_more_files():
            return shortage
        return Unavailable(f"{path} cannot be opened ({error})", "check folder and permissions")
    if isinstance(error, (apsw.BusyError, apsw.LockedError)):
        return Unavailable(f"{path} stayed locked ({error})", "retry")
    return Unavailable(
        f"{path} failed: {type(error).__name__}: {error}",
        f"look at the disk, then {_AGAIN[doing]}",
        outcome="unknown" if committing else "nothing",
    )


@contextmanager
def translating(connection: apsw.Connection, path: str, doing: Doing = "read") -> Iterator[None]:
    """What goes wrong on a connection, as a typed error."""
    try:
        yield
    except apsw.Error as error:
        raise translate(error, path, doing=doing, connection=connection) from error


def no_more_files() -> Unavailable | None:
    """What to raise if there is no file left to open, which SQLite does not say."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            return Unavailable(
                f"this process can open no more files ({error.strerror})",
                "close some, or raise its limit (ulimit -n), then retry",
            )
    return None


def _failed_to_read(connection: apsw.Connection) -> bool:
    """Whether the system refused a read on this connection since this was last asked.

    SQLite calls a page that it could not read a malformed one; but each of its files remembers
    what the system said last. Reading past its end makes it forget.
    """
    failed = False
    code, byte = ctypes.c_int(), ctypes.create_string_buffer(1)
    for which in (apsw.SQLITE_FCNTL_FILE_POINTER, apsw.SQLITE_FCNTL_JOURNAL_POINTER):
        file = ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p))()
        connection.file_control("main", which, ctypes.addressof(file))
        if file and (methods := file[0]):
            _control(methods[_FILE_CONTROL])(
                file, apsw.SQLITE_FCNTL_LAST_ERRNO, ctypes.addressof(code)
            )
            _read(methods[_READ])(file, byte, 1, _PAST_EVERY_END)
            failed = failed or code.value in _READ_FAILURES
    return failed


def misshapen(error: Exception, path: str) -> Corrupt:
    """The typed error for values in the file that cannot have been stored."""
    return Corrupt(
        f"{path} holds what cannot have been stored ({type(error).__name__}: {error})",
        "run `verify` and `check` to see what is damaged, then restore a copy",
    )
