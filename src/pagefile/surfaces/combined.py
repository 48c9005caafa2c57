"""MCP behind the REST server's front: the one place that knows two surfaces."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pagefile.errors import Forbidden
from pagefile.handle import Admin, Options
from pagefile.surfaces.access.refusals import Refusal, RefusalLog
from pagefile.surfaces.http.app import Mounted
from pagefile.surfaces.http.problems import CODES
from pagefile.surfaces.mcp import Identity, mcp_app, mcp_service
from pagefile.surfaces.mcp.server import REFUSED
from pagefile.surfaces.mcp.transport import LOOPBACK, PATH

if TYPE_CHECKING:
    from pagefile.surfaces.http.call import Call
    from pagefile.surfaces.http.config import ServerConfig
    from pagefile.surfaces.mcp.transport import McpApp

#: Stores that live in one handle: a second one would be another store.
ALONE = ("memory:", "manager:")
#: How a server names what this module mounts.
MCP = f"{__name__}:mcp_mount"

#: Why the protocol's own guard refused: another host, or a page of another origin.
_REASONS = {status: CODES[status] for status in (403, 421)}
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
            self._refusals = RefusalLog(admin)
            self._app = mcp_app(mcp_service(admin), authenticate=_who, hosts=hosts)
            async with self._app.running():
                yield

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        assert self._app is not None
        call: Call = scope["pagefile"]
        call.route = PATH
        found = call.identity
        assert found is not None
        rights = frozenset(map(str, found.rights))
        token = _caller.set(Identity(found.tenant, found.user_id, rights, found.principal))
        refused: list[str] = []
        scope[REFUSED] = refused

        async def sending(message: Any) -> None:
            if message["type"] == "http.response.start":
                # The front writes down who was turned away, and is to know why.
                call.reason = call.reason or _REASONS.get(message["status"], "")
            await send(message)

        try:
            if scope["method"] == "GET":
                receive = self._or_stopping(receive)
            await self._app(scope, receive, sending)
        finally:
            _caller.reset(token)
        for what in refused:
            await self._record(scope, call, what)

    async def _record(self, scope: Any, call: Call, what: str) -> None:
        """Write down a call that was refused: over MCP its answer has the status 200."""
        assert call.identity is not None
        refusal = Refusal(
            status=403,
            reason=Forbidden.code,
            method=scope["method"],
            route=f"{PATH} {what}",
            request_id=call.request_id,
            who=call.identity.name,
            tenant=call.identity.tenant,
            client=call.client,
        )
        await self._refusals.record(refusal)

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
