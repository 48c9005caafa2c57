"""A real manager for tests: a process of its own on loopback."""

from __future__ import annotations

import itertools
import subprocess
import sys
from types import TracebackType
from typing import Self

from pagefile.engines.manager.protocol import Address, address_of
from pagefile.testing.backend import Backend, FileBackend

_END_SECONDS = 30


class ManagerProcess:
    """One manager; a context manager. Each start is an empty one."""

    def __init__(self, *options: str) -> None:
        self._options = options
        self._process: subprocess.Popen[str] | None = None
        self.address = Address("127.0.0.1", 0)
        self._numbers = itertools.count()

    @property
    def url(self) -> str:
        """What clients open; it holds the key."""
        return self.address.url

    @property
    def port(self) -> int:
        return self.address.port

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> Self:
        """Start it, and wait until it listens; at the same port as before."""
        command = [sys.executable, "-m", "pagefile.engines.manager.server"]
        command += ["--port", str(self.port), *self._options]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.address = address_of(self._process.stdout.readline().strip())
        return self

    def space(self, name: str) -> str:
        """The URL of one of its stores."""
        return f"{self.url}/{name}"

    def place(self) -> Backend:
        """An empty store of its own. It is memory: no byte of it is anywhere to be read."""
        return FileBackend(self.space(f"place-{next(self._numbers)}"), remains=lambda: ())

    def kill(self) -> None:
        """kill -9: what it held is lost."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait(timeout=_END_SECONDS)
            assert process.stdout is not None
            process.stdout.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
