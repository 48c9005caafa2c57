"""The suite itself: processes can share it out, and `make soak` runs all its long forms."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests import ROOT

_TESTS = ROOT / "tests"


def _collect(hash_seed: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    return subprocess.Popen(
        [*command, str(_TESTS)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )


def test_every_process_gives_the_tests_the_same_names() -> None:
    """An address or the order of a set in a name would differ between the workers."""
    told = [collector.communicate(timeout=600)[0] for collector in [_collect("1"), _collect("2")]]
    names, others = ([line for line in text.splitlines() if "::" in line] for text in told)

    assert names
    assert [pair for pair in zip(names, others, strict=True) if pair[0] != pair[1]] == []


def test_make_soak_runs_every_file_that_has_a_long_form() -> None:
    makefile = (ROOT / "Makefile").read_text()
    listed = re.search(r"^SOAK_SUITES := \$\(wildcard (.*?)\)$", makefile, re.MULTILINE | re.DOTALL)
    assert listed is not None
    patterns = listed[1].replace("\\\n", " ").split()
    soaked = {path.name for pattern in patterns for path in ROOT.glob(pattern)}
    long_forms = {
        path.name
        for path in _TESTS.rglob("test_*.py")
        if path.name != Path(__file__).name and 'environ.get("PAGEFILE_SOAK")' in path.read_text()
    }

    assert len(long_forms) > 10
    assert long_forms - soaked == set()
    assert [pattern for pattern in patterns if not list(ROOT.glob(pattern))] == []


def test_every_known_flaw_of_threads_has_a_test_named_after_it() -> None:
    """Flaws that were found in earlier systems: threads, registry, backends, workers, messages."""
    counts = {"B": 22, "M": 18, "P": 21, "R": 11, "S": 8, "W": 9}
    wanted = {f"{kind}{n:02}" for kind, count in counts.items() for n in range(1, count + 1)}
    shipped = ROOT / "src/pagefile/testing"
    named: set[str] = set()
    for path in [*_TESTS.rglob("test_*.py"), *shipped.rglob("*.py")]:
        for ids in re.findall(r"def test_threads_((?:[A-Z]\d\d_)+)", path.read_text()):
            named |= set(ids.split("_")) - {""}

    assert wanted - named == set()
