"""MCP behind the REST server's front: the one place that knows two surfaces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pagefile.handle import Admin, Options
from pagefile.surfaces.http.app import Mounted
from pagefile.surfaces.mcp import Identity, mcp_app, mcp_service
from pagefile.surfaces.mcp.http import LOOPBACK, PATH

if TYPE_CHECKING:
    from pagefile.surfaces.http.config import ServerConfig
    from pagefile.surfaces.mcp.http import McpApp

#: Stores that live in one handle: a second one would be another store.
ALONE = ("memory:", "manager:")
#: How a server names what this module mounts.
MCP = f"{__name__}:mcp_mount"

_caller: ContextVar[Identity | None] = ContextVar("pagefile_mcp_caller", default=None)


def mcp_mount(config: ServerConfig) -> Mounted:
    """The tools of `pagefile mcp`, at `/mcp`, for whoever the front let in.

    It may be reached under the names of this machine, the address it is bound to,
    and the hosts of `allow_origins`.
    """
    mount = _McpMount(config)
    return Mounted(PATH, mount, mount.lifespan, mount.stop)


class _McpMount:
    """The application, opened and closed with the server that carries it."""

    def __init__(self, config: ServerConfig) -> None:
        self._config = config
        self._app: McpApp | None = None
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """End the streams that clients keep open: they would hold up the server's end."""
        self._stopping.set()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        config = self._config
        named = [urlsplit(origin).hostname or "" for origin in config.allow_origins]
        hosts = [*LOOPBACK, config.host, *(host for host in named if host)]
        with Admin(config.url, options=Options(durability=config.durability)) as admin:
            self._app = mcp_app(mcp_service(admin), authenticate=_who, hosts=hosts)
            async with self._app.running():
                yield

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert self._app is not None
        call = scope["pagefile"]
        call.route = PATH
        found = call.identity
        rights = frozenset(map(str, found.rights))
        token = _caller.set(Identity(found.tenant, found.user_id, rights, found.principal))
        try:
            if scope["method"] == "GET":
                receive = self._or_stopping(receive)
            await self._app(scope, receive, send)
        finally:
            _caller.reset(token)

    def _or_stopping(self, receive: Any) -> Any:
        """The same, and at the server's end as if the client had gone."""

        async def received() -> Any:
            coming = asyncio.ensure_future(receive())
            stopping = asyncio.ensure_future(self._stopping.wait())
            try:
                await asyncio.wait({coming, stopping}, return_when=asyncio.FIRST_COMPLETED)
                return coming.result() if coming.done() else {"type": "http.disconnect"}
            finally:
                coming.cancel()
                stopping.cancel()

        return received


def _who(_: Mapping[str, str]) -> Identity | None:
    """Whoever the front found; it has looked at the headers already."""
    return _caller.get()
