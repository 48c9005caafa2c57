"""Starting a server: what is printed, which processes run, how they end."""

from __future__ import annotations

import functools
import gc
import os
import socket
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import TYPE_CHECKING, Any, TextIO

import msgspec

from pagefile.errors import Invalid, Unavailable, Unsupported, shown
from pagefile.handle import Admin, Options
from pagefile.store.codec.decoder import convert
from pagefile.surfaces.access.keys import KeyStore
from pagefile.surfaces.http.config import ServerConfig

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from pagefile.surfaces.http.app import Mounted

_NEEDED = "pip install 'pagefile[server]'"
#: Objects between two searches; Python's own choice of 700 is a matter of a few requests.
_COLLECT_AFTER = 20_000


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
    workers = _workers()
    with _bound(config) as listening:
        secret = first_key(config)
        print(banner(config, secret), file=out or sys.stdout, flush=True)
        with _counters(config) as counted:
            workers.Workers(functools.partial(load, counted), config.workers).run(listening)


@contextmanager
def _counters(config: ServerConfig) -> Iterator[ServerConfig]:
    """The configuration with a folder for the counters of several workers, gone afterwards."""
    if config.workers == 1 or config.metrics_dir:
        yield config
        return
    with TemporaryDirectory(prefix="pagefile-metrics-", ignore_cleanup_errors=True) as folder:
        yield msgspec.structs.replace(config, metrics_dir=folder)


def load(config: ServerConfig) -> ASGIApp:
    """The application of one worker process, which it owns."""
    from pagefile.memory.privacy.isolation import IsolationWarning
    from pagefile.surfaces.http.app import make_app

    # Over HTTP, `user_id` left out is said in every request anew: there is nobody to warn.
    warnings.filterwarnings("ignore", category=IsolationWarning)
    app = make_app(config, [_mounted(name, config) for name in config.mounts])
    _collect_seldom()
    return app


def _collect_seldom() -> None:
    """Leave what is loaded by now out of the search for cycles; of requests few have any."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_COLLECT_AFTER, *gc.get_threshold()[1:])


def _mounted(name: str, config: ServerConfig) -> Mounted:
    """Another surface that wants to be served beside this one, by the name of its maker."""
    from importlib import import_module

    module, _, maker = name.partition(":")
    mounted: Mounted = getattr(import_module(module), maker)(config)
    return mounted


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


def _workers() -> ModuleType:
    try:
        import fastapi  # noqa: F401
        import httptools  # noqa: F401
        import prometheus_client  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise Unsupported(f"the server needs {error.name}, which is missing", _NEEDED) from error
    from pagefile.surfaces.http import workers

    return workers


def _bound(config: ServerConfig) -> socket.socket:
    """A socket that has the port, or a refusal before anything is made."""
    listening = socket.socket(socket.AF_INET6 if ":" in config.host else socket.AF_INET)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((config.host.strip("[]"), config.port))
    except socket.gaierror as error:
        listening.close()
        raise Invalid("host", f"{shown(config.host)} is no address", "give one") from error
    except OSError as error:
        listening.close()
        raise Unavailable(
            f"{config.host}:{config.port} cannot be bound ({os.strerror(error.errno or 0)})",
            "stop what listens there, or give another --port",
        ) from error
    return listening


def config_from(settings: dict[str, Any]) -> ServerConfig:
    """A configuration from what was given; what is None is left as it is."""
    given = {name: value for name, value in settings.items() if value is not None}
    try:
        return convert(given, ServerConfig).checked()
    except msgspec.ValidationError as error:
        raise Invalid("config", str(error), "see docs/howto/serve.md") from error
