"""Why something is known, and who used it."""

from __future__ import annotations

import pytest

from pagefile.errors import NotFound
from pagefile.handle import Pagefile
from pagefile.memory.episodes.episode import document_of
from pagefile.memory.memory import Memory
from pagefile.testing.backend import Backend
from pagefile.testing.memory.ground import (
    HOUR,
    START,
    Clock,
    MemoryFixtures,
    Scripted,
    fact,
    item_request,
    kept,
    likes,
    say,
)


class ProvenanceContract(MemoryFixtures):
    """`why`, for whatever an id names."""

    def test_an_episode_says_where_it_was_said_and_who_used_it(self, handle: Pagefile) -> None:
        clock = Clock()
        memory = Memory(handle, embedder=None, record_use=True, clock=clock)
        tea, jam = say(memory, "green tea", "red jam")
        memory.recall("green tea", user_id="ann")
        clock.passes(hours=1)
        memory.recall("red jam", user_id="ann")
        told = memory.why(tea, user_id="ann")

        assert (told.kind, told.text, told.sources) == ("episode", "green tea", ("s",))
        assert [(use.at, use.rank) for use in told.uses] == [(START + HOUR, 1), (START, 0)]
        assert [use.rank for use in memory.why(jam, user_id="ann").uses] == [0, 1]
        assert len({use.recall_id for use in told.uses}) == 2

    def test_what_was_asked_is_never_written_down(self, handle: Pagefile) -> None:
        memory = Memory(handle, embedder=None, record_use=True)
        (tea,) = say(memory, "green tea")
        memory.facts.append(fact("teahouse"))
        memory.recall("zyqsecret tea", user_id="ann")
        memory.recall_facts("zyqsecret teahouse", user_id="ann")
        uses = memory.why(tea, user_id="ann").uses

        assert (len(uses), [line for line in kept(handle) if "zyq" in line]) == (1, [])

    def test_a_search_notes_what_it_gives_back_and_nothing_else(self, handle: Pagefile) -> None:
        memory = Memory(handle, embedder=None, record_use=True)
        (tea,) = say(memory, "green tea")
        early = memory.facts.append(fact("a tea house", valid_from=START - 9 * HOUR, id="early"))
        late = memory.facts.append(fact("tea", predicate="likes", id="late"))
        batch = handle.items.propose([item_request("buys tea", "ann")], user_id="ann")
        handle.items.commit(batch.batch_id, reviewer="rev")
        since = (START - HOUR, None)
        found = memory.search("tea", time_range=since, user_id="ann")
        memory.search("tea", limit=1, kinds=["episode", "item"], user_id="ann")
        (item,) = [one.id for one in found if one.kind == "item"]
        uses = {name: memory.why(name, user_id="ann").uses for name in (tea, early, late, item)}

        assert {name: len(some) for name, some in uses.items()} == {
            tea: 2,
            early: 0,
            late: 1,
            item: 1,
        }
        assert {some[-1].recall_id for some in uses.values() if some} == {uses[item][0].recall_id}
        assert [one.id for one in found] == sorted(
            (tea, late, item), key=lambda name: uses[name][-1].rank
        )

    def test_nothing_is_noted_unless_it_is_switched_on(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        (tea,) = say(memory, "green tea")
        head = handle.store.head()
        memory.recall("tea", user_id="ann")

        assert (memory.why(tea, user_id="ann").uses, handle.store.head()) == ((), head)

    def test_uses_are_stored_together_and_with_the_close(
        self, backend: Backend, handle: Pagefile
    ) -> None:
        memory = Memory(handle, embedder=None, record_use=True)
        (tea,) = say(memory, "green tea")
        head = handle.store.head()
        for _ in range(100):
            memory.recall("tea", user_id="ann")
        before = handle.store.head()
        memory.close()

        assert (before, handle.store.head().position) == (head, head.position + 1)
        assert len(Memory(backend.open(), embedder=None).why(tea, user_id="ann").uses) == 100

    def test_of_very_many_uses_the_newest_are_told_and_that_there_were_more(
        self, handle: Pagefile
    ) -> None:
        memory = Memory(handle, embedder=None, record_use=True)
        (tea,) = say(memory, "green tea")
        for _ in range(1_000):
            memory._uses.note("ann", [document_of(tea, "ann")])
        all_told = memory.why(tea, user_id="ann")
        memory.recall("tea", user_id="ann")
        cut = memory.why(tea, user_id="ann")

        assert (len(all_told.uses), all_told.uses_cut) == (1_000, False)
        assert (len(cut.uses), cut.uses_cut) == (1_000, True)

    def test_a_fact_says_who_let_it_in_and_what_it_replaced(self, handle: Pagefile) -> None:
        memory = Memory(
            handle,
            embedder=None,
            record_use=True,
            extractor=Scripted(lambda one: likes(one, 0.5)),
        )
        memory.facts.append(fact("Oslo", id="f1", valid_from=START - 9 * HOUR, actor="ann"))
        memory.facts.append(
            fact("Kyoto", id="f2", valid_from=START - 5 * HOUR, reason="moved", sources=["slot:1"])
        )
        (name,) = say(memory, "I like tea")
        memory.consolidate()
        (tea,) = memory.proposals.waiting(user_id="ann")
        memory.proposals.commit(tea.id, reviewer="rev", user_id="ann")
        memory.recall_facts("Kyoto", user_id="ann")
        kyoto, oslo, liked = (memory.why(one, user_id="ann") for one in ("f2", "f1", tea.id))

        assert (kyoto.kind, kyoto.supersedes, kyoto.reason) == ("fact", ("f1",), "moved")
        assert (oslo.superseded_by, oslo.committed_by) == (("f2",), "ann")
        assert (len(kyoto.uses), kyoto.sources) == (1, ("slot:1",))
        assert (liked.proposed_by, liked.committed_by) == ("scripted/1", "rev")
        assert liked.sources == (name,)

    def test_an_item_says_who_proposed_it_and_who_let_it_in(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        request = {**item_request("prefers metric units", "ann"), "memory_id": "units"}
        batch = handle.items.propose([request], user_id="ann").batch_id
        handle.items.commit(batch, reviewer="rev")
        told = memory.why("units", user_id="ann")

        assert (told.kind, told.text) == ("item", "prefers metric units")
        assert (told.proposed_in, told.committed_by, told.sources) == (batch, "rev", ("slot:1",))
        assert (told.proposed_by, told.status, told.reason) == ("", "active", "said so")

    def test_an_item_that_was_replaced_still_says_who_let_it_in(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        for new, old, who in (("tea", [], "alice"), ("coffee", ["tea"], "bob")):
            request = {
                **item_request(f"likes {new}", "ann"),
                "memory_id": new,
                "op": "supersede" if old else "add",
                "supersedes": old,
                "rationale": f"she said {new}",
            }
            batch = handle.items.propose([request], user_id="ann", run_id=f"run-{who}").batch_id
            handle.items.commit(batch, reviewer=who)
        tea, coffee = (memory.why(one, user_id="ann") for one in ("tea", "coffee"))
        handle.items.undo(batch, reviewer="carl")
        again, gone = (memory.why(one, user_id="ann") for one in ("tea", "coffee"))

        assert (tea.committed_by, tea.reason, tea.status) == ("alice", "she said tea", "superseded")
        assert (tea.proposed_by, tea.superseded_by) == ("run-alice", ("coffee",))
        assert (coffee.committed_by, coffee.reason, coffee.proposed_in) == (
            "bob",
            "she said coffee",
            batch,
        )
        assert (again.committed_by, again.reason, again.status) == (
            "alice",
            "she said tea",
            "active",
        )
        assert (gone.committed_by, gone.status) == ("bob", "rejected")

    def test_an_item_of_many_versions_is_told_as_it_is_now(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        for n in range(60):
            request = {**item_request(f"likes tea{n}", "ann"), "memory_id": "tea-item"}
            batch = handle.items.propose([request], user_id="ann").batch_id
            handle.items.commit(batch, reviewer=f"rev{n}")
            if n < 59:
                handle.items.undo(batch, reviewer="rev")
        told = memory.why("tea-item", user_id="ann")

        assert (told.text, told.committed_by, told.status) == ("likes tea59", "rev59", "active")
        assert len(told.details) == 119

    def test_a_candidate_is_told_as_one_until_it_is_a_fact(self, handle: Pagefile) -> None:
        memory = Memory(handle, embedder=None, extractor=Scripted(lambda one: likes(one, 0.3)))
        (name, _) = say(memory, "maybe tea", "maybe jam")
        memory.consolidate()
        tea, jam = memory.proposals.waiting(user_id="ann")
        waiting = memory.why(tea.id, user_id="ann")
        memory.proposals.commit(tea.id, reviewer="rev", user_id="ann")
        memory.proposals.reject(jam.id, reviewer="rev", reason="a joke", user_id="ann")
        fact, no = (memory.why(one.id, user_id="ann") for one in (tea, jam))

        assert (waiting.kind, waiting.status, waiting.sources) == ("candidate", "proposed", (name,))
        assert (waiting.proposed_by, waiting.committed_by) == ("scripted/1", "")
        assert (fact.kind, fact.status, fact.committed_by) == ("fact", "active", "rev")
        assert (no.kind, no.status, no.committed_by, no.reason) == (
            "candidate",
            "rejected",
            "rev",
            "a joke",
        )
        with pytest.raises(NotFound):
            memory.why(tea.id, user_id="bob")

    def test_what_is_anothers_is_not_explained(self, memory: Memory) -> None:
        (name,) = say(memory, "green tea", user="bob")
        memory.facts.append(fact("Oslo", "bob", id="f1"))
        for one in (name, "f1", "unknown"):
            with pytest.raises(NotFound):
                memory.why(one, user_id="ann")

    def test_a_source_that_was_forgotten_is_not_told(self, memory: Memory) -> None:
        one, two = say(memory, "one", session="s1"), say(memory, "two", session="s2")
        memory.facts.append(fact("Oslo", id="f1", sources=[*one, *two]))
        memory.forget(user_id="ann", session_id="s1")
        (known,) = memory.facts.query(user_id="ann")

        assert memory.why(known.id, user_id="ann").sources == tuple(two)
        with pytest.raises(NotFound):
            memory.why(one[0], user_id="ann")
