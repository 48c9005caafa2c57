"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from typing import Literal

from pagefile.client import shapes
from pagefile.client.async_connection import AsyncLink
from pagefile.client.request import asked, given, place


class AsyncItems:
    """Routes about items; see `docs/reference/http.md`."""

    def __init__(self, link: AsyncLink) -> None:
        self._link = link

    async def search(
        self,
        *,
        q: str = "",
        user_id: str | None = None,
        project_id: str | None = None,
        scope: Literal["user", "project", "global"] | None = None,
        status: Literal[
            "proposed", "active", "superseded", "deprecated", "rejected", "any"
        ] = "active",
        type: Literal["fact", "preference", "policy", "decision", "invariant"] | None = None,
        limit: int = 8,
        cursor: str | None = None,
    ) -> shapes.items.Hits:
        """Items that share a word with the question, best first; without one, the newest first."""
        ask = asked(
            "GET",
            "/v1/items",
            query=given(
                q=q,
                user_id=self._link.user(user_id),
                project_id=project_id,
                scope=scope,
                status=status,
                type=type,
                limit=limit,
                cursor=cursor,
            ),
            is_safe=True,
        )
        return await self._link.send(ask, shapes.items.Hits)

    async def get(
        self, memory_id: str, *, user_id: str | None = None, project_id: str | None = None
    ) -> shapes.shared.MemoryItem:
        """The item of that id: the user's, else the project's, else the global one."""
        ask = asked(
            "GET",
            place("/v1/items/{memory_id}", memory_id=memory_id),
            query=given(user_id=self._link.user(user_id), project_id=project_id),
            is_safe=True,
        )
        return await self._link.send(ask, shapes.shared.MemoryItem)

    async def history(
        self,
        memory_id: str,
        *,
        user_id: str | None = None,
        project_id: str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> shapes.items.Revisions:
        """Every version of an item, and what made it so."""
        ask = asked(
            "GET",
            place("/v1/items/{memory_id}/history", memory_id=memory_id),
            query=given(
                user_id=self._link.user(user_id), project_id=project_id, limit=limit, cursor=cursor
            ),
            is_safe=True,
        )
        return await self._link.send(ask, shapes.items.Revisions)
