"""Bounds: every limit means something, and what is resident is not what is kept."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from pagefile.aio.memory import AsyncMemory
from pagefile.handle import Pagefile
from pagefile.memory.extraction.candidate import Candidate
from pagefile.memory.memory import Memory
from pagefile.testing.backend import Backend
from pagefile.testing.context.fixtures import Steps, steps_of
from pagefile.testing.memory.fixtures import (
    HashedWords,
    MemoryFixtures,
    Scripted,
    episode,
    fact,
    inputs,
    outcome,
    say,
)

_LIMITED: dict[str, tuple[Callable[[Memory, int], Any], int]] = {
    "recall": (lambda m, n: m.recall("word", limit=n, user_id="ann"), 1_000),
    "recall of a blank": (lambda m, n: m.recall("", limit=n, user_id="ann"), 1_000),
    "recall of a session": (
        lambda m, n: m.recall("", limit=n, session_id="s", user_id="ann"),
        1_000,
    ),
    "recall_scored": (lambda m, n: m.recall_scored("word", limit=n, user_id="ann"), 1_000),
    "recall_facts": (lambda m, n: m.recall_facts("user", limit=n, user_id="ann"), 1_000),
    "recall_facts of a blank": (lambda m, n: m.recall_facts("", limit=n, user_id="ann"), 1_000),
    "recall_facts_scored": (
        lambda m, n: m.recall_facts_scored("user", limit=n, user_id="ann"),
        1_000,
    ),
    "search": (lambda m, n: m.search("word", limit=n, user_id="ann"), 1_000),
    "search of a blank": (lambda m, n: m.search("", limit=n, user_id="ann"), 1_000),
    "session_messages": (
        lambda m, n: m.session_messages("s", limit=n, user_id="ann"),
        10_000,
    ),
    "block_history": (lambda m, n: m.block_history("b", limit=n, user_id="ann"), 10_000),
    "duplicates": (lambda m, n: m.duplicates(limit=n, user_id="ann"), 10_000),
    "users": (lambda m, n: m.users(limit=n), 10_000),
    "proposals.waiting": (lambda m, n: m.proposals.waiting(limit=n, user_id="ann"), 10_000),
    "proposals.waiting_everywhere": (
        lambda m, n: m.proposals.waiting_everywhere(limit=n),
        10_000,
    ),
}


class Watched(HashedWords):
    """Embeds and ranks, and notes in which threads it was asked to."""

    def __init__(self) -> None:
        super().__init__()
        self.threads: list[int] = []

    def embed(self, text: str) -> list[float]:
        self.threads.append(threading.get_ident())
        return super().embed(text)

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        self.threads.append(threading.get_ident())
        return [0.0] * len(texts)


def _users_of_two_sizes(memory: Memory) -> tuple[str, str]:
    """One with few vectors and one with many, both searched once.

    Few are more than a server is ever asked for: its answer grows up to that, and no further.
    """
    for user, size in (("few", 1_200), ("many", 2_800)):
        for at in range(0, size, 800):
            memory.remember_many(
                [
                    episode(f"word{n} common", user, id=f"e{n}")
                    for n in range(at, min(at + 800, size))
                ]
            )
        memory.recall("word50", user_id=user)
    return "few", "many"


async def steps_here(work: Awaitable[Any]) -> int:
    """How many calls this thread, the loop's, makes until the work is done."""
    with Steps() as steps:
        await work
    return steps.count


class BoundsContract(MemoryFixtures):
    """Nothing grows without an end, and no end is silent."""

    @pytest.mark.parametrize("call", _LIMITED)
    def test_memory_Q16_a_limit_is_exact_zero_is_none_and_less_is_refused(
        self, handle: Pagefile, call: str
    ) -> None:
        memory = Memory(handle, embedder=None)
        for user in ("ann", "bob", "cid"):
            say(memory, *["a word about walls, bridges and roads"] * 3, user=user)
        for place in ("Kyoto", "Oslo", "Rome"):
            memory.facts.append(fact(place, predicate="visited"))
            memory.append_block("b", place, user_id="ann")
        unsure = Scripted(lambda one: [_unsure(one.input)])
        Memory(handle, embedder=None, extractor=unsure).consolidate()
        work, most = _LIMITED[call]
        full = len(work(memory, most))

        assert full >= 2
        assert [len(work(memory, n)) for n in (0, 1, 2)] == [0, 1, 2]
        assert [outcome(work, memory, n) for n in (-1, -(10**20), most + 1, 10**20)] == (
            ["Invalid"] * 4
        )

    def test_memory_D12_what_leaves_residency_is_still_found(self, handle: Pagefile) -> None:
        memory = Memory(handle, embedder=None, max_users=2)
        shelf = memory._index._shelf
        for n in range(10):
            say(memory, f"plan number {n}", user=f"u{n}")
        found = []
        sizes = []
        for _ in range(2):
            for n in range(10):
                found += inputs(memory.recall("plan", user_id=f"u{n}"))
                sizes.append(len(shelf))

        assert found == [f"plan number {n}" for n in range(10)] * 2
        assert max(sizes) == 2

    def test_memory_D12_no_user_pushes_out_what_another_keeps(self, handle: Pagefile) -> None:
        memory = Memory(handle, embedder=None, max_users=1)
        say(memory, "the quiet one's only memory", user="quiet")
        for n in range(20):
            say(memory, f"loud {n}", user=f"loud{n}")
            memory.recall("loud", user_id=f"loud{n}")

        assert inputs(memory.recall("memory", user_id="quiet")) == ["the quiet one's only memory"]
        assert memory.profile(user_id="quiet").episode_count == 1

    def test_memory_D13_what_is_idle_too_long_is_read_again(self, handle: Pagefile) -> None:
        memory = Memory(handle, embedder=None, user_idle_ttl_seconds=10)
        shelf = memory._index._shelf
        moment = [0.0]
        shelf._clock = lambda: moment[0]
        for user in ("ann", "bob"):
            say(memory, f"plan of {user}", user=user)
            memory.recall("plan", user_id=user)
        both = len(shelf)
        moment[0] = 11.0
        memory.recall("plan", user_id="bob")

        assert (both, len(shelf)) == (2, 1)
        assert inputs(memory.recall("plan", user_id="ann")) == ["plan of ann"]

    def test_none_is_no_bound(self, handle: Pagefile) -> None:
        memory = Memory(handle, embedder=None, max_users=None, user_idle_ttl_seconds=None)
        for n in range(20):
            say(memory, "hello", user=f"u{n}")
            memory.recall("hello", user_id=f"u{n}")

        assert len(memory._index._shelf) == 20

    def test_users_are_listed_once_each_and_page_by_page(self, memory: Memory) -> None:
        names = sorted(["ann", "Ann", "anna", "bob", "b", "é", "*", "~"])
        for name in names:
            say(memory, "one", "two", user=name)
        memory.update_block("b", "x", user_id="with-a-block-only")
        memory.facts.append(fact("Oslo", "with-a-fact-only"))
        pages: list[str] = []
        while page := memory.users(after=pages[-1] if pages else "", limit=3):
            pages += page

        assert pages == sorted([*names, "with-a-block-only", "with-a-fact-only"])
        assert memory.users() == pages

    def test_memory_P3_what_a_user_asks_costs_the_same_however_many_others_there_are(
        self, memory: Memory
    ) -> None:
        say(memory, *(f"ann said {n}" for n in range(20)), user="ann")
        memory.update_block("b", "x", user_id="ann")

        def work() -> None:
            memory.recall("ann said", user_id="ann")
            memory.recall("", user_id="ann")
            memory.session_messages("s", user_id="ann")
            memory.working(user_id="ann")
            memory.profile(user_id="ann")

        work()
        alone = steps_of(work)
        for n in range(20):
            memory.remember_many(
                [episode(f"other {k}", f"u{n}", id=f"e{n}-{k}") for k in range(100)]
            )
        among = steps_of(work)

        assert among < alone * 1.2

    def test_memory_P2_a_second_search_reads_only_what_is_new(self, memory: Memory) -> None:
        """What was folded once is not read again: not from the store, and not analysed."""
        memory.remember_many([episode(f"word{n} common", id=f"e{n}") for n in range(1_000)])
        first = steps_of(lambda: memory.recall("word500", user_id="ann"))
        memory.remember(episode("word5000", id="later"))
        again = steps_of(lambda: memory.recall("word500", user_id="ann"))

        assert again * 10 < first

    def test_memory_P2_vectors_are_not_compared_one_by_one(self, handle: Pagefile) -> None:
        memory = Memory(handle, embedder=HashedWords())
        costs = [
            steps_of(lambda name=user: memory.recall("word50", user_id=name))  # type: ignore[misc]
            for user in _users_of_two_sizes(memory)
        ]

        assert costs[1] < costs[0] + 1_000

    def test_memory_P2_a_search_leaves_the_event_loop_to_others(self, handle: Pagefile) -> None:
        """What the loop's own thread does for it does not grow with what is searched."""
        watched = Watched()
        sync = Memory(handle, embedder=watched, reranker=watched)
        users = _users_of_two_sizes(sync)
        watched.threads.clear()

        async def story() -> list[int]:
            memory = AsyncMemory(sync)
            return [
                await steps_here(memory.recall_scored("word50", user_id=user)) for user in users
            ]

        costs = asyncio.run(story())

        assert len(watched.threads) >= 2
        assert threading.get_ident() not in watched.threads
        assert costs[1] < costs[0] + 500

    def test_memory_P4_a_search_for_a_rare_word_does_not_go_through_everything(
        self, memory: Memory
    ) -> None:
        costs = []
        for size in (100, 1_600):
            user = f"u{size}"
            for at in range(0, size, 800):
                memory.remember_many(
                    [
                        episode(f"word{n} common", user, id=f"e{n}")
                        for n in range(at, min(at + 800, size))
                    ]
                )
            memory.recall("word50", user_id=user)
            costs.append(steps_of(lambda name=user: memory.recall("word50", user_id=name)))  # type: ignore[misc]

        assert costs[1] < costs[0] * 4

    def test_memory_P1_a_write_costs_the_same_however_much_is_there(self, memory: Memory) -> None:
        costs = []
        count = 0
        for size in (10, 1_500):
            while count < size:
                more = [
                    episode(f"word{n}", id=f"e{n}") for n in range(count, min(size, count + 750))
                ]
                memory.remember_many(more)
                count += len(more)
            memory.remember(episode("warm", id=f"warm{size}"))
            last = episode("the last", id=f"last{size}")
            costs.append(steps_of(lambda one=last: memory.remember(one)))  # type: ignore[misc]

        assert costs[1] < costs[0] * 1.5

    def test_memory_P5_asserting_a_fact_costs_the_same_however_many_there_are(
        self, memory: Memory
    ) -> None:
        costs = []
        for size in (10, 1_500):
            user = f"u{size}"
            memory.facts.append_many(
                [fact(f"place{n}", user, predicate="visited") for n in range(size)]
            )
            costs.append(steps_of(lambda name=user: memory.facts.append(fact("last", name))))  # type: ignore[misc]

        assert costs[1] < costs[0] * 1.5

    def test_memory_P6_a_profile_reads_none_of_what_it_counts(self, memory: Memory) -> None:
        costs = []
        for size in (20, 800):
            user = f"u{size}"
            memory.remember_many([episode(f"w{n}", user, id=f"e{n}") for n in range(size)])
            memory.profile(user_id=user)
            costs.append(steps_of(lambda name=user: memory.profile(user_id=name)))  # type: ignore[misc]

        assert costs[1] < costs[0] * 2

    def test_memory_P7_the_end_of_a_session_is_read_without_its_beginning(
        self, memory: Memory
    ) -> None:
        costs = []
        for size in (600, 1_800):
            session = f"s{size}"
            for at in range(0, size, 600):
                memory.remember_many(
                    [
                        episode(f"w{n}", session=session, id=f"{session}-{n:05}")
                        for n in range(at, at + 600)
                    ]
                )
            costs.append(
                steps_of(lambda name=session: memory.session_messages(name, user_id="ann", limit=5))  # type: ignore[misc]
            )

        assert costs[1] < costs[0] * 1.2

    def test_a_replay_of_many_costs_in_proportion(self, backend: Backend, memory: Memory) -> None:
        costs = []
        for size in (50, 400):
            many = [episode(f"w{n}", id=f"{size}-{n}") for n in range(size)]
            memory.remember_many(many)
            costs.append(steps_of(lambda all_=many: memory.remember_many(all_)))  # type: ignore[misc]

        assert costs[1] < costs[0] * 16


def _unsure(text: str) -> Candidate:
    return Candidate("user", "said", text, 0.2)
