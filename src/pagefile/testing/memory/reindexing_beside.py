"""The index made anew while others store, search and do the same, and where it ends early."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from pagefile.errors import Conflict, Corrupt, Unavailable
from pagefile.handle import Pagefile
from pagefile.memory.memory import Memory
from pagefile.memory.names import owner_key
from pagefile.recall import rebuild
from pagefile.recall.records import DOCUMENT, read_catalogue
from pagefile.store.batch import Batch, Put
from pagefile.store.store import Store
from pagefile.testing.backend import Backend
from pagefile.testing.memory.ground import (
    HashedWords,
    MemoryFixtures,
    episode,
    inputs,
    outcome,
    say,
)
from pagefile.testing.memory.reindexing import PowerCut, cut, fill


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
