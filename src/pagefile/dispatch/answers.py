"""Waiting for answers: of conversations in this process, and of those in others."""

from __future__ import annotations

import asyncio
from typing import Any

from pagefile.context.names import THREADS
from pagefile.dispatch.identity import Answer, Delivery
from pagefile.dispatch.names import JOURNALS
from pagefile.dispatch.payloads import SystemError
from pagefile.errors import NotFound
from pagefile.store.log.feed import feed_of
from pagefile.store.records import Entry
from pagefile.store.store import Store

#: How far back from the end of a thread a slot is looked for at first.
_NEAR = 32


class Answers:
    """Who waits for what."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, asyncio.Future[Answer | None]] = {}

    def expect(self, message_id: str) -> asyncio.Future[Answer | None]:
        """A future of an answer that this process will know of; None when it loses track."""
        future = self._waiting.get(message_id)
        if future is None:
            future = asyncio.get_running_loop().create_future()
            self._waiting[message_id] = future
        return future

    def tell(self, message_id: str, thread_id: str, payload: Any) -> None:
        """The answer is recorded."""
        future = self._waiting.pop(message_id, None)
        if future is not None and not future.done():
            future.set_result(Answer(payload, message_id, thread_id))

    def lose(self, message_ids: list[str]) -> None:
        """Another process will answer these: look for it in the store."""
        for message_id in message_ids:
            future = self._waiting.pop(message_id, None)
            if future is not None and not future.done():
                future.set_result(None)

    def lose_all(self) -> None:
        """This process answers no more."""
        self.lose(list(self._waiting))

    async def follow(self, delivery: Delivery) -> Answer:
        """Read the journal, and wait for more of it, until the answer is there.

        Raises:
            NotFound: the conversation is gone.
        """
        journal = JOURNALS + delivery.thread_id
        after = delivery.place - 1
        async with feed_of(self._store).follow_async(journal, after) as entries:
            # What was injected has a journal, unless its user was forgotten meanwhile: none comes.
            if not await asyncio.to_thread(self._store.has_log, journal):
                raise _gone(delivery)
            async for entry in entries:
                found = await self._answer_in(entry, delivery)
                if found is not None:
                    return found
        raise _gone(delivery)

    async def _answer_in(self, entry: Entry, delivery: Delivery) -> Answer | None:
        if entry.erased:
            return None
        for record in entry.value:
            answered = record[5] if record[0] == "hop" else record[1]
            if record[0] in ("hop", "stop") and answered and answered[0] == delivery.message_id:
                payload = await asyncio.to_thread(self._payload, entry, delivery, answered)
                return Answer(payload, delivery.message_id, delivery.thread_id)
        return None

    def _payload(self, entry: Entry, delivery: Delivery, answered: list[Any]) -> Any:
        if len(answered) > 2:
            return SystemError(answered[2], answered[3], False, answered[4])
        if answered[1] < 0:
            return None
        slot = slot_of(self._store, delivery.thread_id, entry.position, answered[1])
        return None if slot is None else slot.value


def _gone(delivery: Delivery) -> NotFound:
    return NotFound(
        f"conversation {delivery.thread_id!r} is gone", "it was erased, or kept long enough"
    )


def slot_of(store: Store, thread: str, position: int, ordinal: int) -> Entry | None:
    """The slot that a commit added to a thread: the one of that number among its own."""
    log = THREADS + thread
    # Most often it stands near the end, and one look finds it.
    near = [entry for entry in store.read(log, -_NEAR) if entry.position == position]
    if len(near) > ordinal and (near[0].index == 0 or len(near) < _NEAR):
        return None if near[ordinal].erased else near[ordinal]
    for change in store.changes(position - 1, limit=1):
        for touched in change.touched:
            if touched.action == "append" and touched.name == log:
                count = touched.last - touched.first + 1
                if ordinal < count:
                    index = touched.first + ordinal
                    found = store.read(log, index, index + 1)
                    return found[0] if found and not found[0].erased else None
                ordinal -= count
    return None
