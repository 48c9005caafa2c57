"""The index made again: with progress, after a crash, and while others write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from pagefile.errors import Conflict, Corrupt, Unavailable, Unsupported
from pagefile.handle import Pagefile
from pagefile.memory.documents import owner_key
from pagefile.memory.memory import Memory
from pagefile.recall import index as rebuild
from pagefile.recall.records import DOCUMENT, read_catalogue, write_catalogue
from pagefile.store.batch import Batch, Put, Selector
from pagefile.store.store import Store
from pagefile.testing.backend import Backend
from pagefile.testing.context.fixtures import at_once
from pagefile.testing.memory.fixtures import (
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


class Hooked(HashedWords):
    """While it embeds for the n-th time, something happens."""

    def __init__(self, happens: Callable[[int], object], name: str = "hashed-words") -> None:
        super().__init__(name)
        self.happens = happens
        self.calls = 0

    def embed_batch(self, texts: Sequence[str]) -> list[list[float]]:
        self.calls += 1
        self.happens(self.calls)
        return super().embed_batch(texts)


class WhileRead:
    """A store on which something else happens just before a log is read for the n-th time."""

    def __init__(self, store: Store, number: int, work: Callable[[], object]) -> None:
        self._store = store
        self._left = number
        self._work = work

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def read(self, log: str, start: int = 0, *, limit: int) -> Any:
        self._left -= 1
        if self._left == 0:
            self._work()
        return self._store.read(log, start, limit=limit)


class ReindexingBesideContract(MemoryFixtures):
    """Nothing is lost, whoever does what at the same time."""

    @pytest.mark.parametrize("end", [RuntimeError, PowerCut, KeyboardInterrupt])
    def test_wherever_it_ends_early_nothing_that_was_stored_beside_it_is_lost(
        self, backend: Backend, handle: Pagefile, end: type[BaseException]
    ) -> None:
        old, said = Memory(handle, embedder=None), list[str]()

        def ends_in(last: int) -> Callable[[int], None]:
            def happens(call: int) -> None:
                said.append(f"plan {last} {call}")
                say(old, said[-1], user="u0", session=said[-1])
                if call == last:
                    raise end

            return happens

        fill(old, users=1)
        for last in range(1, 6):
            new = Memory(backend.open(), embedder=Hooked(ends_in(last)))
            with pytest.raises((Unavailable, PowerCut, KeyboardInterrupt)):
                new.reindex()
            found = inputs(old.recall("plan", limit=100, user_id="u0"))
            assert {text for text in found if "of" not in text} == set(said)
            held = read_catalogue(handle.store)
            assert held is not None
            logs = handle.store.names("log", prefix="recall/")
            given_up = (held.is_alone, logs == [f"recall/1/{owner_key('u0')}"])
            assert given_up == ((False, False) if end is PowerCut else (True, True))
        assert Memory(backend.open(), embedder=HashedWords()).reindex() == 6 + len(said)
        assert len(handle.store.names("log", prefix="recall/")) == 1

    def test_who_stores_without_a_pause_cannot_keep_it_from_its_end(
        self, backend: Backend, handle: Pagefile, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(rebuild, "_ROUNDS", 4)
        other, given = Memory(backend.open(), embedder=HashedWords()), HashedWords().embed("Crete")
        texts, given_ids, calls = ["kiwi"], list[str](), list[bool]()

        def happens(call: int) -> None:
            held = read_catalogue(handle.store)
            assert held is not None
            calls.append(held.making != 0)
            if fails and not calls[-1]:
                raise RuntimeError("server down")
            if calls[-1]:
                texts.append(f"kiwi {call} {fails}")
                say(other, texts[-1], session=texts[-1])
            if calls[-1] and not fails:
                more = episode("usual", session=f"given {call}", embedding=given)
                given_ids.append(other.remember(more))

        say(other, "kiwi")
        memory, fails = Memory(handle, embedder=Hooked(happens)), True
        with pytest.raises(Unavailable, match="server down") as failed:
            memory.reindex()
        assert "in force without what was stored last" in failed.value.next_step
        fails = False
        memory.reindex()

        assert calls == [*[True] * 5, False] * 2
        found = memory.recall_scored("Crete", limit=100, alpha=1, user_id="ann")
        near = {match.episode.id for match in found if (match.vector_score or 0) > 0.99}
        assert near == set(given_ids)
        assert sorted(inputs(m.episode for m in found)) == sorted([*texts, *["usual"] * len(near)])

    def test_what_is_stored_beside_it_is_added_without_reading_all_there_is(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        memory.remember_many([episode(f"plan {n}", id=f"e{n}") for n in range(1_000)])
        memory.remember_many([episode(f"more {n}", id=f"m{n}") for n in range(1_000)])
        held, since = read_catalogue(handle.store), handle.store.head().position
        assert held is not None
        names = [episode("", id=f"e{n}").document for n in range(3)]
        for n in range(3):
            memory.remember(episode(f"changed {n}", id=f"e{n}"))
        read = WhileRead(handle.store, 4, lambda: pytest.fail("read on"))
        memory._index._store = read  # type: ignore[assignment]
        found = list(memory._findables.named(names, held, since))

        assert [source.thing.text for source in found] == [f"changed {n}" for n in range(3)]

    def test_what_is_put_again_without_being_indexed_keeps_the_vector_it_was_given(
        self, handle: Pagefile
    ) -> None:
        memory = Memory(handle, embedder=HashedWords())
        given = episode("usual", id="given", embedding=HashedWords().embed("sailing to Crete"))
        memory.remember(given)
        memory.remember_many([episode(f"plan {n}", id=f"e{n}") for n in range(600)])

        def meanwhile(count: int) -> None:
            found = handle.store.get(given.document)
            assert found is not None
            put = Put(found.name, found.value, user="ann", kind=found.kind)
            handle.store.commit(Batch([put]))

        memory.reindex(meanwhile)
        best = memory.recall_scored("sailing to Crete", limit=1, alpha=1, user_id="ann")[0]

        assert best.episode.id == "given"
        assert best.vector_score == pytest.approx(1, abs=1e-3)

    def test_of_two_at_once_the_first_is_told_of_the_second_which_goes_on(
        self, backend: Backend, handle: Pagefile
    ) -> None:
        old = Memory(handle, embedder=None)
        fill(old)

        def second(call: int) -> None:
            if call == 1:
                with pytest.raises(Conflict, match="another reindex") as refused:
                    Memory(backend.open(), embedder=Hooked(third)).reindex()
                told.append(refused.value)

        def third(call: int) -> None:
            if call == 2:
                assert Memory(backend.open(), embedder=None).reindex() == 18

        told: list[Conflict] = []
        with pytest.raises(Conflict, match="another reindex") as refused:
            Memory(backend.open(), embedder=Hooked(second, "another")).reindex()
        told.append(refused.value)

        assert ["wait" in each.next_step for each in told] == [True, True]
        assert inputs(old.recall("plan4 of user2", limit=1, user_id="u2")) == ["plan4 of user2"]
        logs = handle.store.names("log", prefix="recall/")
        assert [name.split("/")[1] for name in logs] == ["4"] * 3

    def test_where_nothing_says_what_made_it_it_is_made_anew(
        self, backend: Backend, handle: Pagefile
    ) -> None:
        given = HashedWords().embed("sailing to Crete")
        before = Memory(handle, embedder=HashedWords())
        fill(before)
        before.reindex()
        before.remember(episode("the usual", embedding=given))
        handle.store.commit(Batch([Put(DOCUMENT, {"model": "?"}, kind="recall")]))
        memory = Memory(backend.open(), embedder=HashedWords("another"))
        with pytest.raises(Corrupt, match="reindex"):
            memory.recall("plan", user_id="u1")
        with pytest.raises(PowerCut):
            Memory(backend.open(), embedder=Hooked(cut, "another")).reindex()
        assert outcome(memory.recall, "plan", user_id="u1") == "Unsupported"
        before.forget(user_id="u0")

        assert memory.reindex() == 13
        assert inputs(memory.recall("plan1", limit=1, user_id="u1")) == ["plan1 of user1"]
        assert memory.recall("plan1", user_id="u0") == []
        logs = handle.store.names("log", prefix="recall/", limit=100)
        assert {name.split("/")[1] for name in logs} == {"4"}
        whole = read_catalogue(handle.store)
        assert whole is not None
        assert (whole.is_alone, whole.model.name) == (True, "another")

    @pytest.mark.parametrize("number", [1, 2, 3])
    def test_who_reads_the_old_one_while_it_is_dropped_finds_everything(
        self, backend: Backend, memory: Memory, number: int
    ) -> None:
        memory.remember_many([episode(f"plan {n}", id=f"e{n}") for n in range(600)])
        whose = owner_key("ann")

        def reading() -> Memory:
            other = Memory(backend.open(), embedder=None)
            beside: Any = WhileRead(other._store, number, memory.reindex)
            other._index._store = other._shelf._store = beside
            return other

        assert reading().profile(user_id="ann").episode_count == 600
        assert len(reading().recall("plan", limit=1_000, user_id="ann")) == 600
        assert len(reading()._index.texts(whose, "episode")) == 600
