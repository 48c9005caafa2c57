"""The context's contract as tests. An engine supplies one fixture and may not override a test.

    class TestMyEngine(ContextContract):
        @pytest.fixture
        def place(self, tmp_path):
            return FileBackend(f"myengine://{tmp_path}/data")

A name that carries an id, such as M01 or B05, tells which known flaw of thread
buffers the test rules out.

To read: `fixtures`, `slots`, `immutability`, `refusals`, then what changes with time: `residency`,
`erasure`, `races`, `follower`. `registry` is the contract of call paths.
"""

from __future__ import annotations

from pagefile.testing.context.erasure import ErasureOfThreadsContract, ExpiryContract
from pagefile.testing.context.follower import FollowingContract
from pagefile.testing.context.immutability import ImmutabilityContract
from pagefile.testing.context.races import RaceContract
from pagefile.testing.context.refusals import RefusalContract
from pagefile.testing.context.residency import BoundsContract, ResidencyContract
from pagefile.testing.context.slots import AwaitedContract, SlotContract

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
