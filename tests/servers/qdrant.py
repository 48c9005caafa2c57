"""A real Qdrant server for tests: a plain binary on loopback, in a folder of its own.

`.ci/fetch-qdrant` puts the binary into the user's cache.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.servers.ports import free_port

VERSION = "1.16.3"
_READY_SECONDS = 60.0
_NOBODY = 65534


def find_binary() -> Path | None:
    """The executable that was fetched; None when it was not."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    binary = Path(cache) / "pagefile" / f"qdrant-{VERSION}" / "qdrant"
    return binary if os.access(binary, os.X_OK) else None


class QdrantServer:
    """One server; a context manager. Start it, kill it, wipe it, start it again."""

    def __init__(self, *, api_key: str | None = None, under: Path | None = None) -> None:
        binary = find_binary()
        if binary is None:
            raise FileNotFoundError("the Qdrant executable is not there: .ci/fetch-qdrant")
        self.folder = Path(tempfile.mkdtemp(prefix="pagefile-qdrant-", dir=under))
        self.port, self.grpc_port = free_port(), free_port()
        self._binary = binary
        self._as_nobody: list[str] = []
        if os.geteuid() == 0 and shutil.which("setpriv"):
            # As a server is run: without root.
            os.chown(self.folder, _NOBODY, _NOBODY)
            identity = ["--reuid", str(_NOBODY), "--regid", str(_NOBODY), "--clear-groups"]
            self._as_nobody = ["setpriv", *identity]
        self._environment = {
            "QDRANT__SERVICE__HOST": "127.0.0.1",
            "QDRANT__SERVICE__HTTP_PORT": str(self.port),
            "QDRANT__SERVICE__GRPC_PORT": str(self.grpc_port),
            "QDRANT__STORAGE__STORAGE_PATH": str(self.folder / "storage"),
            "QDRANT__STORAGE__SNAPSHOTS_PATH": str(self.folder / "snapshots"),
            "QDRANT__TELEMETRY_DISABLED": "true",
            "QDRANT__LOG_LEVEL": "WARN",
            # Small collections, made and removed by the dozen.
            "QDRANT__STORAGE__WAL__WAL_CAPACITY_MB": "1",
            "QDRANT__STORAGE__OPTIMIZERS__DEFAULT_SEGMENT_NUMBER": "1",
            "QDRANT__STORAGE__PERFORMANCE__MAX_OPTIMIZATION_THREADS": "1",
        }
        if api_key is not None:
            self._environment["QDRANT__SERVICE__API_KEY"] = api_key
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Start it, on whatever its folder holds, and wait until it answers."""
        # Opened here: nobody may not be able to go where the executable is.
        with (self.folder / "server.log").open("ab") as log, self._binary.open("rb") as binary:
            program = f"/proc/self/fd/{binary.fileno()}"
            self._process = subprocess.Popen(
                [*self._as_nobody, program, "--disable-telemetry"],
                pass_fds=(binary.fileno(),),
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={"PATH": os.environ.get("PATH", ""), **self._environment},
            )
        deadline = time.monotonic() + _READY_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                text = (self.folder / "server.log").read_text(errors="replace")[-2_000:]
                self.kill()
                raise RuntimeError(f"Qdrant did not start:\n{text}")
            time.sleep(0.01)
        return self

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=1) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def kill(self) -> None:
        """kill -9, as a crash would."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGKILL)
            process.wait(timeout=30)

    def wipe(self) -> None:
        """Kill it and remove all it stored; `start` begins with nothing."""
        self.kill()
        shutil.rmtree(self.folder / "storage", ignore_errors=True)

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
