"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from pagefile.client import shapes
from pagefile.client.async_connection import AsyncLink
from pagefile.client.request import asked, given


class AsyncServer:
    """Routes about server; see `docs/reference/http.md`."""

    def __init__(self, link: AsyncLink) -> None:
        self._link = link

    async def health(self) -> shapes.server.Health:
        """Whether the process answers; touches nothing."""
        ask = asked("GET", "/health", is_safe=True)
        return await self._link.send(ask, shapes.server.Health)

    async def ready(self) -> shapes.server.Health:
        """Whether the store answers too."""
        ask = asked("GET", "/ready", is_safe=True)
        return await self._link.send(ask, shapes.server.Health)

    async def metrics(self) -> str:
        """Counters of all its processes; for those who operate the server."""
        ask = asked("GET", "/metrics", is_safe=True)
        return await self._link.text(ask)

    async def whoami(self) -> shapes.server.WhoAmI:
        """Whose key this is, and what it may do."""
        ask = asked("GET", "/v1/whoami", is_safe=True)
        return await self._link.send(ask, shapes.server.WhoAmI)

    async def refusals(
        self, *, limit: int = 100, cursor: str | None = None
    ) -> shapes.server.Refusals:
        """Requests that were refused; for those who operate the server."""
        ask = asked("GET", "/v1/refusals", query=given(limit=limit, cursor=cursor), is_safe=True)
        return await self._link.send(ask, shapes.server.Refusals)
