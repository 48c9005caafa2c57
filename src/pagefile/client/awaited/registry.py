"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from collections.abc import Sequence

from pagefile.client import shapes
from pagefile.client.async_connection import AsyncLink
from pagefile.client.request import asked, given, place


class AsyncRegistry:
    """Routes about registry; see `docs/reference/http.md`."""

    def __init__(self, link: AsyncLink) -> None:
        self._link = link

    async def register(
        self,
        initiator: str,
        target: str,
        *,
        thread_id: str | None = None,
        user_id: str | None = None,
        table: str | None = None,
        idempotency_key: str | None = None,
    ) -> shapes.registry.Activation:
        """Start a conversation."""
        ask = asked(
            "POST",
            "/v1/registry/threads",
            body={
                "initiator": initiator,
                "target": target,
                **given(thread_id=thread_id, user_id=self._link.user(user_id), table=table),
            },
            key=idempotency_key,
        )
        return await self._link.send(ask, shapes.registry.Activation)

    async def look_up(self, thread_id: str) -> shapes.registry.Activation:
        """The path of a thread id."""
        ask = asked(
            "GET", place("/v1/registry/threads/{thread_id}", thread_id=thread_id), is_safe=True
        )
        return await self._link.send(ask, shapes.registry.Activation)

    async def call(
        self, thread_id: str, next_hop: str, *, idempotency_key: str | None = None
    ) -> shapes.registry.Activation:
        """One call from a thread: a new activation with a new id, each time."""
        ask = asked(
            "POST",
            place("/v1/registry/threads/{thread_id}/call", thread_id=thread_id),
            body={"next_hop": next_hop},
            key=idempotency_key,
        )
        return await self._link.send(ask, shapes.registry.Activation)

    async def respond(
        self, thread_id: str, *, idempotency_key: str | None = None
    ) -> shapes.registry.Answered:
        """End an activation, and be told whom to answer. Of all who ask, one is told."""
        ask = asked(
            "POST",
            place("/v1/registry/threads/{thread_id}/respond", thread_id=thread_id),
            key=idempotency_key,
        )
        return await self._link.send(ask, shapes.registry.Answered)

    async def release(
        self, thread_id: str, *, idempotency_key: str | None = None
    ) -> shapes.registry.Done:
        """Release a thread without an answer."""
        ask = asked(
            "DELETE",
            place("/v1/registry/threads/{thread_id}", thread_id=thread_id),
            key=idempotency_key,
        )
        return await self._link.send(ask, shapes.registry.Done)

    async def path(
        self, names: Sequence[str], *, idempotency_key: str | None = None
    ) -> shapes.registry.Activation:
        """The one id of a path given by its names alone."""
        ask = asked("POST", "/v1/registry/paths", body={"names": names}, key=idempotency_key)
        return await self._link.send(ask, shapes.registry.Activation)

    async def make_root(
        self,
        *,
        organism: str = "organism",
        table: str | None = None,
        idempotency_key: str | None = None,
    ) -> shapes.registry.Activation:
        """Make the root of the system or of a table; the same name gives the same id."""
        ask = asked(
            "PUT",
            "/v1/registry/root",
            body=given(organism=organism, table=table),
            key=idempotency_key,
        )
        return await self._link.send(ask, shapes.registry.Activation)

    async def get_root(self, *, table: str | None = None) -> shapes.registry.Activation:
        """The root of the system, or of a table."""
        ask = asked("GET", "/v1/registry/root", query=given(table=table), is_safe=True)
        return await self._link.send(ask, shapes.registry.Activation)
