"""Waiting for commits of other processes: LISTEN on one side, NOTIFY on the other.

A commit does not notify by itself: PostgreSQL lets only one notifying transaction
commit at a time, so tenants would wait for each other's sync. A small thread tells
the others right after, at most every few milliseconds however many commits there are.
If its process dies in between, whoever waits sees the commit at the next look.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import psycopg

from pagefile.engines.postgres.connection import Link, query
from pagefile.engines.postgres.errors import translate
from pagefile.errors import Forbidden, PagefileError
from pagefile.store.threads import Crowd, Flag

#: The pause between two announcements of one process.
_ANNOUNCE_SECONDS = 0.01
#: How often a waiting process looks without having been told.
_LOOK_SECONDS = 1.0
#: How long an announcer without work stays.
_IDLE_SECONDS = 30.0
_MOST_TENANTS = 100_000


class Watch:
    """Announces this process's commits, and lets threads sleep until others' arrive."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._changed = Crowd()
        #: Grows with everything heard, by the tenant's number; 0 counts for all.
        self._heard: dict[int, int] = {}
        self.waiting = 0
        self._closed = False
        self._failure: PagefileError | None = None
        self._listener: threading.Thread | None = None
        self._listening = False
        self._to_tell: dict[int, int] = {}
        self._announcer: threading.Thread | None = None
        self._has_news = Flag()

    # Telling

    def announce(self, tenant: str, number: int, position: int) -> None:
        """This process has committed; called after the commit."""
        self._to_tell[number] = position
        self._has_news.set()
        if self._announcer is None:
            self._start_announcer()
        if self.waiting:
            with self._lock:
                self._note(number)

    def _start_announcer(self) -> None:
        with self._lock:
            if self._announcer is None and not self._closed:
                self._announcer = threading.Thread(
                    target=self._announce_all, name="pagefile-announcer", daemon=True
                )
                self._announcer.start()

    def _announce_all(self) -> None:
        try:
            while self._has_news.wait(_IDLE_SECONDS) and not self._closed:
                self._tell()
                time.sleep(_ANNOUNCE_SECONDS)
        finally:
            with self._lock:
                self._announcer = None
            if self._to_tell and not self._closed:
                self._start_announcer()

    def _tell(self) -> None:
        """Say what there is to say; nobody is harmed if it cannot be said (see above)."""
        channel = self._link.address.channel
        with suppress(PagefileError):
            while self._to_tell:
                number, position = self._to_tell.popitem()
                self._link.read(None, "notify", channel, f"{number} {position}")

    # Waiting

    def until(self, number: Callable[[], int], reached: Callable[[], bool], timeout: float) -> bool:
        """Sleep until `reached()`, which is asked again after every commit of the tenant.

        `number` gives the tenant's number, 0 while it has none.

        Raises:
            Forbidden: the handle was closed meanwhile.
        """
        self._link.require_usable()
        deadline = time.monotonic() + timeout
        with self._lock:
            self.waiting += 1
        try:
            while True:
                with self._lock:
                    self._require_open()
                    self._start_listener()
                    tenant = number()
                    seen = self._seen(tenant)
                if reached():
                    return True
                if not self._sleep(tenant, seen, deadline):
                    return reached()
        finally:
            with self._lock:
                self.waiting -= 1

    def _seen(self, tenant: int) -> int:
        # A tenant without a number may get one with any commit.
        own = self._heard.get(tenant, 0) if tenant else sum(self._heard.values())
        return own + self._heard.get(0, 0)

    def _sleep(self, tenant: int, seen: int, deadline: float) -> bool:
        """Until there is news after `seen`, or it is time to look; False at the deadline."""
        look = time.monotonic() + _LOOK_SECONDS
        while True:
            with self._lock:
                if self._seen(tenant) != seen or self._closed:
                    break
                now = time.monotonic()
                if now >= deadline:
                    return False
                if now >= look:
                    break
                told = self._changed.join()
            if not told.wait(min(deadline, look) - now):
                with self._lock:
                    self._changed.leave(told)
        with self._lock:
            if self._failure is not None:
                # Each waiter raises its own copy: it grows a traceback of its own.
                failure, self._failure = self._failure, None
                raise copy.copy(failure) from failure
        return True

    def _note(self, number: int) -> None:
        if len(self._heard) > _MOST_TENANTS:
            # All together under 0, so that no sum goes back.
            self._heard = {0: sum(self._heard.values())}
        self._heard[number] = self._heard.get(number, 0) + 1
        self._changed.wake()

    def _start_listener(self) -> None:
        if not self._listening:
            self._listening = True
            self._listener = threading.Thread(
                target=self._listen, args=(self._listener,), name="pagefile-listener", daemon=True
            )
            self._listener.start()

    def _listen(self, previous: threading.Thread | None) -> None:
        if previous is not None:
            previous.join()  # So that `close`, which joins the newest, joins them all.
        failure: PagefileError | None = None
        try:
            self._listen_while_waited_for()
        except PagefileError as error:
            failure = error
        except psycopg.Error as error:
            failure = translate(error, self._link.place)
        finally:
            with self._lock:
                self._listening = False
                if failure is not None and not self._closed:
                    self._failure = failure
                self._note(0)

    def _listen_while_waited_for(self) -> None:
        session = self._link.connect()
        connection = session.connection
        try:
            connection.execute(query(f"LISTEN {self._link.address.channel}"), prepare=False)
            with self._lock:
                self._note(0)  # What came before was not heard.
            idle_since = time.monotonic()
            while not self._closed:
                for notice in connection.notifies(timeout=0.5, stop_after=1):
                    number = notice.payload.split(" ", 1)[0]
                    with self._lock:
                        self._note(int(number) if number.isdigit() else 0)
                now = time.monotonic()
                if self.waiting:
                    idle_since = now
                elif now - idle_since > _IDLE_SECONDS:
                    return
        finally:
            connection.close()

    def _require_open(self) -> None:
        if self._closed:
            raise Forbidden(
                f"{self._link.place} is closed on this handle", "call pagefile.open again"
            )

    def close(self) -> None:
        """Tell what is left to tell, wake all who wait, end the threads."""
        if os.getpid() != self._pid:
            return  # The threads are the parent's, and the lock may be held by one of them.
        with self._lock:
            self._closed = True
            self._changed.wake()
            threads = [self._listener, self._announcer]
        self._has_news.set()
        for thread in threads:
            if thread is not None and thread is not threading.current_thread():
                thread.join()
        self._tell()
