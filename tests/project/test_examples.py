"""The examples run as they are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pagefile
from tests import ROOT

EXAMPLES = ROOT / "examples"


def test_the_agent_loop_tells_its_story(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / "agent_loop.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout.splitlines() == [
        "patched: True",
        "a second writer: LOCK_ERROR expected_seq=0 current_seq=1",
        "would add: 1",
        "remembered: 1",
        "# CONTEXT BRIEF",
        "next: book the night train",
        "went on as trip-2 at 3",
        "the ledger tells the same: True intact: True",
    ]
    assert ran.stderr == ""


def test_a_working_set_is_patched_packed_and_restored(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / "first_run.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout.splitlines() == [
        "BOOT 0 task_123 thread_456",
        "True BUSY 1",
        "LOCK_ERROR expected_seq=0 current_seq=1",
        "run_790 BUSY ['note-1']",
        "BOOT -> BUSY",
    ]
    assert ran.stderr == ""


def test_the_greeters_chain_is_answered_and_recorded(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / "greeter.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout.splitlines() == [
        "answer: HELLO ANN!",
        "ann → greeter: Greeting(name='Ann')",
        "greeter → shouter: Shout(text='hello Ann')",
        "shouter → greeter: Shouted(text='HELLO ANN!')",
        "greeter → ann: Shouted(text='HELLO ANN!')",
        "activations left: 0, intact: True",
    ]
    assert ran.stderr == ""


def test_threads_W08_the_research_team_counts_in_another_process(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, str(EXAMPLES / "research_team.py"), str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout.splitlines() == [
        "read about owls, whales: 22 words",
        "threads: 4, intact: True",
    ]
    assert ran.stderr == ""


def test_the_crash_demo_kills_a_writer_and_finds_everything(tmp_path: Path) -> None:
    kept = tmp_path / "demo.db"
    # On a busy machine no writer may have come to write within two seconds.
    for seconds in ("2", "10", "60"):
        options = ["--seconds", seconds, "--keep", str(kept)]
        ran = subprocess.run(
            [sys.executable, str(EXAMPLES / "crash_demo.py"), *options],
            capture_output=True,
            text=True,
        )
        told = " ".join(ran.stdout.split())
        if "broken acknowledged 0 " not in told:
            break
    with pagefile.open(kept) as pf:
        problems = pf.verify().problems + pf.check().problems

    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout
    assert "kill -9" in told
    assert "Nothing acknowledged was lost" in told
    assert "lost 0 duplicates 0 gaps 0 verify and check clean" in told
    assert problems == ()


def test_every_example_is_run_by_something() -> None:
    makefile = (EXAMPLES.parent / "Makefile").read_text(encoding="utf-8")
    client = ROOT / "tests/surfaces/test_client.py"
    own = "".join(path.read_text("utf-8") for path in (Path(__file__), client))

    assert [e.name for e in EXAMPLES.glob("*.py") if e.name not in makefile + own] == []
