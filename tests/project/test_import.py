"""Importing the package defines names and does nothing else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

# Watches a fresh interpreter through its audit events and a spy in place of os.environ.
PROBE = """
import json, os, sys

events = []
flags = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

def watch(event, args):
    if event == "open" and (set(str(args[1] or "")) & set("wax+") or (args[2] or 0) & flags):
        events.append(f"open {args[0]!r} for writing")
    elif event.split(".")[0] in ("socket", "subprocess", "sqlite3", "urllib", "tempfile"):
        events.append(event)
    elif event in ("os.mkdir", "os.remove", "os.rename", "os.putenv", "os.fork", "os.system"):
        events.append(event)

asked = []

class Spy(dict):
    def __getitem__(self, name):
        asked.append(name)
        return super().__getitem__(name)

    def get(self, name, default=None):
        asked.append(name)
        return super().get(name, default)

    def __contains__(self, name):
        asked.append(name)
        return super().__contains__(name)

    def __iter__(self):
        asked.append("every name")
        return super().__iter__()

    def copy(self):
        asked.append("every name")
        return super().copy()

os.environ = Spy()
sys.addaudithook(watch)
sys.dont_write_bytecode = True
import pagefile

print(json.dumps({
    # Copied here: looking for names below loads what they need, numpy too.
    "events": list(events),
    "asked": list(asked),
    "modules": sorted(sys.modules),
    "undefined": [name for name in pagefile.__all__ if not hasattr(pagefile, name)],
}))
"""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a process without environment, in a home it cannot write to, saw of the import."""
    home: Path = tmp_path_factory.mktemp("home")
    home.chmod(0o555)
    ran = subprocess.run(
        [sys.executable, "-I", "-W", "error", "-c", PROBE],
        env={},
        cwd=home,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert list(home.iterdir()) == []
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def test_importing_writes_nothing_and_talks_to_nobody(seen: dict[str, Any]) -> None:
    assert seen["events"] == []


def test_importing_reads_nothing_of_the_environment(seen: dict[str, Any]) -> None:
    assert seen["asked"] == []


def test_importing_loads_no_engine_and_no_driver(seen: dict[str, Any]) -> None:
    # The folder itself says which engine a URL means, and imports none of them.
    engines = [name for name in seen["modules"] if name.startswith("pagefile.engines.")]
    heavy = {"apsw", "asyncio", "sqlite3", "sortedcontainers", "pydantic", "pytest", "hypothesis"}

    assert (engines, sorted(heavy & set(seen["modules"]))) == ([], [])


def test_every_public_name_is_defined(seen: dict[str, Any]) -> None:
    assert seen["undefined"] == []
