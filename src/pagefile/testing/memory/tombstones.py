"""What was forgotten does not come back: not by a replay, a worker, a cache or a race."""

from __future__ import annotations

import base64
import threading
from typing import Any

import pytest

from pagefile.handle import Pagefile
from pagefile.memory.documents import owner_key
from pagefile.memory.extraction.candidate import Candidate, Exchange
from pagefile.memory.memory import Memory
from pagefile.memory.privacy import tombstones
from pagefile.memory.privacy.tombstones import forgotten_of
from pagefile.runs.runs import Runs
from pagefile.store.arguments import OF_TENANT
from pagefile.store.batch import Batch, Put, Selector
from pagefile.store.records import Document
from pagefile.testing.backend import Backend
from pagefile.testing.context.fixtures import at_once
from pagefile.testing.memory.fixtures import (
    HOUR,
    START,
    Meanwhile,
    MemoryFixtures,
    Scripted,
    episode,
    export_lines,
    fact,
    inputs,
    item_request,
    kept,
    likes,
    objects,
    outcome,
    say,
    spoken,
    traces,
)


class ReturningContract(MemoryFixtures):
    """After a forget, and during one."""

    def test_what_was_forgotten_stays_so_when_all_of_nobody_is_erased(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        first, second, third = say(memory, "one", "two", "three")
        memory.forget(user_id="ann", episode_id=first)
        memory.forget(user_id="ann", episode_id=second)
        handle.store.erase(Selector(anonymous=True))
        replayed = [outcome(memory.remember, episode("again", id=each)) for each in (first, second)]

        assert replayed == ["Forbidden", "Forbidden"]
        assert outcome(memory.remember, episode("new")) == "done"
        assert memory.forget(user_id="ann", episode_id=third) == 1

    @pytest.mark.parametrize("last", [3, 4])
    def test_who_lost_what_was_noted_of_them_can_go_on(
        self, backend: Backend, handle: Pagefile, memory: Memory, last: int
    ) -> None:
        # As it was noted before: in nobody's partition, where an erasure could reach it.
        name = f"memory/forgotten/{owner_key('ann')}"
        for n in range(2):
            (gone,) = say(memory, f"{n}")
            memory.forget(user_id="ann", episode_id=gone)
        whole, more = (each.value for each in noted(handle))
        puts = [Put(name, each, kind="forgotten") for each in (whole, {**more, "since": 3})]
        handle.store.commit(Batch(puts))
        handle.store.erase(Selector(document=name, last=last))
        (other,) = say(memory, "other")

        assert outcome(Memory(backend.open(), embedder=None).remember, episode("new")) == "done"
        assert outcome(handle.runs.boot, "go on", user_id="ann") == "done"
        assert outcome(memory.remember, episode("again", id=gone)) == (
            "Forbidden" if last == 3 else "done"
        )
        assert memory.forget(user_id="ann", episode_id=other) == 1
        assert outcome(memory.remember, episode("again", id=other)) == "Forbidden"
        # What is left of them is the tenant's from now on.
        assert noted(handle)[-1].user == OF_TENANT

    @pytest.mark.parametrize("whole", [True, False])
    def test_what_was_merged_into_a_forgotten_episode_does_not_come_back(
        self, handle: Pagefile, whole: bool
    ) -> None:
        memory = Memory(handle, embedder=None, duplicates="merge", extractor=Scripted())
        said = [
            episode("My PIN is 4711, keep it", id=f"e{n}", at=START + n * HOUR) for n in range(40)
        ]
        same_moment = episode("My PIN is 4711, keep it", id="same", at=START)
        ids = [memory.remember(one) for one in (*said[:9], same_moment)]
        memory.consolidate()
        ids += memory.remember_many(said[9:])
        again = Memory(handle, embedder=None)
        memory.forget(user_id="ann", session_id=None if whole else "s")
        replayed = {outcome(again.remember, one) for one in (*said, same_moment)}

        assert set(ids) == {"e0"}
        assert replayed == {"Forbidden"}
        assert inputs(again.recall("PIN", user_id="ann")) == []

    def test_the_ids_of_items_and_runs_that_were_forgotten_are_not_taken_again(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        def propose(memory_id: str) -> str:
            request = item_request("her pin is 4711", "ann") | {"memory_id": memory_id}
            return handle.items.propose([request], user_id="ann").batch_id

        def boot(run_id: str) -> None:
            handle.runs.boot("use 4711", run_id=run_id, user_id="ann")

        handle.items.commit(propose("pin-item"), reviewer="rev")
        boot("r1")
        memory.forget(user_id="ann")
        replayed = propose("pin-item")

        assert outcome(handle.items.commit, replayed, reviewer="rev") == "Forbidden"
        assert handle.items.preview(replayed).problems
        assert (outcome(boot, "r1"), outcome(boot, "r2")) == ("Forbidden", "done")
        assert outcome(handle.runs.fork, "r2", new_run_id="r1") == "Forbidden"
        assert outcome(handle.items.commit, propose("another"), reviewer="rev") == "done"
        handle.runs.boot("another's", run_id="r1", user_id="bob")

    def test_a_run_that_is_booted_while_one_of_its_id_is_forgotten_is_refused(
        self, backend: Backend, handle: Pagefile, memory: Memory
    ) -> None:
        handle.runs.boot("use 4711", run_id="r1", user_id="ann")
        meanwhile: Any = Meanwhile(handle.store, lambda: memory.forget(user_id="ann"))
        boot = Runs(meanwhile, handle.items).boot

        assert outcome(boot, "again", run_id="r1", user_id="ann") == "Forbidden"
        assert not handle.runs.exists("r1")

    @pytest.mark.parametrize("sure", [0.9, 0.3])
    @pytest.mark.parametrize("whole", [True, False])
    def test_memory_G2_what_is_being_read_meanwhile_does_not_come_back(
        self, backend: Backend, handle: Pagefile, sure: float, whole: bool
    ) -> None:
        reading, go = threading.Event(), threading.Event()

        def slowly(exchange: Exchange) -> list[Candidate]:
            reading.set()
            assert go.wait(30)
            return likes(exchange, sure)

        memory = Memory(handle, embedder=None, extractor=Scripted(slowly))
        say(memory, "I like zyqtea")
        reports: list[Any] = []
        worker = threading.Thread(target=lambda: reports.append(memory.consolidate()))
        worker.start()
        assert reading.wait(30)
        Memory(backend.open(), embedder=None).forget(
            user_id="ann", session_id=None if whole else "s"
        )
        go.set()
        worker.join(30)
        left = Memory(backend.open(), embedder=None)

        assert (reports[0].facts, reports[0].proposed) == (0, 0)
        assert left.recall_facts("zyqtea", user_id="ann") == []
        assert left.proposals.waiting(user_id="ann") == []
        assert export_lines(left) == []
        assert traces(backend, handle, spoken(["zyqtea"])) == []
        assert left.consolidate().episodes == 0

    def test_memory_G8_it_is_one_commit_and_replays_are_refused(
        self, backend: Backend, handle: Pagefile, memory: Memory
    ) -> None:
        said = [episode(f"text {n}", id=f"e{n}") for n in range(5)]
        known = fact("Kyoto", id="f")
        memory.remember_many(said)
        memory.facts.append(known)
        lines = list(memory.export(user_id="ann"))
        other = Memory(backend.open(), embedder=None)
        head = handle.store.head()
        memory.forget(user_id="ann")
        commits = handle.store.head().position - head.position
        after = handle.store.head()
        told = [
            outcome(work, *given)
            for each in (memory, other, Memory(backend.open(), embedder=None))
            for work, *given in (
                (each.remember, said[0]),
                (each.remember_many, [episode("new", id="new"), said[1]]),
                (each.facts.append, known),
            )
        ]
        brought = memory.import_(lines)

        assert (commits, told) == (1, ["Forbidden"] * 9)
        assert (brought.records, brought.forgotten) == (0, 6)
        assert handle.store.head() == after
        assert memory.remember(episode("text 0", id="another")) == "another"
        assert inputs(memory.recall("text", user_id="ann")) == ["text 0"]

    def test_memory_G8_what_is_remembered_meanwhile_is_wholly_there_or_wholly_gone(
        self, backend: Backend
    ) -> None:
        memories = [Memory(backend.open(), embedder=None) for _ in range(4)]
        stored: list[str] = []

        def work(n: int) -> None:
            if n == 0:
                for _ in range(6):
                    memories[0].forget(user_id="ann", scrub=False)
                return
            for k in range(12):
                stored.append(memories[n].remember(episode(f"word{n}x{k}", id=f"e{n}-{k}")))

        at_once(work, 4)
        left = memories[1]
        there = {one.id for one in left.export(user_id="ann").episodes}
        found = {
            one.id
            for n in range(1, 4)
            for k in range(12)
            for one in left.recall(f"word{n}x{k}", limit=1, user_id="ann")
        }

        assert len(stored) == 36
        assert found == there
        assert left.profile(user_id="ann").episode_count == len(there)
        assert [outcome(left.episode, name, user_id="ann") for name in stored].count("done") == (
            len(there)
        )

    def test_memory_G8_an_item_that_is_decided_just_before_the_commit_goes_too(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        (said,) = say(memory, "her pin is 4711")
        request = item_request("her pin is 4711", "ann") | {"source_refs": [said]}
        batch = handle.items.propose([request], user_id="ann").batch_id
        other = handle.items.propose([item_request("bobs thing", "bob")], user_id="bob").batch_id
        memory._forgetting._store = Meanwhile(  # type: ignore[assignment]
            memory._store, lambda: handle.items.commit(batch, reviewer="rev")
        )
        memory.forget(user_id="ann", session_id="s")
        handle.items.commit(other, reviewer="rev")

        assert not any("4711" in told or said in told for told in kept(handle))
        assert any("bobs thing" in told for told in kept(handle))

    @pytest.mark.parametrize("whole", [True, False])
    def test_memory_G8_what_is_stored_just_before_the_commit_goes_too(
        self, backend: Backend, memory: Memory, whole: bool
    ) -> None:
        other = Memory(backend.open(), embedder=None)
        late = episode("late", id="late")
        say(memory, "early")
        memory._forgetting._store = Meanwhile(  # type: ignore[assignment]
            memory._store, lambda: other.remember(late)
        )
        receipt = memory.forget(user_id="ann", session_id=None if whole else "s")

        assert (receipt.counts["episodes"], export_lines(other)) == (2, [])
        assert outcome(other.remember, late) == "Forbidden"

    def test_memory_G8_a_block_of_the_anonymous_user_that_is_stored_just_before_goes_too(
        self, backend: Backend, memory: Memory
    ) -> None:
        """A block is in no index: nothing but the condition on the user's things notices it."""
        other = Memory(backend.open(), embedder=None)
        memory.update_block("early", "x", user_id=None)
        memory._forgetting._store = Meanwhile(  # type: ignore[assignment]
            memory._store, lambda: other.update_block("late", "x", user_id=None)
        )
        receipt = memory.forget(user_id=None)

        assert (receipt.counts["blocks"], export_lines(other, None)) == (2, [])

    def test_memory_G8_a_fact_that_was_forgotten_is_refused_by_every_handle(
        self, backend: Backend, memory: Memory
    ) -> None:
        known = fact("Kyoto", id="f")
        others = [Memory(backend.open(), embedder=None) for _ in range(2)]
        memory.facts.append(known)
        memory.forget(user_id="ann")

        assert [outcome(each.facts.append, known) for each in (*others, memory)] == (
            ["Forbidden"] * 3
        )

    def test_what_an_index_in_the_making_adds_just_before_the_commit_goes_too(
        self, backend: Backend, handle: Pagefile, memory: Memory
    ) -> None:
        """The partition of the second user is indexed anew between look and leap."""
        first, second, third = sorted(["ann", "bob", "cid"], key=owner_key)
        for user in (first, second, third):
            say(memory, f"zyqword of {user}", user=user, session="s1")
        other = Memory(backend.open(), embedder=None)
        steps = [threading.Event() for _ in range(4)]
        seen: list[int] = []

        def pace(count: int) -> None:
            seen.append(count)
            if len(seen) <= 2:
                steps[2 * len(seen) - 2].set()
                assert steps[2 * len(seen) - 1].wait(30)

        def one_step() -> None:
            steps[1].set()
            assert steps[2].wait(30)

        worker = threading.Thread(target=lambda: other.reindex(pace))
        worker.start()
        assert steps[0].wait(30)
        memory._forgetting._store = Meanwhile(memory._store, one_step)  # type: ignore[assignment]
        memory.forget(user_id=second, session_id="s1")
        left = traces(backend, handle, [f"zyqword {second}", f"of {second}"])
        steps[3].set()
        worker.join(30)

        assert left == []
        assert other.profile(user_id=second).episode_count == 0
        assert other.profile(user_id=third).episode_count == 1

    def test_memory_G10_nothing_about_what_was_forgotten_grows_but_eight_bytes_each(
        self, handle: Pagefile
    ) -> None:
        memory = Memory(handle, embedder=None, extractor=Scripted())
        sizes = []
        for _ in range(2):
            memory.remember_many([episode("I like tea") for _ in range(100)])
            memory.consolidate()
            memory.forget(user_id="ann")
            documents = handle.store.names("document", limit=1_000)
            sizes.append((len(documents), sum(len(one.body) for one in noted(handle))))

        assert sizes[0][0] == sizes[1][0]
        # An episode, what became of its reading, and a fact: eight bytes each, as base64, and
        # what stands around them.
        assert sizes[1][1] - sizes[0][1] <= 100 * 3 * 8 * 4 / 3 + 80

    def test_forgetting_notes_what_it_forgets_and_puts_it_together_now_and_then(
        self, backend: Backend, handle: Pagefile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tombstones, "_MOST_PARTS", 3)
        memory = Memory(handle, embedder=None)
        many = memory.remember_many([episode(f"word{n}") for n in range(50)])
        memory.forget(user_id="ann")
        few = memory.remember_many([episode(f"word{n}") for n in range(12)])
        sizes = []
        for each in few:
            memory.forget(user_id="ann", episode_id=each)
            sizes.append([len(one.body) for one in noted(handle)])
        other = Memory(backend.open(), embedder=None)
        replayed = {outcome(other.remember, episode("again", id=each)) for each in (*many, *few)}

        assert replayed == {"Forbidden"}
        assert outcome(other.remember, episode("new")) == "done"
        # One that has all, and those that add to it; the ones before it are let go.
        assert max(map(len, sizes)) <= 5
        assert [size[-1] < 120 for size in sizes].count(False) == 3

    def test_what_was_noted_whole_each_time_is_read_and_let_go(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        ids = say(memory, "one", "two", "three")
        name = f"memory/forgotten/{owner_key('ann')}"
        for n in range(3):
            memory.forget(user_id="ann", episode_id=ids[n])
            # As it was noted before: each version has all of them.
            known = forgotten_of(handle.store, "ann")
            told = [
                base64.b64encode(each).decode() for each in (known.salt, known.whole + known.more)
            ]
            value = {"salt": told[0], "digests": told[1]}
            handle.store.commit(Batch([Put(name, value, kind="forgotten")]))
        (last,) = say(memory, "four")
        memory.forget(user_id="ann", episode_id=last)

        assert len(noted(handle)) == 2
        assert {outcome(memory.remember, episode("again", id=each)) for each in (*ids, last)} == {
            "Forbidden"
        }

    @pytest.mark.parametrize("whole", [True, False])
    def test_other_handles_find_nothing_of_it_any_more(
        self, backend: Backend, memory: Memory, whole: bool
    ) -> None:
        other = Memory(backend.open(), embedder=None)
        say(memory, "green tea", session="s1")
        say(memory, "black tea", session="s2")
        memory.facts.append(fact("teahouse", sources=["x"]))
        before = [len(each.recall("tea", user_id="ann")) for each in (memory, other)]
        other.recall_facts("teahouse", user_id="ann")
        memory.forget(user_id="ann", session_id=None if whole else "s1")
        left = [] if whole else ["black tea"]

        assert before == [2, 2]
        assert [inputs(each.recall("tea", user_id="ann")) for each in (other, memory)] == [left] * 2
        assert other.profile(user_id="ann").episode_count == len(left)
        say(other, "white tea", session="s3")
        assert inputs(memory.recall("white", limit=1, user_id="ann")) == ["white tea"]

    def test_uses_that_wait_in_another_handle_do_not_bring_a_user_back(
        self, backend: Backend, memory: Memory
    ) -> None:
        other = Memory(backend.open(), embedder=None, record_use=True)
        say(memory, "green tea")
        other.recall("tea", user_id="ann")
        memory.forget(user_id="ann")
        other.close()

        assert export_lines(memory) == []
        assert memory.users() == []

    def test_a_reviewed_candidate_can_be_committed_after_others_were_forgotten(
        self, backend: Backend, handle: Pagefile
    ) -> None:
        memory = Memory(handle, embedder=None, extractor=Scripted(lambda one: likes(one, 0.3)))
        say(memory, "I like tea", session="s1")
        say(memory, "I like jam", session="s2")
        memory.consolidate()
        Memory(backend.open(), embedder=None).forget(user_id="ann", session_id="s1")
        (waiting,) = memory.proposals.waiting(user_id="ann")
        memory.proposals.commit(waiting.id, reviewer="rev", user_id="ann")

        assert objects(memory.facts.query(user_id="ann")) == ["jam"]

    def test_a_user_can_come_back_with_something_new(self, memory: Memory) -> None:
        say(memory, "green tea")
        memory.facts.append(fact("Oslo"))
        memory.forget(user_id="ann")
        say(memory, "green tea")
        memory.facts.append(fact("Oslo"))
        memory.update_block("b", "x", user_id="ann")

        assert len(memory.recall("tea", user_id="ann")) == 1
        assert objects(memory.recall_facts("Oslo", user_id="ann")) == ["Oslo"]
        assert memory.profile(user_id="ann").fact_count == 1


def noted(handle: Pagefile) -> list[Document]:
    """The versions of what says which of Ann's ids must not come back."""
    return handle.store.history(f"memory/forgotten/{owner_key('ann')}", limit=10_000)
