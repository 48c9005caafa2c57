"""Erasing, deleting and expiring: what must go is gone, what others share stays."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from pagefile.context.buffer import ContextBuffer
from pagefile.context.conversations import Conversations, Sweep
from pagefile.context.names import EXPIRIES, log_of
from pagefile.context.registry import ThreadRegistry
from pagefile.errors import Invalid, NotFound
from pagefile.handle import Options, Pagefile
from pagefile.store.batch import Batch, Prune, Put, Selector
from pagefile.testing.backend import Backend, promise
from pagefile.testing.context.fixtures import ContextFixtures, payloads, say


class ErasureOfThreadsContract(ContextFixtures):
    """Users, threads, forks."""

    @promise("S9")
    def test_erasing_a_user_reaches_the_slots_that_forks_share(
        self, handle: Pagefile, buffer: ContextBuffer
    ) -> None:
        buffer.append("t", "secret", "ann", "bob", user_id="u")
        say(buffer, "t", "kept")
        children = [buffer.fork("t"), buffer.fork(buffer.fork("t"))]
        handle.store.erase(Selector(user="u"))
        shown = [buffer.get_thread_slots(name) for name in ("t", *children)]

        assert [[slot.erased for slot in slots] for slots in shown] == [[True, False]] * 3

    @promise("S9")
    def test_an_erased_slot_keeps_its_place_and_says_that_it_is_empty(
        self, handle: Pagefile, buffer: ContextBuffer
    ) -> None:
        buffer.append("t", "secret", "ann", "bob", "me", todo_nudge="secret", user_id="u")
        say(buffer, "t", "kept")
        handle.store.erase(Selector(user="u"))
        view = buffer.handle("t")
        known = view[0].metadata
        with pytest.raises(NotFound, match="slot 0 of thread 't' was erased: look at `erased`"):
            _ = view[0].payload

        assert (len(view), view[1].payload, view[1].index) == (2, "kept", 1)
        assert (known.from_id, known.own_name, known.todo_nudge, known.user_id) == (
            "",
            None,
            "",
            None,
        )

    @promise("S9")
    def test_an_erased_slot_is_found_under_no_sender_and_no_type(
        self, handle: Pagefile, buffer: ContextBuffer
    ) -> None:
        buffer.append("t", "secret", "ann", "bob", user_id="u")
        buffer.append("t", 1, "bob", "ann")
        handle.store.erase(Selector(user="u"))
        view = buffer.handle("t")

        assert (view.get_from("ann"), view.get_to("bob"), view.get_by_type(str)) == ([], [], [])

    @promise("S9")
    def test_erasing_a_thread_takes_its_content_from_forks_too(self, buffer: ContextBuffer) -> None:
        say(buffer, "t", "one", "two")
        child = buffer.fork("t")
        say(buffer, child, "own")
        receipt = buffer.erase_thread("t")
        slots = buffer.get_thread_slots(child)

        assert (buffer.thread_exists("t"), receipt.records) == (False, 2)
        assert [slot.erased for slot in slots] == [True, True, False]

    @promise("S9")
    def test_an_erased_thread_is_gone_for_every_reader(
        self, backend: Backend, buffer: ContextBuffer
    ) -> None:
        say(buffer, "t", "one")
        other = backend.open().context.get_or_create_thread("t")
        receipt = buffer.erase_thread("t")

        assert (list(other), receipt.level) == ([], backend.erasure)

    @promise("S9")
    def test_erasing_what_has_no_user_leaves_usage_texts_storable_again(
        self, handle: Pagefile, backend: Backend, buffer: ContextBuffer
    ) -> None:
        buffer.append("t", 1, "a", "b", usage_instructions="How.")
        handle.store.erase(Selector(anonymous=True))
        backend.open().context.append("t", 2, "a", "b", usage_instructions="How.")
        shown = backend.open().context.get_thread_slots("t")

        assert [slot.metadata.usage_instructions for slot in shown] == ["How."]

    def test_deleting_a_parent_keeps_what_its_children_share(self, buffer: ContextBuffer) -> None:
        say(buffer, "t", 1, 2, 3)
        child = buffer.fork("t", 2)
        grandchild = buffer.fork(child, 1)
        deleted = [buffer.delete_thread("t"), buffer.delete_thread(child)]

        assert (deleted, buffer.thread_exists("t")) == ([True, True], False)
        assert payloads(buffer.get_thread_slots(grandchild)) == [1]

    def test_a_time_range_gives_what_is_there_of_slots_that_were_let_go(
        self, handle: Pagefile, buffer: ContextBuffer
    ) -> None:
        say(buffer, "t", *range(10))
        view = buffer.handle("t")
        moment = datetime.fromisoformat(view[5].metadata.timestamp)
        handle.store.commit(Batch([Prune(4, log=log_of("t"))]))
        after = payloads(view.between(moment))
        since_ever = payloads(view.between(datetime(1970, 1, 1, tzinfo=UTC)))
        handle.store.commit(Batch([Prune(None, log=log_of("t"))]))

        assert after[-5:] == list(range(5, 10))
        assert since_ever == list(range(4, 10))
        assert view.between(moment) == []

    def test_a_time_range_of_a_thread_that_is_deleted_meanwhile_is_a_list(
        self, buffer: ContextBuffer
    ) -> None:
        """The view has asked for the length when the thread goes."""
        say(buffer, "t", 1, 2, 3)
        view = buffer.handle("t")
        object.__setattr__(view, "_reader", view._reader._replace(length=lambda: 3))
        buffer.delete_thread("t")

        assert view.between(datetime(1970, 1, 1, tzinfo=UTC)) == []

    def test_deleting_no_thread_says_so(self, handle: Pagefile, buffer: ContextBuffer) -> None:
        head = handle.store.head()

        assert (buffer.delete_thread("t"), handle.store.head()) == (False, head)

    def test_a_deleted_thread_starts_anew_under_its_id(self, buffer: ContextBuffer) -> None:
        say(buffer, "t", "old")
        buffer.delete_thread("t")
        say(buffer, "t", "new")

        assert [(s.index, s.payload) for s in buffer.get_thread_slots("t")] == [(0, "new")]

    def test_clear_ends_forks_and_all(self, handle: Pagefile, buffer: ContextBuffer) -> None:
        say(buffer, "t", 1, 2)
        buffer.fork(buffer.fork("t"))
        buffer.clear()

        assert buffer.get_stats()["thread_count"] == 0
        assert handle.stats().logs == 0


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
