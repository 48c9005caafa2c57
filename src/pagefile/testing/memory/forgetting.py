"""Forgetting: everything, everywhere, in one commit, and for good."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest

from pagefile.handle import Options, Pagefile
from pagefile.memory.episode import Episode
from pagefile.memory.extraction.candidate import Candidate, Exchange
from pagefile.memory.forget import ForgetReceipt
from pagefile.memory.memory import Memory
from pagefile.memory.message import Message, Role, ToolCall
from pagefile.memory.owner import owner_key
from pagefile.recall.analysis import terms
from pagefile.testing.backend import Backend, promise
from pagefile.testing.context.ground import at_once
from pagefile.testing.memory.ground import (
    HOUR,
    START,
    Clock,
    HashedWords,
    MemoryFixtures,
    Scripted,
    episode,
    export_lines,
    fact,
    inputs,
    item_request,
    likes,
    objects,
    outcome,
    say,
    traces,
)

_OF_EPISODES = ("input", "output", "transcript", "argument", "speaker", "candidate", "quote")
_OF_MEMORY = ("block", "oldblock", "goneblock", "factobject", "alias", "sessionname")
_OF_OTHERS = ("slot", "run", "milestone", "item", "staged")
#: Words that nobody else uses, one for each place they are planted in.
MARKS = {place: f"zyq{place}vorbling" for place in (*_OF_EPISODES, *_OF_MEMORY, *_OF_OTHERS)}


def spoken(words: Iterable[str]) -> list[str]:
    """The words, and what the index makes of them."""
    told = list(words)
    return sorted({*told, *(term for word in told for term in terms(word))})


def plant(handle: Pagefile, user: str | None) -> Memory:
    """Something marked in every tier."""
    memory = Memory(
        handle,
        embedder=HashedWords(),
        record_use=True,
        extractor=Scripted(
            lambda one: [Candidate("user", "likes", MARKS["candidate"], 0.2, quote=MARKS["quote"])]
        ),
    )
    call = ToolCall(tool="t", args={"q": MARKS["argument"]})
    said = [
        Message(Role.ASSISTANT, "", tool_calls=(call,)),
        Message(Role.TOOL, MARKS["transcript"], tool_call_id=call.id),
    ]
    memory.remember(
        Episode(
            session_id=MARKS["sessionname"],
            user_id=user,
            input=MARKS["input"],
            output=MARKS["output"],
            speaker=MARKS["speaker"],
            occurred_at=START,
            tool_calls=(call,),
            tool_transcript=tuple(said),
        )
    )
    memory.update_block("b", MARKS["oldblock"], user_id=user)
    memory.update_block("b", MARKS["block"], user_id=user)
    memory.update_block("c", MARKS["goneblock"], user_id=user)
    memory.delete_block("c", user_id=user)
    memory.facts.append(fact(MARKS["factobject"], user))
    memory.facts.alias(MARKS["alias"], "user", user_id=user)
    memory.consolidate()
    memory.recall(MARKS["input"], user_id=user)
    memory.recall_facts(MARKS["factobject"], user_id=user)
    return memory


def plant_beside(handle: Pagefile, user: str | None) -> None:
    """Something marked in the other rooms."""
    handle.context.append("t", {"said": MARKS["slot"]}, "a", "b", user_id=user)
    run = handle.runs.boot(MARKS["run"], ["done"], [], user_id=user)
    run.milestone(MARKS["milestone"])
    handle.items.commit(
        handle.items.propose([item_request(MARKS["item"], user)], user_id=user).batch_id,
        reviewer="rev",
    )
    handle.items.propose([item_request(MARKS["staged"], user)], user_id=user)


_KINDS = {
    "memory/episode/": "episodes",
    "memory/block/": "blocks",
    "memory/candidate/": "candidates",
    "memory/extraction/": "extractions",
    "memory/use/": "uses",
    "fact/": "facts",
    "fact-retraction/": "retractions",
    "fact-alias/": "aliases",
    "item/": "items",
    "run/": "runs",
    "episode/": "milestones",
    "thread/": "slots",
    "ledger/": "events",
}


def counted(lines: Iterable[bytes]) -> Counter[str]:
    """How many things an export holds: a document is one, and so is an entry of a log."""
    told: Counter[str] = Counter()
    seen: set[str] = set()
    for line in lines:
        record = json.loads(line)
        name = record["name"]
        kind = next((kind for prefix, kind in _KINDS.items() if name.startswith(prefix)), "other")
        if record["stream"] == "log" or name not in seen:
            told[kind] += 1
        seen.add(name)
    return told


def forgotten_things(receipt: ForgetReceipt) -> dict[str, int]:
    return {kind: n for kind, n in receipt.counts.items() if kind != "index"}


class ForgettingContract(MemoryFixtures):
    """By user, by session, by time."""

    def test_the_dry_run_the_receipt_and_the_exports_agree(self, handle: Pagefile) -> None:
        memory = plant(handle, "ann")
        plant_beside(handle, "ann")
        before = export_lines(memory)
        head = handle.store.head()
        rehearsed = memory.forget(user_id="ann", dry_run=True)
        untouched = handle.store.head() == head
        receipt = memory.forget(user_id="ann")

        assert (rehearsed.dry_run, receipt.dry_run, untouched) == (True, False, True)
        assert rehearsed == receipt == sum(forgotten_things(receipt).values())
        assert rehearsed.counts == receipt.counts
        assert forgotten_things(receipt) == counted(before)
        assert export_lines(memory) == []

    @pytest.mark.parametrize("user", ["ann", None])
    def test_memory_G1_blocks_go_with_their_user(self, memory: Memory, user: str | None) -> None:
        memory.update_block("a", "one", user_id=user)
        memory.update_block("b", "two", user_id=user)
        memory.delete_block("b", user_id=user)
        receipt = memory.forget(user_id=user)

        assert (memory.working(user_id=user), receipt.counts["blocks"]) == ([], 2)
        assert memory.block_history("a", user_id=user) == []
        assert memory.block_history("b", user_id=user) == []
        assert memory.update_block("a", "new", user_id=user).pinned_order == 0

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

    def test_memory_G3_facts_go_with_the_only_episodes_they_rest_on(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        one, two = say(memory, "one", session="s1"), say(memory, "two", session="s2")
        memory.facts.declare("*", "multi")
        memory.facts.append(fact("Oslo", id="f1", sources=one))
        memory.facts.append(fact("Kyoto", id="f2", sources=[*one, *two]))
        memory.facts.append(fact("Rome", id="f3", sources=two))
        memory.facts.append(fact("Lima", id="f4"))
        memory.forget(user_id="ann", session_id="s1")
        left = memory.facts.query(user_id="ann", limit=10)
        told = json.dumps([line.decode() for line in export_lines(memory)])

        assert {known.object: known.sources for known in left} == {
            "Kyoto": tuple(two),
            "Rome": tuple(two),
            "Lima": (),
        }
        assert one[0] not in told
        assert objects(memory.recall_facts("user lives Kyoto", limit=1, user_id="ann")) == ["Kyoto"]
        assert memory.recall_facts("Oslo", user_id="ann") == []

    def test_memory_G3_what_a_forgotten_fact_had_closed_is_open_again(self, memory: Memory) -> None:
        ids = say(memory, "I moved", session="s1")
        memory.facts.append(fact("Oslo", valid_from=START - 9 * HOUR))
        memory.facts.append(fact("Kyoto", valid_from=START - 5 * HOUR, sources=ids))
        moved = objects(memory.facts.query(user_id="ann"))
        memory.forget(user_id="ann", session_id="s1")

        assert (moved, objects(memory.facts.query(user_id="ann"))) == (["Kyoto"], ["Oslo"])

    def test_memory_G3_what_a_forgotten_episode_had_ended_holds_again(
        self, backend: Backend, handle: Pagefile
    ) -> None:
        def reading(exchange: Exchange) -> list[Candidate]:
            if exchange.input == "no more":
                return [Candidate("user", "likes", "tea", 0.9, valid_until=exchange.occurred_at)]
            return likes(exchange)

        memory = Memory(handle, embedder=None, extractor=Scripted(reading))
        say(memory, "I like tea", session="s1", at=START - 9 * HOUR)
        ended = say(memory, "no more", session="s2", at=START)
        memory.consolidate()
        without = memory.facts.query(user_id="ann")
        memory.forget(user_id="ann", session_id="s2")

        assert (without, objects(memory.facts.query(user_id="ann"))) == ([], ["tea"])
        assert traces(backend, handle, ended) == []

    def test_memory_G4_the_number_is_of_what_was_there(self, memory: Memory) -> None:
        say(memory, "one", "two")
        first = memory.forget(user_id="ann")
        again = memory.forget(user_id="ann")
        nobody = memory.forget(user_id="never seen")

        assert (first, again, nobody) == (2, 0, 0)
        assert (first + again, sorted([first, nobody]), bool(nobody)) == (2, [0, 2], False)
        assert repr(first).startswith("ForgetReceipt(2: episodes=2")

    @promise("S9")
    @pytest.mark.parametrize("user", ["zyqannvorbling", None])
    def test_memory_G5_no_byte_is_left_of_a_user_in_any_room(
        self, backend: Backend, handle: Pagefile, user: str | None
    ) -> None:
        memory = plant(handle, user)
        if user is not None:
            plant_beside(handle, user)
            words = [*MARKS.values(), user]
        else:
            words = [MARKS[place] for place in (*_OF_EPISODES, *_OF_MEMORY)]
        planted = {word for _, word in traces(backend, handle, words)}
        receipt = memory.forget(user_id=user)

        assert planted == set(words)
        assert receipt.receipt.level == "bytes"
        assert traces(backend, handle, spoken(words)) == []
        assert memory.users() == []

    @promise("S9")
    @pytest.mark.parametrize("user", ["ann", None])
    def test_memory_G9_no_byte_is_left_of_a_session(
        self, backend: Backend, handle: Pagefile, user: str | None
    ) -> None:
        memory = plant(handle, user)
        say(memory, "kept apart", user=user, session="other")
        handle.context.append(MARKS["sessionname"], MARKS["slot"], "a", "b", user_id=user)
        words = [MARKS[place] for place in (*_OF_EPISODES, "slot")]
        planted = {word for _, word in traces(backend, handle, words)}
        ids = [one.id for one in memory.recall("", session_id=MARKS["sessionname"], user_id=user)]
        memory.forget(user_id=user, session_id=MARKS["sessionname"])

        assert planted == set(words)
        assert traces(backend, handle, [*spoken(words), *ids]) == []
        assert inputs(memory.recall("kept", user_id=user)) == ["kept apart"]
        assert memory.block("b", user_id=user).content == MARKS["block"]

    @promise("S9")
    def test_no_byte_is_left_in_an_index_that_is_half_made_anew(
        self, backend: Backend, handle: Pagefile
    ) -> None:
        memory = Memory(handle, embedder=None)
        say(memory, *(f"zyqword{n}x" for n in range(3)), session="s1")
        say(memory, "kept", session="s2")

        class PowerCut(Exception):
            pass

        def stop(count: int) -> None:
            raise PowerCut

        for n in range(300):
            say(memory, "filler", user=f"u{n % 3}", session=str(n))
        for _ in range(2):
            with pytest.raises(PowerCut):
                memory.reindex(stop)
        memory.forget(user_id="ann", session_id="s1")

        assert traces(backend, handle, spoken(f"zyqword{n}x" for n in range(3))) == []
        memory.reindex()
        assert inputs(memory.recall("kept", user_id="ann")) == ["kept"]

    def test_memory_G6_nothing_is_capped(self, memory: Memory) -> None:
        for at in (0, 550):
            memory.remember_many([episode(f"w{n}", id=f"e{n}") for n in range(at, at + 550)])
        memory.facts.append_many(
            [fact(f"p{n}", predicate="visited", id=f"f{n}") for n in range(1_200)]
        )
        told = memory.profile(user_id="ann")
        lines = counted(export_lines(memory))
        receipt = memory.forget(user_id="ann")

        assert (told.episode_count, told.fact_count) == (1_100, 1_200)
        assert lines == {"episodes": 1_100, "facts": 1_200}
        assert forgotten_things(receipt) == lines
        assert export_lines(memory) == []

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
            found = handle.store.get(f"memory/forgotten/{owner_key('ann')}")
            assert found is not None
            sizes.append((len(documents), len(found.body)))

        assert sizes[0][0] == sizes[1][0]
        # An episode, what became of its reading, and a fact: eight bytes each, as base64.
        assert sizes[1][1] - sizes[0][1] <= 100 * 3 * 8 * 4 / 3 + 8

    def test_memory_G11_a_dry_run_counts_without_a_copy_of_what_it_counts(
        self, handle: Pagefile, memory: Memory
    ) -> None:
        say(memory, "x" * 200_000)
        receipt = memory.forget(user_id="ann", dry_run=True)

        assert (receipt, receipt.receipt.position) == (1, None)
        assert receipt.receipt.size_bytes > 200_000

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

    def test_a_session_takes_only_what_is_its_own(self, handle: Pagefile, memory: Memory) -> None:
        for user in ("ann", "bob"):
            for session in ("s1", "s2"):
                say(memory, f"{user} in {session}", user=user, session=session)
                handle.context.append(session, f"{user}'s slot", "a", "b", user_id=user)
        before = export_lines(memory)
        rehearsed = memory.forget(user_id="ann", session_id="s1", dry_run=True)
        receipt = memory.forget(user_id="ann", session_id="s1")
        after = export_lines(memory)

        assert rehearsed.counts == receipt.counts
        assert forgotten_things(receipt) == counted(before) - counted(after)
        assert inputs(memory.recall("", user_id="ann")) == ["ann in s2"]
        assert len(memory.recall("", user_id="bob")) == 2
        slots = handle.context.get_thread_slots("s1")
        assert [slot.erased for slot in slots] == [True, False]

    @pytest.mark.parametrize("session", ["a\nb", "s" * 512, "é" * 256, "", "a/b", "\x00"])
    def test_a_session_of_any_name_can_be_forgotten(self, memory: Memory, session: str) -> None:
        say(memory, "in it", session=session)
        say(memory, "beside it", session="another")
        receipt = memory.forget(user_id="ann", session_id=session)

        assert (receipt, inputs(memory.recall("", user_id="ann"))) == (1, ["beside it"])

    def test_before_a_moment_goes_what_happened_or_was_stored_before_it(
        self, backend: Backend
    ) -> None:
        clock = Clock()
        options = Options(clock=clock.microseconds)
        handle = backend.open(options=options)
        memory = Memory(handle, embedder=None, clock=clock)
        say(memory, "old")
        memory.facts.append(fact("Oslo", predicate="visited"))
        memory.update_block("b", "old text", user_id="ann")
        memory.update_block("c", "old only", user_id="ann")
        clock.passes(days=2)
        cut = clock.now
        clock.passes(days=1)
        say(memory, "new", at=clock.now)
        say(memory, "told late of long ago", at=START - timedelta(days=30), session="late")
        memory.facts.append(fact("Kyoto", predicate="visited"))
        memory.update_block("b", "new text", user_id="ann")
        lines = export_lines(memory)
        rehearsed = memory.forget(user_id="ann", before=cut, dry_run=True)
        receipt = memory.forget(user_id="ann", before=cut)

        assert rehearsed.counts == receipt.counts
        assert receipt.receipt.records == rehearsed.receipt.records
        assert inputs(memory.recall("", user_id="ann")) == ["new"]
        assert inputs(memory.recall("new old told", user_id="ann")) == ["new"]
        assert objects(memory.facts.query(user_id="ann")) == ["Kyoto"]
        assert [(b.name, b.content) for b in memory.working(user_id="ann")] == [("b", "new text")]
        left = export_lines(memory)
        assert len(lines) - len(left) == receipt.receipt.records - receipt.counts["index"]
        assert set(left) <= set(lines)

    def test_a_block_that_outlived_its_older_versions_is_not_taken_for_forgotten(
        self, backend: Backend
    ) -> None:
        clock = Clock()
        memory = Memory(
            backend.open(options=Options(clock=clock.microseconds)), embedder=None, clock=clock
        )
        memory.update_block("b", "old", user_id="ann")
        clock.passes(days=1)
        memory.update_block("b", "new", user_id="ann")
        receipt = memory.forget(user_id="ann", before=clock.now)
        kept = memory.append_block("b", "er", user_id="ann")
        again = memory.import_(list(memory.export(user_id="ann")))

        assert (receipt.receipt.records, kept.content) == (1, "newer")
        assert (again.present, again.forgotten) == (1, 0)

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
