"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

from pagefile.client import shapes
from pagefile.client.async_connection import AsyncLink
from pagefile.client.request import asked, given, place


class AsyncMemory:
    """Routes about memory; see `docs/reference/http.md`."""

    def __init__(self, link: AsyncLink) -> None:
        self._link = link

    async def recall(
        self,
        query: str,
        *,
        user_id: str | None = None,
        limit: int = 5,
        session_id: str | None = None,
        exclude_session_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        alpha: float | None = None,
    ) -> shapes.memory.EpisodeMatches:
        """Episodes that answer a question, each with its score and what it is made of."""
        ask = asked(
            "POST",
            "/v1/recall",
            body={
                "query": query,
                **given(
                    user_id=self._link.user(user_id),
                    limit=limit,
                    session_id=session_id,
                    exclude_session_id=exclude_session_id,
                    since=since,
                    until=until,
                    alpha=alpha,
                ),
            },
            is_safe=True,
        )
        return await self._link.send(ask, shapes.memory.EpisodeMatches)

    async def recall_facts(
        self,
        query: str,
        *,
        user_id: str | None = None,
        limit: int = 5,
        valid_at: datetime | None = None,
        known_at: datetime | None = None,
    ) -> shapes.memory.FactMatches:
        """Facts that answer a question and hold at `valid_at`, as known at `known_at`."""
        ask = asked(
            "POST",
            "/v1/recall/facts",
            body={
                "query": query,
                **given(
                    user_id=self._link.user(user_id),
                    limit=limit,
                    valid_at=valid_at,
                    known_at=known_at,
                ),
            },
            is_safe=True,
        )
        return await self._link.send(ask, shapes.memory.FactMatches)

    async def search(
        self,
        query: str,
        *,
        user_id: str | None = None,
        limit: int = 10,
        kinds: Sequence[Literal["episode", "fact", "item"]] | None = None,
        session_id: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        status: Literal["proposed", "active", "superseded", "deprecated", "rejected"]
        | None = "active",
        scope: Literal["user", "project", "global"] | None = None,
        project_id: str | None = None,
        valid_at: datetime | None = None,
        known_at: datetime | None = None,
    ) -> shapes.memory.Matches:
        """Episodes, facts and long-term items in one list, best first."""
        ask = asked(
            "POST",
            "/v1/search",
            body={
                "query": query,
                **given(
                    user_id=self._link.user(user_id),
                    limit=limit,
                    kinds=kinds,
                    session_id=session_id,
                    since=since,
                    until=until,
                    status=status,
                    scope=scope,
                    project_id=project_id,
                    valid_at=valid_at,
                    known_at=known_at,
                ),
            },
            is_safe=True,
        )
        return await self._link.send(ask, shapes.memory.Matches)

    async def why(
        self, memory_id: str, *, user_id: str | None = None, project_id: str | None = None
    ) -> shapes.memory.Provenance:
        """Why something is known: its sources, who let it in, what it replaced."""
        ask = asked(
            "GET",
            place("/v1/memories/{memory_id}/why", memory_id=memory_id),
            query=given(user_id=self._link.user(user_id), project_id=project_id),
            is_safe=True,
        )
        return await self._link.send(ask, shapes.memory.Provenance)
