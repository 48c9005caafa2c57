"""The async face: the same names, awaited; derived from the sync classes."""

from __future__ import annotations

import asyncio
import functools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from pagefile import handle
from pagefile.aio.derivation import LIFTED, derive
from pagefile.context.buffer import ContextBuffer
from pagefile.context.registry import ThreadRegistry
from pagefile.context.slot import BufferSlot
from pagefile.context.thread import PAGE, AsyncSlotFollower, ThreadContext
from pagefile.memory.items.store import LongTermItems
from pagefile.runs.ledger import Ledger
from pagefile.runs.milestones import Episodes
from pagefile.runs.run import Knowledge, Run
from pagefile.runs.runs import Runs
from pagefile.settings import Settings
from pagefile.store.records import Durability
from pagefile.store.store import Store

__all__ = [
    "AsyncContextBuffer",
    "AsyncEpisodes",
    "AsyncKnowledge",
    "AsyncLedger",
    "AsyncLongTermItems",
    "AsyncPagefile",
    "AsyncRun",
    "AsyncRuns",
    "AsyncStore",
    "AsyncThreadContext",
    "AsyncThreadRegistry",
    "derive",
    "open",
]

if TYPE_CHECKING:
    from pagefile.aio._types import AsyncContextBuffer as _DerivedBuffer
    from pagefile.aio._types import (
        AsyncEpisodes,
        AsyncKnowledge,
        AsyncLongTermItems,
        AsyncRuns,
        AsyncStore,
        AsyncThreadRegistry,
    )
    from pagefile.aio._types import AsyncLedger as _DerivedLedger
    from pagefile.aio._types import AsyncPagefile as _DerivedPagefile
    from pagefile.aio._types import AsyncRun as _DerivedRun
    from pagefile.aio._types import AsyncThreadContext as _DerivedThread
    from pagefile.aio.memory import AsyncAssembly, AsyncMemory
    from pagefile.client.transport import Remote
else:
    AsyncStore = derive(Store, "AsyncStore")
    _DerivedBuffer = derive(ContextBuffer, "_DerivedBuffer")
    AsyncThreadRegistry = derive(ThreadRegistry, "AsyncThreadRegistry")
    AsyncRuns = derive(Runs, "AsyncRuns")
    AsyncEpisodes = derive(Episodes, "AsyncEpisodes")
    AsyncKnowledge = derive(Knowledge, "AsyncKnowledge")
    AsyncLongTermItems = derive(LongTermItems, "AsyncLongTermItems")
    _DerivedLedger = derive(Ledger, "_DerivedLedger")
    _DerivedRun = derive(Run, "_DerivedRun")
    _DerivedThread = derive(ThreadContext, "_DerivedThread")
    _DerivedPagefile = derive(handle.Pagefile, "_DerivedPagefile")


class AsyncContextBuffer(_DerivedBuffer):
    """`ContextBuffer`, awaited; `follow` is iterated over with `async for`."""

    def __init__(self, sync: ContextBuffer) -> None:
        super().__init__(sync)
        self._buffer = sync

    def follow(
        self, thread_id: str, after: int | None = None, *, timeout: float | None = None
    ) -> AsyncSlotFollower:
        return self._buffer.follow_async(thread_id, after, timeout=timeout)


class AsyncThreadContext(_DerivedThread):
    """`ThreadContext`, awaited; `async for` walks over its slots."""

    def __init__(self, sync: ThreadContext) -> None:
        super().__init__(sync)
        self._view = sync
        self.thread_id = sync.thread_id
        self.can_write = sync.can_write

    def follow(
        self, after: int | None = None, *, timeout: float | None = None
    ) -> AsyncSlotFollower:
        return self._view.follow_async(after, timeout=timeout)

    async def __aiter__(self) -> AsyncIterator[BufferSlot]:
        view = self._view
        stop = await asyncio.to_thread(view.length)
        for start in range(0, stop, PAGE):
            for slot in await asyncio.to_thread(view.get_slice, start, min(start + PAGE, stop)):
                yield slot


class AsyncLedger(_DerivedLedger):
    """`Ledger`, awaited; `async for` walks over its events."""

    def __init__(self, sync: Ledger) -> None:
        super().__init__(sync)
        self._ledger = sync

    async def __aiter__(self) -> AsyncIterator[dict[str, Any]]:
        after = 0
        while events := await asyncio.to_thread(self._ledger.read, after, limit=PAGE):
            for event in events:
                yield event
            after = events[-1]["sequence_id"]


class AsyncRun(_DerivedRun):
    """`Run`, awaited."""

    def __init__(self, sync: Run) -> None:
        super().__init__(sync)
        self.run_id = sync.run_id
        self.user_id = sync.user_id
        self.config = sync.config
        self.ledger = AsyncLedger(sync.ledger)
        self.episodes = AsyncEpisodes(sync.episodes)
        self.memory = AsyncKnowledge(sync.memory)


class AsyncPagefile(_DerivedPagefile):
    """`Pagefile`, awaited; an async context manager."""

    def __init__(self, sync: handle.Pagefile) -> None:
        super().__init__(sync)
        self._handle = sync
        self.tenant = sync.tenant
        self.url = sync.url
        self.store = AsyncStore(sync.store)
        self.context = AsyncContextBuffer(sync.context)
        self.registry = AsyncThreadRegistry(sync.registry)
        self.runs = AsyncRuns(sync.runs)
        self.items = AsyncLongTermItems(sync.items)
        self.feed = sync.feed
        self._memory: AsyncMemory | None = None
        self._assembly: AsyncAssembly | None = None

    @property
    def sync(self) -> handle.Pagefile:
        """The handle that this one awaits."""
        return self._handle

    @property
    def memory(self) -> AsyncMemory:
        """What this tenant's agents remember; loaded when it is asked for."""
        if self._memory is None:
            from pagefile.aio.memory import AsyncMemory

            self._memory = AsyncMemory(self._handle.memory)
        return self._memory

    @property
    def assembly(self) -> AsyncAssembly:
        """Prompts for this tenant's agents; loaded when it is asked for."""
        if self._assembly is None:
            from pagefile.aio.memory import AsyncAssembly

            self._assembly = AsyncAssembly(self._handle.assembly)
        return self._assembly

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


LIFTED.update({ThreadContext: AsyncThreadContext, Run: AsyncRun})


class _Opening:
    """What `open` returns: await it, or enter it with `async with`."""

    def __init__(self, opening: Callable[[], Awaitable[AsyncPagefile]]) -> None:
        self._opening = opening
        self._opened: AsyncPagefile | None = None

    async def _open(self) -> AsyncPagefile:
        self._opened = await self._opening()
        return self._opened

    def __await__(self) -> Generator[Any, None, AsyncPagefile]:
        return self._open().__await__()

    async def __aenter__(self) -> AsyncPagefile:
        return await self._open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._opened is not None:
            await self._opened.close()


def open(
    url: str | os.PathLike[str] | None = None,
    *,
    tenant: str | None = None,
    durability: Durability | None = None,
    options: handle.Options | None = None,
    key: str | None = None,
    user: str | None = None,
    remote: Remote | None = None,
) -> _Opening:
    """`pagefile.open` for an event loop: `async with pagefile.aio.open(…) as pf`."""

    async def opening() -> AsyncPagefile:
        where = Settings.from_environment().store_url() if url is None else url
        if handle.is_server(where, durability, options, key, user, remote):
            from pagefile.client.handle import open_remote_async

            server = cast(str, where)
            found = await open_remote_async(
                server, key=key, tenant=tenant, user=user, options=remote
            )
            return cast(AsyncPagefile, found)
        local = functools.partial(
            handle.open, where, tenant=tenant, durability=durability, options=options
        )
        return AsyncPagefile(await asyncio.to_thread(local))

    return _Opening(opening)
