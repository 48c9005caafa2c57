"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pagefile.client import shapes
from pagefile.client.async_connection import AsyncLink
from pagefile.client.page import Page
from pagefile.client.request import asked, given, place


class AsyncContext:
    """Routes about context; see `docs/reference/http.md`."""

    def __init__(self, link: AsyncLink) -> None:
        self._link = link

    async def assemble(
        self,
        *,
        query: str | None = None,
        budget: int = 8000,
        thread_id: str | None = None,
        run_id: str | None = None,
        user_id: str | None = None,
        project_id: str | None = None,
        system: str = "",
        agent: str = "",
        counter: str | None = None,
        at: int | None = None,
        record: bool | None = None,
        format: Literal["openai", "anthropic", "text"] = "openai",
        options: shapes.context.AssemblyOptions | Mapping[str, Any] | None = None,
    ) -> shapes.context.ContextAnswer:
        """A prompt from a thread or run, pinned blocks and memory, never over its budget."""
        ask = asked(
            "POST",
            "/v1/context",
            body=given(
                query=query,
                budget=budget,
                thread_id=thread_id,
                run_id=run_id,
                user_id=self._link.user(user_id),
                project_id=project_id,
                system=system,
                agent=agent,
                counter=counter,
                at=at,
                record=record,
                format=format,
                options=options,
            ),
            is_safe=True,
        )
        return await self._link.send(ask, shapes.context.ContextAnswer)

    async def receipts(
        self, *, limit: int = 100, cursor: str | None = None, user_id: str | None = None
    ) -> Page[shapes.context.AssemblyReceipt]:
        """The receipts of a user's prompts, newest first."""
        ask = asked(
            "GET",
            "/v1/context/receipts",
            query=given(limit=limit, cursor=cursor, user_id=self._link.user(user_id)),
            is_safe=True,
        )
        return await self._link.send(ask, Page[shapes.context.AssemblyReceipt])

    async def verify_receipt(
        self,
        receipt_id: str,
        *,
        query: str | None = None,
        system: str = "",
        user_id: str | None = None,
    ) -> shapes.context.ReceiptVerified:
        """Make a prompt again, at its position, and compare; `query` and `system` as they were."""
        ask = asked(
            "POST",
            place("/v1/context/receipts/{receipt_id}/verify", receipt_id=receipt_id),
            body=given(query=query, system=system, user_id=self._link.user(user_id)),
            is_safe=True,
        )
        return await self._link.send(ask, shapes.context.ReceiptVerified)

    async def receipt(
        self, receipt_id: str, *, user_id: str | None = None
    ) -> shapes.context.AssemblyReceipt:
        """What went into a prompt that was made, what was left out, and why."""
        ask = asked(
            "GET",
            place("/v1/context/receipts/{receipt_id}", receipt_id=receipt_id),
            query=given(user_id=self._link.user(user_id)),
            is_safe=True,
        )
        return await self._link.send(ask, shapes.context.AssemblyReceipt)
