"""Each engine against a plain-Python model, through random stories."""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings

from pagefile.store.store import Store
from pagefile.testing.backend import Backend, FileBackend, SharedBackend
from pagefile.testing.stories import StoreMachine

_SOAK = os.environ.get("PAGEFILE_SOAK") == "1"
_STORIES = settings(
    max_examples=2_000 if _SOAK else 60,
    stateful_step_count=60 if _SOAK else 25,
    deadline=None,
    derandomize=not _SOAK,
    # Shrinking a story of databases takes longer than reading it as it is.
    phases=(Phase.explicit, Phase.reuse, Phase.generate),
    suppress_health_check=list(HealthCheck),
)


def _memory() -> Backend:
    return SharedBackend("memory:")


def _sqlite() -> Backend:
    folder = Path(tempfile.mkdtemp(prefix="pagefile-model-"))
    return FileBackend(f"{folder}/store.db")


class MemoryMachine(StoreMachine):
    make_backend = staticmethod(_memory)


class SqliteMachine(StoreMachine):
    make_backend = staticmethod(_sqlite)


class HandlesMachine(SqliteMachine):
    """Any of three handles takes each step: to each, the others are other processes."""

    @property
    def store(self) -> Store:
        return self._chance.choice(self._handles)

    @store.setter
    def store(self, opened: Store) -> None:
        self._handles = [opened, *(self.backend.open().store for _ in range(2))]
        self._chance = random.Random(1)


TestMemoryModel = MemoryMachine.TestCase
TestMemoryModel.settings = _STORIES
TestSqliteModel = SqliteMachine.TestCase
TestSqliteModel.settings = _STORIES
TestHandlesModel = HandlesMachine.TestCase
TestHandlesModel.settings = _STORIES
