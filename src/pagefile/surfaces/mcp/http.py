"""The server over HTTP: an ASGI application that answers at one path, behind a guard."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import anyio.to_thread
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings

from pagefile.errors import Invalid, PagefileError
from pagefile.surfaces.mcp.identity import Identity
from pagefile.surfaces.mcp.server import IDENTITY, server_of
from pagefile.surfaces.mcp.service import Service

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
