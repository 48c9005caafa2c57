"""The contract, on each engine."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from pagefile.testing.backend import Backend, FileBackend, SharedBackend
from pagefile.testing.contract import StoreContract, promised_numbers


class TestMemory(StoreContract):
    @pytest.fixture
    def place(self) -> Backend:
        return SharedBackend("memory:")


class TestSqlite(StoreContract):
    @pytest.fixture
    def place(self, tmp_path: Path) -> Backend:
        return FileBackend(str(tmp_path / "store.db"))


def _tests() -> dict[str, tuple[str, ...]]:
    return {
        name: getattr(function, "promises", ())
        for name, function in inspect.getmembers(StoreContract, inspect.isfunction)
        if name.startswith("test_")
    }


def test_every_contract_test_is_about_a_promise() -> None:
    assert [name for name, promises in _tests().items() if not promises] == []


def test_every_promise_has_a_contract_test() -> None:
    tested = {number for promises in _tests().values() for number in promises}

    assert sorted(tested) == sorted(promised_numbers())


@pytest.mark.parametrize("engine", [TestMemory, TestSqlite])
def test_no_engine_overrides_a_contract_test(engine: type) -> None:
    assert [name for name in vars(engine) if name.startswith("test_")] == []
