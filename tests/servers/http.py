"""A real server in a process of its own, on a free port of this machine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.servers.ports import free_port

_START = """
import sys, msgspec
from pagefile.surfaces.http.config import ServerConfig
from pagefile.surfaces.http.server import serve
serve(msgspec.json.decode(sys.argv[1].encode(), type=ServerConfig))
"""
_START_SECONDS = 120
_STOP_SECONDS = 30


class HttpServer:
    """Starts when it is entered, stops when it is left. `settings` are those of `ServerConfig`."""

    def __init__(self, url: str, settings: dict[str, Any] | None = None) -> None:
        self.port = free_port()
        self.url = url
        self.base = f"http://127.0.0.1:{self.port}"
        self._settings = {"url": url, "port": self.port, "log_level": "error", **(settings or {})}
        self._folder = Path(url).parent
        self._process: subprocess.Popen[str] | None = None
        self.printed = ""
        self.started_seconds = 0.0

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def key(self) -> str:
        """The key that the first start showed."""
        found = re.search(r"pf_[0-9a-f]{12}_\S+", self.printed)
        assert found is not None, self.printed
        return found[0]

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}

    def __enter__(self) -> Self:
        started = time.monotonic()
        with (self._folder / f"server-{self.port}.err").open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, json.dumps(self._settings)],
                cwd=self._folder,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        assert self._process.stdout is not None
        for line in iter(self._process.stdout.readline, ""):
            self.printed += line
            if not line.strip():
                break
        self._wait_until_ready(started + _START_SECONDS)
        self.started_seconds = time.monotonic() - started
        return self

    def _wait_until_ready(self, until: float) -> None:
        assert self._process is not None
        answered: set[str] = set()
        while time.monotonic() < until and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.base}/ready", timeout=5) as answer:
                    # Ids of requests begin with what stands for the worker that made them.
                    answered.add(answer.headers["x-request-id"][:12])
            except (urllib.error.URLError, OSError):
                time.sleep(0.02)
            if len(answered) == self._settings.get("workers", 1):
                return
        raise RuntimeError(f"the server did not start: {self.printed}{self.errors}")

    @property
    def errors(self) -> str:
        """What it wrote to standard error."""
        return (self._folder / f"server-{self.port}.err").read_text()

    def stop(self) -> int:
        """Ask it to end; its status."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.terminate()
        try:
            return self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            return self._process.wait()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        assert self._process is not None
        assert self._process.stdout is not None
        self._process.stdout.close()
