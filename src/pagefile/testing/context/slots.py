"""Slots and views: what was said is read back in one order, also when it is awaited."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from pagefile.aio import AsyncContextBuffer, AsyncPagefile
from pagefile.context.appender import NewSlot
from pagefile.context.buffer import ContextBuffer
from pagefile.context.slot import BufferSlot, HandlerMetadata, slot_to_handler_metadata
from pagefile.context.thread import ThreadContext
from pagefile.errors import Conflict, Forbidden, Invalid, LimitExceeded, NotFound
from pagefile.handle import Options, Pagefile
from pagefile.store.batch import Append, Batch, Put
from pagefile.testing.backend import Backend, promise
from pagefile.testing.context.fixtures import (
    ContextFixtures,
    Inner,
    Note,
    indexes,
    payloads,
    say,
    steps_of,
)


def seen(buffer: ContextBuffer, thread_id: str) -> ThreadContext:
    """The view of a thread that is there."""
    view = buffer.get_thread(thread_id)
    assert view is not None
    return view


class SlotContract(ContextFixtures):
    """What a slot tells, and the ways to read a thread."""

    @pytest.mark.parametrize("payload", [None, 0, "", [], {}, False], ids=repr)
    def test_threads_M12_an_empty_payload_is_recorded_as_any_other(
        self, buffer: ContextBuffer, payload: Any
    ) -> None:
        say(buffer, "t", payload)

        assert payloads(buffer.get_thread_slots("t")) == [payload]

    def test_metadata_is_read_back_as_it_was_given(self, buffer: ContextBuffer) -> None:
        buffer.append("t", {}, "ann", "bob", "bob-2", True, "Do so.", "Left: 2", user_id="u")
        known = seen(buffer, "t")[0].metadata

        assert (known.thread_id, known.from_id, known.to_id, known.slot_index) == (
            "t",
            "ann",
            "bob",
            0,
        )
        assert (known.own_name, known.is_self_call, known.user_id) == ("bob-2", True, "u")
        assert (known.usage_instructions, known.todo_nudge) == ("Do so.", "Left: 2")

    def test_a_handler_is_told_its_part_of_the_metadata(self, buffer: ContextBuffer) -> None:
        slot = buffer.append("t", {}, "ann", "bob", "bob-2", True, "Do so.", "Left: 2")

        assert slot_to_handler_metadata(slot) == HandlerMetadata(
            "t", "ann", "bob-2", True, "Do so.", "Left: 2"
        )

    def test_threads_B06_append_returns_what_a_reader_gets(self, buffer: ContextBuffer) -> None:
        note = Note("before", ["a"])
        slot = buffer.append("t", note, "ann", "bob", usage_instructions="How.")
        note.text, note.tags = "after", []
        read = seen(buffer, "t")[0]

        assert (slot, slot.payload, slot.metadata) == (read, Note("before", ["a"]), read.metadata)

    def test_slots_read_as_a_list_does(self, buffer: ContextBuffer) -> None:
        say(buffer, "t", *range(10))
        view, numbers = seen(buffer, "t"), list(range(10))
        wanted = [slice(None), slice(-3, None), slice(2, 99), slice(8, 2), slice(None, None, -1)]
        wanted += [slice(1, 9, 3), slice(9, 1, -4), slice(-99, 2), slice(5, 5)]

        assert [payloads(view[part]) for part in wanted] == [numbers[part] for part in wanted]
        assert [view[at].payload for at in (0, 9, -1, -10)] == [0, 9, 9, 0]
        assert payloads(reversed(view)) == numbers[::-1]

    @pytest.mark.parametrize("index", [3, -4, 2**70])
    def test_threads_B16_an_index_beyond_the_end_is_an_index_error(
        self, buffer: ContextBuffer, index: int
    ) -> None:
        say(buffer, "t", 1, 2, 3)
        with pytest.raises(IndexError, match="thread 't' has 3 slots"):
            seen(buffer, "t")[index]

    def test_a_walk_shows_the_slots_there_were_when_it_began(self, buffer: ContextBuffer) -> None:
        say(buffer, "t", 1, 2)
        walk = iter(seen(buffer, "t"))
        say(buffer, "t", 3)

        assert payloads(walk) == [1, 2]

    def test_a_step_larger_than_any_thread_is_taken_as_a_list_takes_it(
        self, buffer: ContextBuffer
    ) -> None:
        say(buffer, "t", 1, 2, 3)
        view = seen(buffer, "t")

        assert [payloads(view[:: 10**30]), payloads(view[:: -(10**30)])] == [[1], [3]]

    def test_threads_B05_a_view_is_live(self, buffer: ContextBuffer) -> None:
        view = buffer.get_or_create_thread("t")
        before = len(view)
        say(buffer, "t", 1)

        assert (before, len(view), payloads(view)) == (0, 1, [1])

    def test_threads_B04_what_one_handle_appends_every_other_reads(
        self, backend: Backend, buffer: ContextBuffer
    ) -> None:
        view = backend.open().context.get_or_create_thread("t")
        say(buffer, "t", "hello")

        assert payloads(view) == ["hello"]

    def test_a_thread_is_there_from_its_first_slot_on(self, buffer: ContextBuffer) -> None:
        before = (buffer.get_thread("t"), buffer.thread_exists("t"), buffer.get_thread_slots("t"))
        say(buffer, "t", 1)

        assert before == (None, False, [])
        assert buffer.thread_exists("t")

    def test_threads_M13_two_classes_of_one_name_are_told_apart(
        self, buffer: ContextBuffer
    ) -> None:
        say(buffer, "t", Note("one", []), Inner.Note("two"))
        view = seen(buffer, "t")
        with pytest.raises(Invalid, match=r"say which: .*ground:Inner.Note, .*ground:Note"):
            view.get_by_type("Note")

        assert indexes(view.get_by_type(Note)) == [0]
        assert indexes(view.get_by_type(view[1].payload_type)) == [1]

    def test_a_bare_name_will_do_while_one_class_has_it(self, buffer: ContextBuffer) -> None:
        say(buffer, "t", Note("one", []), {"plain": 1})
        view = seen(buffer, "t")

        assert [indexes(view.get_by_type(name)) for name in ("Note", "dict", dict, "Gone")] == [
            [0],
            [1],
            [1],
            [],
        ]

    def test_senders_and_recipients_are_found_in_order(self, buffer: ContextBuffer) -> None:
        lanes = [("a", "b"), ("b", "a"), ("a", "c"), ("ab", "b"), ("a", "b")]
        for n, (from_id, to_id) in enumerate(lanes):
            buffer.append("t", n if n % 2 else str(n), from_id, to_id)
        view = seen(buffer, "t")

        assert (indexes(view.get_from("a")), indexes(view.get_to("b"))) == ([0, 2, 4], [0, 3, 4])

    def test_slots_are_found_by_the_time_they_were_stored(self, backend: Backend) -> None:
        now = iter(range(1_000_000, 99_000_000, 1_000_000))
        buffer = backend.open(options=Options(clock=lambda: next(now))).context
        slots = say(buffer, "t", *range(5))
        times = [datetime.datetime.fromisoformat(slot.metadata.timestamp) for slot in slots]
        view = seen(buffer, "t")

        assert indexes(view.between(times[1], times[3])) == [1, 2]
        assert indexes(view.between(since=times[3])) == [3, 4]
        assert indexes(view.between(times[3], times[1])) == []

    @promise("S2")
    def test_threads_M18_positions_order_the_slots_of_all_threads(
        self, buffer: ContextBuffer
    ) -> None:
        said = [say(buffer, f"t{n % 3}", n)[0] for n in range(9)]
        slots = [slot for n in range(3) for slot in buffer.get_thread_slots(f"t{n}")]
        slots.sort(key=lambda slot: slot.position or 0)

        assert payloads(slots) == list(range(9))
        assert [slot.position for slot in said] == [slot.position for slot in slots]

    @promise("S2")
    def test_threads_M18_time_never_runs_backwards(self, backend: Backend) -> None:
        now = iter([5_000_000, 3_000_000, 4_000_000])
        buffer = backend.open(options=Options(clock=lambda: next(now))).context
        times = [slot.metadata.timestamp for slot in say(buffer, "t", 1, 2, 3)]

        assert times == sorted(times)

    def test_threads_M15_a_usage_text_is_stored_once(
        self, handle: Pagefile, buffer: ContextBuffer
    ) -> None:
        text = "Call me with a city. " * 500
        for n in range(20):
            buffer.append(f"t{n % 2}", n, "ann", "bob", usage_instructions=text)
        entries = [e for n in range(2) for e in handle.store.read(f"thread/t{n}")]
        stored = [bytes(e.body) + repr(e.notes).encode() for e in entries]

        assert handle.stats().documents == 1
        assert max(map(len, stored)) < 200
        assert {slot.metadata.usage_instructions for slot in seen(buffer, "t1")} == {text}

    def test_threads_M14_the_last_slots_cost_the_same_in_a_long_thread(
        self, buffer: ContextBuffer
    ) -> None:
        for thread_id, count in (("short", 100), ("long", 3_000)):
            buffer.append_many(thread_id, [NewSlot(n, "a", "b") for n in range(count)])
        views = [seen(buffer, thread_id) for thread_id in ("short", "short", "long")]
        _, short, long = [steps_of(partial(view.tail, 20)) for view in views]

        assert long <= short * 1.2

    def test_threads_M14_a_rare_sender_is_found_without_reading_the_rest(
        self, buffer: ContextBuffer
    ) -> None:
        for thread_id, count in (("short", 100), ("long", 3_000)):
            buffer.append_many(thread_id, [NewSlot(n, "a", "b") for n in range(count)])
            buffer.append(thread_id, -1, "rare", "b")
        views = [seen(buffer, thread_id) for thread_id in ("short", "short", "long")]
        _, short, long = [steps_of(partial(view.get_from, "rare")) for view in views]

        assert long <= short * 1.2

    def test_threads_M14_a_walk_fetches_what_is_asked_for(self, buffer: ContextBuffer) -> None:
        buffer.append_many("t", [NewSlot(n, "a", "b") for n in range(3_000)])
        view = seen(buffer, "t")
        next(iter(view))
        first, all_of_them = steps_of(lambda: next(iter(view))), steps_of(lambda: list(view))

        assert first * 3 < all_of_them

    @promise("S4")
    def test_threads_M16_what_was_acknowledged_is_there_after_a_crash(
        self, backend: Backend, buffer: ContextBuffer
    ) -> None:
        acknowledged = say(buffer, "t", 1, Note("two", ["x"]), None)
        fork = buffer.fork("t", 2)
        backend.crash()
        again = backend.open().context

        assert again.get_thread_slots("t") == acknowledged
        assert indexes(again.get_thread_slots(fork)) == [0, 1]

    def test_threads_B22_threads_are_apart_from_whatever_else_is_stored(
        self, handle: Pagefile, buffer: ContextBuffer
    ) -> None:
        handle.store.commit(Batch([Append("t", 1), Append("threads", 2), Put("thread/t", 3)]))
        say(buffer, "real", 1)
        stats = buffer.get_stats()
        buffer.clear()

        assert (stats["threads"], stats["total_slots"]) == (["real"], 1)
        assert (handle.store.length("t"), handle.store.names("document")) == (1, ["thread/t"])

    def test_threads_B10_stats_count_every_slot_of_every_thread(
        self, buffer: ContextBuffer
    ) -> None:
        say(buffer, "a", 1, 2, 3)
        say(buffer, "b", 1)
        stats = buffer.get_stats()

        assert (stats["thread_count"], stats["total_slots"]) == (2, 4)
        assert stats["threads"] == ["a", "b"]

    @promise("S5")
    def test_threads_B11_clear_ends_the_threads_of_this_tenant_only(
        self, backend: Backend, buffer: ContextBuffer
    ) -> None:
        other = backend.open("other*").context
        say(buffer, "t", 1)
        say(other, "t", 2)
        buffer.clear()

        assert (buffer.thread_exists("t"), payloads(other.get_thread_slots("t"))) == (False, [2])

    @promise("S5")
    def test_threads_B11_the_name_of_a_tenant_is_no_pattern_for_others(
        self, backend: Backend
    ) -> None:
        starred, kept = backend.open("t*").context, backend.open("t1").context
        say(starred, "t", 1)
        say(kept, "t", 2)
        starred.clear()

        assert (starred.thread_exists("t"), payloads(kept.get_thread_slots("t"))) == (False, [2])

    @promise("S7")
    def test_a_key_makes_a_repeat_harmless(self, buffer: ContextBuffer) -> None:
        buffer.max_slots_per_thread = 2
        say(buffer, "t", 0)
        made = [buffer.append("t", 1, "a", "b", key="k", expected_len=1) for _ in range(3)]

        assert (len(set(made)), len(buffer.get_thread_slots("t"))) == (1, 2)

    @promise("S7")
    def test_a_key_whose_slot_is_gone_leads_to_no_other(self, buffer: ContextBuffer) -> None:
        buffer.append("t", "old", "a", "b", key="k")
        buffer.delete_thread("t")
        say(buffer, "t", "new")
        with pytest.raises(NotFound, match="'k' was used in a thread 't' that is gone"):
            buffer.append("t", "old", "a", "b", key="k")

        assert payloads(buffer.get_thread_slots("t")) == ["new"]

    @promise("S1")
    def test_several_messages_are_appended_together_or_not_at_all(
        self, buffer: ContextBuffer
    ) -> None:
        made = buffer.append_many("t", [NewSlot(n, "a", "b") for n in range(3)])
        buffer.max_slots_per_thread = 4
        with pytest.raises(MemoryError):
            buffer.append_many("t", [NewSlot(n, "a", "b") for n in range(2)])

        assert [(s.index, s.position) for s in made] == [(n, made[0].position) for n in range(3)]
        assert buffer.get_thread_slots("t") == made

    @promise("S3")
    def test_an_append_for_another_length_says_what_the_length_is(
        self, buffer: ContextBuffer
    ) -> None:
        say(buffer, "t", 1, 2)
        with pytest.raises(Conflict, match="thread 't' has 2 slots, not 1") as caught:
            buffer.append("t", 3, "a", "b", expected_len=1)

        assert (caught.value.target, caught.value.expected, caught.value.current) == ("t", 1, 2)

    def test_a_fork_shares_the_past_and_not_the_future(self, buffer: ContextBuffer) -> None:
        say(buffer, "t", 0, 1, 2)
        child = buffer.fork("t", 2)
        grandchild = buffer.fork(child, new_id="g")
        for thread_id in ("t", child, grandchild):
            say(buffer, thread_id, thread_id)
        found = [payloads(buffer.get_thread_slots(name)) for name in ("t", child, grandchild)]

        assert found == [[0, 1, 2, "t"], [0, 1, child], [0, 1, "g"]]
        assert indexes(buffer.get_thread_slots(child)) == [0, 1, 2]

    def test_a_fork_costs_the_same_whatever_the_length(self, buffer: ContextBuffer) -> None:
        for thread_id, count in (("short", 10), ("long", 2_000)):
            buffer.append_many(thread_id, [NewSlot(n, "a", "b") for n in range(count)])
        buffer.fork("short")
        short, long = [steps_of(partial(buffer.fork, name)) for name in ("short", "long")]

        assert long <= short * 1.2

    def test_equal_slots_are_the_same_slot_of_the_same_thread(self, buffer: ContextBuffer) -> None:
        one, two = say(buffer, "t", 1, 1)
        other: list[BufferSlot] = say(buffer, "u", 1)

        assert len({one, two, other[0], seen(buffer, "t")[0]}) == 3
        assert one in seen(buffer, "t")
        assert other[0] not in seen(buffer, "t")

    @promise("S6")
    def test_entries_that_no_buffer_made_are_shown_with_what_the_store_knows(
        self, backend: Backend
    ) -> None:
        handle = backend.open()
        handle.store.commit(Batch([Append("thread/raw", {"n": 1}, actor="importer")]))
        view = handle.context.get_or_create_thread("raw")

        assert [(slot.from_id, slot.to_id, slot.payload) for slot in view] == [
            ("importer", "", {"n": 1})
        ]


class AwaitedContract(ContextFixtures):
    """`pagefile.aio`: one loop, many tasks."""

    @pytest.fixture
    def awaited(self, handle: Pagefile) -> AsyncContextBuffer:
        return AsyncPagefile(handle).context

    @pytest.mark.parametrize("text", [[], {}, 1, b""], ids=repr)
    def test_a_usage_text_that_is_none_is_refused_in_our_words(
        self, awaited: AsyncContextBuffer, text: Any
    ) -> None:
        with pytest.raises(Invalid, match="usage_instructions"):
            asyncio.run(awaited.append("t", 1, "a", "b", usage_instructions=text))

    @promise("S2")
    def test_threads_M17_64_tasks_append_without_gap_or_loss(
        self, handle: Pagefile, awaited: AsyncContextBuffer
    ) -> None:
        async def write(task: int) -> list[tuple[int, Any]]:
            slots = [await awaited.append("t", f"{task}-{n}", "a", "b") for n in range(5)]
            return [(slot.index, slot.payload) for slot in slots]

        async def story() -> list[tuple[int, Any]]:
            told = await asyncio.gather(*(write(task) for task in range(64)))
            return sorted(pair for pairs in told for pair in pairs)

        acknowledged = asyncio.run(story())

        assert [index for index, _ in acknowledged] == list(range(320))
        assert [p for _, p in acknowledged] == payloads(handle.context.get_thread_slots("t"))

    @promise("S3")
    def test_of_64_tasks_that_expect_one_length_one_wins(self, awaited: AsyncContextBuffer) -> None:
        async def claim(task: int) -> bool:
            try:
                await awaited.append("t", task, "a", "b", expected_len=0)
            except Conflict:
                return False
            return True

        async def story() -> int:
            return sum(await asyncio.gather(*(claim(task) for task in range(64))))

        assert asyncio.run(story()) == 1

    @promise("S8")
    def test_threads_M01_64_tasks_never_pass_the_slot_limit(
        self, handle: Pagefile, awaited: AsyncContextBuffer
    ) -> None:
        handle.context.max_slots_per_thread = 40

        async def story() -> int:
            appends = (awaited.append("t", task, "a", "b") for task in range(64))
            told = await asyncio.gather(*appends, return_exceptions=True)
            return sum(isinstance(each, LimitExceeded) for each in told)

        assert (asyncio.run(story()), handle.store.length("thread/t")) == (24, 40)

    def test_threads_M17_a_view_is_awaited_and_walked(self, awaited: AsyncContextBuffer) -> None:
        async def story() -> list[Any]:
            many = [NewSlot(n, "a" if n % 2 else "c", "b") for n in range(1_200)]
            await awaited.append_many("t", many)
            view = await awaited.get_thread("t")
            assert view is not None
            walked = [slot.payload async for slot in view]
            tail = await view.tail(2)
            found = await view.get_from("a")
            return [walked, payloads(tail), len(found), await view.length()]

        assert asyncio.run(story()) == [list(range(1_200)), [1_198, 1_199], 600, 1_200]

    def test_threads_M17_a_handle_writes_when_it_may(self, awaited: AsyncContextBuffer) -> None:
        async def story() -> list[Any]:
            mine = await awaited.handle("t", write=True)
            slot = await mine.append("hello", "a", "b", usage_instructions="How.")
            read = await awaited.handle("t")
            with pytest.raises(Forbidden):
                await read.append("forged", "system", "b")
            first = await read.at(0)
            return [slot.position, first.payload, first.metadata.usage_instructions]

        assert asyncio.run(story()) == [None, "hello", "How."]

    def test_what_sync_refuses_is_refused_when_awaited(
        self, handle: Pagefile, awaited: AsyncContextBuffer
    ) -> None:
        buffer: Any = awaited
        calls: list[Callable[[], Awaitable[Any]]] = [
            lambda: buffer.append([], 1, "a", "b"),
            lambda: buffer.append("t", 1, [], "b"),
            lambda: buffer.append("t", 1, "a", "b", usage_instructions=[]),
            lambda: buffer.append("t", object(), "a", "b", usage_instructions="new"),
            lambda: buffer.append("t", 1, "a", "b", expected_len="1"),
            lambda: buffer.append_many("t", None),
            lambda: buffer.append_many("t", ["x"]),
            lambda: buffer.append_many("t", []),
        ]

        async def story() -> None:
            for call in calls:
                with pytest.raises(Invalid):
                    await call()

        say(handle.context, "t", 1)
        before = handle.store.head()
        asyncio.run(story())

        assert handle.store.head() == before

    def test_evictions_reach_those_who_await(self, awaited: AsyncContextBuffer) -> None:
        async def story() -> list[Any]:
            for n in range(3):
                await awaited.append(f"t{n}", n, "a", "b")
            awaited._sync.max_threads = 2  # type: ignore[attr-defined]
            await awaited.append("new", 1, "a", "b", key="k")
            stats = await awaited.get_stats()
            return [stats["resident_threads"], await awaited.sweep()]

        assert asyncio.run(story()) == [2, []]
