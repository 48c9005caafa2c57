"""Whose an SQLite file is, and which format it has: asked before anything is written."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

import apsw

from pagefile.engines.common import load_migrations
from pagefile.engines.sqlite.errors import translate, translating
from pagefile.engines.sqlite.rows import fetch, transaction
from pagefile.errors import Corrupt, Forbidden, Invalid, Unsupported

#: "PgFl": how a file says that it is ours.
APPLICATION_ID = 0x5067466C
_MAGIC = b"SQLite format 3\x00"
_HEADER_BYTES = 100
_JOURNAL_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
_MOST_PAGE_BYTES = 65_536
_TABLES = frozenset(
    ["tenants", "partitions", "streams", "records", "used_keys", "keys", "past_keys", "holdings"]
)
#: How long to wait for a program that is just writing to what may be its file.
_BUSY_MS = 10_000


def require_place(path: Path) -> None:
    """Refuse a path where no store can be, or where there is something else.

    Nothing is made or changed: what is not ours is left as it was, with nothing beside it.

    Raises:
        Invalid: no file can be there, or it is not ours. Forbidden: it cannot be written to.
    """
    if path.is_dir():
        raise Invalid("url", f"{path} is a folder", "name a file in it")
    if path.exists() and not path.is_file():
        raise Invalid("url", f"{path} is no ordinary file", "name another, or a new one")
    if path.is_symlink():
        raise Invalid("url", f"{path} is a link that leads back to itself", "name a file")
    _require_folder(path.parent)
    _require_one_place(path)
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        readable = os.access(path, os.R_OK)
        what = "is read-only for" if readable else "cannot be read and written by"
        raise Forbidden(f"{path} {what} this user", "change its permissions, or copy it")
    if not os.access(path.parent, os.W_OK):
        raise Forbidden(
            f"the folder {path.parent} is read-only for this user",
            "SQLite needs to write its journal there; change the permissions",
        )
    if path.exists():
        _require_ours(path)


def _require_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    there = next((place for place in (folder, *folder.parents) if place.exists()), folder)
    if there.exists() and not there.is_dir():
        raise Invalid("url", f"{there} is a file, not a folder", "name a file in a folder")
    raise Invalid("url", f"there is no folder {folder}", f"mkdir -p {folder}")


def count_names(path: str | Path) -> int:
    """How many names (hard links) lead to the file; 0 when it is not there."""
    try:
        return os.stat(path).st_nlink
    except OSError:
        return 0


def _require_one_place(path: Path) -> None:
    """Refuse a file that others can reach by a path where its journal is not beside it."""
    names = count_names(path)
    if names > 1:
        raise Invalid(
            "url",
            f"{path} has {names} names (hard links), and each would have a journal of its own",
            "keep one name: remove the others, or copy the file",
        )
    if _is_mounted_alone(path):
        raise Invalid(
            "url",
            f"{path} is mounted without its folder, and its journal would stay outside",
            "mount the folder that it is in",
        )


def _is_mounted_alone(path: Path) -> bool:
    escaped = re.sub(r"[ \t\n\\]", lambda found: f"\\{ord(found[0]):03o}", os.path.realpath(path))
    try:
        with open("/proc/self/mountinfo", errors="surrogateescape") as mounts:
            return any(line.split(" ", 5)[4] == escaped for line in mounts)
    except (OSError, IndexError):
        return False  # Only Linux says it there.


def _require_ours(path: Path) -> None:
    """Refuse another program's file, with nothing left beside it."""
    if path.with_name(path.name + "-journal").exists():
        # SQLite has to say: a power cut may have torn the very first page
        # while the file was made, and this undoes that.
        return
    header = _header_of(path)
    if not header:
        return
    owner = _owner_in(header)
    if owner == APPLICATION_ID:
        return
    if owner is None:
        if _is_ours_by_journal(path):
            return  # A power cut tore the first page. SQLite has it from there.
        raise Invalid("url", f"{path} is not a database", "name another file, or a new one")
    if owner:
        raise _others(path)
    # Nobody's: most programs leave no mark. Ours may still be in the journal.
    with suppress(apsw.Error):  # Whoever opens it in earnest is told what is wrong.
        # Not read-only: such a connection would leave a journal and its index behind.
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.set_busy_timeout(_BUSY_MS)
            # One snapshot: it may be a store that is just being made.
            with transaction(connection):
                _require_owner(connection, path)
        finally:
            connection.close()


def _owner_in(header: bytes) -> int | None:
    """Whose database begins with these bytes, 0 if nobody's; None when none does."""
    if header[: len(_MAGIC)] != _MAGIC:
        return None
    return int.from_bytes(header[68:72], "big")


def _is_ours_by_journal(path: Path) -> bool:
    """Whether a first page of ours is in the journal; SQLite then says if it counts."""
    try:
        # It has no locks that closing it could let go of.
        with open(f"{path}-wal", "rb") as journal:
            page_bytes = int.from_bytes(journal.read(_JOURNAL_HEADER_BYTES)[8:12], "big")
            if page_bytes > _MOST_PAGE_BYTES:
                return False
            while len(frame := journal.read(_FRAME_HEADER_BYTES)) == _FRAME_HEADER_BYTES:
                page = journal.read(page_bytes)
                if int.from_bytes(frame[:4], "big") == 1 and _owner_in(page) == APPLICATION_ID:
                    return True
    except FileNotFoundError:
        pass
    return False


def _header_of(path: Path) -> bytes:
    """The first bytes of the file.

    Read by SQLite: if this process has the file open already, closing it in any
    other way would let go of the locks, and others would take it for unused.
    """
    try:
        flags = apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY
        file = apsw.VFSFile("", str(path), [flags, 0])
        try:
            return bytes(file.xRead(_HEADER_BYTES, 0))
        finally:
            file.xClose()
    except apsw.Error as error:
        raise translate(error, str(path), doing="open") from error


def read_format(path: Path) -> tuple[int | None, int]:
    """The file's format, None when there is none yet, and the one this version knows.

    Raises:
        Invalid: it is no store. Unsupported: it has a newer format.
        Corrupt: it is one, without the tables of its format.
    """
    known = len(load_migrations("sqlite"))
    if not path.exists() or not path.stat().st_size:
        return None, known
    _require_ours(path)
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            with translating(connection, str(path), "open"):
                return checked_format(connection, path, known) or None, known
        finally:
            connection.close()
    except apsw.Error as error:
        raise translate(error, str(path), doing="open") from error


def checked_format(connection: apsw.Connection, path: Path, known: int) -> int:
    """The file's format, 0 when there is none yet.

    Raises:
        Invalid: it is another program's. Unsupported: it has a newer format.
        Corrupt: it is ours, without the tables of its format.
    """
    tables = _require_owner(connection, path)
    version = pragma(connection, "user_version")
    if version > known:
        raise Unsupported(
            f"{path} has format {version}, this Pagefile knows {known}",
            "upgrade Pagefile; nothing was changed",
        )
    if version < 0 or bool(tables) != bool(version) or (version == known and _TABLES - tables):
        raise Corrupt(
            f"{path} says that it has format {version}, and its tables are not those",
            "restore a copy; nothing was changed",
        )
    return version


def _require_owner(connection: apsw.Connection, path: Path) -> set[str]:
    """The names of the tables, which are ours or none."""
    tables = {name for (name,) in fetch(connection, "SELECT name FROM sqlite_schema")}
    owner = pragma(connection, "application_id")
    # An empty file may be nobody's; one with a version has had somebody.
    if owner != APPLICATION_ID and (owner or tables or pragma(connection, "user_version")):
        raise _others(path)
    return tables


def _others(path: Path) -> Invalid:
    return Invalid(
        "url", f"{path} is another program's database", "name another file, or a new one"
    )


def bring_up_to_date(connection: apsw.Connection, path: Path) -> None:
    """Create the tables, or bring an older format up to date, in one transaction.

    Raises:
        Invalid, Unsupported, Corrupt: see `checked_format`; nothing was changed.
    """
    migrations = load_migrations("sqlite")
    version = checked_format(connection, path, len(migrations))
    # Also for a file that exists: a copy made by VACUUM INTO is not in this mode.
    connection.execute("PRAGMA journal_mode = WAL").fetchall()
    if version == len(migrations):
        return
    connection.execute("PRAGMA synchronous = FULL").fetchall()
    try:
        with transaction(connection, "BEGIN IMMEDIATE"):
            for script in migrations[version:]:
                connection.execute(script).fetchall()
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}").fetchall()
            connection.execute(f"PRAGMA user_version = {len(migrations)}").fetchall()
    except (apsw.SQLError, apsw.ConstraintError, apsw.MismatchError) as error:
        raise Unsupported(
            f"{path} has format {version} and cannot be brought to {len(migrations)} ({error})",
            "nothing was changed: open it with the Pagefile that wrote it, and report this",
        ) from error


def pragma(connection: apsw.Connection, name: str) -> int:
    """What SQLite says of one of its settings that is a number."""
    return int(fetch(connection, f"PRAGMA {name}")[0][0])
