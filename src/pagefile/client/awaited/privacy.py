"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from datetime import datetime

from pagefile.client import shapes
from pagefile.client.async_connection import AsyncLink
from pagefile.client.page import Page
from pagefile.client.request import asked, given
from pagefile.client.responses import Target, Upload


class AsyncPrivacy:
    """Routes about privacy; see `docs/reference/http.md`."""

    def __init__(self, link: AsyncLink) -> None:
        self._link = link

    async def profile(self, *, user_id: str | None = None) -> shapes.privacy.MemoryProfile:
        """How much is kept of a user, and a sample."""
        ask = asked(
            "GET", "/v1/profile", query=given(user_id=self._link.user(user_id)), is_safe=True
        )
        return await self._link.send(ask, shapes.privacy.MemoryProfile)

    async def users(self, *, limit: int = 100, cursor: str | None = None) -> Page[str]:
        """Named users whose memories are kept; needs `admin`."""
        ask = asked("GET", "/v1/users", query=given(limit=limit, cursor=cursor), is_safe=True)
        return await self._link.send(ask, Page[str])

    async def export(self, to: Target, *, user_id: str | None = None) -> int:
        """Everything that is kept of a user."""
        ask = asked(
            "GET", "/v1/export", query=given(user_id=self._link.user(user_id)), is_safe=True
        )
        return await self._link.download(ask, to)

    async def import_(
        self, content: Upload, *, idempotency_key: str | None = None
    ) -> shapes.privacy.ImportReceipt:
        """Take an export in; what is there is left, what was forgotten stays forgotten."""
        ask = asked("POST", "/v1/import", media="application/x-ndjson", key=idempotency_key)
        return await self._link.upload(ask, content, shapes.privacy.ImportReceipt)

    async def forget(
        self,
        *,
        user_id: str | None = None,
        nobody: bool = False,
        session_id: str | None = None,
        episode_id: str | None = None,
        before: datetime | None = None,
        dry_run: bool = False,
        idempotency_key: str | None = None,
    ) -> shapes.privacy.Forgotten:
        """Erase what is kept of a user, for good, in one commit; needs `admin`."""
        ask = asked(
            "POST",
            "/v1/forget",
            body=given(
                user_id=self._link.user(user_id),
                nobody=nobody,
                session_id=session_id,
                episode_id=episode_id,
                before=before,
                dry_run=dry_run,
            ),
            key=idempotency_key,
        )
        return await self._link.send(ask, shapes.privacy.Forgotten)
