"""Many writers at once, in threads and in processes: nothing lost, nothing twice, no gap.

    class TestMyRaces(RaceContract):
        @pytest.fixture
        def place(self, tmp_path):
            return FileBackend(f"myengine://{tmp_path}/data")

The invariant of each race is kept outside the store, by who was told what.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

from pagefile.store.batch import Append, Batch
from pagefile.store.store import Store
from pagefile.testing.backend import Backend, promise
from pagefile.testing.contract.fixtures import ContractFixtures
from pagefile.testing.racer import LIMIT, TASKS

_PATIENCE_SECONDS = 900
_PER_READ = 1_000

#: What each writer was acknowledged, in its own order.
Acknowledged = Mapping[str, list[Any]]


def race_processes(url: str, task: str, writers: int, count: int) -> Acknowledged:
    """Let processes do a task of `pagefile.testing.racer`; fails on any error they met."""
    racers = {f"w{n}": _racer(url, task, count, f"w{n}") for n in range(writers)}
    told = {
        name: json.loads(racer.communicate(timeout=_PATIENCE_SECONDS)[0])
        for name, racer in racers.items()
    }
    assert {name: one["errors"] for name, one in told.items() if one["errors"]} == {}
    return {name: one["acknowledged"] for name, one in told.items()}


def race_threads(backend: Backend, task: str, writers: int, count: int) -> Acknowledged:
    """The same by threads, each with a handle of its own."""
    stores = {f"w{n}": backend.open().store for n in range(writers)}
    told: dict[str, list[Any]] = {}

    def run(name: str, store: Store) -> None:
        told[name] = TASKS[task](store, count, name)

    threads = [threading.Thread(target=run, args=each) for each in stores.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return told


def _racer(url: str, task: str, count: int, name: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pagefile.testing.racer", url, task, str(count), name]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@contextmanager
def _busy_processes(url: str, writers: int) -> Iterator[None]:
    """Processes that append without pause until it is over."""
    racers = [_racer(url, "append_to_one_log", 10**6, f"w{n}") for n in range(writers)]
    try:
        yield
    finally:
        for racer in racers:
            racer.kill()
        for racer in racers:
            racer.communicate()


def _require_every_append(store: Store, told: Acknowledged, count: int) -> None:
    """The log holds what was acknowledged, each where it was, and nothing else."""
    expected = {
        index: {"by": name, "n": n}
        for name, indexes in told.items()
        for n, index in enumerate(indexes)
    }
    stored: dict[int, Any] = {}
    while page := store.read("shared", len(stored), limit=_PER_READ):
        stored.update((entry.index, entry.value) for entry in page)

    assert sorted(stored) == list(range(len(told) * count))
    assert stored == expected
    assert store.length("shared") == len(told) * count


def _require_every_update(store: Store, told: Acknowledged, count: int) -> None:
    """Each version was acknowledged to one writer, and each counted on from the one before."""
    final = store.get("counter")
    versions: list[tuple[int, Any]] = []
    while page := store.history("counter", after=len(versions), limit=_PER_READ):
        versions += [(one.version, one.value) for one in page]
    every = len(told) * count

    assert sorted(version for one in told.values() for version in one) == list(range(1, every + 1))
    assert versions == [(n, n) for n in range(1, every + 1)]
    assert final is not None
    assert final.value == final.version == every


class RaceContract(ContractFixtures):
    """S2, S3, S5, S7, S8 with many writers; an engine says how long its races are."""

    writers: ClassVar[int] = 8
    #: How many appends, and how many updates, each process does.
    appends: ClassVar[int] = 50
    updates: ClassVar[int] = 50
    #: How many each thread does.
    turns: ClassVar[int] = 25
    #: How many commits a quiet process makes beside busy ones.
    quiet_commits: ClassVar[int] = 30

    @pytest.fixture
    def url(self, backend: Backend) -> str:
        if backend.url is None:
            pytest.skip("this engine lives in one process")
        return backend.url

    @promise("S2", "S3")
    def test_processes_append_without_loss_repeat_or_gap(self, backend: Backend, url: str) -> None:
        told = race_processes(url, "append_to_one_log", self.writers, self.appends)

        _require_every_append(backend.open().store, told, self.appends)

    @promise("S3")
    def test_processes_update_one_document_without_losing_one(
        self, backend: Backend, url: str
    ) -> None:
        told = race_processes(url, "update_one_document", self.writers, self.updates)

        _require_every_update(backend.open().store, told, self.updates)

    @promise("S8")
    def test_processes_never_pass_a_limit(self, backend: Backend, url: str) -> None:
        each = -(-3 * LIMIT // self.writers)
        told = race_processes(url, "fill_to_a_limit", self.writers, each)

        assert sorted(index for one in told.values() for index in one) == list(range(LIMIT))
        assert backend.open().store.length("limited") == LIMIT

    @promise("S5")
    def test_busy_processes_do_not_starve_a_quiet_one(self, backend: Backend, url: str) -> None:
        """While four hammer the tenant, single commits of this one get through."""
        store = backend.open().store
        waits, others = [], []
        with _busy_processes(url, 4):
            assert store.wait(50, timeout=60)
            for n in range(self.quiet_commits):
                before, started = store.head().position, time.monotonic()
                commit = store.commit(Batch([Append("quiet", n)]))
                waits.append(time.monotonic() - started)
                others.append(commit.position - before - 1)

        # Fair means a turn every few commits of the others, not after hundreds.
        assert sorted(others)[len(others) // 2] <= 20
        assert max(waits) < 30

    @promise("S2", "S3")
    def test_threads_append_without_loss_repeat_or_gap(self, backend: Backend) -> None:
        told = race_threads(backend, "append_to_one_log", self.writers, self.turns)

        _require_every_append(backend.open().store, told, self.turns)

    @promise("S3")
    @pytest.mark.parametrize("task", ["update_one_document", "update_with_helper"])
    def test_threads_update_one_document_without_losing_one(
        self, backend: Backend, task: str
    ) -> None:
        told = race_threads(backend, task, self.writers, self.turns)

        _require_every_update(backend.open().store, told, self.turns)
