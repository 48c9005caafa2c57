"""Review: what is not sure waits, what was decided stays so, what ended is ended."""

from __future__ import annotations

from datetime import timedelta

from pagefile.handle import Pagefile
from pagefile.memory.consolidation.consolidation import ConsolidationPolicy
from pagefile.memory.extraction.candidate import Candidate, Exchange
from pagefile.memory.memory import Memory
from pagefile.testing.backend import Backend
from pagefile.testing.context.ground import at_once
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


class ReviewingContract(MemoryFixtures):
    """Candidates, and who decides."""

    def test_what_is_not_sure_waits_for_somebody_to_decide(self, handle: Pagefile) -> None:
        clock = Clock()
        unsure = Scripted(lambda one: [*likes(one, 0.5)])
        memory = Memory(handle, embedder=None, extractor=unsure, clock=clock)
        say(memory, "I like tea", "I like jam", user="ann")
        say(memory, "I like figs", user="bob")
        report = memory.consolidate()
        jam, tea = sorted(memory.proposals.waiting(user_id="ann"), key=lambda one: one.fact.object)
        before = memory.facts.query(user_id="ann")
        done = memory.proposals.commit(tea.id, reviewer="rev", user_id="ann")
        head = handle.store.head()
        again = memory.proposals.commit(tea.id, reviewer="other", user_id="ann")
        once = handle.store.head() == head
        gone = memory.proposals.reject(jam.id, reviewer="rev", user_id="ann", reason="not so")
        told = [
            outcome(memory.proposals.reject, tea.id, reviewer="r", user_id="ann"),
            outcome(memory.proposals.commit, jam.id, reviewer="r", user_id="ann"),
            outcome(memory.proposals.commit, tea.id, reviewer="r", user_id="bob"),
            outcome(memory.proposals.commit, "unknown", reviewer="r", user_id="ann"),
        ]

        assert (report.facts, report.proposed, before, once) == (0, 3, [], True)
        assert (done.status, done.decided_by, again) == ("committed", "rev", done)
        assert (gone.status, gone.reason) == ("rejected", "not so")
        assert told == ["Conflict", "Conflict", "NotFound", "NotFound"]
        assert objects(memory.recall_facts("tea jam figs", user_id="ann")) == ["tea"]
        assert len(memory.proposals.waiting_everywhere()) == 1
        assert [one.id for one in memory.proposals.waiting("rejected", user_id="ann")] == [jam.id]

    def test_that_something_ended_waits_for_review_too(self, handle: Pagefile) -> None:
        since = START + timedelta(days=9)
        home = Candidate("user", "lives_in", "Lisbon", 0.9)
        left = Candidate("user", "lives_in", "Lisbon", 0.9, valid_until=since, quote="I left")
        script = Scripted(lambda one: [left] if "left" in one.input else [home])
        policy = ConsolidationPolicy(auto_commit=None)
        memory = Memory(handle, embedder=None, extractor=script, policy=policy)
        say(memory, "at home")
        memory.consolidate()
        (proposed,) = memory.proposals.waiting(user_id="ann")
        memory.proposals.commit(proposed.id, reviewer="rev", user_id="ann")
        say(memory, "I left", at=since)
        report = memory.consolidate()
        (ending,) = memory.proposals.waiting(user_id="ann")

        assert (report.facts, report.proposed, ending.ends) == (0, 1, proposed.id)
        assert [f.object for f in memory.facts.query(user_id="ann")] == ["Lisbon"]
        memory.proposals.commit(ending.id, reviewer="rev", user_id="ann")
        assert memory.facts.query(user_id="ann") == []
        before = memory.facts.query(user_id="ann", valid_at=since - timedelta(days=1))
        assert [(f.object, f.valid_until) for f in before] == [("Lisbon", since)]

    def test_two_who_decide_at_once_decide_once(self, backend: Backend) -> None:
        memories = [
            Memory(backend.open(), embedder=None, extractor=Scripted(lambda one: likes(one, 0.5)))
            for _ in range(4)
        ]
        say(memories[0], "I like tea")
        memories[0].consolidate()
        (tea,) = memories[0].proposals.waiting(user_id="ann")

        def decide(n: int) -> str:
            work = memories[n].proposals.commit if n % 2 else memories[n].proposals.reject
            return outcome(work, tea.id, reviewer=f"r{n}", user_id="ann")

        told = at_once(decide, 4)
        facts = memories[0].facts.query(user_id="ann")
        status = [
            s for s in ("committed", "rejected") if memories[0].proposals.waiting(s, user_id="ann")
        ]

        assert sorted(told) == ["Conflict", "Conflict", "done", "done"]
        assert (len(facts), status) in [(1, ["committed"]), (0, ["rejected"])]

    def test_nothing_is_sure_enough_where_the_policy_says_so(self, handle: Pagefile) -> None:
        memory = Memory(
            handle,
            embedder=None,
            extractor=Scripted(lambda one: likes(one, 1.0)),
            policy=ConsolidationPolicy(auto_commit=None),
        )
        say(memory, "I like tea")

        assert (memory.consolidate().proposed, memory.facts.query(user_id="ann")) == (1, [])

    def test_a_changed_episode_is_read_again_and_what_was_decided_stays_so(
        self, handle: Pagefile
    ) -> None:
        extractor = Scripted(lambda one: [*likes(one, 0.5), Candidate("user", "is", "here", 0.9)])
        memory = Memory(handle, embedder=None, extractor=extractor)
        memory.remember(episode("I like tea", id="e"))
        memory.consolidate()
        (tea,) = memory.proposals.waiting(user_id="ann")
        memory.proposals.reject(tea.id, reviewer="rev", user_id="ann")
        memory.remember(episode("Again, I like tea", id="e"))
        again = memory.consolidate()
        memory.remember(episode("I like jam", id="e"))
        changed = memory.consolidate()
        idle = memory.consolidate()

        assert (again.episodes, again.facts, again.proposed) == (1, 0, 0)
        assert (changed.proposed, idle.episodes) == (1, 0)
        assert len(extractor.read) == 3
        assert memory.proposals.waiting("rejected", user_id="ann")[0].id == tea.id

    def test_what_is_no_longer_so_ends_the_fact_that_is_known(self, handle: Pagefile) -> None:
        def reading(exchange: Exchange) -> list[Candidate]:
            if "no more" in exchange.input:
                return [Candidate("user", "likes", "tea", 0.9, valid_until=exchange.occurred_at)]
            return likes(exchange)

        memory = Memory(handle, embedder=None, extractor=Scripted(reading))
        say(memory, "I like tea", at=START - 5 * HOUR)
        say(memory, "no more", at=START - HOUR)
        report = memory.consolidate()

        assert (report.episodes, report.facts) == (2, 2)
        assert memory.facts.query(user_id="ann") == []
        assert objects(memory.facts.query(user_id="ann", valid_at=START - 2 * HOUR)) == ["tea"]

    def test_what_ends_is_unknown_here_ends_nothing(self, handle: Pagefile) -> None:
        ended = Scripted(lambda one: [Candidate("user", "likes", "tea", 0.9, valid_until=START)])
        memory = Memory(handle, embedder=None, extractor=ended)
        say(memory, "no more tea")

        assert (memory.consolidate().episodes, memory.facts.query(user_id="ann")) == (1, [])
