"""A server and its worker processes."""

from __future__ import annotations

import asyncio
import functools
import gc
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
import time
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from pagefile.errors import Invalid, Unavailable, Unsupported, shown
from pagefile.handle import Admin, Options
from pagefile.operations.answer import milliseconds_of
from pagefile.store.codec.decoder import json_decoder
from pagefile.surfaces.access.keys import KeyStore
from pagefile.surfaces.http.config import ServerConfig
from pagefile.surfaces.http.telemetry import Counted, Level, Metrics

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from pagefile.surfaces.http.app import Mounted

_NEEDED = "pip install 'pagefile[server]'"
#: From when a connection waits for a request until the head of one is whole.
HEAD_SECONDS = 10.0
#: So much of what a client sends is in memory before it is parsed; a head has to fit.
MOST_HEAD_BYTES = 65_536
#: Of each worker. Beyond so many, connections wait in the system until others are closed.
MOST_CONNECTIONS = 2_048
_BACKLOG = 2_048
#: Requests that are under way at the end may take so long.
GRACE_SECONDS = 20


def serve(config: ServerConfig, *, out: TextIO | None = None) -> None:
    """Serve until told to stop (SIGINT, SIGTERM); requests under way are seen through.

    The first start of a store that has no key makes one and shows it, this once.

    Raises:
        Invalid: the configuration is none. Unsupported: the server's extra is not installed.
        Unavailable: the port is taken.
    """
    config.checked()
    if config.url == "memory:" and not config.local and config.tokens is None:
        rule = "serve a file, or say --local"
        raise Invalid("url", "memory: holds no key, so nobody could be let in", rule)
    _require_extra()
    address, port = _free_address(config)
    config = msgspec.structs.replace(config, port=port)
    secret = first_key(config)
    print(banner(config, secret), file=out or sys.stdout, flush=True)
    with _counters(config) as counted:
        _run(counted, address, port)


@contextmanager
def _counters(config: ServerConfig) -> Iterator[ServerConfig]:
    """The configuration with a folder for the counters of several workers, gone afterwards."""
    if config.workers == 1 or config.metrics_dir:
        yield config
        return
    with TemporaryDirectory(prefix="pagefile-metrics-", ignore_cleanup_errors=True) as folder:
        yield msgspec.structs.replace(config, metrics_dir=folder)


def first_key(config: ServerConfig) -> str | None:
    """The key that is made when there is none yet; its secret, to be shown this once."""
    if config.url == "memory:":
        return None
    with Admin(config.url, options=Options(durability=config.durability)) as admin:
        keys = KeyStore(admin)
        if config.local or not keys.is_empty():
            return None
        made = keys.create(config.tenant, ("read", "write", "admin"), name="first key")
        return made.secret


def banner(config: ServerConfig, secret: str | None) -> str:
    """What is told when a server starts."""
    host = f"[{config.host}]" if ":" in config.host else config.host
    base = f"http://{host}:{config.port}"
    if config.local:
        key = "none needed: whoever reaches this port is let in (--local)"
    elif secret is not None:
        key = f"{secret}   (shown this once; keep it)"
    else:
        key = "as made before; `pagefile keys create` makes another"
    lines = (
        ("Data", _place(config.url)),
        ("Key", key),
        ("API", f"{base}/v1"),
        ("Docs", f"{base}/docs and {base}/redoc"),
        ("Health", f"{base}/health, {base}/ready, {base}/metrics"),
        *((("MCP", f"{base}/mcp"),) if config.mounts else ()),
    )
    told = "\n".join(f"  {name:<7} {what}" for name, what in lines)
    return f"Pagefile serves tenant {config.tenant!r} on {base}\n{told}\n"


def _place(url: str) -> str:
    """Where the data is, without any password."""
    if url == "memory:":
        return "in memory; gone when the server stops"
    scheme, mark, rest = url.partition("://")
    if mark and scheme != "sqlite":
        return f"{scheme}://{rest.rpartition('@')[2]}"
    return str(Path(rest.removeprefix("/") if mark else url).expanduser().absolute())


def _require_extra() -> None:
    try:
        import granian  # noqa: F401
        import prometheus_client  # noqa: F401
        import starlette  # noqa: F401
    except ModuleNotFoundError as error:
        raise Unsupported(f"the server needs {error.name}, which is missing", _NEEDED) from error


def _free_address(config: ServerConfig) -> tuple[str, int]:
    """The address and port to bind, or a refusal before anything is made.

    Each worker binds a socket of its own there, and the system lets several programs
    do so that agree to: only a socket that does not agree learns that the port is taken.
    """
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    with socket.socket(family) as tried:
        try:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            tried.bind((config.host.strip("[]"), config.port))
            # Bound is not enough: two sockets may be bound to one port until one listens.
            tried.listen(1)
        except socket.gaierror as error:
            raise Invalid("host", f"{shown(config.host)} is not an address", "give one") from error
        except OSError as error:
            raise Unavailable(
                f"{config.host}:{config.port} cannot be bound ({os.strerror(error.errno or 0)})",
                "stop what listens there, or give another --port",
            ) from error
        address, port = tried.getsockname()[:2]
        return address, port


def _run(config: ServerConfig, address: str, port: int) -> None:
    """Run the server program until SIGINT or SIGTERM.

    Raises:
        Unavailable: the workers ended by themselves.
    """
    from granian import Granian
    from granian.constants import HTTPModes, Interfaces
    from granian.http import HTTP1Settings

    from pagefile.surfaces.http.server import LOGGING, load

    program = Granian(
        "pagefile",
        address=address,
        port=port,
        interface=Interfaces.ASGI,
        workers=config.workers,
        http=HTTPModes.http1,
        websockets=False,
        backlog=_BACKLOG,
        backpressure=MOST_CONNECTIONS,
        http1_settings=HTTP1Settings(
            header_read_timeout=int(HEAD_SECONDS * 1_000), max_buffer_size=MOST_HEAD_BYTES
        ),
        log_dictconfig=LOGGING,
        # One alone that cannot go on would not fare better the next time.
        respawn_failed_workers=config.workers > 1,
        workers_kill_timeout=GRACE_SECONDS,
    )
    try:
        program.serve(target_loader=functools.partial(load, config), wrap_loader=False)
    except SystemExit as error:
        raise Unavailable(
            "the server's processes have ended", "see what it wrote before"
        ) from error


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
