"""Group reads: documents that are asked for at once are read in one go.

A worker thread costs more than the read it makes. Whatever is asked for while
one read is under way shares the next, as commits share a sync; the event loop
is never blocked.
"""

from __future__ import annotations

import asyncio

from pagefile.store.records import Document
from pagefile.store.store import Store

_MOST_AT_ONCE = 256


class GroupReads:
    """Reads documents of one tenant for many callers. Used from one event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[tuple[str, asyncio.Future[Document | None]]] = []
        self._reader: asyncio.Task[None] | None = None

    async def get(self, name: str) -> Document | None:
        """The document as it is now; see `Store.get`."""
        waiter: asyncio.Future[Document | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((name, waiter))
        if self._reader is None:
            self._reader = asyncio.ensure_future(self._read())
        return await waiter

    async def _read(self) -> None:
        try:
            while self._waiting:
                group = self._waiting[:_MOST_AT_ONCE]
                del self._waiting[:_MOST_AT_ONCE]
                await self._answer(group)
        finally:
            self._reader = None

    async def _answer(self, group: list[tuple[str, asyncio.Future[Document | None]]]) -> None:
        names = [*{name: None for name, _ in group}]
        try:
            found = dict(zip(names, await asyncio.to_thread(self._all, names), strict=True))
        except Exception as error:  # noqa: BLE001 - it is handed to everybody who waits
            for _, waiter in group:
                if not waiter.done():
                    waiter.set_exception(error)
            return
        for name, waiter in group:
            if not waiter.done():
                waiter.set_result(found[name])

    def _all(self, names: list[str]) -> list[Document | None]:
        if len(names) == 1:
            return [self._store.get(names[0])]
        return self._store.get_many(names)
