"""The peer in memory: lists and locks, as a buffer of agent messages is written by hand.

No encoding, no digest, no isolation: it keeps the caller's own payload object.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any


@dataclass(frozen=True)
class SlotMetadata:
    """What is noted of a message."""

    thread_id: str
    from_id: str
    to_id: str
    slot_index: int
    timestamp: str
    payload_type: str
    own_name: str | None = None
    is_self_call: bool = False
    usage_instructions: str = ""
    todo_nudge: str = ""


@dataclass(frozen=True)
class BufferSlot:
    """A message and its metadata."""

    payload: Any
    metadata: SlotMetadata


class PlainThread:
    """The slots of one thread."""

    def __init__(self, thread_id: str) -> None:
        self.thread_id = thread_id
        self.created = datetime.now(UTC)
        self.slots: list[BufferSlot] = []
        self._lock = threading.Lock()

    def append(self, payload: Any, from_id: str, to_id: str) -> BufferSlot:
        with self._lock:
            metadata = SlotMetadata(
                thread_id=self.thread_id,
                from_id=from_id,
                to_id=to_id,
                slot_index=len(self.slots),
                timestamp=datetime.now(UTC).isoformat(),
                payload_type=type(payload).__name__,
            )
            slot = BufferSlot(payload, metadata)
            self.slots.append(slot)
            return slot

    def __len__(self) -> int:
        return len(self.slots)

    def __iter__(self) -> Iterator[BufferSlot]:
        # Over a copy, so that appends meanwhile are safe and unseen.
        return iter(list(self.slots))

    def copy(self, thread_id: str) -> PlainThread:
        """What a fork comes to without sharing."""
        child = PlainThread(thread_id)
        child.slots = list(self.slots)
        return child

    def get_by_type(self, payload_type: str) -> list[BufferSlot]:
        return [slot for slot in self.slots if slot.metadata.payload_type == payload_type]


class PlainBuffer:
    """All threads of a process. The oldest thread makes room for a new one."""

    def __init__(self, max_threads: int = 1_000, max_slots_per_thread: int = 10_000) -> None:
        self.max_threads = max_threads
        self.max_slots_per_thread = max_slots_per_thread
        self._threads: dict[str, PlainThread] = {}
        self._lock = threading.Lock()

    def append(self, thread_id: str, payload: Any, from_id: str, to_id: str) -> BufferSlot:
        thread = self._get_or_create(thread_id)
        if len(thread) >= self.max_slots_per_thread:
            raise MemoryError(f"Thread {thread_id} exceeded max slots")
        return thread.append(payload, from_id, to_id)

    def get_thread(self, thread_id: str) -> PlainThread | None:
        return self._threads.get(thread_id)

    def _get_or_create(self, thread_id: str) -> PlainThread:
        with self._lock:
            thread = self._threads.get(thread_id)
            if thread is None:
                if len(self._threads) >= self.max_threads:
                    oldest = min(self._threads, key=lambda name: self._threads[name].created)
                    del self._threads[oldest]
                thread = self._threads[thread_id] = PlainThread(thread_id)
            return thread
