"""Bounds: how many slots, how many threads, and who leaves first."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import pytest

from pagefile.context.appender import NewSlot
from pagefile.context.buffer import ContextBuffer
from pagefile.context.residency import Eviction
from pagefile.errors import Invalid, LimitExceeded
from pagefile.handle import Pagefile
from pagefile.store.batch import Batch, Drop, Prune
from pagefile.testing.backend import Backend, promise
from pagefile.testing.context.ground import ContextFixtures, payloads, say, steps_of


def resident(buffer: ContextBuffer) -> int:
    return int(buffer.get_stats()["resident_threads"])


class BoundsContract(ContextFixtures):
    """`max_slots_per_thread`, `max_threads`, `idle_seconds`."""

    @promise("S8")
    def test_a_full_thread_refuses_with_a_memory_error_that_says_what_to_do(
        self, buffer: ContextBuffer
    ) -> None:
        buffer.max_slots_per_thread = 2
        say(buffer, "t", 1, 2)
        with pytest.raises(MemoryError, match=r"Thread t exceeded max slots \(2\): start another"):
            say(buffer, "t", 3)

        assert payloads(buffer.get_thread_slots("t")) == [1, 2]

    @promise("S8")
    def test_slots_that_a_fork_shares_count_towards_its_limit(self, buffer: ContextBuffer) -> None:
        buffer.max_slots_per_thread = 3
        say(buffer, "t", 1, 2, 3)
        child = buffer.fork("t", 2)
        say(buffer, child, 4)
        with pytest.raises(LimitExceeded):
            say(buffer, child, 5)

        assert payloads(buffer.get_thread_slots(child)) == [1, 2, 4]

    @promise("S8")
    def test_threads_B03_the_limit_of_threads_holds_at_every_step(
        self, buffer: ContextBuffer
    ) -> None:
        buffer.max_threads = 3
        counts = []
        for n in range(10):
            say(buffer, f"t{n}", n)
            counts.append(resident(buffer))

        assert counts == [1, 2, 3, 3, 3, 3, 3, 3, 3, 3]

    def test_threads_M03_the_least_recently_used_leaves_first(self, handle: Pagefile) -> None:
        told: list[Eviction] = []
        buffer = ContextBuffer(handle, max_threads=3, on_evict=told.append)
        for thread_id in ("old", "mid", "new"):
            say(buffer, thread_id, 1)
        say(buffer, "old", 2)
        buffer.get_thread("mid")
        say(buffer, "next", 1)
        say(buffer, "last", 1)

        assert [(gone.thread_id, gone.reason) for gone in told] == [
            ("new", "max_threads"),
            ("old", "max_threads"),
        ]

    def test_threads_M03_a_pinned_thread_never_leaves(self, handle: Pagefile) -> None:
        told: list[Eviction] = []
        buffer = ContextBuffer(handle, max_threads=2, on_evict=told.append)
        say(buffer, "root", 1)
        buffer.pin("root")
        for n in range(5):
            say(buffer, f"t{n}", 1)
        while_pinned = [gone.thread_id for gone in told]
        buffer.unpin("root")
        say(buffer, "t4", 2)
        say(buffer, "t5", 1)

        assert while_pinned == ["t0", "t1", "t2", "t3"]
        assert told[-1].thread_id == "root"

    def test_threads_M03_when_everybody_is_pinned_nobody_comes_in(
        self, handle: Pagefile, buffer: ContextBuffer
    ) -> None:
        buffer.max_threads = 2
        for thread_id in ("a", "b"):
            say(buffer, thread_id, 1)
            buffer.pin(thread_id)
        head = handle.store.head()
        with pytest.raises(LimitExceeded, match="unpin or delete some"):
            say(buffer, "c", 1)

        assert (handle.store.head(), resident(buffer)) == (head, 2)

    def test_threads_M03_an_eviction_is_recorded_with_the_append_that_caused_it(
        self, handle: Pagefile
    ) -> None:
        told: list[Eviction] = []
        buffer = ContextBuffer(handle, max_threads=1, on_evict=told.append)
        say(buffer, "a", 1)
        slot = say(buffer, "b", 1)[0]
        event = handle.store.read("context/evictions")[0]

        assert event.value == {
            "thread_id": "a",
            "reason": "max_threads",
            "deleted": told[0].deleted,
        }
        assert event.position == slot.position

    @promise("S4")
    def test_threads_M03_leaving_a_durable_store_destroys_nothing(self, handle: Pagefile) -> None:
        buffer = ContextBuffer(handle, max_threads=1)
        say(buffer, "a", 1)
        say(buffer, "b", 1)
        say(buffer, "a", 2)

        assert payloads(buffer.get_thread_slots("a")) == [1, 2]

    def test_threads_M04_making_room_costs_the_same_at_any_capacity(self, handle: Pagefile) -> None:
        def cost(label: str, capacity: int) -> int:
            buffer = ContextBuffer(handle, max_threads=capacity)
            buffer.append_many("first", [NewSlot(1, "ann", "bob")])
            for n in range(capacity + 5):
                say(buffer, f"{label}-{n}", n)
            steps = [steps_of(partial(say, buffer, f"new-{label}-{n}", n)) for n in range(9)]
            return sorted(steps)[4]

        few, many = cost("few", 20), cost("many", 400)

        assert many <= few * 1.2

    def test_threads_M05_a_lowered_limit_is_reached_with_the_next_append(
        self, buffer: ContextBuffer
    ) -> None:
        for n in range(10):
            say(buffer, f"t{n}", n)
        buffer.max_threads = 3
        say(buffer, "t9", 1)

        assert resident(buffer) == 3

    def test_threads_M05_a_sweep_reaches_a_lowered_limit_at_once(
        self, buffer: ContextBuffer
    ) -> None:
        for n in range(10):
            say(buffer, f"t{n}", n)
        buffer.max_threads = 3
        left = [gone.thread_id for gone in buffer.sweep()]

        assert (left, resident(buffer)) == ([f"t{n}" for n in range(7)], 3)

    def test_threads_B14_reading_a_thread_keeps_it(self, handle: Pagefile) -> None:
        told: list[Eviction] = []
        buffer = ContextBuffer(handle, max_threads=2, on_evict=told.append)
        say(buffer, "read", 1)
        for n in range(3):
            buffer.get_thread_slots("read")
            say(buffer, f"t{n}", n)

        assert [gone.thread_id for gone in told] == ["t0", "t1"]

    def test_a_refused_append_makes_nobody_leave(self, handle: Pagefile) -> None:
        told: list[Eviction] = []
        buffer = ContextBuffer(handle, max_threads=4, idle_seconds=3_600, on_evict=told.append)
        for thread_id in "abcd":
            say(buffer, thread_id, 1)
        buffer.max_threads = 2
        with pytest.raises(Invalid):
            say(buffer, "e", math.nan)
        before, buffer.max_threads = list(told), 4
        idle = buffer.sweep()
        say(buffer, "e", 1)

        assert (before, idle, [gone.thread_id for gone in told]) == ([], [], ["a"])

    def test_an_idle_thread_leaves_and_says_so(self, buffer: ContextBuffer) -> None:
        say(buffer, "a", 1)
        buffer.idle_seconds = 1e-9
        gone = buffer.sweep()

        assert [(one.thread_id, one.reason) for one in gone] == [("a", "idle")]

    def test_what_listens_to_evictions_cannot_make_an_append_fail(
        self, handle: Pagefile, caplog: pytest.LogCaptureFixture
    ) -> None:
        def fail(gone: Eviction) -> None:
            raise RuntimeError(gone.thread_id)

        buffer = ContextBuffer(handle, max_threads=1, on_evict=fail)
        say(buffer, "a", 1)
        say(buffer, "b", 1)

        assert payloads(buffer.get_thread_slots("b")) == [1]
        assert "on_evict failed for thread 'a'" in caplog.text

    @pytest.mark.parametrize("way", ["append", "key", "fork", "sweep"])
    def test_a_thread_that_somebody_else_ended_is_in_nobodys_way(
        self, handle: Pagefile, way: str
    ) -> None:
        buffer = ContextBuffer(handle, max_threads=2)
        for thread_id in ("gone", "here"):
            say(buffer, thread_id, 1)
        handle.store.commit(Batch([Prune(None, log="thread/gone"), Drop("thread/gone")]))
        ways: dict[str, Any] = {
            "append": lambda: say(buffer, "new", 1),
            "key": lambda: buffer.append("new", 1, "a", "b", key="k"),
            "fork": lambda: buffer.fork("here", new_id="new"),
            "sweep": buffer.sweep,
        }
        if way == "sweep":
            buffer.max_threads = 1
        ways[way]()

        assert buffer.thread_exists("here")
        assert resident(buffer) <= buffer.max_threads

    def test_limits_of_one_handle_are_its_own(self, backend: Backend) -> None:
        strict, lax = backend.open().context, backend.open().context
        strict.max_slots_per_thread = 1
        say(lax, "t", 1, 2)

        assert (strict.max_slots_per_thread, lax.max_slots_per_thread) == (1, 10_000)
