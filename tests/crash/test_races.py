"""Many writers on the engines that need no server; those of a server race beside its contract."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from pagefile.testing.backend import Backend, FileBackend, SharedBackend
from pagefile.testing.races import RaceContract

# One after the other, also when the suite is shared out: they measure turns and load the machine.
pytestmark = pytest.mark.xdist_group("races")

_ROUNDS = 5_000 if os.environ.get("PAGEFILE_SOAK") == "1" else 500


class TestMemory(RaceContract):
    @pytest.fixture
    def place(self) -> Backend:
        return SharedBackend("memory:")


class TestSqlite(RaceContract):
    appends = updates = _ROUNDS
    quiet_commits = 50

    @pytest.fixture
    def place(self, tmp_path: Path) -> Backend:
        return FileBackend(str(tmp_path / "store.db"))
