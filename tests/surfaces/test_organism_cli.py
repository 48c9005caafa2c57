"""`pagefile organism`: what is wrong in a file, and what organisms do, seen from elsewhere."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import pagefile
from pagefile.dispatch import DeadLetter, OpenConversation, Overview, WorkerView, organisms_of
from pagefile.surfaces.cli import main
from pagefile.surfaces.cli.commands.organism import Frames, drawn, headline, span
from tests import ROOT

GOOD = """\
organism: {name: desk}
backend: {url: desk.db}
listeners:
  - {name: echo, payload_class: "tests.dispatch.ground:Ask", handler: "tests.dispatch.ground:echo"}
"""
# An organism in a process of its own: answers, fails once, and goes on until it is told to end.
WORK = """
import asyncio, sys
from tests.dispatch.ground import ANN, ONCE, Ask, News, echo
from pagefile.dispatch import DispatchLimits, Organism

async def fails(payload):
    raise ValueError("no \\x1b[31msuch thing")

async def work():
    organism = Organism("desk.db", name="desk", limits=DispatchLimits(lease_seconds=0.6))
    organism.listener("echo", payload=Ask)(echo)
    organism.listener("fails", payload=News, retry=ONCE)(fails)
    async with organism:
        await organism.ask(News("x"), "fails", caller=ANN)
        for _ in range(5):
            await organism.ask(Ask("x"), "echo", caller=ANN)
        # The next heartbeat tells of it; lines are read so long.
        print("worked", flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(work())
"""
Cli = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PAGEFILE_URL", raising=False)
    # `organism check` adds the folder it stands in.
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    def run(*words: str) -> tuple[int, str, str]:
        status = main([*words])
        out, err = capsys.readouterr()
        return status, out, err

    return run


def environment() -> dict[str, str]:
    here = str(ROOT)
    paths = [here, *(path for path in sys.path if path and path != here)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "NO_COLOR": "1"}


@pytest.fixture
def working(folder: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", WORK],
        cwd=folder,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "worked\n"
        yield process
    finally:
        process.stdin.close()
        process.stdout.close()
        assert process.wait(60) == 0


# Check


def test_a_file_without_fault_is_told_so(cli: Cli, folder: Path) -> None:
    (folder / "organism.yaml").write_text(GOOD)

    assert cli("organism", "check", "organism.yaml") == (
        0,
        "organism.yaml: desk, 1 listener, nothing wrong\n",
        "",
    )
    status, out, _ = cli("organism", "check", "organism.yaml", "--json")
    assert (status, json.loads(out)["data"]) == (
        0,
        {"file": "organism.yaml", "problems": [], "organism": "desk", "listeners": ["echo"]},
    )


def test_everything_wrong_is_told_with_its_line_and_key(cli: Cli, folder: Path) -> None:
    (folder / "organism.yaml").write_text(GOOD.replace("name: desk", "nane: desk") + "extra: 1\n")

    status, out, err = cli("organism", "check", "organism.yaml")
    _, told, _ = cli("organism", "check", "organism.yaml", "--json")

    assert status == 1
    assert out.splitlines() == [
        "organism.yaml:1: organism.nane: unknown key; known are name, register_calls",
        "organism.yaml:1: organism: name is missing",
        "organism.yaml:5: extra: unknown key; known are organism, backend, process_pool, limits,"
        " prompts, listeners",
    ]
    assert err == "invalid: 3 problems. mend the file\n"
    assert [problem["line"] for problem in json.loads(told)["data"]["problems"]] == [1, 1, 5]


def test_handlers_beside_the_file_are_found(cli: Cli, folder: Path) -> None:
    (folder / "desk_handlers.py").write_text(
        "from dataclasses import dataclass\n\n@dataclass\nclass Note:\n    text: str\n\n"
        "async def keep(payload: Note) -> None:\n    return None\n"
    )
    (folder / "organism.yaml").write_text(
        GOOD.replace("tests.dispatch.ground:Ask", "desk_handlers:Note").replace(
            "tests.dispatch.ground:echo", "desk_handlers:keep"
        )
    )

    assert cli("organism", "check", "organism.yaml")[0] == 0


def test_a_file_that_is_not_there_is_not_found(cli: Cli) -> None:
    assert cli("organism", "check", "none.yaml")[0] == 3
    assert cli("--url", "none.db", "organism", "top", "--once")[0] == 3


# Top


def looked_until(cli: Cli, done: Callable[[Any], bool]) -> Any:
    """What `top --once --json` tells, once a heartbeat has told it."""
    for _ in range(200):
        status, out, _ = cli("--url", "desk.db", "organism", "top", "--once", "--json")
        assert status == 0
        data = json.loads(out)["data"]
        if done(data):
            return data[0]
    raise AssertionError(data)


def test_an_organism_is_seen_from_another_process(cli: Cli, working: subprocess.Popen[str]) -> None:
    frame = looked_until(cli, lambda data: data and data[0]["processes"][0]["hops"] >= 6)
    status, out, _ = cli("--url", "desk.db", "organism", "top", "desk", "--once")
    echo, fails = frame["listeners"]

    assert (frame["organism"], frame["processes"][0]["pid"]) == ("desk", working.pid)
    assert (echo["listener"], echo["runs"], echo["errors"]) == ("echo", 5, 0)
    assert 0 < echo["mean_seconds"] <= echo["max_seconds"]
    assert (fails["listener"], fails["runs"], fails["errors"]) == ("fails", 1, 1)
    assert (frame["dead_letters"], frame["newest_dead_letters"][0]["code"]) == (1, "handler")
    assert status == 0
    assert out.startswith("desk · 1 process · 0 open conversations · 1 dead letter\n")
    assert "ValueError: no \ufffd[31msuch thing" in out
    assert "\x1b" not in out


def test_a_terminal_is_drawn_frame_after_frame(
    folder: Path, working: subprocess.Popen[str]
) -> None:
    ours, theirs = pty.openpty()
    words = ["--url", "desk.db", "organism", "top", "--interval", "0.3", "--most", "3"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pagefile", *words],
        cwd=folder,
        env={**environment(), "COLUMNS": "80", "LINES": "40", "TERM": "xterm"},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=subprocess.PIPE,
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            piece = os.read(ours, 65_536)
        except OSError:  # How a terminal says that its other end is closed.
            break
        if not piece:
            break
        seen += piece
    os.close(ours)
    err = process.communicate(timeout=30)[1]
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())

    assert (process.returncode, err) == (0, b"")
    assert "desk · 1 process" in text
    assert re.search(r"listener +runs +per s +queue +busy +mean +p95 +max +errors +timeouts", text)
    assert text.count("Ctrl-C ends") >= 3  # Rich draws the last frame again as it ends.


def test_a_store_without_organisms_shows_none(cli: Cli) -> None:
    with pagefile.open("empty.db") as pf:
        assert organisms_of(pf.store) == []

    assert cli("--url", "empty.db", "organism", "top") == (0, "", "no organism runs here\n")


def view(hops: int, seen_us: int, worker: str = "w", lease: float = 10.0) -> WorkerView:
    listeners = {"echo": {"count": hops, "mean": 0.5, "p50": 0.4, "p95": 1.5, "max": 2.0}}
    queues = {"echo": {"waiting": 3, "running": 1}}
    stats = {"hops": hops, "listeners": listeners, "queues": queues, "waiting": 3, "running": 1}
    return WorkerView(worker, 7, seen_us, lease, stats)


def test_rates_are_those_between_two_heartbeats() -> None:
    frames = Frames()

    def rates(*views: WorkerView, now_us: int = 10_000_000) -> list[float | None]:
        frame = frames.frame(Overview("desk", views, (), ()), now_us)
        return [
            *(row.per_second for row in frame.processes),
            *(row.per_second for row in frame.listeners),
        ]

    assert rates(view(10, 1_000_000)) == [None, None]
    assert rates(view(10, 1_000_000)) == [None, None]  # The same heartbeat again.
    assert rates(view(30, 3_000_000)) == [10.0, 10.0]
    assert rates(view(30, 3_000_000)) == [10.0, 10.0]
    # A process that is new has no rate yet; the listener has that of the other.
    assert rates(view(30, 4_000_000), view(5, 4_000_000, "v")) == [0.0, None, 0.0]


def test_processes_add_up_and_a_silent_one_is_told() -> None:
    letter = DeadLetter(
        "m", "desk", "echo", "ann", "request", "t", 0, "t", "handler", "x", 1, "ann"
    )
    talk = OpenConversation("t", "ann", "", 0, None)
    views = (view(10, 59_000_000), view(30, 1_000_000, "v"))

    frame = Frames().frame(Overview("desk", views, (talk,), (letter,) * 1000), 60_000_000)
    (row,) = frame.listeners

    assert (row.runs, row.waiting, row.running, row.p95_seconds) == (40, 6, 2, 1.5)
    assert [process.alive for process in frame.processes] == [True, False]
    assert headline(frame) == (
        "desk · 1 process, 1 silent · 1 open conversation · 1 without a process"
        " · 1,000+ dead letters"
    )


def test_a_frame_fits_eighty_columns() -> None:
    from rich.console import Console

    letter = DeadLetter(
        *("0123456789abcdef-12", "desk", "research", "ann", "request", "t", 0, "t", "handler"),
        *("ValueError: " + "a long story " * 20, 1, "ann"),
    )
    views = tuple(view(1_000_000, 1_000_000, f"{n:016x}") for n in range(2))
    frame = Frames().frame(Overview("desk", views, (), (letter,)), 2_000_000)
    console = Console(width=80, record=True, file=open(os.devnull, "w"), color_system=None)  # noqa: SIM115
    with console.file:
        console.print(drawn([frame], "12:00:00", 80))
        lines = console.export_text().splitlines()

    assert max(len(line.rstrip()) for line in lines) <= 80
    assert "2,000,000" in "".join(lines)
    assert "0123456789abcdef-12" in "".join(lines)
    assert all(heading in lines[2] for heading in ("listener", "per s", "errors", "timeouts"))
    # Each row is one line: a heading, two rules, and no cell broken in two.
    assert len(lines) == 1 + (1 + 3) + (1 + 4) + (1 + 3) + 1 + 1


def test_spans_are_told_in_the_unit_that_suits_them() -> None:
    assert [span(each) for each in (0.00001, 0.0123, 2.5, 6000.0)] == [
        "10 µs",
        "12.3 ms",
        "2.5 s",
        "100 min",
    ]
