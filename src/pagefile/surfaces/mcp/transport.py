"""A server in this process: on standard input and output, or on a port."""

from __future__ import annotations

import json
import logging
import signal
import sys
import threading
import warnings
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio
import anyio.to_thread
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings

from pagefile.errors import Forbidden, Invalid, PagefileError, Unavailable
from pagefile.memory.privacy.isolation import IsolationWarning
from pagefile.surfaces.mcp.caller import Identity
from pagefile.surfaces.mcp.server import IDENTITY, server_of
from pagefile.surfaces.mcp.service import Service

# The server over HTTP: an ASGI application that answers at one path, behind a guard.


PATH: Final = "/mcp"
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
_MOST_BODY_BYTES = 8 * 1024 * 1024
_MOST_SESSIONS = 1_000
_MOST_HEADERS = 200

#: Who the headers of a request speak for (their names in lower case); None is nobody.
Authenticate = Callable[[Mapping[str, str]], Identity | None]


class McpApp:
    """An ASGI application. Alone, it manages itself; in another application, whoever
    adds it as a route for `/mcp` enters `running()` while that application lives.

    Requests for another host than `hosts`, or from a page of another origin, are
    refused: a page that a browser shows must not reach a server on this machine.
    """

    def __init__(
        self,
        service: Service,
        *,
        identity: Identity | None = None,
        authenticate: Authenticate | None = None,
        hosts: Sequence[str] = LOOPBACK,
    ) -> None:
        if (identity is None) == (authenticate is None):
            raise Invalid("authenticate", "and identity: one is needed", "give exactly one")
        self._authenticate = authenticate
        named = [*hosts, *(f"{host}:*" for host in hosts)]
        origins = [f"{scheme}://{name}" for name in named for scheme in ("http", "https")]
        self._manager = StreamableHTTPSessionManager(
            server_of(service, identity),
            security_settings=TransportSecuritySettings(
                enable_dns_rebinding_protection=True, allowed_hosts=named, allowed_origins=origins
            ),
            max_request_body_size=_MOST_BODY_BYTES,
            max_sessions=_MOST_SESSIONS,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve while this is open; once for each application."""
        async with self._manager.run():
            yield

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        elif scope["path"].removeprefix(scope.get("root_path", "")).rstrip("/") not in (PATH, ""):
            await _refuse(send, 404, "not_found", "there is nothing here", f"ask {PATH}")
        else:
            await self._guarded(scope, receive, send)

    async def _guarded(self, scope: Any, receive: Any, send: Any) -> None:
        if self._authenticate is not None:
            if len(scope["headers"]) > _MOST_HEADERS:
                await _refuse(send, 431, "invalid", "there are too many headers", "send fewer")
                return
            headers = {
                k.decode("latin-1").lower(): v.decode("latin-1") for k, v in scope["headers"]
            }
            try:
                identity = await anyio.to_thread.run_sync(self._authenticate, headers)
            except PagefileError:  # The keys cannot be looked up: nobody is let in unseen.
                await _refuse(send, 503, "unavailable", "keys cannot be checked now", "retry later")
                return
            if identity is None:
                await _refuse(
                    *(send, 401, "forbidden", "no valid key was sent"),
                    "send it as 'Authorization: Bearer KEY'",
                    ((b"www-authenticate", b"Bearer"),),
                )
                return
            scope[IDENTITY] = identity
            # The SDK lets a session be used by the one who opened it alone.
            owner = json.dumps([identity.tenant, identity.user, identity.name])
            scope["user"] = AuthenticatedUser(
                AccessToken(token="", client_id=owner, scopes=sorted(identity.rights))
            )
        await self._manager.handle_request(scope, receive, send)

    async def _live(self, receive: Any, send: Any) -> None:
        await receive()  # lifespan.startup
        async with self.running():
            await send({"type": "lifespan.startup.complete"})
            await receive()  # lifespan.shutdown
        await send({"type": "lifespan.shutdown.complete"})


async def _refuse(
    send: Any,
    status: int,
    code: str,
    fact: str,
    next_step: str,
    headers: Sequence[tuple[bytes, bytes]] = (),
) -> None:
    body = json.dumps({"ok": False, "error": code, "detail": f"{fact}. {next_step}"}).encode()
    sent = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": [*sent, *headers]})
    await send({"type": "http.response.body", "body": body})


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
