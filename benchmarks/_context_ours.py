"""Our side: the one place that knows how the context buffer is called."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from typing import Any

import pagefile
from _workplace import Workplace
from pagefile import ContextBuffer, NewSlot, Pagefile, ThreadContext, aio
from pagefile.store.records import Durability

Buffer = ContextBuffer

#: About 500 bytes as JSON, in the shape that all libraries here take.
MESSAGE = {"role": "user", "content": "An agent saw this. ".ljust(468, "x")}

#: Long threads are built this many slots at a time.
_BUILD_BATCH = 5_000
_MOST_SLOTS = 10_000_000
_FROM, _TO = "user", "agent"


def open_handle(place: Workplace, level: Durability) -> Pagefile:
    """A new file, closed with the workplace; its threads may have any length."""
    handle = place.closing(pagefile.open(place.new_path(), durability=level))
    handle.context.max_slots_per_thread = _MOST_SLOTS
    return handle


def open_buffer(place: Workplace, level: Durability) -> Buffer:
    """The buffer of a new file."""
    return open_handle(place, level).context


def memory_buffer(max_threads: int = 1_000) -> Buffer:
    """A buffer in memory that nobody needs to close."""
    return Buffer(max_slots_per_thread=_MOST_SLOTS, max_threads=max_threads)


def append_singly(buffer: Buffer, payload: Any, count: int, thread_id: str = "t") -> int:
    """One append after the other."""
    for _ in range(count):
        buffer.append(thread_id, payload, _FROM, _TO)
    return count


def append_together(buffer: Buffer, payloads: Sequence[Any], thread_id: str = "t") -> int:
    """One commit for all."""
    buffer.append_many(thread_id, [NewSlot(payload, _FROM, _TO) for payload in payloads])
    return len(payloads)


def build(place: Workplace, buffer: Buffer, payloads: Sequence[Any], thread_id: str = "t") -> None:
    """A long thread, in big commits."""
    place.announce(f"building {len(payloads):,} slots", -(-len(payloads) // _BUILD_BATCH))
    for start in range(0, len(payloads), _BUILD_BATCH):
        append_together(buffer, payloads[start : start + _BUILD_BATCH], thread_id)
        place.advance()


def append_from_threads(buffer: Buffer, payload: Any, many: int, each: int) -> int:
    """Concurrent threads, each with a thread id of its own."""
    threads = [
        threading.Thread(target=append_singly, args=(buffer, payload, each, f"t{number}"))
        for number in range(many)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return many * each


class Awaited:
    """The buffer of an async handle, on an event loop that lasts."""

    def __init__(self, place: Workplace, handle: Pagefile) -> None:
        self._runner = place.open.enter_context(asyncio.Runner())
        self._buffer = aio.AsyncPagefile(handle).context

    def append_from_tasks(self, payload: Any, many: int, each: int) -> int:
        """Concurrent tasks, each with a thread id of its own."""

        async def one(thread_id: str) -> None:
            for _ in range(each):
                await self._buffer.append(thread_id, payload, _FROM, _TO)

        async def all_of_them() -> None:
            await asyncio.gather(*(one(f"t{number}") for number in range(many)))

        self._runner.run(all_of_them())
        return many * each


def read_tail(buffer: Buffer, count: int, thread_id: str = "t") -> int:
    """The last slots, with their payloads decoded."""
    return len([slot.payload for slot in _thread(buffer, thread_id).tail(count)])


def read_all(buffer: Buffer, thread_id: str = "t") -> int:
    """Every slot, with its payload decoded."""
    return len([slot.payload for slot in _thread(buffer, thread_id)])


def read_type(buffer: Buffer, payload_type: type, thread_id: str = "t") -> int:
    """The slots of one payload type, as the plain buffer gives them: not decoded."""
    return len(_thread(buffer, thread_id).get_by_type(payload_type))


def _thread(buffer: Buffer, thread_id: str) -> ThreadContext:
    thread = buffer.get_thread(thread_id)
    if thread is None:
        raise RuntimeError(f"there is no thread {thread_id!r}")
    return thread
