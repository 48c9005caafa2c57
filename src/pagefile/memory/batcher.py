"""What tasks of one event loop want stored at the same time, stored together.

A commit costs the same steps whether it holds one episode or fifty. So the
first task that comes opens a group, all that come in the same turn of the loop
or while the group before it commits join it, and one commit serves them all.
Each is answered when its own episodes are durable, as if it had been alone.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

_T = TypeVar("_T")

#: Bounds one commit, so that nobody waits for an endless one.
MOST_TOGETHER = 64
MOST_CHARS_TOGETHER = 1_000_000


class Crowd(Generic[_T]):
    """The groups of every event loop that stores through one `store`.

    `store` is called with what a group wants, in another thread unless it takes
    microseconds; when it raises, nothing can be told of any of them, and each is
    to be tried alone.
    """

    def __init__(self, store: Callable[[Sequence[_T]], object], *, is_instant: bool) -> None:
        self._store = store
        self._is_instant = is_instant
        self._lock = threading.Lock()
        self._groups: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Groups[_T]] = (
            weakref.WeakKeyDictionary()
        )

    def join(
        self, things: Sequence[_T], names: Sequence[Hashable], chars: int
    ) -> asyncio.Future[bool] | None:
        """Store these with what others want; what tells whether they were.

        None, and a future's False, mean that they are to be stored alone. `names`
        tell them from others: two of one name never go together.
        """
        if chars > MOST_CHARS_TOGETHER or len(things) > MOST_TOGETHER:
            return None
        loop = asyncio.get_running_loop()
        groups = self._groups.get(loop)
        if groups is None:
            with self._lock:
                # What waited when its loop was closed would keep it for ever.
                for closed in [each for each in self._groups if each.is_closed()]:
                    del self._groups[closed]
                made: _Groups[_T] = _Groups(self._store, self._is_instant)
                groups = self._groups.setdefault(loop, made)
        return groups.join(loop, things, names, chars)


class _Group(Generic[_T]):
    """Those who go together, in the order they came."""

    def __init__(self) -> None:
        self.members: list[tuple[Sequence[_T], asyncio.Future[bool]]] = []
        self.names: set[Hashable] = set()
        self.count = self.chars = 0

    def has_room(self, count: int, chars: int) -> bool:
        return self.count + count <= MOST_TOGETHER and self.chars + chars <= MOST_CHARS_TOGETHER


class _Groups(Generic[_T]):
    """The groups of one event loop; only used in its thread.

    They do not keep the loop, which is what they are found by.
    """

    def __init__(self, store: Callable[[Sequence[_T]], object], is_instant: bool) -> None:
        self._store = store
        self._is_instant = is_instant
        self._waiting: list[_Group[_T]] = []
        self._worker: asyncio.Task[None] | None = None

    def join(
        self,
        loop: asyncio.AbstractEventLoop,
        things: Sequence[_T],
        names: Sequence[Hashable],
        chars: int,
    ) -> asyncio.Future[bool] | None:
        """What tells when these are stored; None when one of the names is waiting already."""
        waiting = self._waiting
        for group in waiting:
            if not group.names.isdisjoint(names):
                return None
        if not waiting or not waiting[-1].has_room(len(things), chars):
            waiting.append(_Group())
        group = waiting[-1]
        place: asyncio.Future[bool] = loop.create_future()
        group.members.append((things, place))
        group.names.update(names)
        group.count += len(things)
        group.chars += chars
        if self._worker is None:
            worker = loop.create_task(self._store_all())
            # Begun at once (`asyncio.eager_task_factory`), it may have ended already.
            if not worker.done():
                self._worker = worker
        return place

    async def _store_all(self) -> None:
        try:
            while self._waiting:
                await self._store_group(self._waiting.pop(0))
        finally:
            self._worker = None
            # Only when this was cancelled: whoever waits goes alone.
            for group in self._waiting:
                _tell(group, False)
            self._waiting.clear()

    async def _store_group(self, group: _Group[_T]) -> None:
        done = False
        try:
            # Who was cancelled meanwhile wants nothing stored any more.
            wanted = [things for things, place in group.members if not place.done()]
            if wanted:
                flat = [thing for things in wanted for thing in things]
                if self._is_instant:
                    self._store(flat)
                else:
                    await asyncio.to_thread(self._store, flat)
            done = True
        except Exception:  # noqa: BLE001 - each raises its own, alone
            done = False
        finally:
            _tell(group, done)


def _tell(group: _Group[_T], done: bool) -> None:
    for _, place in group.members:
        # Where the loop was closed, nobody waits any more.
        if not place.done() and not place.get_loop().is_closed():
            place.set_result(done)
