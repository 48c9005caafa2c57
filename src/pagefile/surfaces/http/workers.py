"""One worker process of a server: its application, its counters, its end, and what is logged of it.

The server program starts, watches and replaces the processes. What it does not know
is kept here: that a worker ends with its parent, that answers without an end are
ended at a signal, and that `/metrics` of any worker counts for all.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import msgspec

from pagefile.operations.timestamps import milliseconds_of
from pagefile.store.codec.decoder import json_decoder
from pagefile.surfaces.http.config import ServerConfig
from pagefile.surfaces.http.logs import Level
from pagefile.surfaces.http.metrics import Counted, Metrics

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from pagefile.surfaces.http.app import Mounted

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
#: Objects between two searches for cycles; Python's own choice of 700 is a matter of a few
#: requests.
_COLLECT_AFTER = 20_000
_WRITE_EVERY_SECONDS = 1.0
_encode = msgspec.json.Encoder().encode
_decode = json_decoder(Counted).decode


def load(config: ServerConfig) -> ASGIApp:
    """The application of one worker process, which it owns."""
    from pagefile.memory.privacy.isolation import IsolationWarning
    from pagefile.surfaces.http.app import make_app

    threading.Thread(target=_end_with_parent, daemon=True).start()
    # Over HTTP every request says by itself which user it is for: nobody can be warned.
    warnings.filterwarnings("ignore", category=IsolationWarning)
    app = make_app(config, [_mounted(name, config) for name in config.mounts])
    # What is loaded by now is left out of the search for cycles; few requests leave any.
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, *gc.get_threshold()[1:])
    return app


def _mounted(name: str, config: ServerConfig) -> Mounted:
    """Another surface that is served beside this one, by the name of its maker."""
    from importlib import import_module

    module, _, maker = name.partition(":")
    mounted: Mounted = getattr(import_module(module), maker)(config)
    return mounted


def _end_with_parent() -> None:
    """A worker whose parent was killed would serve on, and hold the port, for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


@contextmanager
def stopped_by_signal(*stops: Callable[[], None]) -> Iterator[None]:
    """Call these in the running loop at SIGINT or SIGTERM; earlier handlers still hear it.

    The server program waits for open answers before it ends the application, so
    an answer without an end has to hear of the signal itself.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # Signals are the main thread's; an application in another is ended in another way.
        return
    loop = asyncio.get_running_loop()
    before: dict[int, Any] = {each: signal.getsignal(each) for each in _SIGNALS}

    def handle(number: int, frame: FrameType | None) -> None:
        for stop in stops:
            loop.call_soon_threadsafe(stop)
        if callable(before[number]):
            before[number](number, frame)

    # Not the loop's own `add_signal_handler`: it knows one handler for each signal, and that
    # one is the server program's, which is reached by way of the loop in any case.
    heard = [each for each in _SIGNALS if callable(before[each])]
    for each in heard:
        signal.signal(each, handle)
    try:
        yield
    finally:
        for each in heard:
            if signal.getsignal(each) is handle:
                signal.signal(each, before[each])


class Counters:
    """The counters of one process, shared with the others of its server through a folder.

    A process that is asked for all reads what the others left, which is at most a
    second old. What a process that died had counted still counts. Without a folder
    ("") a process counts for itself.
    """

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder) if folder else None
        self.metrics = Metrics(self._others)

    @asynccontextmanager
    async def shared(self) -> AsyncIterator[None]:
        """Leave them for the others while this is open, and once more at the end."""
        if self._folder is None:
            yield
            return
        task = asyncio.ensure_future(self._write_often(self._folder))
        try:
            yield
        finally:
            task.cancel()
            self._write(self._folder)

    async def _write_often(self, folder: Path) -> None:
        while True:
            self._write(folder)
            await asyncio.sleep(_WRITE_EVERY_SECONDS)

    def _write(self, folder: Path) -> None:
        # A few kilobytes once a second, to a file that is in memory: not worth a thread.
        raw = msgspec.json.encode(self.metrics.counted(os.getpid()))
        file = folder / f"{os.getpid()}.json"
        # A folder that is gone, or full, must not end a server.
        with suppress(OSError):
            file.with_suffix(".new").write_bytes(raw)
            file.with_suffix(".new").replace(file)

    def _others(self) -> Iterator[Counted]:
        for file in [] if self._folder is None else sorted(self._folder.glob("*.json")):
            if file.stem == str(os.getpid()):
                continue
            with suppress(OSError, msgspec.MsgspecError):
                found = _decode(file.read_bytes())
                yield found if _is_alive(found.pid) else msgspec.structs.replace(found, in_flight=0)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


class WorkerLog(logging.Handler):
    """Writes what the server program warns of as lines of JSON, like the rest of the log."""

    def emit(self, record: logging.LogRecord) -> None:
        level: Level = "error" if record.levelno >= logging.ERROR else "warning"
        # The first line alone: what follows is a trace, whose lines may quote somebody.
        message = record.getMessage().partition("\n")[0][:500]
        now = milliseconds_of(time.time_ns() // 1_000)
        line = _encode({"time": now, "level": level, "event": "server", "message": message})
        sys.stderr.write(line.decode() + "\n")
        sys.stderr.flush()


#: For the server program: everything that it says goes to a `WorkerLog`.
LOGGING: dict[str, Any] = {
    "version": 1,
    "disable_existing_loggers": False,
    "handlers": {"lines": {"()": WorkerLog, "level": "WARNING"}},
    "loggers": {"_granian": {"handlers": ["lines"], "propagate": False}},
}
