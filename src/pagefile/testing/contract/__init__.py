"""The store's contract as tests. An engine supplies one fixture and may not override a test.

    class TestMyEngine(StoreContract):
        @pytest.fixture
        def place(self, tmp_path):
            return FileBackend(f"myengine://{tmp_path}/data")

A test that is about a promise the engine does not declare is skipped by that
promise's name. Every test ends by checking and verifying what it left behind.

To read: `fixtures`, `atomic`, `conditions`, `keys`, `forks`, `erasure`.
"""

from __future__ import annotations

import pagefile
from pagefile.testing.contract.atomic import AtomicContract, DurabilityContract
from pagefile.testing.contract.conditions import ConditionContract
from pagefile.testing.contract.erasure import ErasureContract
from pagefile.testing.contract.fixtures import ContractFixtures
from pagefile.testing.contract.forks import ForkContract
from pagefile.testing.contract.keys import KeyContract

__all__ = ["ContractFixtures", "StoreContract", "promised_numbers"]


class StoreContract(
    AtomicContract,
    ConditionContract,
    KeyContract,
    ForkContract,
    ErasureContract,
    DurabilityContract,
):
    """All of it: what an engine's test class derives from."""


def promised_numbers() -> list[str]:
    """The promises as the store's own docstring lists them."""
    lines = (pagefile.Store.__doc__ or "").splitlines()
    return [
        word
        for line in lines
        if (word := line.strip().split(" ")[0])[:1] == "S" and word[1:].isdigit()
    ]
