"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from pagefile.client import shapes
from pagefile.client.async_connection import AsyncLink
from pagefile.client.page import Page
from pagefile.client.request import asked, given, place


class AsyncLedger:
    """Routes about ledger; see `docs/reference/http.md`."""

    def __init__(self, link: AsyncLink) -> None:
        self._link = link

    async def read(
        self,
        run_id: str,
        *,
        limit: int = 100,
        cursor: str | None = None,
        event_type: str | None = None,
        tail: int | None = None,
    ) -> Page[dict[str, Any]]:
        """Events of a run, as schema 2.1 describes them."""
        ask = asked(
            "GET",
            place("/v1/runs/{run_id}/ledger", run_id=run_id),
            query=given(limit=limit, cursor=cursor, event_type=event_type, tail=tail),
            is_safe=True,
        )
        return await self._link.send(ask, Page[dict[str, Any]])

    async def log(
        self,
        run_id: str,
        event_type: str,
        *,
        payload: Mapping[str, Any] | None = None,
        parent_event_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> shapes.ledger.Recorded:
        """Record an event of the agent's own."""
        ask = asked(
            "POST",
            place("/v1/runs/{run_id}/ledger", run_id=run_id),
            body={
                "event_type": event_type,
                **given(payload=payload, parent_event_id=parent_event_id),
            },
            key=idempotency_key,
        )
        return await self._link.send(ask, shapes.ledger.Recorded)

    def follow(
        self, run_id: str, *, after: int | None = None, seconds: float | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """New events as server-sent events: behind sequence number `after`, or from now on."""
        ask = asked(
            "GET",
            place("/v1/runs/{run_id}/ledger/follow", run_id=run_id),
            query=given(seconds=seconds),
            is_safe=True,
        )
        return self._link.follow(ask, after, dict[str, Any])

    async def milestone(
        self,
        run_id: str,
        *,
        reason: str = "manual",
        memory_batch_id: str | None = None,
        next_entry_point: str = "",
        idempotency_key: str | None = None,
    ) -> shapes.ledger.Milestone:
        """Record a milestone, and commit a memory batch with it: both or neither."""
        ask = asked(
            "POST",
            place("/v1/runs/{run_id}/milestones", run_id=run_id),
            body=given(
                reason=reason, memory_batch_id=memory_batch_id, next_entry_point=next_entry_point
            ),
            key=idempotency_key,
        )
        return await self._link.send(ask, shapes.ledger.Milestone)

    async def episodes(
        self, run_id: str, *, limit: int = 100, cursor: str | None = None
    ) -> Page[str]:
        """Ids of milestones, oldest first."""
        ask = asked(
            "GET",
            place("/v1/runs/{run_id}/episodes", run_id=run_id),
            query=given(limit=limit, cursor=cursor),
            is_safe=True,
        )
        return await self._link.send(ask, Page[str])

    async def episode(self, run_id: str, episode_id: str) -> dict[str, Any]:
        """One milestone, its digest checked."""
        ask = asked(
            "GET",
            place("/v1/runs/{run_id}/episodes/{episode_id}", run_id=run_id, episode_id=episode_id),
            is_safe=True,
        )
        return await self._link.send(ask, dict[str, Any])

    async def episode_events(self, run_id: str, episode_id: str) -> Page[dict[str, Any]]:
        """The events between the milestone before and this one, exactly."""
        ask = asked(
            "GET",
            place(
                "/v1/runs/{run_id}/episodes/{episode_id}/events",
                run_id=run_id,
                episode_id=episode_id,
            ),
            is_safe=True,
        )
        return await self._link.send(ask, Page[dict[str, Any]])
