"""A server in this process: on standard input and output, or on a port."""

from __future__ import annotations

import logging
import signal
import sys
import threading
import warnings
from typing import Any

import anyio

from pagefile.errors import Forbidden, Unavailable
from pagefile.memory.privacy.isolation import IsolationWarning
from pagefile.surfaces.mcp.http import LOOPBACK, McpApp
from pagefile.surfaces.mcp.identity import Identity
from pagefile.surfaces.mcp.server import server_of
from pagefile.surfaces.mcp.service import Service

_SHUTDOWN_SECONDS = 5
_ON_THIS_MACHINE = ("127.0.0.1", "localhost", "::1")


def serve_stdio(service: Service, identity: Identity) -> None:
    """Serve one client on standard input and output, until it closes them."""
    from mcp.server.stdio import stdio_server

    _settle_logging()
    server = server_of(service, identity)
    if threading.current_thread() is threading.main_thread():
        # The SDK waits for its reader, and that one for a line that may never come. What was
        # answered is stored: there is nothing to put in order.
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    async def serve() -> None:
        async with stdio_server() as (incoming, outgoing):
            await server.run(incoming, outgoing, server.create_initialization_options())

    anyio.run(serve)


def require_local(host: str) -> None:
    """Refuse to let other machines in without keys."""
    if host not in _ON_THIS_MACHINE:
        raise Forbidden(
            f"{host} can be reached from other machines, and nobody is asked for a key here",
            "serve 127.0.0.1, or use 'pagefile serve', which asks for keys",
        )


def serve_http(service: Service, identity: Identity, host: str, port: int) -> None:
    """Serve on a port of this machine until interrupted; says on standard error where."""
    import socket

    import uvicorn

    require_local(host)
    _settle_logging()
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(1_024)
    except (OSError, OverflowError) as error:
        listener.close()
        raise Unavailable(
            f"port {port} of {host} cannot be had ({error})", "choose another with --port"
        ) from error
    shown = f"[{host}]" if ":" in host else host
    print(
        f"serving MCP at http://{shown}:{listener.getsockname()[1]}/mcp",
        file=sys.stderr,
        flush=True,
    )
    app: Any = McpApp(service, identity=identity, hosts=LOOPBACK)
    config = uvicorn.Config(
        app, log_level="warning", timeout_graceful_shutdown=_SHUTDOWN_SECONDS, ws="none"
    )
    try:
        uvicorn.Server(config).run(sockets=[listener])
    finally:
        listener.close()


def _settle_logging() -> None:
    # Standard output is the protocol's. Nobody's bucket is a choice here, not an oversight.
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    warnings.filterwarnings("ignore", category=IsolationWarning)
