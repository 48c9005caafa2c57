"""A thread as its readers see it: live, lazy, read-only unless a writer came with it."""

from __future__ import annotations

import sys
import time
from bisect import bisect_left
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import FrozenInstanceError
from datetime import datetime
from heapq import merge
from itertools import islice
from types import TracebackType
from typing import Any, NamedTuple, NoReturn, Self, overload

from pagefile.context.names import log_of, require_text
from pagefile.context.residency import MOST_SLOTS, Residency
from pagefile.context.slot import LANE, BufferSlot, Lane, UsageShelf, without_position
from pagefile.errors import Forbidden, Invalid, shown
from pagefile.store import codec
from pagefile.store.batch import Query
from pagefile.store.codec import sort_key
from pagefile.store.log.feed import feed_of
from pagefile.store.log.follower import AsyncFollower, Follower
from pagefile.store.records import Entry
from pagefile.store.store import Store

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


#: Among how many of a thread's newest slots its user is looked for.
_SLOTS_ASKED = 20
#: Slots are fetched this many at a time by whoever walks over them.
PAGE = 500


class Reader(NamedTuple):
    """The functions; indexes are never negative here."""

    length: Callable[[], int]
    #: Slots from an index up to another, both given.
    slots: Callable[[int, int], Iterator[BufferSlot]]
    #: The lanes there are.
    lanes: Callable[[], Iterator[Lane]]
    #: The slots of one lane, oldest first.
    of_lane: Callable[[Lane], Iterator[BufferSlot]]
    #: New slots behind an index, waiting so many seconds at most.
    follow: Callable[[int | None, float | None], SlotFollower]
    follow_async: Callable[[int | None, float | None], AsyncSlotFollower]


def reader_of(
    store: Store,
    shelf: UsageShelf,
    thread_id: str,
    residents: Residency,
    *,
    shows_position: bool = True,
) -> Reader:
    """A reader for one thread of a store; to read is to use it."""
    log = log_of(thread_id)

    def use() -> None:
        residents.touch(thread_id, time.monotonic())

    def length() -> int:
        use()
        return store.length(log)

    def slot(entry: Entry) -> BufferSlot:
        if not shows_position:
            entry = without_position(entry)
        content = entry.content
        if content is None or b'"usage"' not in content.notes:
            return BufferSlot(entry, thread_id)
        text = shelf.text(str(entry.notes.get("usage", "")), entry.user)
        return BufferSlot(entry, thread_id, text)

    def slots(start: int, stop: int) -> Iterator[BufferSlot]:
        while start < stop:
            use()
            found = store.read(log, start, stop, limit=PAGE)
            if not found:
                return
            yield from map(slot, found)
            start = found[-1].index + 1

    def lanes() -> Iterator[Lane]:
        use()
        query = Query(LANE, low=("",), log=log)
        while (found := store.find(query, limit=1).items) and isinstance(found[0], Entry):
            lane = Lane(*found[0].keys[LANE])  # type: ignore[misc]
            yield lane
            # The least that sorts behind this lane: the same, with one more character.
            behind = (lane.payload_type, lane.from_id, lane.to_id + "\x00")
            query = Query(LANE, low=behind, log=log)

    def of_lane(lane: Lane) -> Iterator[BufferSlot]:
        cursor: str | None = None
        while True:
            page = store.find(Query(LANE, value=tuple(lane), log=log, cursor=cursor), limit=PAGE)
            yield from (slot(entry) for entry in page.items if isinstance(entry, Entry))
            cursor = page.cursor
            if cursor is None:
                return

    def followed(entry: Entry) -> BufferSlot:
        use()
        return slot(entry)

    def follow(after: int | None, timeout: float | None) -> SlotFollower:
        use()
        return SlotFollower(feed_of(store).follow(log, after, timeout=timeout), followed)

    def follow_async(after: int | None, timeout: float | None) -> AsyncSlotFollower:
        use()
        entries = feed_of(store).follow_async(log, after, timeout=timeout)
        return AsyncSlotFollower(entries, followed)

    return Reader(length, slots, lanes, of_lane, follow, follow_async)


def user_of(store: Store, log: str) -> str | None:
    """Whose a thread is: the user of the newest of its last slots that has one."""
    newest = reversed(store.read(log, -_SLOTS_ASKED))
    return next((slot.user for slot in newest if not slot.erased and slot.user is not None), None)


#: Later than any time that a store can have.
_AFTER_ALL = 2**63


class Writer(NamedTuple):
    """What appends to one thread: payload, sender, recipient and the handler-facing fields."""

    write: Callable[..., BufferSlot]
    write_async: Callable[..., Awaitable[BufferSlot]]


class ThreadContext:
    """One thread's slots.

    It never holds slots: each look reads what it shows, so it is always up to
    date, and the last 50 of a million cost 50. `len` counts erased slots too;
    indexes never shift. A view that a buffer hands out cannot write; a
    `ThreadContext` made by itself stands alone in memory and can.
    """

    __slots__ = ("__weakref__", "_reader", "_writer", "thread_id")

    thread_id: str
    _reader: Reader
    _writer: Writer | None

    def __init__(
        self, thread_id: str, *, reader: Reader | None = None, writer: Writer | None = None
    ) -> None:
        if reader is None:
            reader, writer = _alone(thread_id)
        for name, value in (("thread_id", thread_id), ("_reader", reader), ("_writer", writer)):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to {name!r}: a view shows what is stored")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete {name!r}: a view shows what is stored")

    # Writing, for whoever was given a writer

    @property
    def can_write(self) -> bool:
        return self._writer is not None

    def append(
        self,
        payload: Any,
        from_id: str,
        to_id: str,
        own_name: str | None = None,
        is_self_call: bool = False,
        usage_instructions: str = "",
        todo_nudge: str = "",
    ) -> BufferSlot:
        """Add a slot at the end.

        Raises:
            Forbidden: this view only reads.
            LimitExceeded: the thread is full. Invalid: the input breaks a rule.
        """
        return self._require_writer().write(
            payload, from_id, to_id, own_name, is_self_call, usage_instructions, todo_nudge
        )

    async def append_async(
        self,
        payload: Any,
        from_id: str,
        to_id: str,
        own_name: str | None = None,
        is_self_call: bool = False,
        usage_instructions: str = "",
        todo_nudge: str = "",
    ) -> BufferSlot:
        """`append` for a running event loop, which it never blocks."""
        return await self._require_writer().write_async(
            payload, from_id, to_id, own_name, is_self_call, usage_instructions, todo_nudge
        )

    def _require_writer(self) -> Writer:
        if self._writer is None:
            raise Forbidden(
                f"this view of thread {self.thread_id!r} only reads",
                "ask the buffer for handle(thread_id, write=True)",
            )
        return self._writer

    # Reading

    def __len__(self) -> int:
        return self._reader.length()

    def length(self) -> int:
        """How many slots there have been; the same as `len`, for those who await."""
        return self._reader.length()

    @overload
    def __getitem__(self, at: int) -> BufferSlot: ...
    @overload
    def __getitem__(self, at: slice) -> list[BufferSlot]: ...
    def __getitem__(self, at: int | slice) -> BufferSlot | list[BufferSlot]:
        if isinstance(at, slice):
            return self._sliced(at)
        return self.at(at)

    def at(self, index: int) -> BufferSlot:
        """The slot at an index; negative ones count from the end."""
        if type(index) is not int:
            raise Invalid("index", f"{shown(index)} is no index", "give a whole number or a slice")
        length = self._reader.length()
        found = index + length if index < 0 else index
        if 0 <= found < length:
            for slot in self._reader.slots(found, found + 1):
                return slot
        slots = "1 slot" if length == 1 else f"{length} slots"
        raise IndexError(f"thread {self.thread_id!r} has {slots} and none at {shown(index)}")

    def __iter__(self) -> Iterator[BufferSlot]:
        """The slots there are now, fetched as they are asked for; later ones are not seen."""
        return self._reader.slots(0, self._reader.length())

    def __reversed__(self) -> Iterator[BufferSlot]:
        stop = self._reader.length()
        while stop > 0:
            start = max(0, stop - 200)
            yield from reversed(list(self._reader.slots(start, stop)))
            stop = start

    def __contains__(self, slot: object) -> bool:
        return (
            isinstance(slot, BufferSlot)
            and slot.thread_id == self.thread_id
            and slot.index < self._reader.length()
            and self.at(slot.index) == slot
        )

    def get_slice(self, start: int = 0, end: int | None = None) -> list[BufferSlot]:
        """Slots start … end-1; negative numbers count from the end."""
        return self._sliced(slice(start, end))

    def tail(self, count: int) -> list[BufferSlot]:
        """The last slots, oldest first; the cost does not depend on the thread's length."""
        if type(count) is not int or count < 0:
            raise Invalid("count", f"{shown(count)} is no count", "give 0 or more")
        length = self._reader.length()
        return list(self._reader.slots(max(0, length - count), length))

    def get_by_type(self, payload_type: str | type) -> list[BufferSlot]:
        """Slots whose payload is of this class.

        A class, or its stored name (`module:Name`; dict, list, str, … for plain
        values). A name alone will do while only one class in the thread has it.
        """
        return self._of_lanes(self._lanes_of_type(payload_type))

    def get_from(self, from_id: str) -> list[BufferSlot]:
        """Slots from this sender."""
        require_text("from_id", from_id)
        return self._of_lanes([lane for lane in self._reader.lanes() if lane.from_id == from_id])

    def get_to(self, to_id: str) -> list[BufferSlot]:
        """Slots to this recipient."""
        require_text("to_id", to_id)
        return self._of_lanes([lane for lane in self._reader.lanes() if lane.to_id == to_id])

    def between(
        self, since: datetime | None = None, until: datetime | None = None
    ) -> list[BufferSlot]:
        """Slots stored at `since` or later and before `until`; both are aware datetimes."""
        length = self._reader.length()
        first = 0 if since is None else self._first_at(_microseconds("since", since), length)
        last = length if until is None else self._first_at(_microseconds("until", until), length)
        return list(self._reader.slots(first, last))

    def follow(self, after: int | None = None, *, timeout: float | None = None) -> SlotFollower:
        """Iterate over slots behind index `after` as they come, from any process.

        None begins behind what is there now, -1 with the first slot. It ends when
        it is closed, when the thread ends, or after `timeout` seconds without one.
        """
        return self._reader.follow(after, timeout)

    def follow_async(
        self, after: int | None = None, *, timeout: float | None = None
    ) -> AsyncSlotFollower:
        """`follow` for an event loop, which it never blocks."""
        return self._reader.follow_async(after, timeout)

    def __repr__(self) -> str:
        kind = "reads and writes" if self.can_write else "reads"
        return f"<ThreadContext {self.thread_id!r}: {len(self)} slots, {kind}>"

    # Inside

    def _sliced(self, wanted: slice) -> list[BufferSlot]:
        try:
            first, last, step = wanted.indices(self._reader.length())
        except (TypeError, ValueError) as error:
            raise Invalid("slice", str(error), "give whole numbers") from error
        if step == 1:
            return list(self._reader.slots(first, last))
        numbers = range(first, last, step)
        if not numbers:
            return []
        low, high = min(numbers[0], numbers[-1]), max(numbers[0], numbers[-1])
        step_over = min(abs(step), sys.maxsize)
        picked = list(islice(self._reader.slots(low, high + 1), 0, None, step_over))
        return picked if step > 0 else picked[::-1]

    def _lanes_of_type(self, payload_type: str | type) -> list[Lane]:
        if isinstance(payload_type, type):
            typed = codec.is_typed(payload_type)
            payload_type = codec.type_name(payload_type) if typed else payload_type.__name__
        if type(payload_type) is not str:
            raise Invalid(
                "payload_type", f"{shown(payload_type)} is no type", "give a class or str"
            )
        lanes = list(self._reader.lanes())
        exact = [lane for lane in lanes if lane.payload_type == payload_type]
        if exact or ":" in payload_type:
            return exact
        alike = [lane for lane in lanes if _bare_name(lane.payload_type) == payload_type]
        classes = sorted({lane.payload_type for lane in alike})
        if len(classes) > 1:
            raise Invalid(
                "payload_type",
                f"{payload_type!r} is the name of {len(classes)} classes here",
                f"say which: {', '.join(classes)}",
            )
        return alike

    def _of_lanes(self, lanes: Sequence[Lane]) -> list[BufferSlot]:
        found = [self._reader.of_lane(lane) for lane in lanes]
        return list(merge(*found, key=lambda slot: slot.index))

    def _first_at(self, time_us: int, length: int) -> int:
        """The first slot stored at a time or later: times grow with indexes, so by halving."""

        def time_of(index: int) -> int:
            # Of one that was let go, as of the first behind it that is there.
            for stop in (index + 1, length):
                for slot in self._reader.slots(index, stop):
                    return slot.entry.time_us
            return _AFTER_ALL

        return bisect_left(range(length), time_us, key=time_of)


def _bare_name(payload_type: str) -> str:
    return payload_type.rpartition(":")[2].rpartition(".")[2]


def _microseconds(field: str, moment: object) -> int:
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise Invalid(field, f"{shown(moment)} is no aware datetime", "give one with a time zone")
    return sort_key.microseconds(moment)


def _alone(thread_id: str) -> tuple[Reader, Writer]:
    """A thread in a store of its own, which goes when the thread does."""
    from pagefile.context.buffer import ContextBuffer

    # As long as a log can be: nobody could raise a limit of it.
    whole = ContextBuffer(max_slots_per_thread=MOST_SLOTS).handle(thread_id, write=True)
    assert whole._writer is not None
    return whole._reader, whole._writer
