"""A stand-in for the context buffer: the same calls, and what they need of the store.

It checks no limits, evicts nothing and returns slots without metadata, so it
is a floor for what the buffer costs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pagefile import Append, Batch, Entry, Fork, Pagefile, Query, Store, aio


@dataclass(frozen=True, slots=True)
class StandInSlot:
    """What was stored, or what is about to be read."""

    thread_id: str
    index: int
    entry: Entry | None = None

    @property
    def payload(self) -> Any:
        return None if self.entry is None else self.entry.value


class StandInThread:
    """A lazy view of one thread."""

    def __init__(self, store: Store, thread_id: str) -> None:
        self._store, self._thread_id = store, thread_id
        self._log = f"thread/{thread_id}"

    def __len__(self) -> int:
        return self._store.length(self._log)

    def __iter__(self) -> Iterator[StandInSlot]:
        start = 0
        while found := self._store.read(self._log, start, limit=500):
            yield from map(self._slot, found)
            start += len(found)

    def tail(self, count: int) -> list[StandInSlot]:
        return [self._slot(entry) for entry in self._store.read(self._log, -count)]

    def get_by_type(self, payload_type: str) -> list[StandInSlot]:
        found: list[StandInSlot] = []
        cursor: str | None = None
        while True:
            query = Query("lane", (payload_type,), prefix=True, log=self._log, cursor=cursor)
            page = self._store.find(query, limit=500)
            found += [self._slot(item) for item in page.items if isinstance(item, Entry)]
            cursor = page.cursor
            if cursor is None:
                return found

    def _slot(self, entry: Entry) -> StandInSlot:
        return StandInSlot(self._thread_id, entry.index, entry)


class StandInBuffer:
    """The calls that are measured."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._forks = itertools.count()
        self.max_threads = 1_000

    def append(self, thread_id: str, payload: Any, from_id: str, to_id: str) -> StandInSlot:
        commit = self._store.commit(Batch([_append(thread_id, payload, from_id, to_id)]))
        return StandInSlot(thread_id, commit.indexes[0])

    def append_many(self, thread_id: str, messages: Sequence[tuple[Any, str, str]]) -> None:
        self._store.commit(Batch([_append(thread_id, *message) for message in messages]))

    def get_thread(self, thread_id: str) -> StandInThread:
        return StandInThread(self._store, thread_id)

    def fork(self, thread_id: str, at: int | None = None) -> str:
        new_id = f"{thread_id}-fork-{next(self._forks)}"
        self._store.commit(Batch([Fork(f"thread/{new_id}", f"thread/{thread_id}", at)]))
        return new_id


class AsyncStandInBuffer:
    """`append`, awaited."""

    def __init__(self, store: aio.AsyncStore) -> None:
        self._store = store

    async def append(self, thread_id: str, payload: Any, from_id: str, to_id: str) -> StandInSlot:
        commit = await self._store.commit(Batch([_append(thread_id, payload, from_id, to_id)]))
        return StandInSlot(thread_id, commit.indexes[0])


def buffer_of(handle: Pagefile) -> StandInBuffer:
    """Where `handle.context` will be."""
    return StandInBuffer(handle.store)


def async_buffer_of(handle: aio.AsyncPagefile) -> AsyncStandInBuffer:
    """Where the awaited `handle.context` will be."""
    return AsyncStandInBuffer(handle.store)


def _append(thread_id: str, payload: Any, from_id: str, to_id: str) -> Append:
    lane = (type(payload).__name__, from_id, to_id)
    return Append(f"thread/{thread_id}", payload, keys={"lane": lane}, limit=10_000_000)
