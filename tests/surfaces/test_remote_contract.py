"""The library's own suites, run through a handle on a server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pagefile.handle import Pagefile
from pagefile.memory.memory import Memory
from pagefile.testing.context.erasure import ErasureOfThreadsContract
from pagefile.testing.context.races import RaceContract
from pagefile.testing.context.refusals import RefusalContract
from pagefile.testing.context.registry import ActivationContract
from pagefile.testing.context.slots import SlotContract
from pagefile.testing.memory.episodes import BlocksContract, EpisodesContract, SessionsContract
from pagefile.testing.memory.erasure import ForgettingContract
from pagefile.testing.memory.isolation import IsolationContract
from pagefile.testing.memory.refusals import RefusalsContract
from tests.surfaces.remote_ground import RemoteBackend, Running, running_in

pytestmark = pytest.mark.xdist_group("remote")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    yield from running_in(tmp_path_factory.mktemp("remote"))


class Remote:
    @pytest.fixture
    def place(self, running: Running) -> RemoteBackend:
        return running.place()


class RemoteMemory(Remote):
    @pytest.fixture
    def memory(self, handle: Pagefile) -> Memory:
        return handle.memory


class TestSlots(Remote, SlotContract): ...


class TestRaces(Remote, RaceContract): ...


class TestErasure(Remote, ErasureOfThreadsContract): ...


class TestRefusals(Remote, RefusalContract): ...


class TestActivation(Remote, ActivationContract): ...


class TestBlocks(RemoteMemory, BlocksContract): ...


class TestEpisodes(RemoteMemory, EpisodesContract): ...


class TestSessions(RemoteMemory, SessionsContract): ...


class TestIsolation(RemoteMemory, IsolationContract): ...


class TestForgetting(RemoteMemory, ForgettingContract): ...


class TestMemoryRefusals(RemoteMemory, RefusalsContract): ...
