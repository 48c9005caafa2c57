"""Slots of one thread as they are appended, by whatever process."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self

from pagefile.context.slot import BufferSlot
from pagefile.store.log.follower import AsyncFollower, Follower
from pagefile.store.records import Entry

ToSlot = Callable[[Entry], BufferSlot]


class SlotFollower:
    """An iterator that waits for new slots; `close` ends it, from any thread.

    Slots are fetched when they are asked for, so a slow reader holds nobody up.
    """

    def __init__(self, entries: Follower, to_slot: ToSlot) -> None:
        self._entries = entries
        self._to_slot = to_slot

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> BufferSlot:
        return self._to_slot(next(self._entries))

    def close(self) -> None:
        """End the iteration; a `next` that waits in another thread ends too."""
        self._entries.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncSlotFollower:
    """`SlotFollower` for an event loop: `async for`, ended by `aclose` or cancellation."""

    def __init__(self, entries: AsyncFollower, to_slot: ToSlot) -> None:
        self._entries = entries
        self._to_slot = to_slot

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> BufferSlot:
        import asyncio

        entry = await anext(self._entries)
        if entry.content is not None and entry.content.notes:
            # What a slot refers to may have to be read first.
            return await asyncio.to_thread(self._to_slot, entry)
        return self._to_slot(entry)

    async def aclose(self) -> None:
        await self._entries.aclose()

    async def __aenter__(self) -> Self:
        await self._entries.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._entries.__aexit__(kind, error, trace)
