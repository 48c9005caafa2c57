"""Conversations that are idle for long enough end whole, and no others."""

from __future__ import annotations

import pytest

from pagefile.context.buffer import ContextBuffer
from pagefile.context.conversations import Conversations, Sweep
from pagefile.context.names import EXPIRIES
from pagefile.context.registry import ThreadRegistry
from pagefile.errors import Invalid
from pagefile.handle import Options, Pagefile
from pagefile.store.batch import Batch, Put
from pagefile.testing.backend import Backend, promise
from pagefile.testing.context.ground import ContextFixtures, payloads, say

_TTL = 60.0


class _Clock:
    def __init__(self) -> None:
        self.now_us = 1_000_000_000

    def __call__(self) -> int:
        return self.now_us

    def passes(self, seconds: float) -> None:
        self.now_us += int(seconds * 1_000_000)


def _opened(backend: Backend) -> tuple[Pagefile, _Clock]:
    clock = _Clock()
    return backend.open(options=Options(clock=clock)), clock


def _sweep(handle: Pagefile, clock: _Clock, limit: int = 100) -> Sweep:
    with Conversations(handle, ttl_seconds=_TTL) as conversations:
        return conversations.expire(limit=limit, now_us=clock())


def _ended(sweep: Sweep) -> list[tuple[tuple[str, ...], int]]:
    return sorted((tuple(sorted(one.threads)), one.slots) for one in sweep.ended)


class ExpiryContract(ContextFixtures):
    """Threads, paths and documents of one conversation go together."""

    @promise("S9")
    def test_an_idle_thread_ends_as_an_erasure_with_an_event_and_a_used_one_stays(
        self, backend: Backend
    ) -> None:
        handle, clock = _opened(backend)
        buffer = handle.context
        say(buffer, "idle", "zyqsecret", "two")
        say(buffer, "used", "one")
        clock.passes(50)
        say(buffer, "used", "two")
        clock.passes(20)
        early, sweep = _sweep(handle, _Clock()), _sweep(handle, clock)
        events = [entry.value for entry in handle.store.read(EXPIRIES)]
        left = [name for name, raw in backend.remains() if b"zyqsecret" in raw]

        assert early.ended == ()
        assert _ended(sweep) == [(("idle",), 2)]
        assert (sweep.level, bool(sweep.remaining)) == (
            backend.erasure,
            backend.erasure == "logical",
        )
        assert [event["conversation"] for event in events] == ["idle"]
        assert (buffer.thread_exists("idle"), payloads(buffer.get_thread_slots("used"))) == (
            False,
            ["one", "two"],
        )
        assert left == []

    def test_a_conversation_ends_with_all_its_threads_and_places_or_not_at_all(
        self, backend: Backend
    ) -> None:
        handle, clock = _opened(backend)
        buffer, registry = handle.context, ThreadRegistry(handle)
        registry.initialize_root("home")
        first = registry.register_thread("first", "ann", "helper", user_id="ann")
        called = registry.extend_chain(first, "search")
        say(buffer, first, "question")
        say(buffer, called, "looked up")
        other = registry.register_thread("other", "bob", "helper")
        clock.passes(50)
        say(buffer, called, "still at it")
        clock.passes(20)
        before = _sweep(handle, clock)
        clock.passes(50)
        after = _sweep(handle, clock)
        known = registry.debug_dump()

        assert _ended(before) == [(("other",), 0)]
        assert _ended(after) == [(tuple(sorted((first, called))), 3)]
        assert [registry.lookup(name) for name in (first, called, other)] == [None] * 3
        assert list(known.values()) == ["system.home"]

    def test_touching_a_thread_keeps_its_conversation(self, backend: Backend) -> None:
        handle, clock = _opened(backend)
        say(handle.context, "t", "read every day")
        with Conversations(handle, ttl_seconds=_TTL) as conversations:
            for _ in range(3):
                clock.passes(40)
                conversations.touch("t")
                assert conversations.expire(now_us=clock()).ended == ()
            clock.passes(61)
            ended = conversations.expire(now_us=clock())

        assert _ended(ended) == [(("t",), 1)]
        assert handle.store.names("document") == ["context/swept"]

    def test_what_a_living_fork_shares_stays_the_forks(self, backend: Backend) -> None:
        handle, clock = _opened(backend)
        say(handle.context, "t", "shared")
        clock.passes(50)
        child = handle.context.fork("t")
        say(handle.context, child, "own")
        clock.passes(20)
        sweep = _sweep(handle, clock)

        assert _ended(sweep) == [(("t",), 1)]
        assert payloads(handle.context.get_thread_slots(child)) == ["shared", "own"]

    def test_a_sweep_is_bounded_and_goes_on_where_it_stopped(self, backend: Backend) -> None:
        handle, clock = _opened(backend)
        for n in range(7):
            say(handle.context, f"t{n}", n)
        clock.passes(61)
        sweeps = [_sweep(handle, clock, limit=3) for _ in range(3)]
        again = _sweep(handle, clock)

        assert [(len(sweep.ended), sweep.more) for sweep in sweeps] == [
            (3, True),
            (3, True),
            (1, False),
        ]
        assert (again.ended, handle.context.get_stats()["thread_count"]) == ((), 0)

    def test_a_thread_that_comes_back_lives_again_for_as_long(self, backend: Backend) -> None:
        handle, clock = _opened(backend)
        say(handle.context, "t", "old")
        clock.passes(61)
        first = _sweep(handle, clock)
        say(handle.context, "t", "new")
        clock.passes(59)
        second = _sweep(handle, clock)
        clock.passes(2)
        third = _sweep(handle, clock)

        assert [len(sweep.ended) for sweep in (first, second, third)] == [1, 0, 1]

    def test_what_is_no_conversation_is_left_alone(self, backend: Backend) -> None:
        handle, clock = _opened(backend)
        registry = ThreadRegistry(handle)
        shared = registry.get_or_create("team.notes")
        say(handle.context, shared, "kept")
        handle.store.commit(Batch([Put("somebody's", 1)]))
        clock.passes(1_000)
        sweep = _sweep(handle, clock)

        assert (sweep.ended, registry.lookup(shared)) == ((), "team.notes")
        assert handle.store.get("somebody's") is not None

    @pytest.mark.parametrize("ttl", [0, -1, True, "60", None, float("nan"), float("inf")])
    def test_a_lifetime_that_is_none_is_refused(self, buffer: ContextBuffer, ttl: object) -> None:
        with pytest.raises(Invalid):
            Conversations(buffer._store, ttl_seconds=ttl)  # type: ignore[arg-type]
