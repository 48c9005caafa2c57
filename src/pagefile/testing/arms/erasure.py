"""What is forgotten leaves the arm, and the receipt says how far that reaches."""

from __future__ import annotations

from typing import Any

import pytest

from pagefile.errors import Unavailable, Unsupported
from pagefile.handle import Pagefile
from pagefile.memory.documents import owner_key
from pagefile.memory.memory import Memory
from pagefile.recall.arms.arm import Part, VectorArm
from pagefile.testing.arms.fixtures import DIMENSIONS, ArmFixtures, beside, hits, part_of, tell
from pagefile.testing.memory.fixtures import HashedWords


class Down:
    """An arm that does not answer once the first calls are over."""

    def __init__(self, arm: VectorArm, calls: int) -> None:
        self._arm, self.left = arm, calls

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._arm, name)

        def call(*given: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise Unavailable("nobody answers", "start it")
            return value(*given)

        return call if callable(value) else value


class ArmForgettingContract(ArmFixtures):
    """Erased in the store, gone from the arm."""

    @pytest.mark.filterwarnings("ignore::pagefile.memory.privacy.isolation.IsolationWarning")
    def test_forgetting_a_user_empties_the_arm_of_it(self, memory: Memory, arm: VectorArm) -> None:
        for user in ("ann", "bob", None):
            tell(memory, user, 20)
        memory.sync_vectors()
        receipt = memory.forget(user_id="ann").receipt

        assert arm.count(part_of(owner_key("ann"))) == 0
        assert arm.owners("acme") == sorted([owner_key("bob"), owner_key(None)])
        assert [arm.count(part_of(owner_key(user))) for user in ("bob", None)] == [20, 20]
        assert receipt.level == "logical"
        assert any(arm.name in step for step in receipt.remaining)
        assert memory.recall("amber", user_id="ann") == []
        assert len(hits(memory, "amber", "bob")) == 5
        memory.forget(user_id=None)
        assert arm.owners("acme") == [owner_key("bob")]

    def test_forgetting_a_session_takes_its_vectors_and_no_others(
        self, memory: Memory, arm: VectorArm
    ) -> None:
        tell(memory, "ann", 20)
        tell(memory, "ann", 10, session="secret")
        memory.sync_vectors()
        before = arm.ids(part_of(owner_key("ann")))
        memory.forget(user_id="ann", session_id="secret")
        after = arm.ids(part_of(owner_key("ann")))

        assert (len(before), len(after), after < before) == (30, 20, True)
        assert {key.partition("-")[0] for key, _ in hits(memory, "amber", limit=50)} == {"s"}
        assert memory.vector_status(user_id="ann").waiting == 0

    def test_a_rehearsal_takes_nothing(self, memory: Memory, arm: VectorArm) -> None:
        tell(memory, "ann", 20)
        memory.sync_vectors()
        memory.forget(user_id="ann", dry_run=True)

        assert arm.count(part_of(owner_key("ann"))) == 20

    @pytest.mark.parametrize("session", [None, "secret"])
    @pytest.mark.parametrize("later", ["sync", "forget"])
    def test_what_is_forgotten_while_the_arm_is_away_leaves_it_when_it_is_back(
        self, handle: Pagefile, arm: VectorArm, session: str | None, later: str
    ) -> None:
        memory = beside(handle, arm)
        tell(memory, "ann", 20, session="secret")
        tell(memory, "ann", 5, session="other")
        memory.sync_vectors()
        away = beside(handle, Down(arm, 0))
        receipts = [away.forget(user_id="ann", session_id=session).receipt for _ in range(2)]
        there = arm.count(part_of(owner_key("ann")))
        memory = beside(handle, arm)
        left = [] if session is None else [5]
        if later == "sync":
            memory.sync_vectors()
        else:
            memory.forget(user_id="ann", session_id=session)

        assert there == 25
        assert [receipt.level for receipt in receipts] == ["logical"] * 2
        assert all("sync_vectors" in receipt.remaining[-1] for receipt in receipts)
        assert arm.count(part_of(owner_key("ann"))) == sum(left)
        assert len(memory.recall("amber", user_id="ann", limit=50)) == sum(left)

    def test_an_arm_that_fails_in_between_is_named_in_the_receipt_and_emptied_later(
        self, handle: Pagefile, arm: VectorArm
    ) -> None:
        memory = beside(handle, arm)
        tell(memory, "ann", 20)
        tell(memory, "bob", 20)
        memory.sync_vectors()
        receipt = beside(handle, Down(arm, 0)).forget(user_id="ann").receipt

        assert "sync_vectors" in receipt.remaining[-1]
        assert arm.count(part_of(owner_key("ann"))) == 20
        assert memory.recall("amber", user_id="ann") == []
        memory.sync_vectors()
        assert arm.count(part_of(owner_key("ann"))) == 0
        assert arm.owners("acme") == [owner_key("bob")]

    def test_what_is_forgotten_while_it_is_on_its_way_does_not_stay(
        self, handle: Pagefile, arm: VectorArm
    ) -> None:
        memory = beside(handle, arm)
        tell(memory, "ann", 20)
        memory.sync_vectors()
        tell(memory, "ann", 20, session="secret")

        class Slow:
            """One that writes after somebody else has forgotten."""

            def __getattr__(self, name: str) -> Any:
                return self._late if name == "upsert" else getattr(arm, name)

            def _late(self, *given: Any) -> None:
                beside(handle, arm).forget(user_id="ann", session_id="secret")
                arm.upsert(*given)

        beside(handle, Slow()).sync_vectors()

        assert arm.count(part_of(owner_key("ann"))) == 20
        assert len(hits(memory, "amber", limit=50)) == 20

    def test_a_model_that_the_arm_does_not_hold_is_refused_before_the_index_is_made_anew(
        self, handle: Pagefile, memory: Memory, arm: VectorArm
    ) -> None:
        tell(memory, "ann", 20)
        memory.sync_vectors()
        other = Memory(handle, embedder=HashedWords("other", DIMENSIONS), vectors=arm)
        with pytest.raises(Unsupported):
            other.reindex()

        assert len(hits(memory, "amber", limit=50)) == 20
        assert arm.count(Part("acme", owner_key("ann"), "other", DIMENSIONS)) == 20
