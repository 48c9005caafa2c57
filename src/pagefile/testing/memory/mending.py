"""Consolidation that cannot work, and goes on when somebody has mended what it lacked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pagefile.errors import Conflict, Forbidden, LimitExceeded, PagefileError
from pagefile.handle import Pagefile
from pagefile.memory.consolidation.consolidation import ConsolidationPolicy
from pagefile.memory.extraction.candidate import Candidate, Exchange
from pagefile.memory.extraction.errors import Misdirected, NoApi, Refused
from pagefile.memory.facts.documents import ASSERTION
from pagefile.memory.memory import Memory
from pagefile.store.batch import Batch, Put
from pagefile.store.records import Commit
from pagefile.store.store import Store
from pagefile.testing.backend import Backend
from pagefile.testing.memory.ground import (
    HOUR,
    START,
    Clock,
    MemoryFixtures,
    Scripted,
    episode,
    likes,
    objects,
    outcome,
    say,
)

_REFUSED = Refused("request", "status 400", "look at base URL and model")


def _nothing(text: str) -> bool:
    return False


class Refusing:
    """A store that lets no fact in."""

    def __init__(self, store: Store, error: PagefileError) -> None:
        self._store = store
        self._error = error
        self.refused = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, batch: Batch) -> Commit:
        if any(isinstance(one, Put) and one.kind == ASSERTION for one in batch.operations):
            self.refused += 1
            raise self._error
        return self._store.commit(batch)


class Server:
    """What stands behind an extractor: it refuses what it is told to, and reads the rest."""

    def __init__(self, error: PagefileError, refuses: Callable[[str], bool] = bool) -> None:
        self.error = error
        self.refuses = refuses

    def __call__(self, exchange: Exchange) -> list[Candidate]:
        if self.refuses(exchange.input):
            raise self.error
        return likes(exchange)

    def is_mended(self) -> None:
        self.refuses = _nothing


def _memory(handle: Pagefile, server: Server, **policy: Any) -> tuple[Memory, Scripted, Clock]:
    extractor, clock = Scripted(server), Clock()
    memory = Memory(
        handle,
        embedder=None,
        extractor=extractor,
        clock=clock,
        policy=ConsolidationPolicy(**policy),
    )
    return memory, extractor, clock


class MendingContract(MemoryFixtures):
    """Whose fault it is, and what becomes of those that had none."""

    @pytest.mark.parametrize(
        "error",
        [Forbidden("no such key", "give another"), Misdirected("request", "status 404", "look")],
        ids=lambda error: type(error).__name__,
    )
    def test_memory_D7_wrong_settings_end_the_round_and_blame_no_episode(
        self, handle: Pagefile, error: PagefileError
    ) -> None:
        server = Server(error)
        memory, extractor, _ = _memory(handle, server, attempts=1)
        say(memory, *(f"I like tea{n}" for n in range(10)))
        told = [outcome(memory.consolidate) for _ in range(3)]
        asked = len(extractor.read)
        server.is_mended()
        after = memory.consolidate()

        assert (told, asked) == ([type(error).__name__] * 3, 3)
        assert (after.facts, after.failed) == (10, 0)

    @pytest.mark.parametrize(
        "error", [_REFUSED, NoApi("a page", "look")], ids=lambda error: type(error).__name__
    )
    def test_memory_D7_what_is_refused_whatever_it_says_is_never_given_up(
        self, handle: Pagefile, error: PagefileError
    ) -> None:
        server = Server(error)
        memory, extractor, clock = _memory(handle, server, attempts=2)
        say(memory, *(f"I like tea{n}" for n in range(30)))
        told = []
        for _ in range(8):
            told.append(outcome(memory.consolidate))
            clock.passes(days=1)
        asked = len(extractor.read)
        server.is_mended()
        after = memory.consolidate()

        assert (set(told), asked) == ({type(error).__name__}, 8 * 5)
        assert (after.facts, after.failed) == (30, 0)

    def test_memory_D7_one_that_is_refused_for_what_it_says_is_given_up_alone(
        self, handle: Pagefile
    ) -> None:
        """The first of each round: whether it is the text is seen by those after it."""
        server = Server(_REFUSED, lambda text: "long" in text)
        memory, extractor, clock = _memory(handle, server, attempts=3)
        (name, _) = say(memory, "a long story", "I like tea0")
        told = []
        for n in range(1, 6):
            report = memory.consolidate()
            told.append((report.facts, report.failed, [one for one, _ in report.errors]))
            say(memory, f"I like tea{n}")
            clock.passes(days=1)

        assert told == [(1, 1, [name])] * 3 + [(1, 0, [])] * 2
        assert extractor.read.count("a long story") == 3

    def test_memory_D7_many_that_are_refused_at_the_front_block_nobody_for_long(
        self, handle: Pagefile
    ) -> None:
        server = Server(_REFUSED, lambda text: "long" in text)
        memory, extractor, clock = _memory(handle, server, attempts=3)
        say(memory, *(f"a long story {n}" for n in range(12)), "I like tea")
        for _ in range(60):
            outcome(memory.consolidate)
            clock.passes(minutes=1)

        assert objects(memory.facts.query(user_id="ann")) == ["tea"]
        assert len(extractor.read) < 120

    def test_memory_D7_what_was_given_up_is_read_again_when_it_is_asked_for(
        self, handle: Pagefile
    ) -> None:
        server = Server(Refused("request", "x", "y"), lambda text: "bad" in text)
        memory, extractor, clock = _memory(handle, server, attempts=1)
        say(memory, "I like tea", "bad jam", "bad figs")
        gone, given = say(memory, "bad milk", user="bob"), memory.consolidate()
        memory.forget(episode_id=gone[0], user_id="bob")
        server.is_mended()
        clock.passes(days=9)
        without = memory.consolidate()
        again = [memory.consolidate(retry_failed=True) for _ in range(2)]

        assert (given.failed, without.episodes) == (3, 0)
        assert [(one.episodes, one.facts) for one in again] == [(2, 2), (0, 0)]
        assert sorted(objects(memory.facts.query(user_id="ann"))) == ["figs", "jam", "tea"]
        assert len(extractor.read) == 6

    def test_what_was_merged_into_one_that_is_read_again_is_forgotten_with_it(
        self, handle: Pagefile
    ) -> None:
        extractor = Scripted(Server(_REFUSED, lambda text: "bad" in text))
        policy = ConsolidationPolicy(attempts=1)
        memory = Memory(
            handle, embedder=None, extractor=extractor, policy=policy, duplicates="merge"
        )
        said = [episode("bad jam, of all things", id=f"e{n}", at=START + n * HOUR) for n in (0, 1)]
        ids = [memory.remember(one) for one in said]
        say(memory, "I like tea")
        given_up = memory.consolidate().failed
        memory.consolidate(retry_failed=True)
        memory.forget(user_id="ann")

        assert (ids, given_up) == (["e0", "e0"], 1)
        assert [outcome(memory.remember, one) for one in said] == ["Forbidden"] * 2

    def test_memory_D7_what_waits_after_a_failure_need_not_wait_when_it_is_mended(
        self, handle: Pagefile
    ) -> None:
        server = Server(_REFUSED, lambda text: "bad" in text)
        memory, _, _ = _memory(handle, server)
        say(memory, "I like tea", "bad jam")
        memory.consolidate()
        server.is_mended()
        early, again = memory.consolidate(), memory.consolidate(retry_failed=True)

        assert (early.episodes, again.facts) == (0, 1)

    def test_memory_D7_conflicts_in_settling_cost_no_second_reading(self, backend: Backend) -> None:
        """With one attempt: what others commit is none of the episode's failures."""
        other = Memory(backend.open(), embedder=None)
        (old,) = say(other, "something")
        other.forget(episode_id=old, user_id="ann")
        memory, extractor, _ = _memory(backend.open(), Server(_REFUSED, _nothing), attempts=1)
        say(other, "I like tea")
        report = memory.consolidate()

        assert (report.facts, report.failed, extractor.read) == (1, 0, ["I like tea"])

    def test_memory_D7_what_meets_conflicts_without_end_waits_with_what_was_read(
        self, handle: Pagefile
    ) -> None:
        memory, extractor, clock = _memory(handle, Server(_REFUSED, _nothing), attempts=1)
        say(memory, "I like tea")
        faster = Conflict("somebody was faster", "retry", target="x", expected=1, current=2)
        busy = Refusing(handle.store, faster)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(memory, "_store", busy)
            first = memory.consolidate()
        clock.passes(days=1)
        second = memory.consolidate()

        assert (first.failed, first.errors[0][1].split(":")[0]) == (1, "Conflict")
        assert 10 <= busy.refused <= 1_000
        assert (second.facts, second.failed, extractor.read) == (1, 0, ["I like tea"])

    def test_memory_D7_what_the_store_refuses_is_paid_for_once_and_given_up_in_the_end(
        self, handle: Pagefile
    ) -> None:
        memory, extractor, clock = _memory(handle, Server(_REFUSED, _nothing), attempts=2)
        say(memory, "I like tea")
        full = LimitExceeded("facts", limit=1, wanted=2, next_step="remove some")
        told = []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(memory, "_store", Refusing(handle.store, full))
            for _ in range(4):
                told.append(memory.consolidate().failed)
                clock.passes(days=1)
        after = memory.consolidate(), memory.consolidate(retry_failed=True)

        assert told == [1, 1, 0, 0]
        assert [one.facts for one in after] == [0, 1]
        assert extractor.read == ["I like tea"]
