"""Starting a server: what is printed, which processes run, how they end."""

from __future__ import annotations

import functools
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TextIO

import msgspec

from pagefile.errors import Invalid, Unavailable, Unsupported, shown
from pagefile.handle import Admin, Options
from pagefile.surfaces.access.keys import KeyStore
from pagefile.surfaces.http.config import ServerConfig

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
        import fastapi  # noqa: F401
        import granian  # noqa: F401
        import prometheus_client  # noqa: F401
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

    from pagefile.surfaces.http.workers import LOGGING, load

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
