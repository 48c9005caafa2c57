"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pagefile.client import shapes
from pagefile.client.connection import Link
from pagefile.client.page import Page
from pagefile.client.request import asked, given, place


class Threads:
    """Routes about threads; see `docs/reference/http.md`."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def get(self, thread_id: str) -> shapes.threads.Thread:
        """One thread; `ETag` is its length."""
        ask = asked("GET", place("/v1/threads/{thread_id}", thread_id=thread_id), is_safe=True)
        return self._link.send(ask, shapes.threads.Thread)

    def slots(
        self,
        thread_id: str,
        *,
        limit: int = 100,
        cursor: str | None = None,
        tail: int | None = None,
        from_id: str | None = None,
        to_id: str | None = None,
        payload_type: str | None = None,
        at: int | None = None,
    ) -> Page[shapes.threads.Slot]:
        """Slots of a thread. `tail` gives the last ones; `at` what there was at a position."""
        ask = asked(
            "GET",
            place("/v1/threads/{thread_id}/slots", thread_id=thread_id),
            query=given(
                limit=limit,
                cursor=cursor,
                tail=tail,
                from_id=from_id,
                to_id=to_id,
                payload_type=payload_type,
                at=at,
            ),
            is_safe=True,
        )
        return self._link.send(ask, Page[shapes.threads.Slot])

    def slot(self, thread_id: str, index: int) -> shapes.threads.Slot:
        """One slot; negative numbers count from the end."""
        ask = asked(
            "GET",
            place("/v1/threads/{thread_id}/slots/{index}", thread_id=thread_id, index=index),
            is_safe=True,
        )
        return self._link.send(ask, shapes.threads.Slot)

    def append(
        self,
        thread_id: str,
        payload: Any,
        from_id: str,
        to_id: str,
        *,
        own_name: str | None = None,
        is_self_call: bool = False,
        usage_instructions: str = "",
        todo_nudge: str = "",
        user_id: str | None = None,
        expected_len: int | None = None,
        idempotency_key: str | None = None,
    ) -> shapes.threads.Slot:
        """Append a slot; it is durable when this answers."""
        ask = asked(
            "POST",
            place("/v1/threads/{thread_id}/slots", thread_id=thread_id),
            body={
                "payload": payload,
                "from_id": from_id,
                "to_id": to_id,
                **given(
                    own_name=own_name,
                    is_self_call=is_self_call,
                    usage_instructions=usage_instructions,
                    todo_nudge=todo_nudge,
                    user_id=self._link.user(user_id),
                    expected_len=expected_len,
                ),
            },
            key=idempotency_key,
            is_exact=True,
        )
        return self._link.send(ask, shapes.threads.Slot)

    def append_many(
        self,
        thread_id: str,
        slots: Sequence[shapes.threads.NewSlot | Mapping[str, Any]],
        *,
        expected_len: int | None = None,
        idempotency_key: str | None = None,
    ) -> shapes.threads.SlotList:
        """Append several slots in one commit: all of them, next to each other, or none."""
        ask = asked(
            "POST",
            place("/v1/threads/{thread_id}/slots/batch", thread_id=thread_id),
            body={"slots": self._link.owned(slots), **given(expected_len=expected_len)},
            key=idempotency_key,
            is_exact=True,
        )
        return self._link.send(ask, shapes.threads.SlotList)

    def fork(
        self,
        thread_id: str,
        *,
        at: int | None = None,
        new_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> shapes.threads.Thread:
        """A new thread that shares the first `at` slots, or all; nothing is copied."""
        ask = asked(
            "POST",
            place("/v1/threads/{thread_id}/fork", thread_id=thread_id),
            body=given(at=at, new_id=new_id),
            key=idempotency_key,
        )
        return self._link.send(ask, shapes.threads.Thread)

    def follow(
        self, thread_id: str, *, after: int | None = None, seconds: float | None = None
    ) -> Iterator[shapes.threads.Slot]:
        """New slots as server-sent events: behind `after`, or what comes from now on."""
        ask = asked(
            "GET",
            place("/v1/threads/{thread_id}/follow", thread_id=thread_id),
            query=given(seconds=seconds),
            is_safe=True,
        )
        return self._link.follow(ask, after, shapes.threads.Slot)

    def pin(self, thread_id: str, *, idempotency_key: str | None = None) -> shapes.threads.Pinned:
        """Never let a thread leave for others; in the process that answers, until that ends."""
        ask = asked(
            "PUT", place("/v1/threads/{thread_id}/pin", thread_id=thread_id), key=idempotency_key
        )
        return self._link.send(ask, shapes.threads.Pinned)

    def unpin(self, thread_id: str, *, idempotency_key: str | None = None) -> shapes.threads.Pinned:
        """The thread may leave again, when its turn comes."""
        ask = asked(
            "DELETE", place("/v1/threads/{thread_id}/pin", thread_id=thread_id), key=idempotency_key
        )
        return self._link.send(ask, shapes.threads.Pinned)

    def delete(
        self, thread_id: str, *, erase: bool = False, idempotency_key: str | None = None
    ) -> shapes.threads.Deleted:
        """End a thread. With `erase` its content is removed for good, which needs `admin`."""
        ask = asked(
            "DELETE",
            place("/v1/threads/{thread_id}", thread_id=thread_id),
            query=given(erase=erase),
            key=idempotency_key,
        )
        return self._link.send(ask, shapes.threads.Deleted)

    def list(self, *, limit: int = 100, cursor: str | None = None) -> Page[str]:
        """Ids of threads, in order."""
        ask = asked("GET", "/v1/threads", query=given(limit=limit, cursor=cursor), is_safe=True)
        return self._link.send(ask, Page[str])
