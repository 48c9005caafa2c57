"""Many writers, in threads and in processes: nothing lost, nothing twice, no gap."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import pagefile
from pagefile import Append, Batch
from pagefile.testing.backend import Backend, FileBackend, SharedBackend
from pagefile.testing.racer import TASKS

# One after the other, also when the suite is shared out: they measure turns and load the machine.
pytestmark = pytest.mark.xdist_group("races")

_ROUNDS = 5_000 if os.environ.get("PAGEFILE_SOAK") == "1" else 500


def race_processes(url: str, task: str, writers: int, count: int) -> list[Any]:
    """What all racers together were acknowledged; fails on any error they met."""
    command = [sys.executable, "-m", "pagefile.testing.racer", url, task, str(count)]
    racers = [
        subprocess.Popen([*command, f"w{n}"], stdout=subprocess.PIPE, text=True)
        for n in range(writers)
    ]
    told = [json.loads(racer.communicate(timeout=900)[0]) for racer in racers]
    assert [t["errors"] for t in told] == [{}] * writers
    return sorted(item for t in told for item in t["acknowledged"])


def race_threads(backend: Backend, task: str, writers: int, count: int) -> list[Any]:
    acknowledged: list[Any] = []
    threads = [
        threading.Thread(
            target=lambda n=n: acknowledged.extend(
                TASKS[task](backend.open().store, count, f"w{n}")
            )
        )
        for n in range(writers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sorted(acknowledged)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "store.db")


def test_eight_processes_append_without_loss_repeat_or_gap(url: str) -> None:
    acknowledged = race_processes(url, "append_to_one_log", 8, _ROUNDS)

    assert acknowledged == list(range(8 * _ROUNDS))
    assert FileBackend(url).finish() == []


def test_eight_processes_update_one_document_without_losing_one(url: str) -> None:
    acknowledged = race_processes(url, "update_one_document", 8, _ROUNDS)
    with pagefile.open(url) as pf:
        final = pf.store.get("counter")

    assert acknowledged == list(range(1, 8 * _ROUNDS + 1))
    assert final is not None
    assert final.value == final.version == 8 * _ROUNDS
    assert FileBackend(url).finish() == []


def test_eight_processes_never_pass_a_limit(url: str) -> None:
    acknowledged = race_processes(url, "fill_to_a_limit", 8, 40)

    assert acknowledged == list(range(100))


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
@pytest.mark.parametrize("task", ["append_to_one_log", "update_one_document", "update_with_helper"])
def test_eight_threads_lose_nothing(url: str, engine: str, task: str) -> None:
    backend: Backend = SharedBackend("memory:") if engine == "memory" else FileBackend(url)
    acknowledged = race_threads(backend, task, 8, 25)
    start = 0 if task == "append_to_one_log" else 1

    assert acknowledged == list(range(start, start + 200))
    assert backend.finish() == []


def test_a_busy_process_does_not_starve_a_quiet_one(url: str) -> None:
    """S5: while four processes hammer the file, single commits of this one get through."""
    command = [sys.executable, "-m", "pagefile.testing.racer", url, "append_to_one_log", "100000"]
    with pagefile.open(url) as pf:
        racers = [
            subprocess.Popen([*command, f"w{n}"], stdout=subprocess.DEVNULL) for n in range(4)
        ]
        try:
            assert pf.store.wait(50, timeout=60)
            waits, others = [], []
            for n in range(50):
                before, started = pf.store.head().position, time.monotonic()
                commit = pf.store.commit(Batch([Append("quiet", n)]))
                waits.append(time.monotonic() - started)
                others.append(commit.position - before - 1)
        finally:
            for racer in racers:
                racer.kill()
                racer.wait()

    # Fair means a turn every few commits of the others, not after hundreds.
    assert sorted(others)[len(others) // 2] <= 20
    assert max(waits) < 30
