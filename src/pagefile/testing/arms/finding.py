"""What is found must not depend on where the vectors are compared, arm or store."""

from __future__ import annotations

from pagefile.handle import Pagefile
from pagefile.memory.memory import Memory
from pagefile.testing.arms.ground import beside, hits, tell
from pagefile.testing.memory.ground import episode, fact, inputs, say

QUESTIONS = ("amber no17", "birch cedar delta", "opal north kelp no3", "what about the heron?")


class FindingContract:
    """For a fixture `memory`, and the `handle` of its store."""

    def test_a_small_user_recalls_all_of_its_own_beside_a_large_one(self, memory: Memory) -> None:
        tell(memory, "crowd", 1_200)
        tell(memory, "small", 5, seed=3)
        wanted = {f"s-{n}" for n in range(5)}
        for _ in range(2):
            for query in QUESTIONS:
                found = memory.recall_scored(query, user_id="small", limit=10, alpha=1.0)
                assert {match.episode.id for match in found} == wanted
            memory.sync_vectors()
        assert memory.vector_status(user_id="small").waiting == 0
        assert len(memory.recall(QUESTIONS[0], user_id="crowd", limit=50)) == 50

    def test_a_filter_finds_what_it_lets_through_however_far_away_that_is(
        self, memory: Memory
    ) -> None:
        tell(memory, "ann", 1_200)
        memory.remember_many(
            [episode(f"quartz {n}", "ann", "rare", id=f"rare-{n}") for n in range(3)]
        )
        memory.remember_many(
            [episode(f"basalt {n}", "ann", "rest", id=f"rest-{n}") for n in range(1_000)]
        )
        say(memory, *(f"basalt {n}" for n in range(20)), session="rest")
        memory.facts.append(fact("Rome", "ann"))
        memory.sync_vectors()
        rare = memory.recall_scored("amber no17", user_id="ann", session_id="rare", alpha=1.0)
        rest = memory.recall_scored(
            "amber no17", user_id="ann", session_id="rest", alpha=1.0, limit=100
        )

        assert {match.episode.id for match in rare} == {f"rare-{n}" for n in range(3)}
        assert len(rest) == 100
        assert [one.object for one in memory.recall_facts("lives in Rome", user_id="ann")] == [
            "Rome"
        ]

    def test_a_large_user_finds_nearly_the_same_as_in_this_process(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        tell(memory, "ann", 1_200)
        memory.sync_vectors()
        here = beside(handle, "memory")
        same = 0
        for query in QUESTIONS:
            wanted = {key for key, _ in hits(here, query, limit=10)}
            same += len(wanted & {key for key, _ in hits(memory, query, limit=10)})

        assert same >= 0.9 * 10 * len(QUESTIONS)

    def test_what_is_said_again_in_other_words_is_found_by_these(self, memory: Memory) -> None:
        tell(memory, "ann", 20)
        memory.recall("amber", user_id="ann")
        for n in range(5):
            memory.remember(episode(f"quartz number {n}", "ann", "s", id=f"s-{n}"))
        for _ in range(2):
            found = memory.recall("quartz number 3", user_id="ann", limit=1)
            assert inputs(found) == ["quartz number 3"]
            memory.sync_vectors()
        assert len(memory.recall_scored("amber", user_id="ann", limit=50, alpha=1.0)) == 20
