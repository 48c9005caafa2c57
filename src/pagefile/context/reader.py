"""Reading one thread, and nothing else: what a view is built on.

A reader is a handful of functions bound to one thread. Whoever holds it can
reach no other thread through it, nor the store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

from pagefile.context.names import log_of
from pagefile.context.residency import Residency
from pagefile.context.slot import LANE, BufferSlot, Lane, UsageShelf, without_position
from pagefile.context.thread import AsyncSlotFollower, SlotFollower
from pagefile.store.batch import Query
from pagefile.store.log.feed import feed_of
from pagefile.store.records import Entry
from pagefile.store.store import Store

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
