"""The races of processes for threads and for their registry, on servers as on a file."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import pagefile
from tests import ROOT
from tests.context import test_context, test_registry
from tests.context.racer import all_slots

pytest.importorskip("psycopg", reason="pagefile[postgres] is not installed")
pytest.importorskip("redis", reason="pagefile[redis] is not installed")

pytestmark = pytest.mark.xdist_group("races")

#: Told on a file where they stand; what they ask for holds wherever several processes write.
RACES: list[Callable[[str], None]] = [
    test_context.test_threads_B01_eight_processes_append_to_shared_threads_without_gap_or_loss,
    test_context.test_threads_B02_eight_processes_never_pass_the_slot_limit,
    test_context.test_one_of_eight_processes_wins_each_length,
    test_registry.test_threads_R06_eight_processes_never_mint_two_ids_for_one_path,
    test_registry.test_threads_R11_calls_of_eight_processes_from_one_thread_stay_apart,
]
_PROCESS = """
import importlib, json, sys
while line := sys.stdin.readline():
    module, arguments = json.loads(line)
    importlib.import_module(module).main(*arguments)
    sys.stdout.flush()
"""


class Racers:
    """Eight processes that run one race after the other: most of a race is their start."""

    def __init__(self) -> None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._all: list[Any] = [
            subprocess.Popen([sys.executable, "-c", _PROCESS], text=True, cwd=ROOT, **pipes)
            for _ in range(8)
        ]

    def _tell(self, racer: Any, line: str) -> None:
        racer.stdin.write(f"{line}\n")
        racer.stdin.flush()

    def _run(self, module: str, calls: list[list[str]]) -> list[Any]:
        racers = self._all
        for racer, call in zip(racers, calls, strict=True):
            self._tell(racer, json.dumps([f"tests.context.{module}", call]))
        assert [racer.stdout.readline() for racer in racers] == ["ready\n"] * len(racers)
        for racer in racers:
            self._tell(racer, "go")
        return [json.loads(racer.stdout.readline()) for racer in racers]

    def race(self, url: str, task: str, count: int) -> list[list[Any]]:
        """As `test_context.race`."""
        told = self._run("racer", [[url, task, str(count), f"w{n}"] for n in range(8)])
        for racer in self._all:
            self._tell(racer, "read")
        read = [json.loads(racer.stdout.readline()) for racer in self._all]
        with pagefile.open(url) as pf:
            found = all_slots(pf.context)
        assert [each["errors"] for each in told] == [[]] * 8
        assert found
        assert read == [found] * 8
        return [each["acknowledged"] for each in told]

    def in_processes(self, url: str, task: str, count: int) -> list[list[Any]]:
        """As `test_registry.in_processes`."""
        return self._run("registry_racer", [[url, task, str(count)]] * 8)

    def close(self) -> None:
        for racer in self._all:
            racer.stdin.close()
        assert [racer.wait(60) for racer in self._all] == [0] * 8
        for racer in self._all:
            racer.stdout.close()


@pytest.fixture(scope="module")
def racers() -> Iterator[Racers]:
    standing = Racers()
    yield standing
    standing.close()


@pytest.mark.parametrize("engine", ["postgres", "redis"])
@pytest.mark.parametrize("race", RACES, ids=lambda race: race.__name__.removeprefix("test_"))
def test_processes_race_on_a_server(
    race: Callable[[str], None],
    engine: str,
    url_on: Callable[[str], str],
    racers: Racers,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(test_context, "race", racers.race)
    monkeypatch.setattr(test_registry, "in_processes", racers.in_processes)

    race(url_on(engine))
