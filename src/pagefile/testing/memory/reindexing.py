"""The index made anew: with progress, with another model, after a crash, while others write."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from pagefile.errors import Unavailable, Unsupported
from pagefile.handle import Pagefile
from pagefile.memory.memory import Memory
from pagefile.memory.names import owner_key
from pagefile.recall.records import read_catalogue, write_catalogue
from pagefile.store.batch import Selector
from pagefile.testing.backend import Backend
from pagefile.testing.context.ground import at_once
from pagefile.testing.memory.ground import (
    HashedWords,
    MemoryFixtures,
    episode,
    fact,
    inputs,
    objects,
    outcome,
    say,
)


class PowerCut(BaseException):
    """The end of a process, in the middle of what it does."""


def cut(count: int) -> None:
    raise PowerCut


def fill(memory: Memory, users: int = 3, each: int = 5) -> None:
    for user in range(users):
        memory.remember_many(
            [episode(f"plan{n} of user{user}", f"u{user}", id=f"e{n}") for n in range(each)]
        )
        memory.facts.append(fact(f"place{user}", f"u{user}"))


class ReindexingContract(MemoryFixtures):
    """What is derived can be derived again."""

    def test_erasing_nobodys_data_leaves_what_the_index_is_made_with(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        say(memory, "I like tea")
        handle.store.erase(Selector(anonymous=True))
        again = Memory(handle, embedder=None)
        say(again, "I like jam")

        assert sorted(inputs(again.recall("like", user_id="ann"))) == ["I like jam", "I like tea"]

    def test_what_the_index_is_made_with_is_erased_and_told(self, handle: Pagefile) -> None:
        memory = Memory(handle, embedder=None)
        say(memory, "I like tea")
        handle.store.erase(Selector(document="recall-model"))
        told = outcome(say, Memory(handle, embedder=None), "I like jam")
        mended = Memory(handle, embedder=None)
        mended.reindex()
        say(mended, "I like figs")

        assert told == "Corrupt"
        assert sorted(inputs(mended.recall("like", user_id="ann"))) == ["I like figs", "I like tea"]

    def test_it_says_how_far_it_is_and_changes_no_answer(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        fill(memory)
        asked = [(f"plan{n}", f"u{n % 3}") for n in range(5)]
        before = [inputs(memory.recall(text, user_id=user)) for text, user in asked]
        progress: list[int] = []
        count = memory.reindex(progress.append)

        assert (count, progress[-1], progress == sorted(progress)) == (18, 18, True)
        assert [inputs(memory.recall(text, user_id=user)) for text, user in asked] == before
        assert objects(memory.recall_facts("place1", user_id="u1")) == ["place1"]
        assert handle.store.names("log", prefix="recall/1/") == []

    def test_another_model_takes_over_for_everybody(self, backend: Backend) -> None:
        old = Memory(backend.open(), embedder=None)
        fill(old)
        embedder = HashedWords()
        new = Memory(backend.open(), embedder=embedder)
        with pytest.raises(Unsupported):
            new.recall("plan1", user_id="u1")
        new.reindex()
        match = new.recall_scored("plan1 of user1", user_id="u1")[0]

        assert embedder.texts >= 18
        assert (match.episode.input, match.vector_score is None) == ("plan1 of user1", False)
        assert outcome(old.recall, "plan1", user_id="u1") == "Unsupported"
        assert outcome(say, old, "more") == "Unsupported"

    def test_one_that_was_cut_off_is_done_again(self, backend: Backend, handle: Pagefile) -> None:
        before = Memory(handle, embedder=None)
        fill(before)
        for _ in range(3):
            with pytest.raises(PowerCut):
                Memory(backend.open(), embedder=HashedWords()).reindex(cut)
        memory = Memory(backend.open(), embedder=HashedWords())
        half = read_catalogue(handle.store)
        assert half is not None
        say(before, "said in between", user="u0")
        count = memory.reindex()
        whole = read_catalogue(handle.store)
        assert whole is not None

        assert (half.is_alone, whole.is_alone, count) == (False, True, 19)
        assert inputs(memory.recall("plan4 of user2", limit=1, user_id="u2")) == ["plan4 of user2"]
        assert inputs(memory.recall("said in between", limit=1, user_id="u0")) == [
            "said in between"
        ]
        logs = handle.store.names("log", prefix="recall/", limit=100)
        assert {name.split("/")[1] for name in logs} == {str(whole.generation)}

    def test_until_it_is_done_the_old_one_answers_whole_whether_it_fails_or_goes_on(
        self, backend: Backend
    ) -> None:
        class Fails(HashedWords):
            def embed_batch(self, texts: Sequence[str]) -> list[list[float]]:
                if self.texts >= 5:
                    raise RuntimeError("server down")
                return super().embed_batch(texts)

        old = Memory(backend.open(), embedder=None)
        fill(old)
        new = Memory(backend.open(), embedder=Fails())
        with pytest.raises(Unavailable, match="server down") as failed:
            new.reindex()
        assert "as it was before" in failed.value.next_step
        with pytest.raises(Unsupported, match="with the same embedder"):
            new.recall("plan", user_id="u1")

        def meanwhile(count: int) -> None:
            for n in range(3):
                asked = f"plan4 of user{n}"
                whole = inputs(old.recall(asked, limit=1, user_id=f"u{n}")) == [asked]
                told.append((whole, outcome(done.recall, asked, user_id=f"u{n}")))
            old.remember(episode(f"kiwi user{count}", "u0", id=f"kiwi{count}"))
            old.remember(episode("plan0 was changed", "u1", id="e0"))
            old.facts.append(fact("Quito", "u2", id="quito"))

        told: list[tuple[bool, str]] = []
        done = Memory(backend.open(), embedder=HashedWords())
        assert done.reindex(lambda count: meanwhile(count) if len(told) < 9 else None) >= 18
        assert told == [(True, "Unsupported")] * 9
        assert {e.id for e in done.recall("kiwi", limit=20, user_id="u0")} >= {"kiwi5", "kiwi15"}
        assert inputs(done.recall("changed", limit=1, user_id="u1")) == ["plan0 was changed"]
        assert objects(done.recall_facts("Quito", limit=1, user_id="u2")) == ["Quito"]
        assert done.profile(user_id="u1").episode_count == 5
        assert outcome(old.recall, "plan", user_id="u1") == "Unsupported"

    def test_half_an_index_of_an_earlier_version_answers_nothing_until_it_is_made_anew(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        fill(memory)
        held = read_catalogue(handle.store)
        assert held is not None
        write_catalogue(handle.store, msgspec.structs.replace(held, rebuilding=True))
        with pytest.raises(Unavailable, match="only a part"):
            memory.recall("plan1", user_id="u1")
        say(memory, "apricot", user="u1")
        memory.reindex()

        assert inputs(memory.recall("plan1", limit=1, user_id="u1")) == ["plan1 of user1"]
        assert inputs(memory.recall("apricot", limit=1, user_id="u1")) == ["apricot"]

    def test_a_vector_that_was_given_is_kept_with_the_same_model_and_no_other(
        self, handle: Pagefile
    ) -> None:
        memory = Memory(handle, embedder=HashedWords())
        given = HashedWords().embed("sailing to Crete")
        memory.remember(episode("the usual", session="s1", id="given", embedding=given))
        memory.remember(episode("also usual", session="s2", id="again", embedding=given))
        memory.remember(episode("also usual!", session="s2", id="again"))
        asked = "sailing to Crete"
        before = [match.score for match in memory.recall_scored(asked, alpha=1, user_id="ann")]
        memory.remember(episode("hello", "bob"))

        def meanwhile(count: int) -> None:
            memory.remember(episode("late", session="s3", id="late", embedding=given))

        memory.reindex(meanwhile)
        after = memory.recall_scored(asked, alpha=1, user_id="ann")

        assert {after[0].episode.input, after[1].episode.input} == {"the usual", "late"}
        assert after[0].vector_score == pytest.approx(1, abs=1e-3)
        assert before[0] == pytest.approx(after[0].score)
        other = Memory(handle, embedder=HashedWords("another"))
        other.reindex()
        best = other.recall_scored(asked, alpha=1, user_id="ann")[0]
        assert best.vector_score is not None
        assert best.vector_score < 0.9

    def test_turns_of_one_moment_keep_their_order(self, memory: Memory) -> None:
        talk = ("Any pets?", "Yes, a parrot.", "Its name?", "Kiwi.", "And your home?", "In Lisbon.")
        memory.remember_many([episode(text, id=f"e{9 - n}") for n, text in enumerate(talk)])
        found = memory.recall_scored("What is the name of the parrot?", user_id="ann")
        memory.reindex()

        assert memory.recall_scored("What is the name of the parrot?", user_id="ann") == found

    def test_what_others_write_and_forget_meanwhile_is_so_afterwards(
        self, backend: Backend, memory: Memory
    ) -> None:
        fill(memory)
        other = Memory(backend.open(), embedder=None)
        _, gone, stays = sorted(["u0", "u1", "u2"], key=owner_key)
        place = f"place{gone[1]}"
        seen: list[int] = []

        def meanwhile(count: int) -> None:
            seen.append(count)
            say(other, f"apricot{len(seen)}", user=stays, session=f"x{len(seen)}")
            if len(seen) == 1:
                # The first of the next partition has been read already, and is not yet indexed.
                other.forget(user_id=gone)
                other.remember(episode("changed", stays, id="e0"))

        memory.reindex(meanwhile)

        assert len(seen) >= 2
        for each in (memory, other, Memory(backend.open(), embedder=None)):
            assert each.recall("plan0", user_id=gone) == []
            assert each.recall_facts(place, user_id=gone) == []
            assert each.profile(user_id=gone).episode_count == 0
            assert inputs(each.recall("apricot1", limit=1, user_id=stays)) == ["apricot1"]
            assert inputs(each.recall("changed", limit=1, user_id=stays)) == ["changed"]
            assert each.profile(user_id=stays).episode_count == 5 + len(seen)

    def test_of_handles_that_race_for_the_first_write_one_model_wins(
        self, backend: Backend
    ) -> None:
        same = [Memory(backend.open(), embedder=HashedWords()) for _ in range(6)]
        at_once(lambda n: say(same[n], f"apple{n}", session=str(n)), 6)
        other = [
            Memory(backend.open("two"), embedder=HashedWords(f"model{n % 2}")) for n in range(6)
        ]
        told = at_once(lambda n: outcome(say, other[n], f"apple{n}", session=str(n)), 6)
        found = {inputs(same[0].recall(f"apple{n}", limit=1, user_id="ann"))[0] for n in range(6)}

        assert found == {f"apple{n}" for n in range(6)}
        assert sorted(told) == ["Unsupported"] * 3 + ["done"] * 3
        assert len({told[n] for n in (0, 2, 4)}) == len({told[n] for n in (1, 3, 5)}) == 1

    def test_an_index_of_another_model_keeps_nobody_from_being_forgotten(
        self, handle: Pagefile
    ) -> None:
        say(Memory(handle, embedder=HashedWords()), "hello world")
        other = Memory(handle, embedder=None)

        assert other.profile(user_id="ann").episode_count == 1
        assert other.forget(user_id="ann").counts["episodes"] == 1
        assert handle.store.verify()

    def test_an_empty_index_can_be_made_anew(self, memory: Memory) -> None:
        assert memory.reindex() == 0
        say(memory, "hello")
        assert inputs(memory.recall("hello", user_id="ann")) == ["hello"]
