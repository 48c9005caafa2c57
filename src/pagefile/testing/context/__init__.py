"""The context's contract as tests. An engine supplies one fixture and may not override a test.

    class TestMyEngine(ContextContract):
        @pytest.fixture
        def place(self, tmp_path):
            return FileBackend(f"myengine://{tmp_path}/data")

A name that carries an id, such as M01 or B05, tells which known flaw of thread
buffers the test rules out.
"""

from __future__ import annotations

from pagefile.testing.context.awaited import AwaitedContract
from pagefile.testing.context.bounds import BoundsContract
from pagefile.testing.context.erasing import ErasureOfThreadsContract
from pagefile.testing.context.expiring import ExpiryContract
from pagefile.testing.context.following import FollowingContract
from pagefile.testing.context.immutable import ImmutabilityContract
from pagefile.testing.context.racing import RaceContract
from pagefile.testing.context.refusals import RefusalContract
from pagefile.testing.context.residents import ResidencyContract
from pagefile.testing.context.slots import SlotContract

__all__ = ["ContextContract"]


class ContextContract(
    SlotContract,
    BoundsContract,
    ResidencyContract,
    ImmutabilityContract,
    RaceContract,
    RefusalContract,
    ErasureOfThreadsContract,
    ExpiryContract,
    AwaitedContract,
    FollowingContract,
):
    """All of it: what an engine's test class derives from."""
