"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from pagefile.client import shapes
from pagefile.client.async_connection import AsyncLink
from pagefile.client.request import asked, given


class AsyncGraph:
    """Routes about graph; see `docs/reference/http.md`."""

    def __init__(self, link: AsyncLink) -> None:
        self._link = link

    async def neighbors(
        self,
        entity: str,
        *,
        user_id: str | None = None,
        direction: Literal["both", "out", "in"] = "both",
        valid_at: datetime | str | None = None,
        known_at: datetime | str | None = None,
        fan_out: int = 50,
    ) -> shapes.graph.Neighborhood:
        """The facts that lead to and from an entity."""
        ask = asked(
            "GET",
            "/v1/graph/neighbors",
            query={
                "entity": entity,
                **given(
                    user_id=self._link.user(user_id),
                    direction=direction,
                    valid_at=valid_at,
                    known_at=known_at,
                    fan_out=fan_out,
                ),
            },
            is_safe=True,
        )
        return await self._link.send(ask, shapes.graph.Neighborhood)

    async def paths(
        self,
        *,
        start: str | None = None,
        q: str | None = None,
        user_id: str | None = None,
        hops: int = 2,
        valid_at: datetime | str | None = None,
        known_at: datetime | str | None = None,
        limit: int = 50,
        fan_out: int = 50,
    ) -> shapes.graph.Walk:
        """Paths from an entity, or from those that a question `q` names."""
        ask = asked(
            "GET",
            "/v1/graph/paths",
            query=given(
                start=start,
                q=q,
                user_id=self._link.user(user_id),
                hops=hops,
                valid_at=valid_at,
                known_at=known_at,
                limit=limit,
                fan_out=fan_out,
            ),
            is_safe=True,
        )
        return await self._link.send(ask, shapes.graph.Walk)
