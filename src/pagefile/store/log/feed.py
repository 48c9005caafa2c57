"""The feed of a store: tells followers of a log that it has grown, whoever wrote to it.

One thread waits for the tenant's next commit, for all followers together. It
looks at which logs were touched and tells their followers, and nobody else; it
reads no entries. So a commit costs the same however many follow other logs.
"""

from __future__ import annotations

import copy
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable

from pagefile.errors import Forbidden, PagefileError, Unavailable
from pagefile.store.arguments import require_count, require_seconds, require_type
from pagefile.store.engine import LOG
from pagefile.store.log.follower import AsyncFollower, Cursor, Follower
from pagefile.store.records import Change
from pagefile.store.store import Store

#: How long the thread outlives the last follower at most.
_WAIT_SECONDS = 1.0
#: How many commits are looked at together.
_MOST_CHANGES = 256
_MOST_INDEX = 2**32


class _Link(weakref.ref[Follower | AsyncFollower]):
    """Leads to a follower without keeping it: who just drops one need not close it."""

    __slots__ = ("log",)
    log: str


class Feed:
    """The followers of one store's logs, and the thread that wakes them.

    The thread lives while anybody follows. `feed_of` gives the one feed of a
    store; closing the handle ends every follower.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._followers: dict[str, set[_Link]] = {}
        #: Links whose followers are gone. A garbage collection may not take the lock.
        self._lost: deque[weakref.ref[Follower | AsyncFollower]] = deque()
        self._thread: threading.Thread | None = None
        self.closed = False

    def follow(
        self, log: str, after: int | None = None, *, timeout: float | None = None
    ) -> Follower:
        """Iterate over the entries of a log behind index `after`, and wait for more.

        None begins behind what is there now, -1 with the first entry. A log that
        is not there yet is waited for. `timeout` bounds each wait, in seconds.

        Raises:
            Forbidden: the handle is closed, or was opened by a parent process.
        """
        cursor = self._cursor(log, after, timeout)
        cursor.require_own_process()
        return Follower(self, cursor, timeout)

    def follow_async(
        self, log: str, after: int | None = None, *, timeout: float | None = None
    ) -> AsyncFollower:
        """`follow` for an event loop, which it never blocks.

        "Now" is when its `async with` is entered, or its first step taken.
        """
        return AsyncFollower(self, self._cursor(log, after, timeout), timeout)

    def _cursor(self, log: str, after: int | None, timeout: float | None) -> Cursor:
        self._store._naming.check_text("log", log)
        if after is not None:
            require_count(after, "after", least=-1, most=_MOST_INDEX)
        if timeout is not None:
            require_seconds(timeout)
        return Cursor(self._store, log, after, self._pid)

    def close(self) -> None:
        """End every follower, for good. Part of closing the handle."""
        if os.getpid() != self._pid:
            return  # The followers are the parent's.
        self.closed = True
        self._end_all(None)

    # For followers

    def add(self, follower: Follower | AsyncFollower) -> None:
        """Tell this follower from now on."""
        with self._lock:
            if self.closed:
                raise Forbidden("the store is closed on this handle", "call pagefile.open again")
            if self._thread is None:
                # Before the follower is noted: if no thread can be had, nobody waits for it.
                thread = threading.Thread(
                    target=_run, args=(weakref.ref(self),), name="pagefile-feed", daemon=True
                )
                thread.start()
                self._thread = thread
            link = _link(follower, self._lost.append)
            self._followers.setdefault(follower.log, set()).add(link)

    def remove(self, follower: Follower | AsyncFollower) -> None:
        """Tell it no more; nothing happens if it was not told anyway."""
        if os.getpid() == self._pid:
            with self._lock:
                self._forget(_link(follower))

    def _forget(self, link: _Link) -> None:
        links = self._followers.get(link.log)
        if links is not None:
            links.discard(link)
            if not links:
                del self._followers[link.log]

    # For the thread

    def _followed_store(self) -> Store | None:
        """None when the thread is to end, because nobody follows any more."""
        with self._lock:
            while self._lost:
                lost = self._lost.popleft()
                assert isinstance(lost, _Link)
                self._forget(lost)
            if self._followers and not self.closed:
                return self._store
            self._thread = None
            return None

    def _tell(self, logs: set[str] | None) -> None:
        """Wake the followers of these logs; None is all."""
        with self._lock:
            names: Iterable[str] = self._followers if logs is None else logs
            links = [link for name in names for link in self._followers.get(name, ())]
        for link in links:
            follower = link()
            if follower is not None:
                follower.tell()

    def _end_all(self, failure: PagefileError | None) -> None:
        with self._lock:
            if failure is not None:
                self._thread = None
            links = [link for some in self._followers.values() for link in some]
            self._followers.clear()
        for link in links:
            follower = link()
            if follower is not None:
                # Each raises its own copy: it grows a traceback of its own.
                follower.end(None if failure is None or self.closed else copy.copy(failure))


def _run(link: weakref.ref[Feed]) -> None:
    """The thread of a feed, which it does not keep: a handle may be dropped without closing."""
    failure: PagefileError | None = Unavailable(
        "following stopped on an unexpected error", "follow again after the last index"
    )
    try:
        _tell_of_commits(link)
        failure = None
    except PagefileError as error:
        failure = error
    finally:
        feed = link()
        if failure is not None and feed is not None:
            # Whatever ended the thread: nobody may wait for it.
            feed._end_all(failure)


def _tell_of_commits(link: weakref.ref[Feed]) -> None:
    position = -1
    while (feed := link()) is not None and (store := feed._followed_store()) is not None:
        if position < 0:
            position = store.head().position
            # They may have looked before this: what came in between was not watched.
            feed._tell(None)
        del feed
        if store.wait(position + 1, _WAIT_SECONDS):
            changes = store.changes(position, limit=_MOST_CHANGES)
            position = changes[-1].position
            if (feed := link()) is not None:
                feed._tell(_logs_of(changes))
        del store


def _link(
    follower: Follower | AsyncFollower,
    gone: Callable[[weakref.ref[Follower | AsyncFollower]], object] | None = None,
) -> _Link:
    """Equal to any other link to the same follower, while that lives."""
    link = _Link(follower, gone)
    link.log = follower.log
    return link


def _logs_of(changes: Iterable[Change]) -> set[str] | None:
    """The logs that commits touched; None for any, when a name was erased."""
    logs: set[str] = set()
    for change in changes:
        for touched in change.touched:
            if touched.stream == LOG:
                if touched.name is None:
                    return None
                logs.add(touched.name)
    return logs


#: Weak both ways: a feed lives as long as its handle or a follower, and keeps the store.
_FEEDS: weakref.WeakKeyDictionary[Store, weakref.ref[Feed]] = weakref.WeakKeyDictionary()
_MAKING = threading.Lock()


def feed_of(store: Store) -> Feed:
    """The feed that all followers of this store share."""
    require_type("store", store, Store)
    with _MAKING:
        link = _FEEDS.get(store)
        feed = None if link is None else link()
        if feed is None:
            feed = Feed(store)
            _FEEDS[store] = weakref.ref(feed)
        return feed
