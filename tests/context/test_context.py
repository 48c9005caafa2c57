"""The context: its contract on each engine, eight processes, and what only a file can show."""

from __future__ import annotations

import asyncio
import datetime
import inspect
import itertools
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pagefile
import pagefile.aio
from pagefile import (
    Admin,
    Batch,
    ContextBuffer,
    Invalid,
    Options,
    Prune,
    Selector,
    ThreadContext,
    get_context_buffer,
    reset_context_buffer,
)
from pagefile.context.names import USAGE
from pagefile.testing.backend import Backend, FileBackend, SharedBackend
from pagefile.testing.context import ContextContract
from pagefile.testing.context.fixtures import Note, payloads, say
from tests import ROOT
from tests.context.isolation import Step, noises, steps, told
from tests.context.racer import all_slots

_RACER = str(ROOT / "tests/context/racer.py")


class TestMemory(ContextContract):
    @pytest.fixture
    def place(self) -> Backend:
        return SharedBackend("memory:")


class TestSqlite(ContextContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Backend:
        return FileBackend(str(tmp_path / "store.db"))


@pytest.mark.parametrize("engine", [TestMemory, TestSqlite])
def test_no_engine_overrides_a_contract_test(engine: type) -> None:
    assert [name for name in vars(engine) if name.startswith("test_")] == []


def test_no_two_parts_of_the_contract_share_a_name() -> None:
    names = [
        name
        for part in ContextContract.__bases__
        for name, _ in inspect.getmembers(part, inspect.isfunction)
        if name.startswith("test_")
    ]

    assert len(names) == len(set(names))


# What happens at the same time


class Meanwhile(datetime.tzinfo):
    """Does something when it is first asked, which is while its time is being stored."""

    def __init__(self, do: Callable[[], None]) -> None:
        self._to_do = [do]

    def utcoffset(self, moment: datetime.datetime | None) -> datetime.timedelta:
        while self._to_do:
            self._to_do.pop()()
        return datetime.timedelta(0)

    dst = utcoffset

    def tzname(self, moment: datetime.datetime | None) -> str:
        return "meanwhile"


def test_a_thread_is_not_evicted_in_the_middle_of_an_append_to_it() -> None:
    """The eviction has to wait; half a second is only what it is offered, nothing depends on it."""
    with pagefile.open("memory:") as pf:
        buffer = ContextBuffer(pf, max_threads=1)
        say(buffer, "old", "first")
        newcomer = threading.Thread(target=say, args=(buffer, "new", "hello"))

        def come() -> None:
            newcomer.start()
            newcomer.join(0.5)

        say(buffer, "old", datetime.datetime(2026, 1, 1, tzinfo=Meanwhile(come)))
        newcomer.join()

        assert buffer.get_stats()["threads"] == ["new"]


def test_a_usage_text_that_another_handle_erased_is_not_shown_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, clock = str(tmp_path / "store.db"), SimpleNamespace(monotonic=lambda: 100.0)
    monkeypatch.setattr("pagefile.context.slot.time", clock)
    with pagefile.open(url) as here, pagefile.open(url) as there:
        here.context.append("t", 1, "a", "b", usage_instructions="Ann's.", user_id="ann")
        view = here.context.get_or_create_thread("t")
        shown = [view[0].metadata.usage_instructions]
        (text,) = there.store.names("document", prefix=USAGE, limit=2)
        there.store.erase(Selector(document=text))
        clock.monotonic = lambda: 101.1
        shown.append(view[0].metadata.usage_instructions)

    assert shown == ["Ann's.", ""]


# Isolation


def opening_of(engine: str, folder: str) -> Callable[[Options], Admin]:
    """How an empty store is opened, again and again."""
    numbers = itertools.count()

    def opened(options: Options) -> Admin:
        if engine == "memory":
            return Admin("memory:", options=options)
        quick = msgspec.structs.replace(options, durability="process")
        return Admin(f"{folder}/{next(numbers)}.db", options=quick)

    return opened


@pytest.mark.parametrize("whose", ["thread", "tenant"])
@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_what_a_holder_observes_does_not_depend_on_others(engine: str, whose: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        opening = opening_of(engine, folder)

        @settings(max_examples=200 if engine == "memory" else 25)
        @given(st.lists(st.tuples(st.lists(noises, max_size=3), steps), min_size=1, max_size=12))
        def told_alike(story: list[tuple[list[Step], Step]]) -> None:
            alone = told(opening, [([], step) for _, step in story], whose)

            assert told(opening, story, whose) == alone

        told_alike()


# Eight processes on one file


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "store.db")


def race(url: str, task: str, count: int) -> list[list[Any]]:
    """What each of eight processes was acknowledged.

    Fails on any error they met, and unless all of them then read the same.
    """
    command = [sys.executable, _RACER, url, task, str(count)]
    racers = [
        subprocess.Popen(
            [*command, f"w{n}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for n in range(8)
    ]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    told = []
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    for racer in racers:
        assert racer.stdout is not None
        told.append(json.loads(racer.stdout.readline()))
    read = [json.loads(racer.communicate("read\n", timeout=300)[0]) for racer in racers]
    with pagefile.open(url) as pf:
        found = all_slots(pf.context)
    assert [each["errors"] for each in told] == [[]] * 8
    assert found
    assert read == [found] * 8
    return [each["acknowledged"] for each in told]


@pytest.mark.xdist_group("races")
def test_threads_B01_eight_processes_append_to_shared_threads_without_gap_or_loss(
    url: str,
) -> None:
    told = race(url, "append_to_shared_threads", 60)
    acknowledged = sorted(tuple(slot) for each in told for slot in each)
    with pagefile.open(url) as pf:
        found = [
            (slot.thread_id, slot.index, slot.payload)
            for name in ("t0", "t1", "t2")
            for slot in pf.context.get_thread_slots(name)
        ]
        documents = pf.stats().documents

    assert acknowledged == found
    assert [index for _, index, _ in found] == [*range(160)] * 3
    assert documents == 1
    assert FileBackend(url).finish() == []


@pytest.mark.xdist_group("races")
def test_threads_B02_eight_processes_never_pass_the_slot_limit(url: str) -> None:
    acknowledged = sorted(index for each in race(url, "fill_to_a_limit", 15) for index in each)
    with pagefile.open(url) as pf:
        length = len(pf.context.get_or_create_thread("limited"))

    assert (acknowledged, length) == (list(range(60)), 60)


@pytest.mark.xdist_group("races")
def test_one_of_eight_processes_wins_each_length(url: str) -> None:
    won = sorted(length for each in race(url, "claim_lengths", 60) for length in each)
    with pagefile.open(url) as pf:
        length = len(pf.context.get_thread_slots("claimed"))

    assert won == list(range(length))
    # Each win turns away at most the seven others.
    assert length >= 60


@pytest.mark.xdist_group("races")
def test_forks_that_eight_processes_make_share_a_prefix_of_the_trunk(url: str) -> None:
    made = [name for each in race(url, "fork_and_go_on", 10) for name in each]
    with pagefile.open(url) as pf:
        trunk = payloads(pf.context.get_thread_slots("trunk"))
        grown = [payloads(pf.context.get_thread_slots(name)) for name in made]

    assert len(trunk) == 80
    assert [slots[-1] for slots in grown] == made
    assert [slots[:-1] for slots in grown] == [trunk[: len(slots) - 1] for slots in grown]


# What a file shows


def rows_with_a_place(url: str) -> int:
    connection = apsw.Connection(url, flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return int(
            next(connection.execute("SELECT count(*) FROM records WHERE stream IS NOT NULL"))[0]
        )
    finally:
        connection.close()


def test_deleting_all_threads_frees_all_their_rows(url: str) -> None:
    with pagefile.open(url) as pf:
        say(pf.context, "t", *range(50))
        child = pf.context.fork(pf.context.fork("t", 30), 20)
        say(pf.context, child, *range(10))
        full = rows_with_a_place(url)
        pf.context.delete_thread("t")
        shared = rows_with_a_place(url)
        pf.context.clear()

        assert (full, shared, rows_with_a_place(url)) == (60, 40, 0)


def test_deleting_all_threads_frees_the_memory_of_a_store_in_memory() -> None:
    with pagefile.Admin("memory:") as admin:
        pf = admin.open("t")
        empty = admin.size_bytes()
        say(pf.context, "t", *["x" * 10_000] * 50)
        pf.context.fork("t", 40)
        full = admin.size_bytes()
        pf.context.clear()

        assert full - empty > 500_000
        assert admin.size_bytes() - empty < 100_000


def test_threads_M15_a_usage_text_stands_in_the_file_once(url: str) -> None:
    text = "a-very-long-schema"
    with pagefile.open(url) as pf:
        for n in range(20):
            pf.context.append("t", n, "a", "b", usage_instructions=text)
    connection = apsw.Connection(url, flags=apsw.SQLITE_OPEN_READONLY)
    holding = "SELECT count(*) FROM records WHERE instr(body, ?)"
    found = next(connection.execute(holding, (text.encode(),)))
    connection.close()

    assert found == (1,)


PAYLOADS_WITH_A_TRAP = """
from dataclasses import dataclass
from pathlib import Path

@dataclass
class Trap:
    text: str

if Path("armed").exists():
    Path("sprung").touch()
"""


def test_threads_B07_reading_a_payload_imports_and_runs_nothing(tmp_path: Path) -> None:
    (tmp_path / "trap.py").write_text(PAYLOADS_WITH_A_TRAP)
    begin = "import pagefile; pf = pagefile.open('store.db'); "
    write = "import trap; pf.context.append('t', trap.Trap('hello'), 'a', 'b'); pf.close()"
    read = "slot = pf.context.get_thread('t')[0]; print(slot.payload.text, slot.payload_type)"
    printed = []
    for code in (write, read):
        ran = subprocess.run(
            [sys.executable, "-c", begin + code], cwd=tmp_path, capture_output=True, text=True
        )
        assert ran.stderr == ""
        printed.append(ran.stdout)
        (tmp_path / "armed").touch()

    assert printed[1] == "hello trap:Trap\n"
    assert not (tmp_path / "sprung").exists()


def test_threads_M17_an_append_never_blocks_the_loop(url: str) -> None:
    """Another process holds the write lock; the loop keeps turning meanwhile."""

    async def story() -> int:
        async with pagefile.aio.open(url) as pf:
            await pf.context.append("t", 0, "a", "b")
            holder = pagefile.open(url)
            file = holder.store._engine._file  # type: ignore[attr-defined]
            file.begin()
            try:
                waiting = [
                    asyncio.ensure_future(pf.context.append("t", 1, "a", "b")),
                    asyncio.ensure_future(
                        pf.context.append("u", 1, "a", "b", usage_instructions="New.")
                    ),
                ]
                for _ in range(2_000):
                    await asyncio.sleep(0)
                assert [task.done() for task in waiting] == [False, False]
            finally:
                file.end()
            slots = await asyncio.gather(*waiting)
            holder.close()
            return len(slots)

    assert asyncio.run(story()) == 2


# One buffer per process


@pytest.fixture
def no_buffer() -> Iterator[None]:
    reset_context_buffer()
    yield
    reset_context_buffer()


@pytest.mark.usefixtures("no_buffer")
def test_threads_B20_other_settings_for_the_one_buffer_are_refused() -> None:
    first = get_context_buffer(max_threads=5)
    with pytest.raises(Invalid, match=r"max_threads: .*reset_context_buffer"):
        get_context_buffer(max_threads=6)

    assert get_context_buffer() is get_context_buffer(max_threads=5) is first


@pytest.mark.usefixtures("no_buffer")
def test_settings_are_compared_with_those_the_one_buffer_has_by_now() -> None:
    first = get_context_buffer()
    assert get_context_buffer(max_threads=1_000, max_slots_per_thread=10_000) is first
    first.max_threads = 9
    with pytest.raises(Invalid, match="max_threads"):
        get_context_buffer(max_threads=5)

    assert get_context_buffer(max_threads=9) is first


@pytest.mark.usefixtures("no_buffer")
def test_a_file_is_the_same_however_its_path_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = get_context_buffer("store.db")
    whole = tmp_path / "store.db"
    for same in (whole, str(whole), "./store.db", "sqlite:///store.db", f"sqlite:///{whole}"):
        assert get_context_buffer(same) is first
    monkeypatch.chdir("/")
    assert get_context_buffer(whole) is first
    with pytest.raises(Invalid, match="backend"):
        get_context_buffer("store.db")


def test_a_thread_that_stands_alone_takes_more_than_a_buffer_does_by_default() -> None:
    alone = ThreadContext("t")
    for n in range(10_001):
        alone.append(n, "a", "b")

    assert alone[-1].payload == 10_000


@pytest.mark.usefixtures("no_buffer")
def test_threads_B21_the_one_buffer_uses_the_store_it_was_given(url: str) -> None:
    say(get_context_buffer(url), "t", "kept")
    reset_context_buffer()
    with pagefile.open(url) as pf:
        found = payloads(pf.context.get_thread_slots("t"))

    assert found == ["kept"]


@pytest.mark.usefixtures("no_buffer")
def test_resetting_the_one_buffer_deletes_nothing(url: str) -> None:
    with pagefile.open(url) as pf:
        say(get_context_buffer(pf), "t", 1)
        reset_context_buffer()

        assert payloads(pf.context.get_thread_slots("t")) == [1]


def test_threads_B20_a_mistyped_store_is_refused_and_shows_no_password() -> None:
    with pytest.raises(pagefile.PagefileError) as caught:
        ContextBuffer("reddis://user:secret@host/0")

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("made_of", ["store", "handle", "url"])
def test_threads_B16_a_buffer_is_the_same_whatever_it_is_made_of(url: str, made_of: str) -> None:
    with pagefile.open(url) as pf:
        given = {"store": pf.store, "handle": pf, "url": url}[made_of]
        buffer = ContextBuffer(given)  # type: ignore[arg-type]
        say(buffer, "t", Note("x", []))
        buffer.close()

        assert (buffer.is_shared, payloads(pf.context.get_thread_slots("t"))) == (
            True,
            [Note("x", [])],
        )


def test_numbers_and_values_that_cannot_be_written_out_are_refused_in_our_words() -> None:
    deep: Any = []
    for _ in range(3_000):
        deep = [deep]
    long: Any = -(10**5_000)
    view = ContextBuffer().get_or_create_thread("t")

    for wrong in (long, deep):
        for call in (view.tail, view.get_by_type, view.between):
            with pytest.raises(Invalid):
                call(wrong)
    with pytest.raises(Invalid):
        view.at(deep)
    with pytest.raises(IndexError):
        view.at(10**5_000)


def test_a_fork_within_what_was_let_go_is_not_told_that_it_is_beyond_the_end() -> None:
    with pagefile.open("memory:") as pf:
        for n in range(6):
            pf.context.append("t", n, "user", "agent")
        pf.store.commit(Batch([Prune(3, log="thread/t")]))
        with pytest.raises(Invalid, match="2 is not within what thread 't' has"):
            pf.context.fork("t", 2)

        assert [slot.index for slot in pf.context.get_or_create_thread(pf.context.fork("t"))] == [
            3,
            4,
            5,
        ]
