"""One SQLite file: connections, format, durability, the write lock, the journal."""

from __future__ import annotations

import fcntl
import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import apsw

from pagefile.engines.sqlite.errors import misshapen, translate, translating
from pagefile.engines.sqlite.format import bring_up_to_date, count_names, pragma, require_place
from pagefile.engines.sqlite.rows import fetch
from pagefile.errors import Forbidden, Unavailable, Unsupported
from pagefile.store.records import Durability

_FIRST_PAUSE_SECONDS = 0.0002
_LONGEST_PAUSE_SECONDS = 0.002


class Gate:
    """One process's way through the turnstile; used by one thread at a time."""

    def __init__(self, path: Path, mode: int) -> None:
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
        except PermissionError:
            # Another user's: the lock is advisory, and reading is enough for it.
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        #: Take the gate if nobody holds it, or raise BlockingIOError: a plain system call.
        self.enter = partial(fcntl.flock, self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        #: Let the next one in; harmless when not held.
        self.leave = partial(fcntl.flock, self._file, fcntl.LOCK_UN)

    def pass_through(self, deadline: float) -> None:
        """Take the gate, or raise when the deadline (monotonic seconds) has passed.

        Raises:
            Unavailable: other processes kept the gate; nothing was written.
        """
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                return self.enter()
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise waited_too_long() from None
                time.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 1.5, _LONGEST_PAUSE_SECONDS)

    def close(self) -> None:
        os.close(self._file)


def waited_too_long() -> Unavailable:
    """What both waits, for the gate and for SQLite's lock, end with."""
    return Unavailable(
        "other processes held the write lock for too long",
        "look for a stopped or debugged process on this file, then retry",
    )


#: Older ones can lose pages when two connections checkpoint at the same instant.
OLDEST_SAFE_SQLITE = (3, 51, 3)
_LOCK_PAUSE_SECONDS = 0.0001
_IDLE_READERS = 16
#: Filled as needed: the end of every log written to lately should fit.
_CACHE_KIB = 64 * 1024
#: Of each connection that reads: enough for the inner pages of every tree. What lies below
#: is in the system's cache, and one fold of a long log would leave all of it here for good.
_READER_CACHE_KIB = 2 * 1024
#: SQLite moves the journal into the file at 4 MB, and fills it again from its start. When one
#: large batch or one long reader made it grow, so much of it stays.
_MOST_JOURNAL_BYTES = 16 * 1024 * 1024
#: Of a new store: its owner reads and writes it.
PRIVATE = 0o600
_READER_BUSY_MS = 10_000
#: How old a look at the names in the folder may be before the next call takes another.
_LOOK_SECONDS = 0.05

#: What a name leads to: device and inode.
_Identity = tuple[int, int]


class SqliteFile:
    """The file and its connections: one that writes, a few that read."""

    def __init__(
        self, path: Path, durability: Durability, *, vfs: str | None, lock_seconds: float
    ) -> None:
        _require_safe_library(apsw.sqlite_lib_version())
        # Journal and gate stand beside the file itself, for all who come to it.
        real = os.path.realpath(path)
        if path.is_symlink():
            path = Path(real)
        self.path = path
        self.durability = durability
        self.lock_seconds = lock_seconds
        self._vfs = vfs
        self._pid = os.getpid()
        self._readers: list[apsw.Connection] = []
        #: Only ever asked whether others have committed, so that its answers compare.
        self._stamper: apsw.Connection | None = None
        # One that a signal handler which closes can take too.
        self._stamping = threading.RLock()
        self._closed = False
        #: Where SQLite opened the file, and what its journals are called.
        self._names = (real, f"{real}-wal", f"{real}-shm")
        #: What these names led to when the file was opened; None when nothing was there.
        self._identities: tuple[_Identity | None, ...] = ()
        self._looked_at = 0.0
        #: How many names the file had then.
        self._links = 1
        #: Why this handle will not be used again: its file is somewhere else, or gone.
        self._lost = ""
        #: Neither closed nor lost.
        self._usable = True
        self._gate = _open_gate(path)
        opened = False
        try:
            self.writer = self._open_writer()
            opened = True
        except apsw.Error as error:
            raise translate(error, str(path), doing="open") from error
        finally:
            if not opened:
                self._gate.close()

    def _open_writer(self) -> apsw.Connection:
        """One process at a time: several may be creating the file at once."""
        self._gate.pass_through(time.monotonic() + self.lock_seconds)
        try:
            self._prepare_format()
            before = _identity_of(self._names[0])
            writer = self._connect()
            # Connected, SQLite holds a lock that keeps all three of them there.
            self._identities = tuple(_identity_of(name) for name in self._names)
            if self._identities[0] != before:
                raise self._lose(self._names[0], "nothing")
            return writer
        finally:
            self._gate.leave()

    def _connect(self) -> apsw.Connection:
        connection = apsw.Connection(str(self.path), vfs=self._vfs)
        # A plan does not depend on values: else a statement is planned anew for every new one.
        connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        # The first statement may meet another process that recovers the journal, or ends it.
        connection.set_busy_timeout(int(self.lock_seconds * 1000))
        # FULL, not NORMAL, at level power: under WAL, NORMAL can lose the last
        # commits on a power cut, and S4 says that an acknowledged one survives.
        level = "FULL" if self.durability == "power" else "NORMAL"
        settings = (
            f"synchronous = {level}",
            "fullfsync = ON",
            # Deleted content is overwritten with zeros at once: S9 promises it.
            "secure_delete = ON",
            f"cache_size = -{_CACHE_KIB}",
            "foreign_keys = OFF",
            # What one reader made grow is cut when it has gone, not when the last handle closes.
            f"journal_size_limit = {_MOST_JOURNAL_BYTES}",
        )
        with translating(connection, str(self.path), "open"):
            for setting in settings:
                connection.execute(f"PRAGMA {setting}").fetchall()
        connection.set_busy_timeout(0)
        if self._identities:
            self._look()  # By its name, a file that took the place of ours would have been opened.
        return connection

    def _prepare_format(self) -> None:
        """Make the file if there is none, with its tables; or bring these up to date."""
        is_new = not self.path.exists() or self.path.stat().st_size == 0
        if self._vfs is None and not self.path.exists():
            # What people told an agent is nobody else's to read; SQLite's own files follow it.
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, PRIVATE))
        connection = apsw.Connection(str(self.path), vfs=self._vfs)
        try:
            connection.set_busy_timeout(int(self.lock_seconds * 1000))
            with translating(connection, str(self.path), "open"):
                bring_up_to_date(connection, self.path)
        finally:
            connection.close()
        if is_new and self.durability == "power" and self._vfs is None:
            # The file's name must survive a power cut as well as its bytes.
            _sync_folder(self.path.parent)

    def require_own_process(self) -> None:
        """Refuse a handle that came through fork: SQLite files do not survive that."""
        if os.getpid() != self._pid:
            raise Forbidden(
                f"{self.path} was opened in process {self._pid} and used in its child",
                "call pagefile.open again in the child",
            )
        if self._closed:
            raise Forbidden(f"{self.path} is closed on this handle", "call pagefile.open again")
        if self._lost:
            raise self._lose(self._lost, "nothing")

    def look(self) -> None:
        """See, unless that was just done, that the file and its journals are where they were.

        Raises:
            Unavailable: they are not.
        """
        if time.monotonic() - self._looked_at > _LOOK_SECONDS:
            self._look()

    def _look(self) -> None:
        for name, identity in zip(self._names, self._identities, strict=True):
            if identity is not None and _identity_of(name) != identity:
                raise self._lose(name, "nothing")
        self._links = count_names(self._names[0])
        self._looked_at = time.monotonic()

    def _require_one_name(self) -> None:
        if self._links > 1:
            raise Unavailable(
                f"{self.path} has {self._links} names (hard links)",
                "remove the others, then commit again: what is written through them is lost",
            )

    def confirm(self) -> None:
        """After a commit, before it is acknowledged: see that it went into the file of this name.

        Raises:
            Unavailable: it did not; the outcome is unknown.
        """
        # As `_identity_of`, in one call: every commit comes here.
        identity = self._identities[0]
        if identity is not None:
            try:
                found = os.stat(self._names[0])
            except OSError:
                raise self._lose(self._names[0], "unknown") from None
            if found.st_ino != identity[1] or found.st_dev != identity[0]:
                raise self._lose(self._names[0], "unknown")

    def _lose(self, name: str, outcome: Literal["nothing", "unknown"]) -> Unavailable:
        """What to raise now that the file of a name is another one, or gone; for good.

        A file that comes back may have been written to meanwhile, with another journal.
        """
        self._lost, self._usable = name, False
        step = "close this handle, put file and journal (-wal) back, then open it again"
        if outcome == "unknown":
            step += " and commit again with the same key"
        return Unavailable(
            f"{name} was removed, renamed or replaced while it was open", step, outcome=outcome
        )

    def begin(self) -> apsw.Connection:
        """Start a write transaction, fairly waited for; `end` it in any case.

        Raises:
            Unavailable: others held the lock too long; nothing was written.
        """
        if os.getpid() != self._pid or not self._usable:
            self.require_own_process()
        now = time.monotonic()
        if now - self._looked_at > _LOOK_SECONDS or self._links > 1:
            self._look()
            self._require_one_name()
        deadline = now + self.lock_seconds
        gate, writer = self._gate, self.writer
        try:
            try:
                gate.enter()
            except BlockingIOError:
                gate.pass_through(deadline)
            try:
                if writer.in_transaction:
                    # Ctrl-C came again, just when what the first had stopped was rolled back.
                    self.end()
                writer.execute("BEGIN IMMEDIATE")
            except apsw.BusyError:
                self._begin_later(writer, deadline)
        finally:
            gate.leave()
        return writer

    def end(self) -> None:
        """Roll back what was not committed."""
        # A failed COMMIT may have rolled back by itself already; a closed file has nothing begun.
        with suppress(apsw.Error):
            if not self.writer.get_autocommit():
                self.writer.execute("ROLLBACK")

    def _begin_later(self, writer: apsw.Connection, deadline: float) -> None:
        """Only one process at a time comes here, so it may ask often."""
        while True:
            time.sleep(_LOCK_PAUSE_SECONDS)
            try:
                writer.execute("BEGIN IMMEDIATE")
            except apsw.BusyError:
                if time.monotonic() > deadline:
                    raise waited_too_long() from None
            else:
                return

    def read(self, sql: str, bindings: tuple[Any, ...]) -> list[Any]:
        """The rows of one statement: one consistent snapshot, seeing every commit so far."""
        with self.reader() as connection:
            return connection.execute(sql, bindings).fetchall()

    def stamp(self) -> int:
        """A number that is another one after every commit to the file, whoever made it."""
        self.require_own_process()
        try:
            with self._stamping:
                # Asked again: it may have been closed while we waited.
                self.require_own_process()
                self.look()
                if self._stamper is None:
                    self._stamper = self._connect_reader()
                return pragma(self._stamper, "data_version")
        except apsw.Error as error:
            raise translate(error, str(self.path), connection=self._stamper) from error

    def _connect_reader(self) -> apsw.Connection:
        connection = self._connect()
        connection.set_busy_timeout(_READER_BUSY_MS)
        connection.execute(f"PRAGMA cache_size = -{_READER_CACHE_KIB}").fetchall()
        connection.execute("PRAGMA query_only = ON").fetchall()
        return connection

    @contextmanager
    def reader(self) -> Iterator[apsw.Connection]:
        """A connection for reading; the caller may open a transaction on it."""
        self.require_own_process()
        self.look()
        try:
            try:
                connection = self._readers.pop()
            except IndexError:
                connection = self._connect_reader()
            try:
                with translating(connection, str(self.path)):
                    yield connection
            finally:
                self._take_back(connection)
        except apsw.Error as error:
            raise translate(error, str(self.path)) from error
        except (UnicodeDecodeError, OverflowError) as error:
            raise misshapen(error, str(self.path)) from error

    def rewrite(self, timeout: float, note: str, done: Sequence[tuple[Any, ...]]) -> bool:
        """Write the file again and cut the journal to nothing; False if others are in the way.

        `note` is a statement that then says so in the file, run with each item of `done`.

        Overwriting deleted rows is not enough: when a page was split, a copy of
        what moved stays in the unused part of the old page. Only writing every
        page anew leaves none of it.
        """
        self.require_own_process()
        deadline = time.monotonic() + timeout
        try:
            with (
                closing(self._connect()) as connection,
                translating(connection, str(self.path)),
            ):
                return self._rewritten(connection, deadline) and self._noted(
                    connection, deadline, note, done
                )
        except apsw.Error as error:
            raise translate(error, str(self.path)) from error

    def _rewritten(self, connection: apsw.Connection, deadline: float) -> bool:
        self._gate.pass_through(deadline)
        try:
            done = _until(deadline, lambda: bool(fetch(connection, "VACUUM")) or True)
        finally:
            self._gate.leave()
        return done and _until(deadline, lambda: _truncate_journal(connection))

    def _noted(
        self, connection: apsw.Connection, deadline: float, note: str, done: Sequence[Any]
    ) -> bool:
        self._gate.pass_through(deadline)
        try:
            if not _until(deadline, lambda: bool(fetch(connection, "BEGIN IMMEDIATE")) or True):
                return False
        finally:
            self._gate.leave()
        connection.executemany(note, done).fetchall()
        # SQLite does not sync the cut of the journal. A commit does, and this one is never
        # empty: a power cut must not bring the journal's old bytes back.
        version = pragma(connection, "user_version")
        fetch(connection, f"PRAGMA user_version = {version}")
        fetch(connection, "COMMIT")
        return True

    def size_bytes(self) -> int:
        """Bytes of the file and its journal."""
        total = 0
        for suffix in ("", "-wal"):
            with suppress(FileNotFoundError):
                total += os.stat(f"{self.path}{suffix}").st_size
        return total

    def close(self) -> None:
        if self._closed:
            return
        self._closed, self._usable = True, False
        if os.getpid() != self._pid:
            return  # The parent's connections; closing them here could harm its file.
        try:
            self._close_readers()
            with self._stamping:
                if self._stamper is not None:
                    self._disconnect(self._stamper)
            self._disconnect(self.writer)
        except apsw.Error as error:
            raise translate(error, str(self.path)) from error
        finally:
            self._gate.close()

    def _disconnect(self, connection: apsw.Connection) -> None:
        with suppress(Unavailable):
            if _identity_of(self._names[1]) not in (None, self._identities[1]):
                # The last to close moves its journal into the file and removes what has that
                # name. This is another's: the file may have what we know nothing of.
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.close()

    def _take_back(self, connection: apsw.Connection) -> None:
        if len(self._readers) >= _IDLE_READERS:
            self._disconnect(connection)
            return
        self._readers.append(connection)
        # After, not before: `close` may come between a look and the append.
        if self._closed:
            self._close_readers()

    def _close_readers(self) -> None:
        """Each is taken out first, so that nobody reads with one that is being closed."""
        while self._readers:
            try:
                self._disconnect(self._readers.pop())
            except IndexError:
                return  # Somebody else took the last one, and closes it when done.


def _open_gate(path: Path) -> Gate:
    require_place(path)
    # Whoever may write the database may pass: it may have been opened up to a group.
    mode = path.stat().st_mode & 0o666 if path.exists() else PRIVATE
    return Gate(path.with_name(path.name + "-gate"), mode)


def _identity_of(name: str) -> _Identity | None:
    try:
        found = os.stat(name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unavailable(
            f"{name} cannot be looked for ({error.strerror})", "look at the disk, then retry"
        ) from error
    return found.st_dev, found.st_ino


def _require_safe_library(version: str) -> None:
    if tuple(int(part) for part in version.split(".")[:3]) < OLDEST_SAFE_SQLITE:
        oldest = ".".join(str(part) for part in OLDEST_SAFE_SQLITE)
        raise Unsupported(
            f"SQLite {version} can lose pages when two processes checkpoint at once",
            f"pip install --upgrade apsw, for SQLite {oldest} or newer",
        )


def _truncate_journal(connection: apsw.Connection) -> bool:
    return not fetch(connection, "PRAGMA wal_checkpoint(TRUNCATE)")[0][0]


def _until(deadline: float, attempt: Callable[[], bool]) -> bool:
    """Try until it works, or until the deadline; busy means try again."""
    while True:
        try:
            if attempt():
                return True
        except apsw.BusyError:
            pass
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
