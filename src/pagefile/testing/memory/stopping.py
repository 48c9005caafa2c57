"""Rounds that are stopped: nothing read is lost, nothing claimed stays claimed."""

from __future__ import annotations

import threading

import pytest

from pagefile.handle import Pagefile
from pagefile.memory.consolidation.consolidation import ConsolidationPolicy, ConsolidationReport
from pagefile.memory.consolidation.worker import ConsolidationWorker
from pagefile.memory.extraction.candidate import Candidate, Exchange
from pagefile.memory.memory import Memory
from pagefile.testing.backend import Backend
from pagefile.testing.memory.ground import (
    MemoryFixtures,
    Scripted,
    likes,
    objects,
    say,
)


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
