"""Why something is known, who used it, and what goes when its source goes."""

from __future__ import annotations

from typing import Any

import pytest

from pagefile.errors import NotFound
from pagefile.handle import Pagefile
from pagefile.memory.episodes.episode import document_of
from pagefile.memory.extraction.candidate import Candidate, Exchange
from pagefile.memory.memory import Memory
from pagefile.testing.backend import Backend, promise
from pagefile.testing.memory.fixtures import (
    HOUR,
    START,
    Clock,
    MemoryFixtures,
    Scripted,
    episode,
    fact,
    item_request,
    kept,
    likes,
    objects,
    outcome,
    say,
    traces,
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


class DerivingContract(MemoryFixtures):
    """Items, facts from slots, runs on the session's thread."""

    @promise("S9")
    def test_a_session_takes_all_along_that_rests_on_it_alone(
        self, backend: Backend, handle: Pagefile, memory: Memory
    ) -> None:
        ids = say(memory, "my pin is zyqpin", session="s1")
        handle.context.append("s1", "my pin is zyqpin", "ann", "bot", user_id="ann")
        commit(handle, request("her pin is zyqpin", "pin-of-item", ids))
        commit(handle, request("the pin again: zyqpin", "pin-of-slot", ["s1/0"]))
        stage(handle, request("still zyqpin", "pin-staged", [*ids, "s1/0"]))
        memory.facts.append(fact("zyqpin", predicate="pin", sources=("s1/0",)))
        run = handle.runs.boot("use zyqpin", run_id="r1", user_id="ann", thread_id="s1")
        run.update(lambda ws: {"next_action": "zyqpin"})
        run.milestone("zyqpin")
        would = memory.forget(user_id="ann", session_id="s1", dry_run=True)
        done = memory.forget(user_id="ann", session_id="s1")

        assert (would, would.counts) == (done, done.counts)
        assert done.counts["items"] == 2
        assert (done.counts["facts"], done.counts["runs"], done.counts["milestones"]) == (1, 1, 1)
        assert memory.search("pin zyqpin", user_id="ann") == []
        assert outcome(handle.runs.open, "r1") == "NotFound"
        assert list(memory.export(user_id="ann"))[1:-1] == []
        assert traces(backend, handle, ["zyqpin", *ids]) == []

    def test_what_rests_on_something_else_too_stays_and_names_nothing_that_is_gone(
        self, backend: Backend, handle: Pagefile, memory: Memory
    ) -> None:
        (gone,), (stays,) = say(memory, "one", session="s1"), say(memory, "two", session="s2")
        handle.runs.boot("another's", run_id="of-bob", user_id="bob", thread_id="s1")
        for thread in ("s1", "s2"):
            handle.context.append(thread, "said", "ann", "bot", user_id="ann")
        both = [gone, "s1/0", stays, "s2/0"]
        commit(handle, request("of both", "of-both", both), request("of one", "of-one", [gone]))
        memory.facts.append(fact("Oslo", sources=("s1/0", "s2/0")))
        handle.runs.boot("other", run_id="elsewhere", user_id="ann", thread_id="s2")
        would = memory.forget(user_id="ann", session_id="s1", dry_run=True)
        done = memory.forget(user_id="ann", session_id="s1")
        (known,) = memory.facts.query(user_id="ann")
        again = memory.forget(user_id="ann", session_id="s1")

        assert (would, would.counts) == (done, done.counts)
        assert done.counts["items"] == 1
        assert (known.object, known.sources) == ("Oslo", ("s2/0",))
        assert memory.why("of-both", user_id="ann").sources == (stays, "s2/0")
        assert outcome(memory.why, "of-one", user_id="ann") == "NotFound"
        assert [handle.runs.exists(run_id) for run_id in ("elsewhere", "of-bob")] == [True, True]
        assert traces(backend, handle, [gone, "s1/0"]) == []
        assert again == 0

    def test_an_item_that_ended_because_of_what_is_gone_is_active_again(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        (stays,), (gone,) = say(memory, "tea", session="s1"), say(memory, "coffee", session="s2")
        commit(handle, request("likes tea", "tea-item", [stays]))
        commit(handle, request("has a cat", "cat-item", [stays]))
        later = request("likes coffee", "coffee-item", [gone])
        commit(handle, later | {"op": "supersede", "supersedes": ["tea-item"]})
        ended = request("no cat", "no-item", [gone])
        commit(handle, ended | {"op": "deprecate", "target_memory_id": "cat-item"})
        before = [one.status for one in known_items(handle)]
        memory.forget(user_id="ann", session_id="s2")

        assert sorted(before) == ["active", "deprecated", "superseded"]
        assert [(one.memory_id, one.status) for one in known_items(handle)] == [
            ("cat-item", "active"),
            ("tea-item", "active"),
        ]
        assert all(one.superseded_by is None for one in known_items(handle))

    @pytest.mark.parametrize("order", [("s1", "s3"), ("s3", "s1")])
    def test_an_item_that_rests_on_something_stays_in_whatever_order_the_rest_goes(
        self, backend: Backend, handle: Pagefile, memory: Memory, order: tuple[str, str]
    ) -> None:
        first, stays, later = (say(memory, s, session=s)[0] for s in ("s1", "s2", "s3"))
        commit(handle, request("likes tea", "tea-item", [first, stays]))
        coffee = request("likes coffee", "coffee-item", [later])
        commit(handle, coffee | {"op": "supersede", "supersedes": ["tea-item"]})
        for session in order:
            memory.forget(user_id="ann", session_id=session)
        (left,) = known_items(handle)

        assert (left.memory_id, left.status, left.source_refs) == ("tea-item", "active", (stays,))
        assert traces(backend, handle, [first, later]) == []

    def test_an_item_that_loses_a_source_keeps_its_history_and_can_be_undone(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        first, stays, later = (say(memory, s, session=s)[0] for s in ("s1", "s2", "s3"))
        commit(handle, request("has a cat", "cat-item", [stays]))
        commit(handle, request("likes tea", "tea-item", [first, stays]) | {"rationale": "said"})
        changed = stage(
            handle,
            request("likes coffee", "coffee-item", [first, later])
            | {"op": "supersede", "supersedes": ["tea-item", "cat-item"]},
        )
        handle.items.commit(changed, reviewer="another")
        would = memory.forget(user_id="ann", session_id="s1", dry_run=True)
        done = memory.forget(user_id="ann", session_id="s1")
        told = memory.why("tea-item", user_id="ann")
        histories = [
            [(one.item.status, one.cause.by) for one in handle.items.history(each, user_id="ann")]
            for each in ("tea-item", "cat-item")
        ]
        handle.items.undo(changed, reviewer="rev")

        assert (would, would.counts) == (done, done.counts)
        assert (told.committed_by, told.reason, told.sources) == ("rev", "said", (stays,))
        assert histories == [[("active", "rev"), ("superseded", "another")]] * 2
        assert [(one.memory_id, one.status) for one in known_items(handle)] == [
            ("cat-item", "active"),
            ("coffee-item", "rejected"),
            ("tea-item", "active"),
        ]

    @pytest.mark.parametrize("order", [("s1", "s3"), ("s3", "s1")])
    def test_a_fact_that_was_ended_holds_again_when_what_ended_it_is_gone(
        self, backend: Backend, handle: Pagefile, order: tuple[str, str]
    ) -> None:
        memory = Memory(handle, embedder=None, extractor=Scripted(moved_out))
        first, stays, later = (say(memory, s, session=s)[0] for s in ("s1", "s2", "s3"))
        memory.facts.append(fact("Oslo", sources=(first, stays)))
        memory.consolidate()
        ended = memory.facts.query(user_id="ann")
        for session in order:
            memory.forget(user_id="ann", session_id=session)
        (known,) = memory.facts.query(user_id="ann")

        assert ended == []
        assert (known.object, known.sources, known.valid_until) == ("Oslo", (stays,), None)
        assert traces(backend, handle, [first, later]) == []

    def test_a_candidate_that_ends_a_fact_can_be_committed_after_the_fact_lost_a_source(
        self, backend: Backend, handle: Pagefile
    ) -> None:
        unsure = Scripted(lambda one: moved_out(one, 0.3))
        memory = Memory(handle, embedder=None, extractor=unsure)
        first, stays, _ = (say(memory, s, session=s)[0] for s in ("s1", "s2", "s3"))
        memory.facts.append(fact("Oslo", sources=(first, stays)))
        memory.consolidate()
        would = memory.forget(user_id="ann", session_id="s1", dry_run=True)
        done = memory.forget(user_id="ann", session_id="s1")
        (waiting,) = memory.proposals.waiting(user_id="ann")
        (known,) = memory.facts.query(user_id="ann")
        memory.proposals.commit(waiting.id, reviewer="rev", user_id="ann")

        assert (would, would.counts) == (done, done.counts)
        assert waiting.ends == known.id
        assert memory.facts.query(user_id="ann") == []
        assert traces(backend, handle, [first]) == []

    @pytest.mark.parametrize(
        "extent", [{"session_id": "s"}, {"episode_id": "e1"}, {"episode_id": "e2"}]
    )
    def test_what_rests_on_an_episode_that_was_merged_goes_with_the_one_it_is_in(
        self, backend: Backend, handle: Pagefile, extent: dict[str, Any]
    ) -> None:
        memory = Memory(handle, embedder=None, duplicates="merge")
        for name in ("e1", "e2"):
            memory.remember(episode("my pin is zyqpin, keep it", id=name))
        commit(handle, request("the pin is zyqpin", "pin-item", ["e2"]))
        memory.facts.append(fact("zyqpin", predicate="pin", sources=("e2",)))
        would = memory.forget(user_id="ann", dry_run=True, **extent)
        done = memory.forget(user_id="ann", **extent)

        assert (would, would.counts) == (done, done.counts)
        assert [done.counts[kind] for kind in ("episodes", "facts", "items")] == [1, 1, 1]
        assert traces(backend, handle, ["zyqpin"]) == []

    def test_an_item_of_another_user_rests_on_the_episodes_of_that_user(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        for user in ("ann", "bob"):
            memory.remember(episode(f"of {user}", user=user, session="s1", id="turn-1"))
        shared = {"scope": "project", "project_id": "p"}
        commit(handle, request("bob's choice", "of-bob", ["turn-1"]) | shared | {"user_id": "bob"})
        later = request("ann's choice", "of-ann", ["turn-1"]) | shared
        commit(handle, later | {"op": "supersede", "supersedes": ["of-bob"]})
        memory.forget(user_id="ann", session_id="s1")
        left = handle.items.history("of-bob", project_id="p")

        assert [one.item.source_refs for one in left] == [("turn-1",), ("turn-1",)]
        assert outcome(handle.items.get, "of-ann", project_id="p") == "NotFound"

    def test_a_batch_that_waits_loses_only_the_requests_that_rest_on_what_is_gone(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        (gone,), (stays,) = say(memory, "one", session="s1"), say(memory, "two", session="s2")
        waiting = stage(
            handle, request("of one", "of-one", [gone]), request("of two", "of-two", [stays])
        )
        memory.forget(user_id="ann", episode_id=gone)
        committed = handle.items.commit(waiting, reviewer="rev").memory_ids

        assert committed == ("of-two",)
        assert objects(memory.facts.query(user_id="ann")) == []

    @promise("S9")
    @pytest.mark.parametrize("extent", [{"session_id": "s1"}, {"episode_id": "zyqepisode"}])
    def test_the_receipt_of_a_prompt_goes_with_what_it_names(
        self, backend: Backend, handle: Pagefile, memory: Memory, extent: dict[str, str]
    ) -> None:
        memory.remember(episode("my pin is 4711", session="s1", id="zyqepisode"))
        memory.remember(episode("my tea is green", session="s2"))
        handle.context.append("t", "hello", "ann", "bot", user_id="ann")
        handle.context.append("t2", "hello", "ann", "bot", user_id="ann")
        named = handle.assemble("t", "what is my pin", user_id="ann").receipt
        handle.memory.forget(user_id="ann", episode_id="none-of-hers")
        before = len(handle.assembly.receipts(user_id="ann").receipts)
        done = memory.forget(user_id="ann", **extent)  # type: ignore[arg-type]
        other = handle.assemble("t2", "what is my tea", user_id="ann").receipt
        memory.forget(user_id="ann", session_id="t")

        assert (before, done, done.counts["receipts"]) == (1, 1, 1)
        assert outcome(handle.assembly.receipt, named.receipt_id, user_id="ann") == "NotFound"
        assert (
            handle.assembly.receipt(other.receipt_id, user_id="ann").receipt_id == other.receipt_id
        )
        assert traces(backend, handle, ["zyqepisode"]) == []


def request(content: str, memory_id: str, sources: list[str]) -> dict[str, Any]:
    """A request for an item of Ann's."""
    return item_request(content, "ann") | {"memory_id": memory_id, "source_refs": sources}


def stage(handle: Pagefile, *requests: dict[str, Any]) -> str:
    return handle.items.propose(list(requests), user_id=requests[0]["user_id"]).batch_id


def commit(handle: Pagefile, *requests: dict[str, Any]) -> None:
    handle.items.commit(stage(handle, *requests), reviewer="rev")


def moved_out(exchange: Exchange, confidence: float = 0.9) -> list[Candidate]:
    """That the user left Oslo, read in what was said in s3."""
    until = START + HOUR
    told = Candidate("user", "lives_in", "Oslo", confidence, valid_until=until)
    return [told] if exchange.input == "s3" else []


def known_items(handle: Pagefile) -> list[Any]:
    """Ann's items, whatever their status, by id."""
    return [
        handle.items.history(memory_id, user_id="ann")[-1].item
        for memory_id in ("cat-item", "coffee-item", "tea-item")
        if outcome(handle.items.history, memory_id, user_id="ann") == "done"
    ]
