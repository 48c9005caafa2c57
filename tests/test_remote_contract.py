"""The library's own suites, run through a handle on a server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pagefile.handle import Pagefile
from pagefile.memory.memory import Memory
from pagefile.testing.context import ContextContract
from pagefile.testing.context.registry import RegistryContract
from pagefile.testing.memory import MemoryContract
from remote_ground import RemoteBackend, Running, running_in

pytestmark = pytest.mark.xdist_group("remote")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    yield from running_in(tmp_path_factory.mktemp("remote"))


class TestContext(ContextContract):
    @pytest.fixture
    def place(self, running: Running) -> RemoteBackend:
        return running.place()


class TestRegistry(RegistryContract):
    @pytest.fixture
    def place(self, running: Running) -> RemoteBackend:
        return running.place()


class TestMemory(MemoryContract):
    @pytest.fixture
    def place(self, running: Running) -> RemoteBackend:
        return running.place()

    @pytest.fixture
    def memory(self, handle: Pagefile) -> Memory:
        return handle.memory
