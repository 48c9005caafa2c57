"""Memory's contract as tests. An engine supplies one fixture and may not override a test.

    class TestMyEngine(MemoryContract):
        @pytest.fixture
        def place(self, tmp_path):
            return FileBackend(f"myengine://{tmp_path}/data")

A name that carries an id, such as I1 or G3, tells which known flaw of memories
for many users the test rules out.
"""

from __future__ import annotations

from pagefile.testing.memory.blocks import BlocksContract
from pagefile.testing.memory.bounds import BoundsContract
from pagefile.testing.memory.consolidating import ConsolidatingContract
from pagefile.testing.memory.deriving import DerivingContract
from pagefile.testing.memory.duplicates import DuplicatesContract
from pagefile.testing.memory.episodes import EpisodesContract
from pagefile.testing.memory.exporting import ExportingContract
from pagefile.testing.memory.forgetting import ForgettingContract
from pagefile.testing.memory.isolation import IsolationContract
from pagefile.testing.memory.keeping import KeepingContract
from pagefile.testing.memory.kinds import KindsContract
from pagefile.testing.memory.knowing import KnowingContract
from pagefile.testing.memory.mending import MendingContract
from pagefile.testing.memory.provenance import ProvenanceContract
from pagefile.testing.memory.recalling import RecallingContract
from pagefile.testing.memory.refusals import RefusalsContract
from pagefile.testing.memory.reindexing import ReindexingContract
from pagefile.testing.memory.reindexing_beside import ReindexingBesideContract
from pagefile.testing.memory.returning import ReturningContract
from pagefile.testing.memory.reviewing import ReviewingContract
from pagefile.testing.memory.sessions import SessionsContract
from pagefile.testing.memory.stopping import StoppingContract

__all__ = ["MemoryContract"]


class MemoryContract(
    BlocksContract,
    EpisodesContract,
    SessionsContract,
    RecallingContract,
    IsolationContract,
    ForgettingContract,
    DerivingContract,
    ReturningContract,
    ExportingContract,
    ConsolidatingContract,
    StoppingContract,
    MendingContract,
    ReviewingContract,
    ProvenanceContract,
    DuplicatesContract,
    ReindexingContract,
    ReindexingBesideContract,
    KeepingContract,
    KnowingContract,
    KindsContract,
    BoundsContract,
    RefusalsContract,
):
    """All of it: what an engine's test class derives from."""
