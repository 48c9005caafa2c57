"""Followers: iterators over one log that go on as entries are committed.

A follower reads by itself, a page at a time, when it is asked for the next
entry and has none left: who is slow reads later, and nobody waits for it. The
feed only tells it that there is something to read.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self

from pagefile.errors import Forbidden, PagefileError
from pagefile.store.engine import Stream
from pagefile.store.records import Entry
from pagefile.store.store import Store

if TYPE_CHECKING:
    import asyncio

#: How many entries a follower reads ahead at most.
PAGE = 64


class Source(Protocol):
    """What a follower needs of its feed."""

    closed: bool

    def add(self, follower: Follower | AsyncFollower) -> None: ...

    def remove(self, follower: Follower | AsyncFollower) -> None: ...


class Cursor:
    """A place in one log, and what was read ahead from it."""

    def __init__(self, store: Store, log: str, after: int | None, pid: int) -> None:
        self.log = log
        #: True when everything that was there at the last look was taken.
        self.is_current = False
        #: True when no entry can come any more, because the log was dropped.
        self.is_over = False
        self._store = store
        self._pid = pid
        self._oid: int | None = None
        self._next = None if after is None else after + 1
        self._ahead: deque[Entry] = deque()

    @property
    def is_inherited(self) -> bool:
        """True in a forked child, where locks may be held by threads that are not there."""
        return os.getpid() != self._pid

    def require_own_process(self) -> None:
        """Refuse a follower that came through fork, before it takes a lock."""
        if self.is_inherited:
            self._store.head()  # The engine says so in its own words.

    def look(self) -> tuple[Stream | None, list[Entry]]:
        """Read a page. Nothing changes, so a look that is abandoned loses nothing."""
        if self._next is None:
            return self._store._tail(self.log, None, 0, 0)
        return self._store._tail(self.log, self._oid, self._next, PAGE)

    def take(self, seen: tuple[Stream | None, list[Entry]]) -> None:
        """Move on behind what `look` saw."""
        stream, entries = seen
        if stream is None:
            self._next, self.is_current = self._next or 0, True
            return
        # From here on this log and no later one of the same name.
        self._oid = stream.oid
        if self._next is None:
            self._next = stream.length
        elif entries:
            self._next = entries[-1].index + 1
            self._ahead.extend(entries)
        self.is_current = len(entries) < PAGE
        self.is_over = self.is_current and stream.dropped > 0

    def pop(self) -> Entry | None:
        """The next entry that was read ahead."""
        return self._ahead.popleft() if self._ahead else None


class _Following:
    """What both kinds of follower are: a cursor, and how it ends."""

    def __init__(self, feed: Source, cursor: Cursor, timeout: float | None) -> None:
        self.log = cursor.log
        self._feed = feed
        self._cursor = cursor
        self._timeout = timeout
        self._ended = False
        self._failure: Exception | None = None

    def _deadline(self) -> float | None:
        return None if self._timeout is None else time.monotonic() + self._timeout

    def _stop(self, failure: Exception | None) -> None:
        self._failure = self._failure or failure
        self._ended = True

    def _look(self) -> tuple[Stream | None, list[Entry]] | None:
        """None when the handle was closed under it."""
        try:
            return self._cursor.look()
        except Forbidden:
            if self._feed.closed:
                return None
            raise

    def _take(self, seen: tuple[Stream | None, list[Entry]] | None) -> None:
        if seen is None:
            self._stop(None)
        else:
            self._cursor.take(seen)

    def _pop_failure(self) -> Exception | None:
        """What ended it, told once; after that it is just at its end."""
        failure, self._failure = self._failure, None
        return failure


class Follower(_Following):
    """Yields the entries of one log in order, and waits for more; also a context manager.

    It ends when its `timeout` passes in one wait, when it or the handle is
    closed, or behind the last entry of a log that was dropped. Threads that
    share one take turns, and each entry goes to one of them.
    """

    def __init__(self, feed: Source, cursor: Cursor, timeout: float | None) -> None:
        super().__init__(feed, cursor, timeout)
        self._turn = threading.Lock()
        self._told = threading.Event()
        # First told, then looking: what is committed in between is not missed.
        feed.add(self)
        try:
            self._refresh()
        except PagefileError:
            self.close()
            raise

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Entry:
        self._cursor.require_own_process()
        with self._turn:
            try:
                entry = self._step()
            except PagefileError:
                self.close()
                raise
        if entry is not None:
            return entry
        self.close()
        if (failure := self._pop_failure()) is not None:
            raise failure
        raise StopIteration

    def _step(self) -> Entry | None:
        cursor, deadline = self._cursor, self._deadline()
        in_time = True
        while not self._ended:
            entry = cursor.pop()
            if entry is not None or cursor.is_over:
                return entry
            if cursor.is_current:
                if not in_time:
                    return None
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                # Whoever tells may be late: at the end of the time one look decides.
                in_time = self._told.wait(left)
            self._refresh()
        return None

    def _refresh(self) -> None:
        # Before looking: what is told from here on, or broken off here, means another look.
        self._told.clear()
        self._cursor.is_current = False
        if not self._ended:
            self._take(self._look())

    def tell(self) -> None:
        """There is something to read. Called by the feed's thread."""
        self._told.set()

    def end(self, failure: Exception | None = None) -> None:
        """No entry comes any more; with a failure, the next step raises it."""
        self._stop(failure)
        self._told.set()

    def close(self) -> None:
        """End the iteration, also for a thread that waits in it. May be called twice."""
        if not self._cursor.is_inherited:
            self.end()
            self._feed.remove(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class AsyncFollower(_Following):
    """`Follower` for an event loop: an async iterator, and an async context manager.

    It begins with `async with` or its first step. Waiting takes no thread, and
    a step that is cancelled leaves nothing behind: the next goes on where the
    last entry was.
    """

    def __init__(self, feed: Source, cursor: Cursor, timeout: float | None) -> None:
        import asyncio

        super().__init__(feed, cursor, timeout)
        self._turn = asyncio.Lock()
        self._told = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        #: True from when the loop was called until it answers: one call is enough.
        self._called = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Entry:
        async with self._begun():
            entry = await self._step()
        if entry is not None:
            return entry
        await self.aclose()
        if (failure := self._pop_failure()) is not None:
            raise failure
        raise StopAsyncIteration

    @asynccontextmanager
    async def _begun(self) -> AsyncIterator[None]:
        """One step at a time; one that is cancelled or fails leaves nothing behind."""
        self._cursor.require_own_process()
        async with self._turn:
            done = False
            try:
                yield
                done = True
            except PagefileError:
                self._stop(None)
                raise
            finally:
                if not done:
                    self._leave()

    async def _step(self) -> Entry | None:
        cursor, deadline = self._cursor, self._deadline()
        in_time = True
        while not self._ended:
            entry = cursor.pop()
            if entry is not None or cursor.is_over:
                return entry
            self._join()
            if cursor.is_current:
                if not in_time:
                    return None
                # Whoever tells may be late: at the end of the time one look decides.
                in_time = await self._wait(deadline)
            await self._refresh()
        return None

    async def _wait(self, deadline: float | None) -> bool:
        import asyncio

        left = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            async with asyncio.timeout(left):
                await self._told.wait()
        except TimeoutError:
            return False
        return True

    async def _refresh(self) -> None:
        import asyncio

        # Before looking: what is told from here on, or broken off here, means another look.
        self._told.clear()
        self._called = self._cursor.is_current = False
        if not self._ended:
            self._take(await asyncio.to_thread(self._look))

    def _join(self) -> None:
        """Be told from now on, in the loop that runs now."""
        import asyncio

        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._told, self._called, self._loop = asyncio.Event(), False, loop
            # What was committed while nobody told it is looked for.
            self._cursor.is_current = False
            self._feed.add(self)

    def _leave(self) -> None:
        self._loop = None
        self._feed.remove(self)

    def tell(self) -> None:
        """There is something to read. Called by the feed's thread."""
        loop = self._loop
        # A loop that was closed before it answered is called once more, to learn that it was.
        if loop is None or (self._called and not loop.is_closed()):
            return
        self._called = True
        try:
            loop.call_soon_threadsafe(self._told.set)
        except RuntimeError:
            self._feed.remove(self)  # The loop was closed; nobody waits there any more.

    def end(self, failure: Exception | None = None) -> None:
        """No entry comes any more; with a failure, the next step raises it."""
        self._stop(failure)
        self.tell()

    async def aclose(self) -> None:
        """End the iteration, also for a task that waits in it. May be called twice."""
        self._stop(None)
        self._told.set()
        self._leave()

    async def __aenter__(self) -> Self:
        async with self._begun():
            if not self._ended:
                self._join()
                await self._refresh()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()
