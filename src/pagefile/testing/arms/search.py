"""What an arm finds: the nearest of one user alone, and the same as the store finds."""

from __future__ import annotations

import numpy as np
import pytest

from pagefile.errors import Unsupported
from pagefile.handle import Pagefile
from pagefile.memory.memory import Memory
from pagefile.recall.arms.arm import Mark, Part, VectorArm
from pagefile.testing.arms.fixtures import (
    DIMENSIONS,
    ArmFixtures,
    Place,
    beside,
    directions,
    fill,
    hits,
    names,
    part_of,
    tell,
)
from pagefile.testing.memory.fixtures import episode, fact, inputs, say

#: Owners that a filter put together as text would confuse, widen or break.
ODD = (
    "ann",
    "Ann",
    "ann ",
    "ann,bob",
    "*",
    "ann*",
    '"ann"',
    "ann' OR '1'='1",
    'ann"}},{"key":"tenant"',
    "ann\\",
    "%",
    "_nn",
    "änn",
    "a\u0301nn",
    "ánn",
    "null",
    "true",
    "1",
    "[]",
    "{tenant}",
    "%(tenant)s",
    "💥",
    "a" * 500,
)


class AskingContract(ArmFixtures):
    """Nearest, named, counted, parted."""

    def test_the_nearest_come_best_first_with_their_cosines(self, arm: VectorArm) -> None:
        part, vectors = part_of("ann"), directions(300)
        ids = fill(arm, part, vectors)
        query = directions(1, seed=9)[0]
        wanted = vectors @ query
        order = np.argsort(-wanted)[:20]
        found = arm.nearest(part, query, 20)

        assert [one for one, _ in found.nearest] == [ids[n] for n in order]
        assert np.allclose([score for _, score in found.nearest], wanted[order], atol=1e-5)
        assert found.named == {}

    def test_cosines_of_named_ids_come_with_the_nearest(self, arm: VectorArm) -> None:
        part, vectors = part_of("ann"), directions(40)
        ids = fill(arm, part, vectors)
        query = directions(1, seed=9)[0]
        unknown = part.point("unknown", 1, 1)
        both = arm.nearest(part, query, 3, [*ids[10:15], unknown])
        alone = arm.nearest(part, query, 0, ids[10:15])

        assert (len(both.nearest), set(both.named)) == (3, set(ids[10:15]))
        assert (alone.nearest, alone.named.keys()) == ([], both.named.keys())
        assert np.allclose(
            [both.named[one] for one in ids[10:15]], vectors[10:15] @ query, atol=1e-5
        )

    def test_a_small_owner_gets_its_own_beside_a_large_one(self, arm: VectorArm) -> None:
        """However near the other's are, and whatever is asked: no place is lost to them."""
        query = directions(1, seed=9)[0]
        near = directions(3_000) * np.float32(0.05) + query
        crowd = part_of("crowd")
        fill(arm, crowd, (near / np.linalg.norm(near, axis=1, keepdims=True)).astype(np.float32))
        small = part_of("small")
        ids = fill(arm, small, directions(5, seed=3))
        other = part_of("small", tenant="other")
        others = fill(arm, other, directions(5, seed=4))

        for k in (1, 5, 10, 100):
            for asked in (query, *directions(5, seed=11)):
                found = [one for one, _ in arm.nearest(small, asked, k).nearest]
                assert len(found) == min(k, 5)
                assert set(found) <= set(ids)
        assert {one for one, _ in arm.nearest(other, query, 10).nearest} == set(others)
        assert len(arm.nearest(crowd, query, 600).nearest) == 600

    def test_odd_names_of_tenants_and_owners_stay_apart(self, arm: VectorArm) -> None:
        vectors = directions(2 * len(ODD))
        parts = [part_of(name) for name in ODD] + [part_of("ann", tenant=name) for name in ODD]
        held = [fill(arm, part, vectors[n : n + 1]) for n, part in enumerate(parts)]

        for n, part in enumerate(parts):
            found = [one for one, _ in arm.nearest(part, vectors[n], 100).nearest]
            assert (found, arm.ids(part), arm.count(part)) == (held[n], set(held[n]), 1)
        for part in parts[::2]:
            arm.forget(part)
        assert [arm.count(part) for part in parts] == [n % 2 for n in range(len(parts))]

    def test_nothing_is_found_or_counted_before_anything_was_kept(self, arm: VectorArm) -> None:
        part = part_of("ann")
        query = directions(1)[0]
        arm.delete(part, names(3, part))
        arm.forget(part)

        assert arm.nearest(part, query, 5, names(2, part)) == ([], {})
        assert (arm.count(part), arm.ids(part), arm.mark(part)) == (0, set(), None)
        assert arm.owners("acme") == []

    def test_keeping_the_same_twice_keeps_it_once(self, arm: VectorArm) -> None:
        part, vectors = part_of("ann"), directions(30)
        ids = fill(arm, part, vectors)
        arm.upsert(part, ids[10:20], vectors[10:20])

        assert (arm.count(part), arm.ids(part)) == (30, set(ids))
        assert len(arm.nearest(part, vectors[0], 100).nearest) == 30

    def test_what_is_deleted_is_found_no_more_and_nothing_else_goes(self, arm: VectorArm) -> None:
        part, vectors = part_of("ann"), directions(30)
        ids = fill(arm, part, vectors)
        arm.delete(part, [*ids[:10], part.point("unknown", 1, 1)])
        arm.delete(part_of("bob"), ids[10:20])
        arm.delete(part_of("ann", tenant="other"), ids[10:20])

        assert arm.ids(part) == set(ids[10:])
        assert {one for one, _ in arm.nearest(part, vectors[0], 100).nearest} == set(ids[10:])

    def test_a_mark_is_kept_for_each_owner_and_goes_with_it(
        self, arm: VectorArm, place: Place
    ) -> None:
        ann, bob = part_of("ann"), part_of("bob")
        vectors = directions(3)
        fill(arm, ann, vectors)
        fill(arm, bob, vectors)
        arm.set_mark(ann, Mark(1, 3, 9, 3))
        arm.set_mark(bob, Mark(2, 7, 11, 5))
        arm.set_mark(bob, Mark(2, 8, 12, 3))
        another = place()

        assert (another.mark(ann), another.mark(bob)) == (Mark(1, 3, 9, 3), Mark(2, 8, 12, 3))
        assert (another.count(ann), len(another.ids(ann))) == (3, 3)
        assert len(another.nearest(ann, vectors[0], 10).nearest) == 3
        assert another.owners("acme") == ["ann", "bob"]
        assert another.owners("other") == []
        arm.forget(ann)
        assert (another.mark(ann), another.count(ann)) == (None, 0)
        assert (another.mark(bob), another.count(bob)) == (Mark(2, 8, 12, 3), 3)
        another.close()

    @pytest.mark.parametrize(
        ("model", "dimensions"), [("another", DIMENSIONS), ("hashed-words", DIMENSIONS // 2)]
    )
    def test_another_model_or_dimension_is_refused_and_changes_nothing(
        self, arm: VectorArm, place: Place, model: str, dimensions: int
    ) -> None:
        part, vectors = part_of("ann"), directions(3)
        fill(arm, part, vectors)
        other = place() if self.is_shared(arm) else arm
        with pytest.raises(Unsupported) as refused:
            other.prepare(model, dimensions)
        arm.prepare(part.model, part.dimensions)

        assert refused.value.next_step
        assert len(arm.nearest(part, vectors[0], 10).nearest) == 3
        assert arm.count(Part("acme", "ann", model, dimensions)) == 3
        other.close()

    @staticmethod
    def is_shared(arm: VectorArm) -> bool:
        """Whether a second client sees what the first one kept."""
        return arm.name != "memory"


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
