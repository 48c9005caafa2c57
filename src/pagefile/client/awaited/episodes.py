"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pagefile.client import shapes
from pagefile.client.async_connection import AsyncLink
from pagefile.client.request import asked, given, place


class AsyncEpisodes:
    """Routes about episodes; see `docs/reference/http.md`."""

    def __init__(self, link: AsyncLink) -> None:
        self._link = link

    async def remember(
        self,
        session_id: str,
        *,
        input: str = "",
        output: str = "",
        id: str | None = None,
        user_id: str | None = None,
        occurred_at: datetime | None = None,
        speaker: str | None = None,
        tool_calls: Sequence[shapes.shared.ToolCall | Mapping[str, Any]] | None = None,
        tool_transcript: Sequence[shapes.shared.Message | Mapping[str, Any]] | None = None,
        embedding: Sequence[float] | None = None,
        idempotency_key: str | None = None,
    ) -> shapes.episodes.Remembered:
        """Store one exchange, and make it findable, in one commit."""
        ask = asked(
            "POST",
            "/v1/episodes",
            body={
                "session_id": session_id,
                **given(
                    input=input,
                    output=output,
                    id=id,
                    user_id=self._link.user(user_id),
                    occurred_at=occurred_at,
                    speaker=speaker,
                    tool_calls=tool_calls,
                    tool_transcript=tool_transcript,
                    embedding=embedding,
                ),
            },
            key=idempotency_key,
        )
        return await self._link.send(ask, shapes.episodes.Remembered)

    async def remember_many(
        self,
        episodes: Sequence[shapes.episodes.NewEpisode | Mapping[str, Any]],
        *,
        idempotency_key: str | None = None,
    ) -> shapes.episodes.RememberedAll:
        """Store up to 1,000 exchanges in one commit, all or none."""
        ask = asked(
            "POST",
            "/v1/episodes/batch",
            body={"episodes": self._link.owned(episodes)},
            key=idempotency_key,
        )
        return await self._link.send(ask, shapes.episodes.RememberedAll)

    async def get(self, episode_id: str, *, user_id: str | None = None) -> shapes.shared.Episode:
        """One exchange."""
        ask = asked(
            "GET",
            place("/v1/episodes/{episode_id}", episode_id=episode_id),
            query=given(user_id=self._link.user(user_id)),
            is_safe=True,
        )
        return await self._link.send(ask, shapes.shared.Episode)

    async def messages(
        self, session_id: str, *, user_id: str | None = None, limit: int = 20
    ) -> shapes.episodes.Messages:
        """The last messages of a session, oldest first; tool calls stay with their answers."""
        ask = asked(
            "GET",
            place("/v1/sessions/{session_id}/messages", session_id=session_id),
            query=given(user_id=self._link.user(user_id), limit=limit),
            is_safe=True,
        )
        return await self._link.send(ask, shapes.episodes.Messages)

    async def duplicates(
        self,
        *,
        user_id: str | None = None,
        threshold: float = 0.9,
        limit: int = 100,
        cursor: str | None = None,
    ) -> shapes.episodes.Duplicates:
        """Episodes that say what another says; goes through all of the user's."""
        ask = asked(
            "GET",
            "/v1/duplicates",
            query=given(
                user_id=self._link.user(user_id), threshold=threshold, limit=limit, cursor=cursor
            ),
            is_safe=True,
        )
        return await self._link.send(ask, shapes.episodes.Duplicates)

    async def consolidate(
        self, *, limit: int = 1000, retry_failed: bool = False, idempotency_key: str | None = None
    ) -> shapes.episodes.ConsolidationReport:
        """Read episodes that nobody read yet, of all users, and keep what they say as facts."""
        ask = asked(
            "POST",
            "/v1/consolidate",
            body=given(limit=limit, retry_failed=retry_failed),
            key=idempotency_key,
        )
        return await self._link.send(ask, shapes.episodes.ConsolidationReport)

    async def list(
        self,
        *,
        user_id: str | None = None,
        session_id: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        limit: int = 100,
        cursor: str | None = None,
    ) -> shapes.episodes.Episodes:
        """Exchanges of a user, or of one session, newest first."""
        ask = asked(
            "GET",
            "/v1/episodes",
            query=given(
                user_id=self._link.user(user_id),
                session_id=session_id,
                since=since,
                until=until,
                limit=limit,
                cursor=cursor,
            ),
            is_safe=True,
        )
        return await self._link.send(ask, shapes.episodes.Episodes)
