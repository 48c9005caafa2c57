"""Consolidation: each episode read once, by one, and settled in one commit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import pytest

from pagefile.handle import Pagefile
from pagefile.memory.consolidation.consolidation import ConsolidationPolicy, ConsolidationReport
from pagefile.memory.consolidation.worker import ConsolidationWorker
from pagefile.memory.extraction.candidate import Candidate, Exchange
from pagefile.memory.memory import Memory
from pagefile.testing.backend import Backend
from pagefile.testing.context.fixtures import at_once, steps_of
from pagefile.testing.memory.fixtures import (
    HOUR,
    START,
    Clock,
    HashedWords,
    MemoryFixtures,
    Scripted,
    episode,
    fact,
    likes,
    objects,
    outcome,
    say,
)


def _raising(error: BaseException) -> Callable[[Exchange], list[Candidate]]:
    def read(exchange: Exchange) -> list[Candidate]:
        if "bad" in exchange.input:
            raise error
        return likes(exchange)

    return read


def _giving(value: Any) -> Callable[[Exchange], Any]:
    return lambda exchange: value if "bad" in exchange.input else likes(exchange)


class Given(Scripted):
    """An extractor that gives back whatever it is told, unlike `Scripted` not even a list."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self._value = value

    def extract(self, exchange: Exchange, *, cancel: threading.Event | None = None) -> Any:
        return _giving(self._value)(exchange)


class Failing(HashedWords):
    """An embedder that can be switched off."""

    is_down = False

    def embed_batch(self, texts: Sequence[str]) -> list[list[float]]:
        if self.is_down:
            raise ConnectionError("the embedder is away")
        return super().embed_batch(texts)


class Asked(Clock):
    """A clock that tells when another thread than the one that waits has asked it twice.

    Once may have been before the time passed; what follows the second has seen it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._times = threading.Semaphore(0)

    def __call__(self) -> datetime:
        self._times.release()
        return super().__call__()

    def is_asked(self) -> bool:
        while self._times.acquire(blocking=False):
            pass
        return all(self._times.acquire(timeout=30) for _ in range(2))


class ConsolidatingContract(MemoryFixtures):
    """From episodes to facts, or to what waits for review."""

    def test_memory_D8_it_needs_no_model_and_no_setting(self, memory: Memory) -> None:
        say(memory, "I live in Kyoto.", user="ann")
        say(memory, "I work at Acme.", user="bob")
        report = memory.consolidate()
        (known,) = memory.recall_facts("Kyoto", user_id="ann")

        assert (report.episodes, report.failed, report.facts) == (2, 0, 2)
        assert (known.predicate, known.object) == ("lives_in", "Kyoto")
        assert memory.recall_facts("Kyoto", user_id="bob") == []

    def test_a_move_that_is_told_afterwards_counts_from_when_it_was(self, memory: Memory) -> None:
        """A home that was named in between was none any more."""
        at = START.replace(month=11, day=1)
        memory.facts.append(fact("Rome", valid_from=at, user="eve"))
        told = [
            (0, "I live in Lisbon.", "ann"),
            (15, "I live in Lisbon.", "ann"),
            (15, "I live in Lisbon.", "bob"),
            (16, "I moved to Berlin last week.", "ann"),
            (16, "I moved to Berlin last week.", "bob"),
            (40, "I moved to Berlin in October.", "eve"),
        ]
        for day, text, user in told:
            memory.remember(episode(text, user, at=at + timedelta(days=day), id=f"{user}{day}"))
            memory.consolidate()
        lives = {
            user: [
                (one.object, one.status) for one in memory.facts.query(user_id=user, history=True)
            ]
            for user in ("ann", "bob", "eve")
        }
        memory.forget(user_id="bob", episode_id="bob16")

        assert lives["ann"] == [("Berlin", "active"), ("Lisbon", "superseded")]
        assert lives["bob"] == [("Berlin", "active")]
        # What somebody asserted says itself since when.
        assert ("Rome", "active") in lives["eve"]
        assert objects(memory.facts.query(user_id="bob")) == ["Lisbon"]

    def test_a_fact_knows_where_it_comes_from(self, handle: Pagefile) -> None:
        memory = Memory(handle, embedder=None, extractor=Scripted())
        (name,) = say(memory, "I like tea", at=START - HOUR)
        memory.consolidate()
        (known,) = memory.facts.query(user_id="ann")

        assert (known.sources, known.actor, known.confidence) == ((name,), "scripted/1", 0.9)
        assert known.valid_from == START - HOUR

    @pytest.mark.parametrize(
        "error",
        [
            KeyError("k"),
            RuntimeError("x" * 5_000),
            UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad byte"),
            RecursionError(),
            TimeoutError("late"),
            MemoryError(),
            ValueError("\ud800"),
        ],
        ids=lambda error: type(error).__name__,
    )
    def test_memory_D7_one_that_cannot_be_read_loses_nothing_of_the_others(
        self, handle: Pagefile, error: Exception
    ) -> None:
        clock = Clock()
        extractor = Scripted(_raising(error))
        memory = Memory(handle, embedder=None, extractor=extractor, clock=clock)
        say(memory, "I like tea", "this is bad", "I like jam")
        reports = [memory.consolidate() for _ in range(3)]

        assert [(r.episodes, r.facts, r.failed) for r in reports] == [(2, 2, 1), *[(0, 0, 0)] * 2]
        assert reports[0].errors[0][1].startswith(type(error).__name__)
        assert sorted(objects(memory.facts.query(user_id="ann"))) == ["jam", "tea"]
        assert sorted(extractor.read) == ["I like jam", "I like tea", "this is bad"]

    @pytest.mark.parametrize("value", [None, 5, "text", [5], [None], {}, ("x",)], ids=repr)
    def test_memory_D7_what_an_extractor_should_not_give_back_is_a_failure_not_nothing(
        self, handle: Pagefile, value: Any
    ) -> None:
        memory = Memory(handle, embedder=None, extractor=Given(value), clock=Clock())
        say(memory, "I like tea", "bad")
        report = memory.consolidate()

        assert (report.episodes, report.failed) == (1, 1)
        assert objects(memory.facts.query(user_id="ann")) == ["tea"]

    def test_memory_D7_a_candidate_that_cannot_be_a_fact_is_dropped_alone_and_told(
        self, handle: Pagefile
    ) -> None:
        unfit = [
            Candidate("user", "likes", "x" * 5_000, 0.9),
            Candidate("user", "likes", "tea\x00", 0.3),
            Candidate("user", "---", "tea", 0.9),
            Candidate("\ud800", "likes", "tea", 0.9, valid_until=START + HOUR),
        ]
        fit = [
            Candidate("user", "likes", "jam", 0.9),
            Candidate("user", "likes", "figs", 0.3, quote="\ud800"),
        ]
        extractor = Scripted(lambda one: [*unfit, *fit])
        memory = Memory(handle, embedder=None, extractor=extractor, clock=Clock())
        (name,) = say(memory, "all of it")
        report = memory.consolidate()
        again = memory.consolidate()

        assert (report.episodes, report.failed, report.facts, report.proposed) == (1, 0, 1, 1)
        assert (report.dropped, [one for one, _ in report.errors]) == (4, [name] * 4)
        assert [why.split(":")[0] for _, why in report.errors] == ["Invalid"] * 4
        assert objects(memory.facts.query(user_id="ann")) == ["jam"]
        assert (again, len(extractor.read)) == (ConsolidationReport(), 1)

    def test_memory_D7_what_was_so_at_two_times_is_two_facts(self, handle: Pagefile) -> None:
        years = [START - timedelta(days=365 * n) for n in (9, 8, 5, 4, 2)]
        spans = [(years[0], years[1]), (years[2], years[3]), (years[4], None)]
        found = [
            Candidate("user", "lives_in", "Rome", 0.9, valid_from=since, valid_until=until)
            for since, until in spans
        ]
        memory = Memory(handle, embedder=None, extractor=Scripted(lambda one: found))
        say(memory, "always Rome")
        report = memory.consolidate()
        known = memory.facts.query(user_id="ann", history=True)

        assert (report.failed, report.facts) == (0, 3)
        assert sorted((k.valid_from, k.valid_until) for k in known) == sorted(
            spans, key=lambda span: span[0]
        )

    def test_memory_D7_what_is_stated_twice_is_counted_and_kept_once(
        self, handle: Pagefile
    ) -> None:
        found = [
            Candidate("user", "likes", "tea", 0.3),
            Candidate("user", "likes", "tea", 0.9),
            *[Candidate("user", "likes", "jam", 0.3)] * 2,
        ]
        memory = Memory(handle, embedder=None, extractor=Scripted(lambda one: found))
        say(memory, "tea and jam")
        report = memory.consolidate()
        waiting = memory.proposals.waiting(user_id="ann")

        assert (report.facts, report.proposed, report.failed) == (1, 1, 0)
        assert objects(memory.facts.query(user_id="ann")) == ["tea"]
        assert [one.fact.object for one in waiting] == ["jam"]

    def test_memory_D7_nothing_is_read_that_could_not_be_stored(self, backend: Backend) -> None:
        extractor = Scripted()
        say(Memory(backend.open(), embedder=None), "I like tea")
        other = Memory(backend.open(), embedder=HashedWords(), extractor=extractor)
        told = [outcome(other.consolidate) for _ in range(2)]
        early = list(extractor.read)
        after = Memory(backend.open(), embedder=None, extractor=extractor).consolidate()

        assert (told, early) == (["Unsupported"] * 2, [])
        assert (after.facts, extractor.read) == (1, ["I like tea"])

    def test_memory_D7_what_was_read_is_not_read_again_because_it_could_not_be_stored(
        self, backend: Backend
    ) -> None:
        """The embedder fails when all is read: what was found waits with its episode."""
        clock, embedder = Clock(), Failing()

        def read(exchange: Exchange) -> list[Candidate]:
            embedder.is_down = True
            return likes(exchange)

        extractor = Scripted(read)
        memory = Memory(backend.open(), embedder=embedder, extractor=extractor, clock=clock)
        say(memory, "I like tea")
        first = memory.consolidate()
        clock.passes(days=1)
        second = outcome(memory.consolidate)
        embedder.is_down = False
        third = memory.consolidate()

        assert (first.failed, first.facts, first.errors[0][1].split(":")[0]) == (
            1,
            0,
            "Unavailable",
        )
        assert (second, third.facts, third.failed) == ("Unavailable", 1, 0)
        assert extractor.read == ["I like tea"]
        assert objects(memory.recall_facts("tea", user_id="ann")) == ["tea"]

    def test_memory_D7_a_claim_is_renewed_while_its_episode_is_read(self, backend: Backend) -> None:
        """The clock tells when it was asked: by then half of a second was over, and is renewed."""
        clock = Asked()
        policy = ConsolidationPolicy(lease_seconds=1)
        quick = Scripted()
        other = Memory(backend.open(), embedder=None, extractor=quick, clock=clock, policy=policy)

        def slowly(exchange: Exchange) -> list[Candidate]:
            for _ in range(3):
                clock.passes(seconds=0.9)
                assert clock.is_asked()
                other.consolidate()
            return likes(exchange)

        slow = Scripted(slowly)
        memory = Memory(backend.open(), embedder=None, extractor=slow, clock=clock, policy=policy)
        say(memory, "I like tea")
        report = memory.consolidate()

        assert (report.facts, slow.read, quick.read) == (1, ["I like tea"], [])

    def test_memory_D7_what_failed_is_tried_again_after_a_pause_and_at_last_given_up(
        self, handle: Pagefile
    ) -> None:
        clock = Clock()
        extractor = Scripted(_raising(OSError("down")))
        memory = Memory(
            handle,
            embedder=None,
            extractor=extractor,
            clock=clock,
            policy=ConsolidationPolicy(attempts=3),
        )
        (name,) = say(memory, "bad")
        told = []
        for minutes in (0, 0.5, 1, 1, 3, 60 * 24 * 30):
            clock.passes(minutes=minutes)
            told.append(memory.consolidate().failed)

        assert told == [1, 0, 1, 0, 1, 0]
        assert len(extractor.read) == 3
        memory.remember(episode("now good", id=name))
        assert (memory.consolidate().facts, objects(memory.facts.query(user_id="ann"))) == (
            1,
            ["good"],
        )

    def test_memory_D7_nothing_is_read_twice_by_any_handle(self, backend: Backend) -> None:
        extractor = Scripted()
        for _ in range(3):
            memory = Memory(backend.open(), embedder=None, extractor=extractor)
            say(memory, f"I like tea{len(extractor.read)}")
            memory.consolidate()
            memory.consolidate()

        assert extractor.read == ["I like tea0", "I like tea1", "I like tea2"]

    def test_memory_D7_workers_at_once_never_read_the_same(self, backend: Backend) -> None:
        extractor = Scripted()
        memories = [Memory(backend.open(), embedder=None, extractor=extractor) for _ in range(4)]
        memories[0].remember_many([episode(f"I like tea{n}", id=f"e{n}") for n in range(60)])
        reports = at_once(lambda n: memories[n].consolidate(), 4)
        facts = memories[0].facts.query(user_id="ann", limit=100)

        assert sorted(extractor.read) == sorted(f"I like tea{n}" for n in range(60))
        assert sum(report.facts for report in reports) == 60
        assert len({known.object for known in facts}) == len(facts) == 60

    def test_a_claim_is_lost_after_its_time_and_who_lost_it_stores_nothing(
        self, backend: Backend
    ) -> None:
        clock = Clock()
        reading, go = threading.Event(), threading.Event()

        def slowly(exchange: Exchange) -> list[Candidate]:
            reading.set()
            assert go.wait(30)
            return [Candidate("user", "likes", "stale", 0.9)]

        slow, quick = (
            Memory(backend.open(), embedder=None, extractor=extractor, clock=clock)
            for extractor in (Scripted(slowly), Scripted())
        )
        say(quick, "I like tea")
        reports: list[ConsolidationReport] = []
        worker = threading.Thread(target=lambda: reports.append(slow.consolidate()))
        worker.start()
        assert reading.wait(30)
        early = quick.consolidate()
        clock.passes(seconds=301)
        late = quick.consolidate()
        go.set()
        worker.join(30)

        assert (early.episodes, late.facts, reports[0].facts) == (0, 1, 0)
        assert objects(quick.facts.query(user_id="ann")) == ["tea"]

    def test_what_is_claimed_together_is_not_read_twice_however_slow_it_goes(
        self, backend: Backend
    ) -> None:
        clock = Clock()
        quick = Scripted()
        other = Memory(backend.open(), embedder=None, extractor=quick, clock=clock)

        def slowly(exchange: Exchange) -> list[Candidate]:
            clock.passes(seconds=200)
            other.consolidate()
            return likes(exchange)

        slow = Scripted(slowly)
        memory = Memory(backend.open(), embedder=None, extractor=slow, clock=clock)
        say(memory, *(f"I like tea{n}" for n in range(6)))
        memory.consolidate()

        assert sorted(slow.read + quick.read) == [f"I like tea{n}" for n in range(6)]
        assert len(memory.facts.query(user_id="ann", limit=20)) == 6

    def test_memory_P8_a_round_with_nothing_to_read_costs_nothing_to_speak_of(
        self, handle: Pagefile
    ) -> None:
        memory = Memory(handle, embedder=None, extractor=Scripted())
        say(memory, "I like tea")
        memory.consolidate()
        few = steps_of(memory.consolidate)
        memory.facts.append_many([fact(f"p{n}", predicate="visited") for n in range(1_000)])
        memory.remember_many([episode(f"I like tea{n}", id=f"e{n}") for n in range(100)])
        memory.consolidate()
        many = steps_of(memory.consolidate)

        assert many < few * 1.5

    def test_memory_P9_as_many_are_read_at_once_as_the_policy_lets(self, handle: Pagefile) -> None:
        """Four meet at a barrier, which nobody could pass alone."""
        meeting = threading.Barrier(4)

        def together(exchange: Exchange) -> list[Candidate]:
            meeting.wait(30)
            return likes(exchange)

        memory = Memory(
            handle,
            embedder=None,
            extractor=Scripted(together),
            policy=ConsolidationPolicy(concurrency=4),
        )
        say(memory, *(f"I like tea{n}" for n in range(8)))

        assert memory.consolidate().facts == 8

    def test_the_limit_and_the_most_facts_of_an_episode_are_kept(self, handle: Pagefile) -> None:
        many = Scripted(lambda one: [Candidate("user", "likes", f"t{n}", 0.9) for n in range(9)])
        memory = Memory(
            handle,
            embedder=None,
            extractor=many,
            policy=ConsolidationPolicy(max_facts_per_episode=2),
        )
        say(memory, *"abcde")
        progress: list[int] = []
        told = [memory.consolidate(limit=n, progress=progress.append) for n in (0, 2, 100)]

        assert [(r.episodes, r.facts) for r in told] == [(0, 0), (2, 4), (3, 6)]
        assert progress == [2, 3]

    def test_an_index_made_anew_meanwhile_stops_nobody(self, backend: Backend) -> None:
        other = Memory(backend.open(), embedder=None)

        def meanwhile(exchange: Exchange) -> list[Candidate]:
            other.reindex()
            return likes(exchange)

        memory = Memory(backend.open(), embedder=None, extractor=Scripted(meanwhile))
        say(memory, "I like tea")
        report = memory.consolidate()

        assert (report.facts, report.failed) == (1, 0)
        assert objects(memory.recall_facts("tea", user_id="ann")) == ["tea"]


class StoppingContract(MemoryFixtures):
    """Cancelling, and leaving a worker."""

    def test_memory_D5_a_cancelled_round_ends_and_gives_back_what_it_claimed(
        self, backend: Backend
    ) -> None:
        cancel = threading.Event()

        def once(exchange: Exchange) -> list[Candidate]:
            cancel.set()
            return likes(exchange)

        memory = Memory(backend.open(), embedder=None, extractor=Scripted(once))
        say(memory, *(f"I like tea{n}" for n in range(5)))
        report = memory.consolidate(cancel=cancel)
        after = Memory(backend.open(), embedder=None, extractor=Scripted()).consolidate()

        assert (report.cancelled, report.episodes) == (True, 1)
        assert (after.episodes, after.facts) == (4, 4)

    def test_memory_D5_an_extractor_that_stops_when_it_is_told_counts_as_no_failure(
        self, backend: Backend
    ) -> None:
        class Obedient(Scripted):
            def extract(
                self, exchange: Exchange, *, cancel: threading.Event | None = None
            ) -> list[Candidate]:
                assert cancel is not None
                cancel.set()
                raise InterruptedError("told to stop")

        memory = Memory(
            backend.open(),
            embedder=None,
            extractor=Obedient(),
            policy=ConsolidationPolicy(attempts=1),
        )
        say(memory, "I like tea")
        report = memory.consolidate(cancel=threading.Event())
        after = Memory(backend.open(), embedder=None, extractor=Scripted()).consolidate()

        assert (report.cancelled, report.failed, after.facts) == (True, 0, 1)

    def test_a_round_that_is_cancelled_before_it_begins_does_nothing(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        say(memory, "I like tea")
        head = handle.store.head()
        cancel = threading.Event()
        cancel.set()

        assert memory.consolidate(cancel=cancel) == ConsolidationReport(cancelled=True)
        assert handle.store.head() == head

    def test_memory_D6_a_worker_that_is_left_has_stored_what_it_read(
        self, backend: Backend
    ) -> None:
        read = threading.Event()
        told: list[ConsolidationReport] = []

        def note(report: ConsolidationReport) -> None:
            told.append(report)
            read.set()

        memory = Memory(backend.open(), embedder=None, extractor=Scripted())
        say(memory, "I like tea")
        worker = ConsolidationWorker(memory, interval_seconds=3_600, on_consolidated=note)
        with worker:
            assert read.wait(30)
        left = Memory(backend.open(), embedder=None)

        assert objects(left.facts.query(user_id="ann")) == ["tea"]
        assert (worker.iterations, worker.total_extracted, told[0].facts) == (1, 1, 1)
        assert "pagefile-consolidation" not in {each.name for each in threading.enumerate()}

    def test_memory_D5_leaving_a_worker_ends_the_round_under_way(self, backend: Backend) -> None:
        reading = threading.Event()

        class Waits(Scripted):
            def extract(
                self, exchange: Exchange, *, cancel: threading.Event | None = None
            ) -> list[Candidate]:
                assert cancel is not None
                reading.set()
                assert cancel.wait(30)
                return likes(exchange)

        memory = Memory(backend.open(), embedder=None, extractor=Waits())
        say(memory, "I like tea", "I like jam")
        with ConsolidationWorker(memory, interval_seconds=0.01):
            assert reading.wait(30)
        after = Memory(backend.open(), embedder=None, extractor=Scripted())

        assert after.consolidate().episodes == 1
        assert sorted(objects(after.facts.query(user_id="ann"))) == ["jam", "tea"]

    def test_a_round_that_fails_as_a_whole_is_heard_of(self, memory: Memory) -> None:
        class Broken:
            def consolidate(self, *, cancel: threading.Event | None = None) -> ConsolidationReport:
                raise OSError("no disk")

        heard: list[Exception] = []
        seen = threading.Event()

        def note(error: Exception) -> None:
            heard.append(error)
            seen.set()

        with ConsolidationWorker(Broken(), interval_seconds=3_600, on_error=note):
            assert seen.wait(30)
        worker = ConsolidationWorker(Broken(), interval_seconds=0.001)
        worker.__enter__()
        assert worker._thread is not None
        worker._thread.join(30)
        with pytest.raises(OSError, match="no disk"):
            worker.__exit__(None, None, None)

        assert [str(error) for error in heard] == ["no disk"]
