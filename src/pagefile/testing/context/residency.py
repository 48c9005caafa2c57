"""Bounds: how many slots, how many threads, which of them are resident, and who leaves first."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from pagefile.context.appender import NewSlot
from pagefile.context.buffer import ContextBuffer
from pagefile.context.conversations import Conversations
from pagefile.context.names import EVICTIONS
from pagefile.context.registry import ThreadRegistry
from pagefile.context.residency import Eviction
from pagefile.context.thread import ThreadContext
from pagefile.errors import Invalid, LimitExceeded, NotFound
from pagefile.handle import Options, Pagefile
from pagefile.store.batch import Batch, Drop, Prune
from pagefile.testing.backend import Backend, promise
from pagefile.testing.context.fixtures import ContextFixtures, payloads, say, steps_of


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


#: How somebody who got hold of thread "t" before reads it, again and again.
_READING: dict[str, Callable[[ContextBuffer], Callable[[], Any]]] = {
    "len": lambda b: b.get_or_create_thread("t").__len__,
    "index": lambda b: partial(b.get_or_create_thread("t").at, 0),
    "walk": lambda b: partial(list, b.get_or_create_thread("t")),
    "tail": lambda b: partial(b.handle("t").tail, 1),
    "sender": lambda b: partial(b.handle("t").get_from, "ann"),
    "follower": lambda b: partial(next, b.follow("t", -1, timeout=5)),
}

#: How a thread ends without the buffer that counts it.
_ENDING: dict[str, Callable[[Pagefile], Any]] = {
    "released": lambda pf: ThreadRegistry(pf, on_release="delete").cleanup("gone"),
    "answered": lambda pf: ThreadRegistry(pf, on_release="delete").prune_for_response("gone"),
    "cleared": lambda pf: ThreadRegistry(pf, on_release="delete").clear(),
    "expired": lambda pf: Conversations(pf, ttl_seconds=60).expire(now_us=150_000_000),
    "deleted": lambda pf: ContextBuffer(pf).delete_thread("gone"),
    "erased": lambda pf: ContextBuffer(pf).erase_thread("gone"),
}


def _evictions(handle: Pagefile) -> list[str]:
    return [entry.value["thread_id"] for entry in handle.store.read(EVICTIONS)]


def _appended(to: ContextBuffer | ThreadContext, awaited: bool, *slot: Any, **how: Any) -> Any:
    return asyncio.run(to.append_async(*slot, **how)) if awaited else to.append(*slot, **how)


class ResidencyContract(ContextFixtures):
    """One count for all who use a store; uses of every kind; ends of every kind."""

    # Forks

    def test_a_fork_keeps_the_thread_it_is_made_of(self, handle: Pagefile) -> None:
        buffer = ContextBuffer(handle, max_threads=2)
        say(buffer, "t", 1)
        say(buffer, "u", 1)
        child = buffer.fork("t")

        assert _evictions(handle) == ["u"]
        assert payloads(buffer.get_thread_slots("t")) == payloads(buffer.get_thread_slots(child))

    def test_a_fork_for_which_only_its_own_thread_could_leave_is_refused(
        self, handle: Pagefile
    ) -> None:
        buffer = ContextBuffer(handle, max_threads=1)
        say(buffer, "t", 1)
        head = handle.store.head()
        with pytest.raises(LimitExceeded, match="raise max_threads"):
            buffer.fork("t", new_id="child")

        assert (handle.store.head(), buffer.get_stats()["resident_threads"]) == (head, 1)
        assert not buffer.thread_exists("child")

    # Reading

    @pytest.mark.parametrize("way", _READING)
    def test_threads_B14_reading_what_was_got_hold_of_before_is_a_use(
        self, handle: Pagefile, way: str
    ) -> None:
        buffer = ContextBuffer(handle, max_threads=2)
        say(buffer, "t", 1, 2, 3, 4)
        read = _READING[way](buffer)
        for n in range(3):
            say(buffer, f"u{n}", n)
            read()

        assert _evictions(handle) == ["u0", "u1"]
        assert len(buffer.get_thread_slots("t")) == 4

    # Ends

    @pytest.mark.parametrize("way", _ENDING)
    def test_no_thread_leaves_for_one_that_ended_elsewhere(
        self, backend: Backend, way: str
    ) -> None:
        now_us = 1_000_000
        handle = backend.open(options=Options(clock=lambda: now_us))
        buffer = ContextBuffer(handle, max_threads=2)
        registered = way in ("released", "answered", "cleared")
        if registered:
            ThreadRegistry(handle).register_thread("gone", "user", "agent")
        say(buffer, "gone", 1)
        now_us = 140_000_000
        say(buffer, "here", 1)
        buffer.get_thread("gone")
        _ENDING[way](handle)
        say(buffer, "new", 1)

        assert (buffer.thread_exists("gone"), _evictions(handle)) == (False, [])
        assert buffer.get_stats()["resident_threads"] == 2

    def test_a_thread_that_another_handle_ended_is_not_said_to_leave(
        self, backend: Backend
    ) -> None:
        handle = backend.open()
        buffer = ContextBuffer(handle, max_threads=2)
        say(buffer, "gone", 1)
        say(buffer, "here", 1)
        other = backend.open().store
        other.commit(Batch([Prune(None, log="thread/gone"), Drop("thread/gone")]))
        say(buffer, "new", 1)

        assert (_evictions(handle), buffer.get_stats()["resident_threads"]) == ([], 2)

    # Refusals

    @pytest.mark.parametrize("awaited", [False, True])
    def test_nobody_leaves_for_a_key_whose_thread_is_gone(
        self, handle: Pagefile, awaited: bool
    ) -> None:
        told: list[Eviction] = []
        buffer = ContextBuffer(handle, max_threads=2, on_evict=told.append)
        buffer.append("t", 1, "a", "b", key="k")
        buffer.delete_thread("t")
        for thread_id in ("u", "v"):
            say(buffer, thread_id, 1)
        head = handle.store.head()
        with pytest.raises(NotFound, match="'k' was used"):
            _appended(buffer, awaited, "t", 1, "a", "b", key="k")
        stats = buffer.get_stats()

        assert (handle.store.head(), told) == (head, [])
        assert (stats["threads"], stats["resident_threads"]) == (["u", "v"], 2)

    def test_a_refused_first_append_leaves_the_pin_of_its_thread(self, handle: Pagefile) -> None:
        buffer = ContextBuffer(handle, max_threads=1)
        buffer.pin("t")
        with pytest.raises(LimitExceeded):
            buffer.append("t", 1, "a", "b", todo_nudge="x" * 100_000)
        say(buffer, "t", 1)
        with pytest.raises(LimitExceeded):
            say(buffer, "u", 1)

        assert buffer.get_stats()["threads"] == ["t"]

    # Pins

    @promise("S8")
    def test_threads_that_were_pinned_before_they_came_do_not_pass_the_limit(
        self, handle: Pagefile
    ) -> None:
        buffer = ContextBuffer(handle, max_threads=2)
        for thread_id in ("a", "b", "c"):
            buffer.pin(thread_id)
        say(buffer, "a", 1)
        say(buffer, "b", 1)
        with pytest.raises(LimitExceeded, match="unpin or delete some"):
            say(buffer, "c", 1)

        assert buffer.get_stats()["threads"] == ["a", "b"]

    def test_the_pin_of_a_thread_that_is_not_there_takes_no_place(self, handle: Pagefile) -> None:
        buffer = ContextBuffer(handle, max_threads=2)
        buffer.pin("later")
        for thread_id in ("a", "b"):
            say(buffer, thread_id, 1)
        before = _evictions(handle)
        for thread_id in ("later", "c", "d"):
            say(buffer, thread_id, 1)

        assert (before, _evictions(handle)) == ([], ["a", "b", "c"])

    # Several buffers

    @promise("S8")
    def test_buffers_on_one_store_count_the_same_threads(self, handle: Pagefile) -> None:
        one, two = (ContextBuffer(handle, max_threads=3) for _ in range(2))
        counts = []
        for n in range(8):
            say((one, two)[n % 2], f"t{n}", n)
            counts.append({buffer.get_stats()["resident_threads"] for buffer in (one, two)})

        assert counts == [{1}, {2}, *[{3}] * 6]
        assert _evictions(handle) == [f"t{n}" for n in range(5)]

    def test_a_pin_holds_for_all_buffers_on_the_store(self, handle: Pagefile) -> None:
        handle.context.append("root", 1, "a", "b")
        handle.context.pin("root")
        buffer = ContextBuffer(handle, max_threads=1)
        with pytest.raises(LimitExceeded):
            say(buffer, "t", 1)

        assert handle.context.thread_exists("root")

    def test_every_buffer_on_the_store_is_told_who_left(self, handle: Pagefile) -> None:
        told: list[Eviction] = []
        listening = ContextBuffer(handle, on_evict=told.append)
        say(listening, "t", 1)
        say(ContextBuffer(handle, max_threads=1), "u", 1)

        assert [gone.thread_id for gone in told] == ["t"]

    def test_who_is_told_of_an_eviction_may_wait_for_others_who_read(
        self, handle: Pagefile
    ) -> None:
        answered: list[bool] = []

        def ask(gone: Eviction) -> None:
            reader = threading.Thread(target=view.length, daemon=True)
            reader.start()
            reader.join(5)
            answered.append(not reader.is_alive())

        buffer = ContextBuffer(handle, max_threads=2, on_evict=ask)
        view = buffer.get_or_create_thread("u")
        for thread_id in ("t", "u", "v"):
            say(buffer, thread_id, 1)

        assert answered == [True]

    # Handles

    @pytest.mark.parametrize("awaited", [False, True])
    def test_a_handle_is_not_told_how_many_others_there_are(
        self, handle: Pagefile, awaited: bool
    ) -> None:
        buffer = ContextBuffer(handle, max_threads=4)
        for thread_id in "abcd":
            say(buffer, thread_id, 1)
            buffer.pin(thread_id)
        buffer.max_threads = 2
        mine = buffer.handle("mine", write=True)
        with pytest.raises(LimitExceeded) as caught:
            _appended(mine, awaited, 1, "a", "b")
        error = caught.value

        assert str(error) == (
            "there is no room for more in the store: ask whoever gave you this handle to make room"
        )
        assert (error.limit, error.wanted, error.__context__) == (2, 3, None)
