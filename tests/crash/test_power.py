"""Power cuts at the boundaries of a recorded workload: S1, S4, S9 and S11 on SQLite.

At each boundary that is cut at: nothing, everything, prefixes, the last write torn,
and 20 seeded reorderings of what was not synced. PAGEFILE_SOAK=1 cuts at every
boundary, with every prefix; otherwise at a seeded sample of them. Pages that move from the
journal into the file are torn at each of their sectors.
"""

from __future__ import annotations

import copy
import os
import random
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import pagefile
from pagefile import Append, Batch, Fork, Options, Prune, Put, Selector, VersionIs
from pagefile.errors import PagefileError
from pagefile.store.records import Durability
from tests.crash.power import Cut, Recorder, Recording

SOAK = os.environ.get("PAGEFILE_SOAK") == "1"
SEED = 20_260
#: How much is examined; in a soak all of it, shared out among the suite's processes.
BOUNDARIES = 140
BOUNDARIES_OF_CREATION = 24
SUBSETS = 20
PREFIXES = None if SOAK else 8
SHARES = 8 if SOAK else 1
FILE = "state.db"
#: Of the user whom the workload erases; nothing else of his is as recognisable.
SECRET = "tungsten-walrus"

#: The visible contents: by log, its length and its entries; by document, its versions.
State = dict[str, tuple[int, dict[int, Any]]]


class Story:
    """A workload, and what a reader must see after each of its commits.

    The expectation is kept by hand, in dictionaries, and owes nothing to the store.
    """

    def __init__(self, recorder: Recorder, folder: Path, durability: Durability) -> None:
        self._recorder = recorder
        self._rng = random.Random(SEED)
        self._entries: dict[str, dict[int, list[Any]]] = {}
        self._lengths: dict[str, int] = {}
        self._versions: dict[str, dict[int, list[Any]]] = {}
        self._gone: set[str] = set()
        self.states: list[State] = [{}]
        self.erased_after = 0
        self._pf = pagefile.open(
            folder / FILE, durability=durability, options=Options(vfs=recorder.name)
        )
        with self._pf:
            self._tell()

    def _tell(self) -> None:
        for i in range(290):
            self._step(i)
        self._fork("branch", "events", 9)
        self._prune("events", 20)
        self._erase("bob")
        for i in range(290, 315):
            self._step(i)
        self._fork("twig", "branch", 5)
        self._prune("events", 30)
        self._erase("cid")
        for i in range(315, 325):
            self._step(i)

    def _step(self, i: int) -> None:
        turn = i % 7
        if turn == 0:
            self._write([Append("left", i), Append("right", i), Put("pair", i)])
        elif turn == 1:
            version = max(self._versions.get("counter", {0: []}))
            self._write([Put("counter", i)], [VersionIs("counter", version)])
        elif turn == 2:
            self._write([Put("profile", self._text(i), "ann", keys={"step": i, "parity": i % 2})])
        else:
            user = ("ann", "bob", "cid", None)[i % 4]
            if user in self._gone:
                user = "dan"
            self._write([Append("events", self._text(i, user), user, keys={"turn": turn})])

    def _text(self, i: int, user: str | None = None) -> str:
        secret = SECRET if user == "bob" else ""
        return f"{i} {secret} {self._rng.randbytes(self._rng.randint(0, 900)).hex()}"

    def _write(self, operations: list[Append | Put], when: Iterable[VersionIs] = ()) -> None:
        self._pf.store.commit(Batch(operations, tuple(when)))
        for op in operations:
            if isinstance(op, Append):
                index = self._lengths.get(op.log, 0)
                self._lengths[op.log] = index + 1
                self._entries.setdefault(op.log, {})[index] = [op.user, op.value]
            else:
                versions = self._versions.setdefault(op.document, {})
                versions[max(versions, default=0) + 1] = [op.user, op.value]
        self._acknowledged()

    def _fork(self, log: str, base: str, at: int) -> None:
        self._pf.store.commit(Batch([Fork(log, base, at)]))
        self._entries[log] = {i: self._entries[base][i] for i in range(at)}
        self._lengths[log] = at
        self._acknowledged()

    def _prune(self, log: str, before: int) -> None:
        self._pf.store.commit(Batch([Prune(before, log=log)]))
        self._entries[log] = {i: e for i, e in self._entries[log].items() if i >= before}
        self._acknowledged()

    def _erase(self, user: str) -> None:
        self._gone.add(user)
        receipt = self._pf.store.erase(Selector(user=user))
        assert receipt.level == "bytes"
        for cells in (*self._entries.values(), *self._versions.values()):
            for cell in cells.values():
                if cell[0] == user:
                    cell[1] = None
        self._acknowledged()
        if user == "bob":
            self.erased_after = len(self.states) - 1

    def _acknowledged(self) -> None:
        self._recorder.acknowledge()
        state: State = {}
        for log, entries in self._entries.items():
            state[f"log {log}"] = (self._lengths[log], {i: e[1] for i, e in entries.items()})
        for document, versions in self._versions.items():
            state[f"document {document}"] = (
                max(versions),
                {i: e[1] for i, e in versions.items()},
            )
        self.states.append(copy.deepcopy(state))


def read_state(store: pagefile.Store) -> State:
    state: State = {}
    for log in store.names("log"):
        entries = store.read(log)
        state[f"log {log}"] = (
            store.length(log),
            {e.index: None if e.erased else e.value for e in entries},
        )
    for document in store.names("document"):
        versions = store.history(document, limit=10_000)
        state[f"document {document}"] = (
            versions[-1].version,
            {v.version: None if v.erased else v.value for v in versions},
        )
    return state


def violations_of(folder: Path, states: list[State], acknowledged: int) -> list[str]:
    """What is wrong with the store that a power cut left in `folder`."""
    found: list[str] = []
    try:
        with pagefile.open(folder / FILE) as pf:
            position = pf.store.head().position
            if position < acknowledged:
                found.append(f"lost: at position {position}, {acknowledged} were acknowledged")
            if position > acknowledged + 1:
                found.append(f"invented: at position {position}, {acknowledged} acknowledged")
            elif read_state(pf.store) != states[position]:
                found.append(f"half: the content is not that of position {position}")
            added = pf.store.commit(Batch([Append("after", "the cut")]))
            if added.position != position + 1:
                found.append(f"numbering: {position} was followed by {added.position}")
            found += [f"check: {problem.what}" for problem in pf.check().problems]
            found += [f"verify: {problem.what}" for problem in pf.verify().problems]
    except PagefileError as error:
        found.append(f"{type(error).__name__}: {error}")
    return found


class Examiner:
    """Examines cut after cut, each state once."""

    def __init__(self, recording: Recording, states: list[State], folder: Path) -> None:
        self._recording = recording
        self._states = states
        self._folder = folder
        self._seen: set[int] = set()
        self.examined = 0
        self.violations: list[str] = []

    def examine(self, cuts: Iterable[Cut]) -> None:
        for cut in cuts:
            identity = hash(cut.identity)
            if identity in self._seen:
                continue
            self._seen.add(identity)
            self.examined += 1
            place = self._folder / f"{cut.at}-{self.examined}"
            place.mkdir()
            self._recording.rebuild(cut, place)
            self.violations += [
                f"cut at {cut.at}, {cut.variant}: {violation}"
                for violation in violations_of(place, self._states, cut.acknowledged)
            ]
            shutil.rmtree(place)


def record(folder: Path, durability: Durability) -> tuple[Recording, Story]:
    with Recorder() as recorder:
        story = Story(recorder, folder, durability)
        return Recording(recorder.operations), story


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recording, Story]:
    return record(tmp_path_factory.mktemp("live"), "power")


def sample(boundaries: range, wanted: int) -> list[int]:
    """A seeded one of every stretch, or all of them when soaking."""
    if SOAK or len(boundaries) <= wanted:
        return list(boundaries)
    rng, step = random.Random(SEED), len(boundaries) / wanted
    return [boundaries[int((i + rng.random()) * step)] for i in range(wanted)]


def acknowledgement(recording: Recording, number: int) -> int:
    """The first boundary after which that many commits were acknowledged."""
    kinds = [operation.kind for operation in recording.operations]
    marks = [i for i, kind in enumerate(kinds) if kind == "acknowledged"]
    return marks[number - 1] + 1


def test_the_workload_fills_the_journal_so_that_it_is_moved_into_the_file_by_itself(
    recorded: tuple[Recording, Story],
) -> None:
    """Without an erasure: the cuts below would otherwise never hit a checkpoint of SQLite's own."""
    recording, story = recorded
    acknowledged = 0
    moved: set[int] = set()
    for operation in recording.operations:
        acknowledged += operation.kind == "acknowledged"
        if operation.kind == "write" and operation.name == FILE and acknowledged:
            moved.add(acknowledged)

    assert [n for n in moved if n < story.erased_after - 1] != []


@pytest.mark.parametrize("share", range(SHARES))
def test_whatever_a_power_cut_leaves_opens_with_all_that_was_acknowledged_and_nothing_half(
    recorded: tuple[Recording, Story], tmp_path: Path, share: int
) -> None:
    recording, story = recorded
    examiner = Examiner(recording, story.states, tmp_path)
    boundaries = sample(recording.boundaries(), BOUNDARIES)[share::SHARES]
    for at in boundaries:
        examiner.examine(recording.cuts(at, SEED, subsets=SUBSETS, prefixes=PREFIXES))
    print(
        f"{len(recording.operations)} operations, {len(story.states) - 1} commits, "
        f"cut at {len(boundaries)} boundaries, {examiner.examined} states examined"
    )

    assert examiner.violations == []


def test_a_power_cut_while_the_file_is_created_leaves_something_that_opens(
    recorded: tuple[Recording, Story], tmp_path: Path
) -> None:
    recording, story = recorded
    examiner = Examiner(recording, story.states, tmp_path)
    for at in sample(range(acknowledgement(recording, 1)), BOUNDARIES_OF_CREATION):
        examiner.examine(recording.cuts(at, SEED, subsets=SUBSETS, prefixes=PREFIXES))

    assert examiner.violations == []


def test_a_page_torn_on_its_way_from_the_journal_into_the_file_is_recovered(
    recorded: tuple[Recording, Story], tmp_path: Path
) -> None:
    """The first page says whose the file is; while it is torn, only the journal knows."""
    recording, story = recorded
    first = acknowledgement(recording, 1)
    moved = [
        i
        for i, operation in enumerate(recording.operations)
        if i >= first and operation.kind == "write" and operation.name == FILE
    ]
    first_pages = [i for i in moved if recording.operations[i].offset == 0]
    others = [i for i in moved if recording.operations[i].offset]
    examiner = Examiner(recording, story.states, tmp_path)
    for i in (*first_pages, *(others if SOAK else random.Random(SEED).sample(others, 4))):
        cuts = recording.torn_pages(i + 1)
        examiner.examine(cuts if SOAK or i == first_pages[0] else cuts[:3])

    assert len(first_pages) > 1
    assert examiner.violations == []


def test_what_was_erased_is_not_in_the_files_that_a_power_cut_leaves(
    recorded: tuple[Recording, Story],
) -> None:
    recording, story = recorded
    resurrected: list[str] = []
    after = acknowledgement(recording, story.erased_after)
    # The next commits overwrite the journal's start and sync it: by then it is decided.
    for at in recording.boundaries()[after : after + 60]:
        for cut in recording.cuts(at, SEED, subsets=1, prefixes=1):
            for (name, file), kept in zip(cut.names, cut.kept, strict=True):
                if SECRET.encode() in recording.content(file, kept, cut.torn):
                    resurrected.append(f"cut at {at}, {cut.variant}: {name}")

    assert resurrected == []


def test_an_acknowledgement_before_the_sync_is_caught(tmp_path: Path) -> None:
    """A seeded fault: level `process` does not sync each commit, here it claims to be `power`."""
    live, states = tmp_path / "live", tmp_path / "states"
    live.mkdir()
    states.mkdir()
    recording, story = record(live, "process")
    examiner = Examiner(recording, story.states, states)
    for at in sample(recording.boundaries(), 40):
        examiner.examine(recording.cuts(at, SEED, subsets=1, prefixes=1))
    lost = [violation for violation in examiner.violations if ": lost: " in violation]

    assert lost != []


def test_a_checkpoint_that_does_not_sync_the_file_is_caught(
    recorded: tuple[Recording, Story], tmp_path: Path
) -> None:
    """A seeded fault: the journal starts anew while the pages moved from it are not certain."""
    recording, story = recorded
    acknowledged = acknowledgement(recording, 1)
    lying = Recording(
        [
            operation
            for i, operation in enumerate(recording.operations)
            if i < acknowledged or operation.kind != "sync" or operation.name != FILE
        ]
    )
    examiner = Examiner(lying, story.states, tmp_path)
    for at in sample(lying.boundaries(), 40):
        examiner.examine(lying.cuts(at, SEED, subsets=1, prefixes=1))

    assert examiner.violations != []
