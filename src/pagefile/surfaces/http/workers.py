"""The processes of a server: one socket for all, one that dies is replaced, all end together."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import TYPE_CHECKING

import uvicorn

from pagefile.errors import Unavailable
from pagefile.surfaces.http.protocol import Listener
from pagefile.surfaces.http.worker_log import logging_config, tell

if TYPE_CHECKING:
    from starlette.types import ASGIApp

#: Requests that are under way at the end may take so long, and a process a little longer.
GRACE_SECONDS = 10
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_BACKLOG = 2_048
#: Between two processes that take the place of others.
_PAUSE_SECONDS = 3.0


class Workers:
    """Runs so many processes, each with an application of its own, until told to stop."""

    def __init__(self, make: Callable[[], ASGIApp], number: int) -> None:
        self._make = make
        self._number = number
        self._is_told = False
        #: When the next process may be replaced.
        self._not_before = 0.0
        # Where it is usual: what is loaded once is not loaded again by each.
        self._process: Callable[..., BaseProcess]
        if sys.platform == "linux":
            self._process = multiprocessing.get_context("fork").Process
        else:
            self._process = multiprocessing.get_context("spawn").Process

    def run(self, listening: socket.socket) -> None:
        """Serve on this socket; returns after SIGINT or SIGTERM.

        Raises:
            Unavailable: the only worker ended by itself.
        """
        with self._hearing() as heard:
            running = {number: self._started(listening) for number in range(1, self._number + 1)}
            try:
                while not self._is_told:
                    wait([heard, *(each.sentinel for each in running.values())])
                    if not self._is_told and time.monotonic() < self._not_before:
                        # What ends right after its start would only do so again.
                        wait([heard], self._not_before - time.monotonic())
                    self._replace(running, listening)
            finally:
                listening.close()
                self._end(running)

    def _replace(self, running: dict[int, BaseProcess], listening: socket.socket) -> None:
        for number, process in list(running.items()):
            if self._is_told or process.is_alive():
                continue
            tell("error", "worker died", worker=number, pid=process.pid)
            if self._number == 1:
                # One alone that cannot go on would not fare better the next time.
                raise Unavailable("the server's process has ended", "see what it wrote before")
            running[number] = self._started(listening)
            self._not_before = time.monotonic() + _PAUSE_SECONDS
            tell("warning", "worker replaced", worker=number, pid=running[number].pid)

    def _started(self, listening: socket.socket) -> BaseProcess:
        process = self._process(target=_work, args=(self._make, listening))
        # Told to stop before it can hear, it would take that for a word to its parent.
        _hold_signals()
        try:
            process.start()
        finally:
            _hear_signals()
        return process

    def _end(self, running: dict[int, BaseProcess]) -> None:
        for process in running.values():
            with contextlib.suppress(OSError):
                process.terminate()
        until = time.monotonic() + 2 * GRACE_SECONDS
        for number, process in running.items():
            process.join(max(0.0, until - time.monotonic()))
            if process.is_alive():
                tell("warning", "killing a worker that did not end", worker=number, pid=process.pid)
                process.kill()
                process.join()

    @contextlib.contextmanager
    def _hearing(self) -> Iterator[Connection]:
        """Readable when a signal came: waiting for processes goes on after one by itself."""

        def told(number: int, frame: FrameType | None) -> None:
            self._is_told = True
            bell.send_bytes(b"x")

        heard, bell = multiprocessing.Pipe(duplex=False)
        before = {each: signal.signal(each, told) for each in _SIGNALS}
        try:
            yield heard
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)
            heard.close()
            bell.close()


class _Server(uvicorn.Server):
    """The server program, which ends without a word when it is told to."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # Its own raises the signal again at the end, so that an orderly end looks like none.
        for each in _SIGNALS:
            signal.signal(each, self.handle_exit)
        _hear_signals()
        yield


def _hold_signals() -> None:
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def _hear_signals() -> None:
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def _work(make: Callable[[], ASGIApp], listening: socket.socket) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _Server(configured(make)).run([listening])


def _end_with_parent() -> None:
    """A worker whose parent was killed would serve on, and hold the port, for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def configured(make: Callable[[], ASGIApp]) -> uvicorn.Config:
    """How the server program is to run an application."""
    return uvicorn.Config(
        make,
        factory=True,
        interface="asgi3",
        lifespan="on",
        http=Listener(),  # type: ignore[arg-type]
        ws="none",
        loop="auto",
        # No header about where a request came from is believed.
        proxy_headers=False,
        server_header=False,
        access_log=False,
        log_config=logging_config(),
        backlog=_BACKLOG,
        timeout_graceful_shutdown=GRACE_SECONDS,
    )
