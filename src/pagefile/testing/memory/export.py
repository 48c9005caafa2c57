"""Exports: whole or refused, and the same again wherever they are taken in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import pagefile
from pagefile.errors import Conflict, Corrupt
from pagefile.handle import Options, Pagefile
from pagefile.memory.documents import owner_key
from pagefile.memory.episodes.episode import ToolCall
from pagefile.memory.memory import Memory
from pagefile.store.batch import Append, Batch
from pagefile.testing.backend import Backend
from pagefile.testing.context.fixtures import steps_of
from pagefile.testing.memory.episodes import TRANSCRIPT
from pagefile.testing.memory.fixtures import (
    START,
    Clock,
    HashedWords,
    MemoryFixtures,
    episode,
    export_lines,
    fact,
    inputs,
    objects,
    outcome,
    plant,
    plant_beside,
    say,
    traces,
)


def resealed(line: bytes, **changed: Any) -> bytes:
    """A line made by hand: changed, with the digest that belongs to it."""
    record = json.loads(line)
    record.pop("sha256", None)
    body = json.dumps({**record, **changed}, separators=(",", ":")).encode()
    return body[:-1] + b',"sha256":"' + hashlib.sha256(body).hexdigest().encode() + b'"}\n'


def closed(lines: list[bytes]) -> list[bytes]:
    """The lines with an end that belongs to them."""
    whole = hashlib.sha256(b"".join(lines)).hexdigest()
    footer = {"end": "pagefile-export", "lines": len(lines), "sha256": whole}
    return [*lines, json.dumps(footer, separators=(",", ":")).encode() + b"\n"]


def _flipped(lines: list[bytes]) -> list[bytes]:
    return [*lines[:2], lines[2].replace(b'"input":"b"', b'"input":"B"'), *lines[3:]]


_DAMAGES: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "no lines": lambda lines: [],
    "no header": lambda lines: lines[1:],
    "no end": lambda lines: lines[:-1],
    "header alone": lambda lines: lines[:1],
    "a line missing": lambda lines: [*lines[:2], *lines[3:]],
    "a line twice": lambda lines: [*lines[:2], *lines[1:]],
    "two lines swapped": lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
    "a byte changed": _flipped,
    "a line cut short": lambda lines: [*lines[:2], lines[2][:-9], *lines[3:]],
    "something after the end": lambda lines: [*lines, lines[1]],
    "another format": lambda lines: [lines[0].replace(b"pagefile-export", b"other"), *lines[1:]],
    "a later version": lambda lines: [lines[0].replace(b'"version":1', b'"version":2'), *lines[1:]],
    "another user in the header": lambda lines: [lines[0].replace(b"ann", b"bob"), *lines[1:]],
    "no JSON": lambda lines: [lines[0], b"{nonsense\n", *lines[2:]],
}

#: Lines with digests that fit, which say what no export would.
_FORGERIES: dict[str, dict[str, Any]] = {
    "a record of another": {"user": "bob"},
    "a name of another's": {"name": f"memory/episode/{owner_key('bob')}/e"},
    "a name of nobody's": {"name": "memory/episode/anon/e"},
    "what was forgotten": {"name": f"memory/forgotten/{owner_key('ann')}"},
    "the index": {"name": f"recall/1/{owner_key('bob')}", "stream": "log"},
    "the model of the index": {"name": "recall-model"},
    "no stream": {"stream": "cloud"},
    "no name": {"name": ""},
    "a name that cannot be": {"name": "a\x00b"},
    "no episode": {"value": {"no": "episode"}},
    "an episode of another": {
        "value": {
            "id": "e",
            "session_id": "s",
            "user_id": "bob",
            "occurred_at": START.isoformat(),
            "input": "x",
            "output": "",
        }
    },
    "keys that are none": {"keys": [1]},
    "notes that are none": {"notes": 5},
    "tags of a codec": {"value": {"$type": "os:system", "value": "x"}},
}


class ExportingContract(MemoryFixtures):
    """Out, and in again."""

    @pytest.fixture
    def elsewhere(self, backend: Backend, tmp_path: Path) -> Iterator[Pagefile]:
        """An empty store on the other kind of engine."""
        url = str(tmp_path / "elsewhere.db") if backend.url is None else "memory:"
        with pagefile.open(url) as handle:
            yield handle
            assert (handle.check().problems, handle.verify().problems) == ((), ())

    def test_what_is_taken_in_elsewhere_is_exported_in_the_same_bytes(
        self, handle: Pagefile, elsewhere: Pagefile
    ) -> None:
        clock = Clock()
        plant(handle, "ann")
        plant_beside(handle, "ann")
        memory = Memory(handle, embedder=HashedWords(), clock=clock)
        memory.remember(episode("question", output="answer", tool_transcript=TRANSCRIPT, id="e"))
        lines = list(memory.export(user_id="ann"))
        other = Memory(elsewhere, embedder=None, clock=clock)
        receipt = other.import_(lines)

        assert (receipt.records, receipt.present) == (len(lines) - 2, 0)
        assert list(other.export(user_id="ann")) == lines
        assert other.episode("e", user_id="ann").tool_transcript == TRANSCRIPT
        assert inputs(other.recall("question", limit=1, user_id="ann")) == ["question"]

    def test_facts_keep_their_history_on_both_axes(
        self, handle: Pagefile, memory: Memory, elsewhere: Pagefile
    ) -> None:
        memory.facts.append(fact("Oslo", valid_from=START - timedelta(days=9)))
        learnt = memory.facts.query(user_id="ann")[0].recorded_at
        memory.facts.append(fact("Kyoto", valid_from=START))
        memory.facts.retract(memory.facts.query(user_id="ann")[0].id, user_id="ann", reason="no")
        other = Memory(elsewhere, embedder=None)
        other.import_(memory.export(user_id="ann"))

        def seen(each: Memory) -> list[Any]:
            return [
                objects(each.facts.query(user_id="ann")),
                objects(each.facts.query(user_id="ann", known_at=learnt)),
                objects(each.facts.query(user_id="ann", valid_at=START - timedelta(days=1))),
                [known.recorded_at for known in each.facts.assertions(user_id="ann")],
            ]

        assert seen(other) == seen(memory)
        assert seen(memory)[0] == ["Oslo"]

    def test_taking_it_in_again_does_nothing(self, handle: Pagefile, elsewhere: Pagefile) -> None:
        memory = plant(handle, "ann")
        lines = list(memory.export(user_id="ann"))
        other = Memory(elsewhere, embedder=None)
        first = other.import_(lines)
        head = elsewhere.store.head()
        again = other.import_(lines)

        assert (again.records, again.forgotten, first.records > 0) == (0, 0, True)
        assert elsewhere.store.head() == head
        assert memory.import_(lines).records == 0

    def test_what_was_deleted_here_since_is_left_so(self, handle: Pagefile, memory: Memory) -> None:
        memory.update_block("b", "text", user_id="ann")
        handle.runs.boot("goal", user_id="ann", run_id="r1")
        early = list(memory.export(user_id="ann"))
        memory.delete_block("b", user_id="ann")
        handle.runs.delete("r1")
        late = list(memory.export(user_id="ann"))
        again = memory.import_(late)

        assert (again.records, again.forgotten) == (0, 0)
        assert outcome(memory.import_, early) == "done"
        assert memory.working(user_id="ann") == []
        assert not handle.runs.exists("r1")

    def test_an_import_that_was_cut_off_is_taken_up_where_it_ended(
        self, handle: Pagefile, memory: Memory, elsewhere: Pagefile
    ) -> None:
        for n in range(450):
            handle.store.commit(Batch([Append("thread/t", n, user="ann")]))
        say(memory, "hello")
        lines = list(memory.export(user_id="ann"))
        other = Memory(elsewhere, embedder=None)
        for n in range(200):
            elsewhere.store.commit(Batch([Append("thread/t", n, user="ann")]))
        receipt = other.import_(lines)

        assert receipt.records == 251
        assert [entry.value for entry in elsewhere.store.read("thread/t")] == list(range(450))

    @pytest.mark.parametrize("damage", _DAMAGES)
    def test_a_damaged_export_is_refused_and_nothing_of_it_stored(
        self, memory: Memory, elsewhere: Pagefile, damage: str
    ) -> None:
        say(memory, *"abcd")
        lines = _DAMAGES[damage](list(memory.export(user_id="ann")))
        other = Memory(elsewhere, embedder=None)
        head = elsewhere.store.head()

        assert outcome(other.import_, lines) in ("Corrupt", "Invalid")
        assert elsewhere.store.head() == head

    def test_a_line_that_was_changed_is_named(self, memory: Memory, elsewhere: Pagefile) -> None:
        say(memory, *"abcd")
        lines = _flipped(list(memory.export(user_id="ann")))

        with pytest.raises(Corrupt, match="line 3"):
            Memory(elsewhere, embedder=None).import_(lines)

    @pytest.mark.parametrize("forgery", _FORGERIES)
    def test_memory_D16_a_forged_export_reaches_nobody_and_runs_nothing(
        self, memory: Memory, elsewhere: Pagefile, forgery: str
    ) -> None:
        memory.remember(episode("hello", id="e"))
        lines = list(memory.export(user_id="ann"))
        forged = closed([lines[0], resealed(lines[1], **_FORGERIES[forgery])])
        other = Memory(elsewhere, embedder=None)
        say(other, "bob's own", user="bob")
        before = export_lines(other, "bob")
        told = outcome(other.import_, forged)

        assert told == "done" or not told.startswith("raw"), told
        assert export_lines(other, "bob") == before
        assert inputs(other.recall("hello bob own", user_id="bob")) == ["bob's own"]
        assert outcome(other.recall, "hello", user_id="ann") == "done"
        assert outcome(other.remember, episode("more", id="e9")) == "done"

    def test_a_line_that_is_no_record_of_its_kind_keeps_all_others_out_too(
        self, memory: Memory, elsewhere: Pagefile
    ) -> None:
        say(memory, "one", "two")
        lines = list(memory.export(user_id="ann"))
        forged = closed([*lines[:2], resealed(lines[2], value={"no": "episode"})])
        head = elsewhere.store.head()

        assert outcome(Memory(elsewhere, embedder=None).import_, forged) == "Invalid"
        assert elsewhere.store.head() == head

    @pytest.mark.parametrize(
        "type_name", ["os:system", "subprocess:Popen", "no", "a:b:c", "x" * 999]
    )
    def test_memory_D16_a_type_in_an_export_is_a_name_and_nothing_else(
        self, memory: Memory, elsewhere: Pagefile, type_name: str
    ) -> None:
        memory.remember(episode("hello", id="e"))
        lines = list(memory.export(user_id="ann"))
        forged = closed([lines[0], resealed(lines[1], type=type_name)])

        assert not outcome(Memory(elsewhere, embedder=None).import_, forged).startswith("raw")

    def test_something_else_under_the_same_name_is_a_conflict(
        self, memory: Memory, elsewhere: Pagefile
    ) -> None:
        memory.remember(episode("one", id="e"))
        other = Memory(elsewhere, embedder=None)
        other.remember(episode("two", id="e"))
        with pytest.raises(Conflict):
            other.import_(memory.export(user_id="ann"))

        assert other.episode("e", user_id="ann").input == "two"

    def test_a_file_holds_the_same_lines_and_is_never_overwritten(
        self, memory: Memory, elsewhere: Pagefile, tmp_path: Path
    ) -> None:
        say(memory, "one", "two")
        made = memory.export(user_id="ann")
        path = tmp_path / "ann.jsonl"
        count = made.write(path)
        lines = path.read_bytes()

        assert (count, lines) == (2, b"".join(made))
        assert outcome(made.write, path) == "Conflict"
        assert outcome(made.write, tmp_path / "no" / "folder") == "Unavailable"
        assert path.read_bytes() == lines
        assert Memory(elsewhere, embedder=None).import_(path).records == 2

    def test_memory_G7_an_export_has_everything_but_what_can_be_made_again(
        self, handle: Pagefile, elsewhere: Pagefile
    ) -> None:
        memory = Memory(handle, embedder=HashedWords())
        given = episode(
            "two words",
            tool_transcript=TRANSCRIPT,
            tool_calls=[ToolCall(tool="find", id="c1", args={"q": [1, None]})],
            speaker="Bob",
            output="Found.",
            id="e",
        )
        memory.remember(given)
        memory.update_block("b", "one", user_id="ann")
        memory.update_block("b", "two", user_id="ann")
        lines = export_lines(memory)
        records = [json.loads(line) for line in lines]

        assert sorted(record["kind"] for record in records) == ["block", "block", "episode"]
        assert max(map(len, lines)) < 2_000
        assert [b"vector" in line or b"embedding" in line for line in lines] == [False] * 3
        other = Memory(elsewhere, embedder=None)
        other.import_(memory.export(user_id="ann"))
        assert other.episode("e", user_id="ann") == given
        assert [one.content for one in other.block_history("b", user_id="ann")] == ["one", "two"]

    def test_memory_G11_an_export_is_read_while_it_is_gone_through(self, memory: Memory) -> None:
        say(memory, "hello")
        few = steps_of(lambda: memory.export(user_id="ann"))
        memory.remember_many([episode(f"w{n}", id=f"e{n}") for n in range(500)])
        many = steps_of(lambda: memory.export(user_id="ann"))

        assert many < few * 1.5
        made = memory.export(user_id="ann")
        assert (len(made.episodes), made.facts, made.user_id) == (501, [], "ann")

    def test_memory_G11_an_export_holds_no_copy_of_what_it_has_not_come_to(
        self, memory: Memory
    ) -> None:
        """What is forgotten while an export is gone through is not in the rest of it."""
        memory.remember_many([episode(f"word{n}", id=f"e{n}") for n in range(50)])
        lines = iter(memory.export(user_id="ann"))
        begun = [next(lines) for _ in range(2)]
        memory.forget(user_id="ann")
        rest = list(lines)

        assert b'"input":"word' in begun[1]
        assert [line for line in rest if b"word" in line] == []

    def test_a_thread_of_several_is_taken_in_by_each_for_themselves(
        self, handle: Pagefile, elsewhere: Pagefile, memory: Memory
    ) -> None:
        for n in range(6):
            handle.context.append("t", n, "a", "b", user_id=["ann", "bob"][n % 2])
        memory.facts.append(fact("Oslo", sources=("t/2",)))
        other = Memory(elsewhere, embedder=None)
        exports = [list(memory.export(user_id=user)) for user in ("ann", "bob")]
        of_ann = other.import_(exports[0])
        alone = {slot.index: slot.payload for slot in spoken_in(elsewhere, "t")}
        of_bob = other.import_(exports[1])
        again = [other.import_(lines).records for lines in exports]
        both = {slot.index: slot.payload for slot in spoken_in(elsewhere, "t")}

        assert (of_ann.records, of_bob.records, again) == (4, 3, [0, 0])
        assert alone == {0: 0, 2: 2, 4: 4}
        # Ann's keep their numbers; of Bob's, those whose place was kept free for him by her import
        # stand at the end, for a log is written at its end alone.
        assert both == {0: 0, 2: 2, 4: 4, 5: 5, 6: 1, 7: 3}
        assert [json.loads(line)["number"] for line in export_lines(other, "bob")] == [5, 1, 3]
        assert other.forget(user_id="ann").receipt.remaining == ()

    def test_the_same_words_of_another_user_are_not_taken_for_ones_own(
        self, handle: Pagefile, elsewhere: Pagefile, memory: Memory
    ) -> None:
        handle.context.append("t", "hi", "a", "b", user_id="ann")
        elsewhere.context.append("t", "hi", "a", "b", user_id="eve")
        receipt = Memory(elsewhere, embedder=None).import_(memory.export(user_id="ann"))

        assert (receipt.records, receipt.present) == (1, 0)
        users = [slot.metadata.user_id for slot in spoken_in(elsewhere, "t")]
        assert users == ["eve", "ann"]

    def test_a_fact_from_other_sources_is_a_conflict(
        self, memory: Memory, elsewhere: Pagefile
    ) -> None:
        other = Memory(elsewhere, embedder=None)
        for each, sources in ((memory, ("e1", "e2")), (other, ("e3",))):
            each.facts.append(fact("Oslo", id="f1", sources=sources, recorded_at=START))
        with pytest.raises(Conflict):
            other.import_(memory.export(user_id="ann"))

        assert other.facts.assertions(user_id="ann")[0].sources == ("e3",)

    def test_notes_of_uses_do_not_come_back_for_what_was_forgotten(
        self, backend: Backend, handle: Pagefile
    ) -> None:
        memory = Memory(handle, embedder=None, record_use=True)
        memory.remember(episode("green tea", id="zyqtea"))
        memory.recall("tea", user_id="ann")
        lines = list(memory.export(user_id="ann"))
        memory.forget(user_id="ann")
        receipt = memory.import_(lines)

        assert (len(lines) - 2, receipt.records, receipt.forgotten) == (2, 0, 2)
        assert list(memory.export(user_id="ann"))[1:-1] == []
        assert traces(backend, handle, ["zyqtea"]) == []

    def test_a_run_that_was_forgotten_in_part_goes_on_elsewhere(
        self, backend: Backend, elsewhere: Pagefile
    ) -> None:
        clock = Clock()
        handle = backend.open(options=Options(clock=clock.microseconds))
        memory = Memory(handle, embedder=None, clock=clock)
        run = handle.runs.boot("goal", ["done"], user_id="ann", run_id="r1")
        run.update(lambda ws: {"next_action": "a"})
        run.milestone("one")
        clock.passes(days=3)
        memory.update_block("b", "old", user_id="ann")
        run.update(lambda ws: {"next_action": "b"})
        run.milestone("two")
        memory.forget(user_id="ann", before=clock.now - timedelta(days=1))
        other = Memory(elsewhere, embedder=None)
        lines = list(memory.export(user_id="ann"))
        receipt = other.import_(lines)
        there = elsewhere.runs.open("r1")

        assert receipt.records == len(lines) - 2
        assert (there.load(), there.rebuild().since) == (run.load(), 2)
        assert [event["sequence_id"] for event in there.ledger] == [
            event["sequence_id"] for event in run.ledger
        ]
        assert there.update(lambda ws: {"next_action": "c"}).ok
        assert other.import_(lines).records == 0

    def test_an_export_from_before_a_forgetting_brings_nothing_of_it_back(
        self, backend: Backend
    ) -> None:
        clock = Clock()
        handle = backend.open(options=Options(clock=clock.microseconds))
        memory = Memory(handle, embedder=None, clock=clock)
        for name in ("old", "new"):
            clock.passes(days=2)
            memory.update_block("b", name, user_id="ann")
            handle.context.append("t", name, "a", "b", user_id="ann")
            handle.context.append(f"t-{name}", name, "a", "b", user_id="ann")
        memory.remember(episode("a new one", at=clock.now))
        backup = list(memory.export(user_id="ann"))
        receipt = memory.forget(user_id="ann", before=clock.now - timedelta(days=1))
        left = export_lines(memory)
        brought = memory.import_(backup)

        assert receipt.counts == {"slots": 2, "versions": 1}
        assert (brought.records, brought.present, brought.forgotten) == (0, 4, 1)
        assert export_lines(memory) == left
        assert memory.block("b", user_id="ann").content == "new"

    def test_an_empty_export_is_one(self, memory: Memory, elsewhere: Pagefile) -> None:
        lines = list(memory.export(user_id="never seen"))

        assert len(lines) == 2
        assert Memory(elsewhere, embedder=None).import_(lines).records == 0


def spoken_in(handle: Pagefile, thread: str) -> list[Any]:
    """The slots of a thread that have content."""
    return [slot for slot in handle.context.get_thread_slots(thread) if not slot.erased]
