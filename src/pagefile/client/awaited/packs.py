"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pagefile.client import shapes
from pagefile.client.async_connection import AsyncLink
from pagefile.client.request import asked, given, place
from pagefile.client.responses import Target, Upload


class AsyncPacks:
    """Routes about packs; see `docs/reference/http.md`."""

    def __init__(self, link: AsyncLink) -> None:
        self._link = link

    async def make(
        self,
        run_id: str,
        *,
        pointers: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
    ) -> shapes.packs.PackInfo:
        """Put all of a run, as it is now, into a pack that can be downloaded."""
        ask = asked(
            "POST",
            place("/v1/runs/{run_id}/packs", run_id=run_id),
            body=given(pointers=pointers),
            key=idempotency_key,
        )
        return await self._link.send(ask, shapes.packs.PackInfo)

    async def download(self, pack_id: str, to: Target) -> int:
        """Download a pack."""
        ask = asked("GET", place("/v1/packs/{pack_id}", pack_id=pack_id), is_safe=True)
        return await self._link.download(ask, to)

    async def delete(
        self, pack_id: str, *, idempotency_key: str | None = None
    ) -> shapes.packs.Removed:
        """Remove a pack from the server."""
        ask = asked("DELETE", place("/v1/packs/{pack_id}", pack_id=pack_id), key=idempotency_key)
        return await self._link.send(ask, shapes.packs.Removed)

    async def upload(
        self, content: Upload, *, new_run_id: str | None = None, idempotency_key: str | None = None
    ) -> shapes.packs.Restored:
        """Make a run of an uploaded pack; everything is checked before anything is stored."""
        ask = asked(
            "POST",
            "/v1/packs",
            query=given(new_run_id=new_run_id),
            media="application/zip",
            key=idempotency_key,
        )
        return await self._link.upload(ask, content, shapes.packs.Restored)

    async def verify(self, content: Upload) -> shapes.packs.PackReport:
        """Read all of an uploaded pack and check it; stores nothing."""
        ask = asked("POST", "/v1/packs/verify", media="application/zip", is_safe=True)
        return await self._link.upload(ask, content, shapes.packs.PackReport)

    async def import_ledger(
        self, content: Upload, *, new_run_id: str | None = None, idempotency_key: str | None = None
    ) -> shapes.packs.Restored:
        """Make a run of an exported ledger."""
        ask = asked(
            "POST",
            "/v1/runs/import",
            query=given(new_run_id=new_run_id),
            media="application/x-ndjson",
            key=idempotency_key,
        )
        return await self._link.upload(ask, content, shapes.packs.Restored)

    async def list(self, *, limit: int = 1000, cursor: str | None = None) -> shapes.packs.PackList:
        """Packs that wait to be downloaded."""
        ask = asked("GET", "/v1/packs", query=given(limit=limit, cursor=cursor), is_safe=True)
        return await self._link.send(ask, shapes.packs.PackList)
