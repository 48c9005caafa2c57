"""kill -9 of writing processes at random moments: S1 … S4, S10 and S11 on SQLite.

Acknowledgements are kept outside the writers, by the process that kills them.
PAGEFILE_SOAK=1 runs ten times as many rounds.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import pytest

import pagefile
from pagefile import Entry

SOAK = os.environ.get("PAGEFILE_SOAK") == "1"
SEED = 41
ROUNDS = 50
#: Files to begin anew with: looking at everything costs more the longer a file lives.
STORIES = 10 if SOAK else 1
SCRIPT = Path(__file__).with_name("writer.py")
PATIENCE_SECONDS = 60.0


class Acknowledged(NamedTuple):
    what: str
    writer: str
    number: int
    places: tuple[int, ...]


class Writer:
    """One process, and what it said before it was killed."""

    def __init__(self, path: Path, name: str, mode: str, arrived: threading.Condition) -> None:
        self.name = name
        self.lines: list[Acknowledged] = []
        self._arrived = arrived
        self._process = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(path), name, mode, f"{SEED}.{name}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith(b"\n"):
                return
            what, writer, number, *places = line.decode().split()
            with self._arrived:
                self.lines.append(Acknowledged(what, writer, int(number), tuple(map(int, places))))
                self._arrived.notify_all()

    def kill(self) -> None:
        self._process.kill()

    def bury(self) -> str:
        """Wait for its end and all it said; return what it complained about."""
        assert self._process.stderr is not None
        complaint = self._process.stderr.read().decode()
        self._process.wait()
        self._listener.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.stderr.close()
        return complaint


class Crowd:
    """Writers on one file, killed and replaced round after round."""

    def __init__(self, path: Path, size: int, mode: str = "honest", story: int = 0) -> None:
        self.path = path
        self._mode = mode
        self._rng = random.Random(f"{SEED}.{size}.{mode}.{story}")
        self._arrived = threading.Condition()
        self._born = 0
        self._dead: list[Writer] = []
        self.killed = 0
        self.rounds = 0
        self.violations: list[str] = []
        self._living = [self._start() for _ in range(size)]

    def _start(self) -> Writer:
        self._born += 1
        return Writer(self.path, f"w{self._born}", self._mode, self._arrived)

    def acknowledged(self) -> list[Acknowledged]:
        with self._arrived:
            return [line for writer in (*self._dead, *self._living) for line in writer.lines]

    def round(self) -> None:
        """Let them write for a while, kill one or all, look at what is left."""
        self.rounds += 1
        everyone = self._rng.random() < 0.4
        self._let_them_write(self._rng.randint(1, 25))
        # Not to wait for anything: it spreads the kills over the parts of a commit.
        time.sleep(self._rng.uniform(0, 0.003))
        chosen = self._living if everyone else [self._rng.choice(self._living)]
        for writer in chosen:
            writer.kill()
        for writer in chosen:
            complaint = writer.bury()
            if complaint:
                self.violations.append(f"{writer.name} complained: {complaint}")
        self._dead += chosen
        self.killed += len(chosen)
        self._living = [writer for writer in self._living if writer not in chosen]
        self.look(verify=not self._living)
        self._living += [self._start() for _ in chosen]

    def _let_them_write(self, more: int) -> None:
        wanted = len(self.acknowledged()) + more
        with self._arrived:
            in_time = self._arrived.wait_for(
                lambda: sum(len(w.lines) for w in (*self._dead, *self._living)) >= wanted,
                PATIENCE_SECONDS,
            )
        if not in_time:
            self.violations.append(f"round {self.rounds}: the writers hang")

    def look(self, *, verify: bool) -> None:
        """What is left; with `verify` also every digest, which takes as long as the file is."""
        acknowledged = self.acknowledged()
        dead = {writer.name for writer in self._dead}
        with pagefile.open(self.path) as pf:
            found = violations_of(pf.store, acknowledged, dead)
            found += [f"check: {problem.what}" for problem in pf.check().problems]
            if verify:
                found += [f"verify: {problem.what}" for problem in pf.verify().problems]
        self.violations += [f"round {self.rounds}: {violation}" for violation in found]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for writer in self._living:
            writer.kill()
        for writer in self._living:
            writer.bury()


def violations_of(
    store: pagefile.Store, acknowledged: list[Acknowledged], dead: set[str]
) -> list[str]:
    """What the store does not keep of its promises, at one position that covers all of these."""
    at = store.head().position
    logs = {log: list(_entries(store, log, at)) for log in ("shared", "left", "right")}
    documents = {name: list(_versions(store, name, at)) for name in ("counter", "pair")}
    found: list[str] = []
    for log, entries in logs.items():
        if [entry.index for entry in entries] != list(range(store.length(log, at=at))):
            found.append(f"gap: the indexes of {log!r} are not 0, 1, 2, …")
    for name, versions in documents.items():
        if [version for version, _ in versions] != list(range(1, len(versions) + 1)):
            found.append(f"gap: the versions of {name!r} are not 1, 2, 3, …")
    values = {log: [entry.value for entry in entries] for log, entries in logs.items()}
    values |= {name: [value for _, value in versions] for name, versions in documents.items()}
    found += _half_pairs(values)
    found += [
        f"lost update: version {i} of the counter says {value[2]}"
        for i, value in enumerate(values["counter"], 1)
        if value[2] != i
    ]
    found += _lost(values, acknowledged)
    found += _invented(values, acknowledged, dead)
    return found


def _entries(store: pagefile.Store, log: str, at: int) -> Iterator[Entry]:
    start = 0
    while entries := store.read(log, start, at=at):
        yield from entries
        start = entries[-1].index + 1


def _versions(store: pagefile.Store, document: str, at: int) -> Iterator[tuple[int, Any]]:
    after = 0
    while versions := store.history(document, after=after, limit=10_000):
        yield from ((v.version, v.value) for v in versions if v.position <= at)
        after = versions[-1].version


def _half_pairs(values: dict[str, list[Any]]) -> list[str]:
    parts = [Counter((w, n) for w, n in values[part]) for part in ("left", "right", "pair")]
    halves = (parts[0] | parts[1] | parts[2]) - (parts[0] & parts[1] & parts[2])
    return [f"half: pair {number} of {writer} is there in part" for writer, number in halves]


_PLACES: dict[str, tuple[tuple[str, int], ...]] = {
    "append": (("shared", 0),),
    "count": (("counter", 1),),
    "pair": (("left", 0), ("right", 0), ("pair", 1)),
}


def _lost(values: dict[str, list[Any]], acknowledged: list[Acknowledged]) -> list[str]:
    found = []
    taken: Counter[tuple[str, int]] = Counter()
    for line in acknowledged:
        for (stream, first), place in zip(_PLACES[line.what], line.places, strict=True):
            taken[stream, place] += 1
            stored = values[stream]
            here = stored[place - first][:2] if place - first < len(stored) else None
            if here != [line.writer, line.number]:
                wanted = f"{line.what} {line.number} of {line.writer}"
                found.append(f"lost: {wanted} was acknowledged at {place} of {stream}, not {here}")
    found += [f"promised twice: {stream} {place}" for (stream, place), n in taken.items() if n > 1]
    return found


def _invented(
    values: dict[str, list[Any]], acknowledged: list[Acknowledged], dead: set[str]
) -> list[str]:
    """A dead writer has at most one commit more than it could say, and none twice."""
    said = {(line.writer, line.number) for line in acknowledged}
    stored = Counter((v[0], v[1]) for part in ("shared", "counter", "left") for v in values[part])
    silent = Counter(writer for writer, number in stored if (writer, number) not in said)
    return [
        *(f"twice: {number} of {writer}" for (writer, number), n in stored.items() if n > 1),
        *(f"invented: {n} of {w}" for w, n in silent.items() if w in dead and n > 1),
    ]


@pytest.mark.parametrize("story", range(STORIES))
@pytest.mark.parametrize("writers", [1, 2, 4, 8])
def test_killed_writers_lose_nothing_acknowledged_and_leave_nothing_half(
    writers: int, story: int, tmp_path: Path
) -> None:
    with Crowd(tmp_path / "state.db", writers, story=story) as crowd:
        for _ in range(ROUNDS):
            crowd.round()
            if crowd.violations:
                break
    crowd.look(verify=True)
    print(
        f"{writers} writers: {crowd.rounds} rounds, {crowd.killed} kills, "
        f"{len(crowd.acknowledged())} commits acknowledged"
    )

    assert crowd.violations == []


def test_writers_killed_in_operations_of_every_kind_leave_tiers_that_agree() -> None:
    """A short form; `make kills` has the long one, also on PostgreSQL and Valkey."""
    script = Path(__file__).with_name("kills.py")
    ran = subprocess.run(
        [sys.executable, str(script), "--kills", "24", "--per-store", "24", "--writers", "3"],
        capture_output=True,
        text=True,
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert " 0 lost, 0 half, 0 disagree, 0 other" in ran.stdout


def violations_within(rounds: int, path: Path, writers: int, mode: str) -> list[str]:
    with Crowd(path, writers, mode) as crowd:
        while crowd.rounds < rounds and not crowd.violations:
            crowd.round()
    return crowd.violations


def test_an_acknowledgement_before_the_commit_is_caught(tmp_path: Path) -> None:
    """A seeded fault, found with one writer: only the kill can show it."""
    found = violations_within(40, tmp_path / "state.db", 1, "early")

    assert [violation for violation in found if ": lost: " in violation] != []


def test_a_pair_without_a_transaction_is_caught(tmp_path: Path) -> None:
    """A seeded fault, found with one writer: only the kill can show it."""
    found = violations_within(40, tmp_path / "state.db", 1, "apart")

    assert [violation for violation in found if ": half: " in violation] != []


def test_an_ignored_condition_is_caught(tmp_path: Path) -> None:
    found = violations_within(40, tmp_path / "state.db", 4, "unconditional")

    assert [violation for violation in found if ": lost update: " in violation] != []
