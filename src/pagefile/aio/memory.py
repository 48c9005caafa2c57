"""The async face of memory; a module of its own, because it loads what only recall needs."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable
from itertools import islice
from typing import TYPE_CHECKING, Any, Protocol

from pagefile.aio.derivation import derive
from pagefile.assembly.assembly import Assembly
from pagefile.handle import Pagefile
from pagefile.memory.consolidation.consolidation import ConsolidationReport
from pagefile.memory.episodes.episode import Episode
from pagefile.memory.facts.fact import Fact
from pagefile.memory.facts.graph import StoredGraph
from pagefile.memory.facts.proposal import ProposedFacts
from pagefile.memory.facts.store import FactStore
from pagefile.memory.memory import Memory
from pagefile.memory.privacy.export import MemoryExport
from pagefile.memory.privacy.isolation import AwaitedFrom

__all__ = [
    "AsyncAssembly",
    "AsyncFactStore",
    "AsyncMemory",
    "AsyncProposedFacts",
    "AsyncStoredGraph",
]

_PAGE = 200

if TYPE_CHECKING:
    from pagefile.aio._types import (
        AsyncAssembly,
        AsyncFactStore,
        AsyncProposedFacts,
        AsyncStoredGraph,
    )
    from pagefile.aio._types import AsyncMemory as _DerivedMemory
else:
    AsyncAssembly = derive(Assembly, "AsyncAssembly")
    AsyncFactStore = derive(FactStore, "AsyncFactStore")
    AsyncStoredGraph = derive(StoredGraph, "AsyncStoredGraph")
    AsyncProposedFacts = derive(ProposedFacts, "AsyncProposedFacts")
    _DerivedMemory = derive(Memory, "_DerivedMemory")


class HasSync(Protocol):
    """A handle of `pagefile.aio.open`."""

    @property
    def sync(self) -> Pagefile: ...


class AsyncMemory(_DerivedMemory):
    """`Memory`, awaited; an export is gone through with `async for`."""

    def __init__(self, sync: Memory) -> None:
        super().__init__(sync)
        self._memory = sync
        self.facts = AsyncFactStore(sync.facts)
        self.graph = AsyncStoredGraph(sync.graph)
        self.proposals = AsyncProposedFacts(sync.proposals)
        self.embedder = sync.embedder

    @classmethod
    async def on(cls, handle: HasSync, **options: Any) -> AsyncMemory:
        """A memory on an async handle, with the options of `Memory`."""
        return cls(await asyncio.to_thread(Memory, handle.sync, **options))

    async def consolidate(
        self,
        *,
        limit: int = 1_000,
        cancel: threading.Event | None = None,
        progress: Callable[[int], None] | None = None,
        retry_failed: bool = False,
    ) -> ConsolidationReport:
        """Read up to `limit` episodes that are unread, of all users, and keep what they state.

        As `Memory.consolidate`. Cancelling the task sets `cancel` too, and waits
        until what was claimed has been given back.
        """
        stop = threading.Event() if cancel is None else cancel
        reading = asyncio.ensure_future(
            asyncio.to_thread(
                self._memory.consolidate,
                limit=limit,
                cancel=stop,
                progress=progress,
                retry_failed=retry_failed,
            )
        )
        try:
            return await asyncio.shield(reading)
        except asyncio.CancelledError:
            if callable(getattr(stop, "set", None)):
                stop.set()
            await asyncio.wait([reading])
            raise

    async def export(self, *, user_id: str | None = None) -> AsyncMemoryExport:  # type: ignore[override]
        """Everything that is kept of a user, read while it is gone through."""
        with AwaitedFrom():
            made = await asyncio.to_thread(self._memory.export, user_id=user_id)
        return AsyncMemoryExport(made)


class AsyncMemoryExport:
    """`MemoryExport`, awaited."""

    def __init__(self, sync: MemoryExport) -> None:
        self._sync = sync
        self.user_id = sync.user_id
        self.exported_at = sync.exported_at

    async def __aiter__(self) -> AsyncIterator[bytes]:
        lines = iter(self._sync)
        while page := await asyncio.to_thread(lambda: list(islice(lines, _PAGE))):
            for line in page:
                yield line

    async def episodes(self) -> list[Episode]:
        """The user's episodes, oldest first."""
        return await asyncio.to_thread(lambda: self._sync.episodes)

    async def facts(self) -> list[Fact]:
        """The user's assertions as they were made."""
        return await asyncio.to_thread(lambda: self._sync.facts)

    async def write(self, path: str | os.PathLike[str]) -> int:
        """Write the lines into a file that is not there yet; the number of records."""
        return await asyncio.to_thread(self._sync.write, path)
