"""Memory's contract as tests. An engine supplies one fixture and may not override a test.

    class TestMyEngine(MemoryContract):
        @pytest.fixture
        def place(self, tmp_path):
            return FileBackend(f"myengine://{tmp_path}/data")

A name that carries an id, such as I1 or G3, tells which known flaw of memories
for many users the test rules out.

To read: `fixtures`, `episodes`, `recall`, `consolidation`, `review`, `provenance`, then what must
not happen: `isolation`, `erasure`, `tombstones`, `refusals`, `bounds`. `export`, `reindex` and
`durability` are about what outlives a handle.
"""

from __future__ import annotations

from pagefile.testing.memory.bounds import BoundsContract
from pagefile.testing.memory.consolidation import ConsolidatingContract, StoppingContract
from pagefile.testing.memory.durability import KeepingContract
from pagefile.testing.memory.episodes import (
    BlocksContract,
    EpisodesContract,
    KindsContract,
    SessionsContract,
)
from pagefile.testing.memory.erasure import ForgettingContract
from pagefile.testing.memory.export import ExportingContract
from pagefile.testing.memory.isolation import IsolationContract
from pagefile.testing.memory.provenance import DerivingContract, ProvenanceContract
from pagefile.testing.memory.recall import KnowingContract, RecallingContract
from pagefile.testing.memory.refusals import RefusalsContract
from pagefile.testing.memory.reindex import ReindexingBesideContract, ReindexingContract
from pagefile.testing.memory.review import DuplicatesContract, MendingContract, ReviewingContract
from pagefile.testing.memory.tombstones import ReturningContract

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
