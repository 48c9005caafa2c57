"""The suite itself: it can be shared out among processes (`make test JOBS=2`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_TESTS = Path(__file__).parent


def _collect(hash_seed: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    return subprocess.Popen(
        [*command, str(_TESTS)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=_TESTS.parent,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )


def test_every_process_gives_the_tests_the_same_names() -> None:
    """An address or the order of a set in a name would differ between the workers."""
    told = [collector.communicate(timeout=120)[0] for collector in [_collect("1"), _collect("2")]]
    names, others = ([line for line in text.splitlines() if "::" in line] for text in told)

    assert names
    assert [pair for pair in zip(names, others, strict=True) if pair[0] != pair[1]] == []
