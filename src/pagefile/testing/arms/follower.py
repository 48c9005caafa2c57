"""How an arm follows the store: late but never wrong, cut off, wiped, by several at once."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from pagefile.handle import Pagefile
from pagefile.memory.documents import owner_key
from pagefile.memory.memory import Memory
from pagefile.recall.arms.arm import VectorArm
from pagefile.testing.arms.fixtures import (
    ArmFixtures,
    assert_agree,
    beside,
    directions,
    hits,
    part_of,
    tell,
    who_compared,
)
from pagefile.testing.arms.search import QUESTIONS
from pagefile.testing.memory.fixtures import START, episode, inputs, say


class PowerCut(Exception):
    """The end of a process, in the middle of what it does."""


class CutOff:
    """An arm whose client is killed at its nth call of one kind."""

    def __init__(self, arm: VectorArm, method: str, calls: int) -> None:
        self._arm, self._method, self._left = arm, method, calls

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._arm, name)
        return self._called if name == self._method else value

    def _called(self, *given: Any) -> Any:
        self._left -= 1
        if self._left < 0:
            raise PowerCut
        return getattr(self._arm, self._method)(*given)


class FollowingContract(ArmFixtures):
    """The log says what there is; the arm is as right as it, at any time."""

    def test_the_same_is_found_in_the_same_order_as_in_this_process(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        tell(memory, "ann", 400)
        here = beside(handle, "memory")
        asked = [(query, alpha) for query in QUESTIONS for alpha in (None, 1.0)]
        wanted = [hits(here, query, limit=20, alpha=alpha) for query, alpha in asked]
        before = [hits(memory, query, limit=20, alpha=alpha) for query, alpha in asked]
        memory.sync_vectors()
        after = [hits(memory, query, limit=20, alpha=alpha) for query, alpha in asked]

        assert before == wanted
        for one, other in zip(after, wanted, strict=True):
            assert_agree(one, other)

    def test_what_the_arm_lacks_is_found_all_the_same_and_the_lag_is_shown(
        self, memory: Memory
    ) -> None:
        tell(memory, "ann", 30)
        new = memory.vector_status(user_id="ann")
        first = who_compared(memory, "amber no17")
        count = memory.sync_vectors()
        filled = memory.vector_status(user_id="ann")
        second = who_compared(memory, "amber no17")
        say(memory, "zebra crossing at dawn")
        late = memory.vector_status(user_id="ann")
        third = who_compared(memory, "zebra crossing", limit=1)

        assert (new.indexed, new.waiting, first) == (0, 30, {"tail"})
        assert (count, filled.indexed, filled.waiting, second) == (30, 30, 0, {filled.arm})
        assert (late.indexed, late.waiting, third) == (30, 1, {"tail"})
        assert memory.sync_vectors() == 1
        assert memory.sync_vectors() == 0

    def test_a_few_lost_of_many_are_noticed_by_whoever_comes_new(
        self, handle: Pagefile, memory: Memory, arm: VectorArm
    ) -> None:
        """Among so many they show in no answer."""
        tell(memory, "ann", 1_200)
        memory.sync_vectors()
        part = part_of(owner_key("ann"))
        arm.delete(part, sorted(arm.ids(part))[:5])

        assert who_compared(beside(handle, arm), QUESTIONS[0]) == {"tail"}

    def test_what_is_replaced_or_retracted_leaves_the_arm(
        self, memory: Memory, arm: VectorArm
    ) -> None:
        tell(memory, "ann", 20)
        memory.sync_vectors()
        for n in range(5):
            memory.remember(episode(f"quartz number {n}", "ann", "s", id=f"s-{n}"))
        part = part_of(owner_key("ann"))
        found = inputs(memory.recall("quartz number 3", user_id="ann", limit=1))

        assert found == ["quartz number 3"]
        assert (memory.sync_vectors(), arm.count(part)) == (5, 20)
        assert inputs(memory.recall("quartz number 3", user_id="ann", limit=1)) == found
        assert who_compared(memory, "quartz number 3", limit=1) == {arm.name}

    @pytest.mark.parametrize(
        ("method", "calls"),
        [("upsert", 1), ("set_mark", 0), ("delete", 0)],
    )
    def test_one_that_is_cut_off_is_taken_up_where_it_was(
        self, handle: Pagefile, arm: VectorArm, method: str, calls: int
    ) -> None:
        memory = beside(handle, arm)
        tell(memory, "ann", 300)
        memory.sync_vectors()
        tell(memory, "ann", 600, session="t", seed=8)
        memory.remember_many([episode("quartz", "ann", "s", id=f"s-{n}") for n in range(3)])
        wanted = hits(beside(handle, "memory"), QUESTIONS[0], limit=20)
        cut = beside(handle, CutOff(arm, method, calls))
        cut.recall(QUESTIONS[0], user_id="ann")
        with suppress(PowerCut):
            cut.sync_vectors()
        survivor = beside(handle, arm)
        meanwhile = hits(survivor, QUESTIONS[0], limit=20)
        survivor.sync_vectors()
        part = part_of(owner_key("ann"))

        assert_agree(meanwhile, wanted)
        assert (arm.count(part), survivor.vector_status(user_id="ann").waiting) == (900, 0)
        assert survivor.sync_vectors() == 0
        assert_agree(hits(survivor, QUESTIONS[0], limit=20), wanted)

    def test_an_arm_that_lost_everything_is_noticed_and_filled_anew(
        self, handle: Pagefile, memory: Memory, arm: VectorArm
    ) -> None:
        tell(memory, "ann", 60)
        memory.sync_vectors()
        wanted = hits(memory, QUESTIONS[0], limit=20)
        arm.forget(part_of(owner_key("ann")))

        assert_agree(hits(memory, QUESTIONS[0], limit=20), wanted)
        assert_agree(hits(beside(handle, arm), QUESTIONS[0], limit=20), wanted)
        assert memory.vector_status(user_id="ann").waiting == 60
        assert memory.sync_vectors() == 60
        assert_agree(hits(memory, QUESTIONS[0], limit=20), wanted)
        assert who_compared(memory, QUESTIONS[0]) == {arm.name}

    def test_an_arm_that_lost_some_is_noticed_and_mended(
        self, handle: Pagefile, memory: Memory, arm: VectorArm
    ) -> None:
        tell(memory, "ann", 60)
        memory.sync_vectors()
        wanted = hits(memory, QUESTIONS[0], limit=20)
        part = part_of(owner_key("ann"))
        arm.delete(part, sorted(arm.ids(part))[:7])

        assert_agree(hits(memory, QUESTIONS[0], limit=20), wanted)
        assert_agree(hits(beside(handle, arm), QUESTIONS[0], limit=20), wanted)
        assert memory.vector_status(user_id="ann").waiting == 60
        assert (memory.sync_vectors(), arm.count(part)) == (7, 60)
        assert who_compared(memory, QUESTIONS[0]) == {arm.name}

    def test_leftovers_are_never_found_and_are_taken_out(
        self, memory: Memory, arm: VectorArm
    ) -> None:
        tell(memory, "ann", 20)
        memory.sync_vectors()
        wanted = hits(memory, QUESTIONS[0], limit=30)
        part = part_of(owner_key("ann"))
        stray = [part.point("stray", 1, n) for n in range(10)]
        arm.upsert(part, stray, directions(10))

        assert hits(memory, QUESTIONS[0], limit=30) == wanted
        memory.sync_vectors()
        assert (arm.count(part), arm.ids(part) & set(stray)) == (20, set())

    def test_two_who_fill_it_at_once_leave_it_right(self, handle: Pagefile, arm: VectorArm) -> None:
        one, other = beside(handle, arm), beside(handle, arm)
        tell(one, "ann", 30)
        one.sync_vectors()
        other.recall("amber", user_id="ann")
        tell(other, "ann", 30, session="t")
        other.sync_vectors()
        say(one, "quartz")
        one.sync_vectors()
        other.sync_vectors()
        part = part_of(owner_key("ann"))

        assert arm.count(part) == 61
        for memory in (one, other):
            assert inputs(memory.recall("quartz", user_id="ann", limit=1)) == ["quartz"]
            assert memory.vector_status(user_id="ann").waiting == 0

    def test_an_index_made_anew_fills_the_arm_anew(
        self, handle: Pagefile, memory: Memory, arm: VectorArm
    ) -> None:
        tell(memory, "ann", 40)
        memory.sync_vectors()
        memory.reindex()
        wanted = hits(beside(handle, "memory"), QUESTIONS[0], limit=20)
        between = hits(memory, QUESTIONS[0], limit=20)

        assert memory.vector_status(user_id="ann").waiting == 40
        assert memory.sync_vectors() == 40
        assert arm.count(part_of(owner_key("ann"))) == 40
        assert_agree(between, wanted)
        assert_agree(hits(memory, QUESTIONS[0], limit=20), wanted)

    def test_words_alone_ask_no_arm(self, handle: Pagefile, arm: VectorArm) -> None:
        memory = beside(handle, CutOff(arm, "nearest", 0))
        say(memory, "amber birch", at=START)
        memory.sync_vectors()

        assert hits(memory, "amber", alpha=0.0) != []
        with pytest.raises(PowerCut):
            memory.recall("amber", user_id="ann")
