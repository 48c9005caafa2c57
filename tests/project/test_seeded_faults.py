"""The contract is trusted because it fails where an engine does not keep its word."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import get_args

import pytest

from pagefile.testing.contract import StoreContract
from pagefile.testing.faults import Fault
from tests import ROOT

# One process runs them, so that the contract runs once.
pytestmark = pytest.mark.xdist_group("seeded faults")

_CONTRACT = Path(__file__).with_name("faulty_contract.py")
_FAILED = re.compile(r"^(?:FAILED|ERROR) .*::(test_\w+)\[(\w+)", re.MULTILINE)
_COUNT = re.compile(r"(\d+) passed")

#: The promise that each fault breaks.
BROKEN: dict[Fault, str] = {
    "early_acknowledgement": "S6",
    "missing_transaction": "S1",
    "ignored_condition": "S3",
    "forgotten_key": "S7",
    "off_by_one_read": "S6",
    "wrong_field": "S3",
    "changed_byte": "S10",
}


@pytest.fixture(scope="module")
def failed() -> dict[str, set[str]]:
    """By fault, which promises the contract found broken; run once for all of them."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", "0", "--tb=no", "-p", "no:cacheprovider"]
    # One that waits for a commit would wait for its whole patience where nothing is stored.
    ran = subprocess.run(
        [*command, "-k", "not test_wait", str(_CONTRACT)],
        capture_output=True,
        text=True,
        timeout=600,
        cwd=ROOT,
    )
    assert _COUNT.search(ran.stdout), ran.stdout + ran.stderr
    found: dict[str, set[str]] = defaultdict(set)
    for test, fault in _FAILED.findall(ran.stdout):
        found[fault].update(getattr(StoreContract, test).promises)
    return found


def test_every_seeded_fault_is_tried() -> None:
    assert set(BROKEN) == set(get_args(Fault))


@pytest.mark.parametrize("fault", BROKEN)
def test_the_contract_fails_where_the_engine_lies(
    failed: dict[str, set[str]], fault: Fault
) -> None:
    assert BROKEN[fault] in failed[fault]


def test_the_contract_passes_where_it_does_not(failed: dict[str, set[str]]) -> None:
    assert failed["honest"] == set()
