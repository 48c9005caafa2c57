"""Memory: its contract on each engine, four processes, and what only a file can show."""

from __future__ import annotations

import gzip
import inspect
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import apsw
import pytest

import pagefile
from pagefile import Memory
from pagefile.handle import Options
from pagefile.testing.backend import Backend, FileBackend, SharedBackend
from pagefile.testing.memory import MemoryContract
from pagefile.testing.memory.fixtures import START, episode, fact, objects, outcome, say
from pagefile.testing.memory.refusals import names_of_calls
from tests.crash.power import Recorder

if TYPE_CHECKING:
    from tests.servers.manager import ManagerProcess
    from tests.servers.postgres import PostgresServer
from tests import ROOT
from tests.servers.redis import RedisServer

_RACER = str(ROOT / "tests/memory/racer.py")


class TestMemory(MemoryContract):
    @pytest.fixture
    def place(self) -> Backend:
        return SharedBackend("memory:")


class TestSqlite(MemoryContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Backend:
        return FileBackend(str(tmp_path / "store.db"))


class TestPostgres(MemoryContract):
    @pytest.fixture
    def place(self, postgres_server: PostgresServer) -> Backend:
        return postgres_server.place()


class TestRedis(MemoryContract):
    @pytest.fixture
    def place(self, redis_server: RedisServer) -> Backend:
        return redis_server.place()


class TestManager(MemoryContract):
    @pytest.fixture
    def place(self, manager_server: ManagerProcess) -> Backend:
        return manager_server.place()


@pytest.mark.parametrize("engine", [TestMemory, TestSqlite, TestPostgres, TestRedis, TestManager])
def test_no_engine_overrides_a_contract_test(engine: type) -> None:
    assert [name for name in vars(engine) if name.startswith("test_")] == []


def test_no_two_parts_of_the_contract_share_a_name() -> None:
    names = [
        name
        for part in MemoryContract.__bases__
        for name, _ in inspect.getmembers(part, inspect.isfunction)
        if name.startswith("test_")
    ]

    assert len(names) == len(set(names))


def test_every_known_flaw_has_a_test_named_after_it() -> None:
    """T1 to T7 and two of Q are about facts alone, and have theirs in the modules about those."""
    wanted = {f"I{n}" for n in range(1, 11)} | {f"Q{n}" for n in range(1, 17)}
    wanted |= {f"T{n}" for n in range(1, 8)} | {f"G{n}" for n in range(1, 12)}
    wanted |= {f"D{n}" for n in range(1, 18)} | {f"P{n}" for n in range(1, 10)}
    beside = [Path(__file__).with_name(f"test_{name}.py") for name in ("facts", "graph")]
    names = [*dir(MemoryContract), *(name for one in beside for name in _tests_in(one))]
    named = {
        match.group(1) for name in names if (match := re.match(r"test_memory_([A-Z]\d+)_", name))
    }

    assert wanted - named == set()


def _tests_in(module: Path) -> list[str]:
    return re.findall(r"^def (test_\w+)", module.read_text(encoding="utf-8"), re.MULTILINE)


def test_every_public_call_is_given_what_it_cannot_take() -> None:
    calls = {
        name
        for name, call in inspect.getmembers(Memory, inspect.isfunction)
        # What takes nothing but itself cannot be given the wrong thing.
        # Nor has the awaited twin of a call a check of its own.
        if not name.startswith("_")
        and not name.endswith("_async")
        and len(inspect.signature(call).parameters) > 1
    }

    assert calls - names_of_calls() == set()


# What only a file can show


def test_memory_D3_a_file_of_the_first_state_is_read_and_written(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    kept = ROOT / "tests/kept" / "first-memory.db.gz"
    path.write_bytes(gzip.decompress(kept.read_bytes()))
    with pagefile.open(path) as pf, Memory(pf, embedder=None) as memory:
        found = memory.recall("a green boat", limit=1, user_id="ann")
        now, past = (
            objects(memory.facts.query(user_id="ann", predicate="lives_in", valid_at=moment))
            for moment in (None, START - timedelta(days=3))
        )
        (block,) = memory.working(user_id="ann")
        (candidate,) = memory.proposals.waiting(user_id="ann")
        memory.proposals.commit(candidate.id, reviewer="rev", user_id="ann")
        item, used = memory.why("units", user_id="ann"), memory.why("e2", user_id="ann")

        assert [(one.id, one.speaker) for one in found] == [("e2", "Bob")]
        assert (now, past) == (["Kyoto"], ["Oslo"])
        assert (block.content, block.version) == ("Answer briefly. In English.", 2)
        assert (item.text, item.committed_by, item.reason) == (
            "prefers metric units",
            "rev",
            "said so",
        )
        assert (len(used.uses), memory.users()) == (1, ["ann", "bob"])
        assert outcome(memory.remember, episode("forget me", id="gone")) == "Forbidden"
        memory.remember(episode("a red boat", id="e3"))
        memory.reindex()

        assert {one.id for one in memory.recall("boat", limit=2, user_id="ann")} == {"e2", "e3"}
        assert memory.consolidate().episodes == 1
    assert FileBackend(str(path)).finish() == []


class Disk(Recorder):
    """Counts what is done to files, opening included."""

    opened = 0

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        self.opened += 1
        return super().xOpen(name, flags)


def test_memory_P1_a_write_opens_nothing_and_syncs_once(tmp_path: Path) -> None:
    with (
        Disk() as disk,
        pagefile.open(tmp_path / "a.db", options=Options(vfs=disk.name)) as pf,
        Memory(pf, embedder=None) as memory,
    ):
        say(memory, "one", "two")
        opened, done = disk.opened, len(disk.operations)
        for n in range(20):
            say(memory, f"word{n}")
        kinds = Counter(one.kind for one in disk.operations[done:])

        assert disk.opened == opened
        assert (kinds["sync"], kinds["create"], kinds["delete"]) == (20, 0, 0)


def test_memory_D15_what_is_remembered_is_on_the_disk_when_the_call_returns(
    tmp_path: Path,
) -> None:
    with (
        Disk() as disk,
        pagefile.open(tmp_path / "a.db", options=Options(vfs=disk.name)) as pf,
        Memory(pf, embedder=None) as memory,
    ):
        unsynced = []
        for n in range(5):
            say(memory, f"word{n}")
            memory.append_block("b", "x", user_id="ann")
            memory.facts.append(fact(f"place{n}"))
            unsynced.append(_unsynced(disk))

    assert unsynced == [set()] * 5


def _unsynced(disk: Disk) -> set[str]:
    """The files that were written to and not synced since."""
    names: set[str] = set()
    for one in disk.operations:
        if one.kind in ("write", "truncate"):
            names.add(one.name)
        elif one.kind == "sync":
            names.discard(one.name)
    return names


def test_memory_D17_a_byte_that_was_changed_in_the_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with pagefile.open(path) as pf, Memory(pf, embedder=None) as memory:
        say(memory, "the secret is marzipan")
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b"marzipan", b"marzipon"))
    with pagefile.open(path) as pf:
        altered = pf.verify()
    path.write_bytes(whole)
    with pagefile.open(path) as pf:
        restored = pf.verify()

    assert b"marzipan" in whole
    assert (bool(altered.problems), restored.problems) == (True, ())


# Four processes on one store


@pytest.fixture(params=["sqlite", "postgres", "redis", "manager"])
def url(request: pytest.FixtureRequest, url_on: Callable[[str], str]) -> str:
    return url_on(request.param)


def racer(url: str, task: str, count: int, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, _RACER, url, task, str(count), name]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def race(url: str, task: str, count: int) -> list[list[Any]]:
    """What each of four processes was acknowledged; fails on any error they met."""
    racers = [racer(url, task, count, f"w{n}") for n in range(4)]
    for each in racers:
        go(each)
    told = [json.loads(each.communicate(timeout=300)[0]) for each in racers]
    assert [each["errors"] for each in told] == [[]] * 4
    return [each["acknowledged"] for each in told]


@pytest.mark.xdist_group("races")
def test_memory_D2_four_processes_append_to_one_block_and_nothing_is_lost(url: str) -> None:
    versions = sorted(version for each in race(url, "append_to_one_block", 40) for version in each)
    with pagefile.open(url) as pf, Memory(pf, embedder=None) as memory:
        block = memory.block("shared", user_id="ann")
        parts = block.content.split(";")[:-1]

    assert versions == list(range(1, 161))
    assert sorted(parts) == sorted(f"w{n}.{k}" for n in range(4) for k in range(40))
    assert [[p for p in parts if p.startswith(f"w{n}.")] for n in range(4)] == [
        [f"w{n}.{k}" for k in range(40)] for n in range(4)
    ]
    assert FileBackend(url).finish() == []


@pytest.mark.xdist_group("races")
def test_four_processes_talk_in_one_session_and_nothing_is_lost(url: str) -> None:
    ids = sorted(name for each in race(url, "talk_in_one_session", 40) for name in each)
    with pagefile.open(url) as pf, Memory(pf, embedder=None) as memory:
        said = [m.content for m in memory.session_messages("s", user_id="ann", limit=1_000)]
        found = [memory.recall(f"word{n}", limit=1, user_id="ann") for n in ("w0x0", "w3x39")]
        count = memory.profile(user_id="ann").episode_count

    assert (len(ids), count) == (160, 160)
    assert said == [f"word{name.replace('-', 'x')}" for name in ids]
    assert [one[0].input for one in found] == ["wordw0x0", "wordw3x39"]
    assert FileBackend(url).finish() == []


@pytest.mark.xdist_group("races")
def test_four_processes_assert_one_fact_and_its_windows_are_right_on_every_day(url: str) -> None:
    told = [each for acknowledged in race(url, "assert_one_fact", 20) for each in acknowledged]
    with pagefile.open(url) as pf, Memory(pf, embedder=None) as memory:
        asserted = memory.facts.assertions(user_id="ann")
        found = memory.facts.query(user_id="ann", history=True, limit=1_000)
        days = [START + timedelta(days=n) for n in range(90)]
        shown = [memory.facts.query(user_id="ann", valid_at=day) for day in days]
    by_id = {name: (city, first, last) for name, city, first, last in told}
    # Recorded last comes last, whatever process said it.
    claims = [by_id[known.id] for known in asserted]
    sources = {source for known in asserted for source in known.sources}

    assert len(claims) == len(by_id) == 80
    assert sources == {f"w{n}-{k}" for n in range(4) for k in range(20)}
    assert [objects(on) for on in shown] == [lives_in(claims, day) for day in range(90)]
    assert [[f.object for f in found if f.holds_at(day)] for day in days] == [
        objects(on) for on in shown
    ]
    assert FileBackend(url).finish() == []


def lives_in(claims: list[tuple[str, int, int | None]], day: int) -> list[str]:
    """By the rules, day by day: later starts put back what is open; then the last said counts."""
    here = [(c, first, last) for c, first, last in claims if first <= day < (last or day + 1)]
    left = [
        city
        for city, first, last in here
        if last is not None or not any(c != city and f > first for c, f, _ in here)
    ]
    return left[-1:]


@pytest.mark.xdist_group("races")
def test_memory_D7_four_processes_never_read_the_same_episode(url: str) -> None:
    with pagefile.open(url) as pf, Memory(pf, embedder=None) as memory:
        memory.remember_many([episode(f"I like tea{n}", id=f"e{n}") for n in range(200)])
    read = Counter(text for each in race(url, "read_what_nobody_read", 0) for text in each)
    with pagefile.open(url) as pf, Memory(pf, embedder=None) as memory:
        known = objects(memory.facts.query(user_id="ann", limit=1_000))

    assert (len(read), set(read.values())) == (200, {1})
    assert sorted(known) == sorted(f"tea{n}" for n in range(200))


@pytest.mark.xdist_group("races")
@pytest.mark.parametrize("session", [None, "s1"])
def test_another_process_finds_nothing_of_what_was_forgotten(url: str, session: str | None) -> None:
    with pagefile.open(url) as pf, Memory(pf, embedder=None) as memory:
        say(memory, "marker one", session="s1")
        say(memory, "marker two", session="s2")
        other = racer(url, "recall_twice", 0, "reader")
        go(other)
        assert other.stdout is not None
        before = json.loads(other.stdout.readline())
        memory.forget(user_id="ann", session_id=session)
        told = json.loads(other.communicate("go\n", timeout=60)[0])
    left = [] if session is None else ["marker two"]

    assert (sorted(before), told["errors"]) == (["marker one", "marker two"], [])
    assert told["acknowledged"] == [left, len(left)]


def test_a_memory_is_the_same_whatever_it_is_made_of(url: str) -> None:
    with pagefile.open(url) as pf:
        made = [Memory(pf, embedder=None), Memory(pf.store, embedder=None)]
        with Memory(url, embedder=None) as third:
            for n, memory in enumerate([*made, third]):
                memory.facts.append(fact(f"place{n}", predicate="visited"))

            assert [len(each.facts.query(user_id="ann")) for each in (*made, third)] == [3, 3, 3]
