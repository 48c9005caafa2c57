"""Isolation: what a holder observes does not depend on what else is in the store.

A story is told twice: once alone, once while others (threads, users, tenants,
documents) do what they like between any two steps. Time is scripted, so that
everything observed, errors included, can be compared to the byte.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from hypothesis import strategies as st

from pagefile.context.appender import NewSlot
from pagefile.context.buffer import ContextBuffer
from pagefile.context.slot import BufferSlot
from pagefile.context.thread import ThreadContext
from pagefile.errors import PagefileError
from pagefile.handle import Admin, Options, Pagefile
from pagefile.store.batch import Append, Batch, Put, Selector
from pagefile.store.codec import sort_key

_START_US = 1_700_000_000_000_000
_SLOTS_AT_MOST = 6

Step = tuple[Any, ...]
#: Opens an empty store.
Opening = Callable[[Options], Admin]

_payloads: st.SearchStrategy[Any] = st.sampled_from(
    [None, 0, "x", {"a": [1]}, [], math.nan, object]
)
_names = st.sampled_from(["ann", "bob", "", "\x00"])
_numbers = st.integers(-8, 8)
_texts = st.sampled_from(["", "How.", "Why."])

#: What the holder of thread A does.
steps: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.just("append"), _payloads, _names, _names, _texts, _texts),
    st.tuples(st.just("at"), _numbers),
    st.tuples(st.just("slice"), _numbers, _numbers),
    st.tuples(st.just("find"), _names),
    st.tuples(st.just("type"), st.sampled_from(["dict", "NoneType", "Gone", ""])),
    st.tuples(st.just("all")),
    st.tuples(st.just("between"), st.none() | _numbers, st.none() | _numbers),
    st.tuples(st.just("follow"), st.none() | _numbers),
    st.tuples(st.just("awaited"), _payloads, _names, _texts),
    st.tuples(st.just("follow awaited"), _numbers),
)

#: What everybody else does, before a step of the holder's.
noises: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.just("thread"), st.sampled_from(["B", "C", "AA"]), _texts),
    st.tuples(st.just("many"), st.integers(1, 4)),
    st.tuples(st.just("fork"), st.integers(0, 3)),
    st.tuples(st.just("delete"), st.sampled_from(["B", "C"])),
    st.tuples(st.just("tenant"), _texts),
    st.tuples(st.just("document")),
    st.tuples(st.just("log")),
    st.tuples(st.just("user")),
    st.tuples(st.just("erase")),
    st.tuples(st.just("pin")),
)


class World:
    """A store with a scripted clock, the holder of A in it, and others."""

    def __init__(self, opening: Opening) -> None:
        self._now = _START_US
        self._admin = opening(Options(clock=lambda: self._now))
        self.mine = self._admin.open("mine")
        self._other = self._admin.open("other")
        self.mine.context.max_slots_per_thread = _SLOTS_AT_MOST
        self.handle = self.mine.context.handle("A", write=True)
        self._count = 0

    def close(self) -> None:
        self._admin.close()

    def tick(self) -> None:
        self._now += 1_000_000

    def step(self, step: Step) -> str:
        """Everything that the holder of the handle sees of one step."""
        try:
            seen = repr(_shown(_done(self.handle, step)))
        except (PagefileError, IndexError) as error:
            seen = f"{type(error).__name__}: {error} {sorted(vars(error).items())}"
        return f"{seen} {self.handle!r}"

    def tenants_step(self, step: Step) -> str:
        """The same, and all that the tenant's own handle tells."""
        store, buffer = self.mine.store, self.mine.context
        told = [store.head().position, store.stats(), buffer.get_stats(), store.changes()]
        told += [store.names("log"), store.names("document")]
        return f"{self.step(step)} {told}"

    def noise(self, noise: Step, *, of_this_tenant: bool) -> None:
        """Something happens that is none of the holder's business."""
        self._count += 1
        pf = self.mine if of_this_tenant else self._other
        # Their errors are theirs to deal with; this is about what the holder sees.
        with suppress(PagefileError):
            _made(pf, pf.context, noise, self._count)


def told(opening: Opening, story: Sequence[tuple[Sequence[Step], Step]], whose: str) -> list[str]:
    """What the holder of a "thread" or of a "tenant" sees; in a noisy world if there is noise."""
    world = World(opening)
    try:
        seen = []
        for noise, step in story:
            for each in noise:
                world.noise(each, of_this_tenant=whose == "thread" and each[0] != "tenant")
            seen.append(world.step(step) if whose == "thread" else world.tenants_step(step))
            world.tick()
        return seen
    finally:
        world.close()


def _done(view: ThreadContext, step: Step) -> Any:
    match step:
        case ("append", payload, from_id, to_id, usage, nudge):
            return view.append(payload, from_id, to_id, None, False, usage, nudge)
        case ("at", index):
            return view[index]
        case ("slice", first, last):
            return view.get_slice(first, last)
        case ("find", name):
            return [view.get_from(name), view.get_to(name)]
        case ("type", name):
            return view.get_by_type(name)
        case ("between", since, until):
            return view.between(_moment(since), _moment(until))
        case ("follow", after):
            return list(view.follow(after, timeout=0))
        case ("awaited", payload, name, usage):
            return asyncio.run(view.append_async(payload, name, "bob", None, False, usage))
        case ("follow awaited", after):
            return asyncio.run(_followed(view, after))
    return [len(view), list(view), list(reversed(view)), view.tail(3), view.can_write]


async def _followed(view: ThreadContext, after: int) -> list[BufferSlot]:
    return [slot async for slot in view.follow_async(after, timeout=0)]


def _moment(seconds: int | None) -> datetime | None:
    """So many seconds after the story began, by the scripted clock."""
    return None if seconds is None else sort_key.moment(_START_US + seconds * 1_000_000)


def _shown(result: Any) -> Any:
    if isinstance(result, list):
        return [_shown(item) for item in result]
    if isinstance(result, BufferSlot):
        payload = None if result.erased else result.payload
        return [repr(result), payload, result.metadata, result.position, repr(result.entry)]
    return result


def _made(pf: Pagefile, buffer: ContextBuffer, noise: Step, count: int) -> None:
    store = pf.store
    match noise:
        case ("thread", thread_id, usage):
            buffer.append(thread_id, count, "eve", "ann", usage_instructions=usage)
        case ("many", size):
            buffer.append_many(f"N{count}", [NewSlot(count, "eve", "ann")] * size)
        case ("fork", at):
            child = buffer.fork("A", at)
            buffer.append(child, "forked", "eve", "ann")
        case ("delete", thread_id):
            buffer.delete_thread(thread_id)
        case ("document",):
            store.commit(Batch([Put("thread/A", count), Put("A", count)]))
        case ("log",):
            store.commit(Batch([Append("A", count), Append("thread", count)]))
        case ("user",):
            buffer.append("B", "theirs", "eve", "ann", user_id="u")
        case ("erase",):
            store.erase(Selector(user="u"))
        case ("pin",):
            buffer.pin("B")
        case _:
            buffer.append("A", count, "eve", "ann", usage_instructions=str(noise[-1]))
