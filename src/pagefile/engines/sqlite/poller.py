"""Waiting for commits: one poller for all who wait.

SQLite sends no notifications. Asking it whether the file changed costs a few
microseconds, and waking up to ask costs more, so one thread asks while anybody
waits, and none while nobody does: every few milliseconds while there is
something to see, less often the longer the file is quiet. Commits of this
process are told to the watch and wait for no poll.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from collections.abc import Callable

from pagefile.engines.sqlite.file import SqliteFile
from pagefile.engines.sqlite.rows import fetch
from pagefile.errors import Forbidden, PagefileError, Unavailable
from pagefile.store.threads import Crowd

_LEAST_POLL_SECONDS = 0.005
#: What another process's commit waits at worst, after half a second of quiet.
_MOST_POLL_SECONDS = 0.05
_SHARE_OF_QUIET = 0.1


class Watch:
    """Lets any number of threads sleep until the file has changed."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._changed = Crowd()
        #: Grows with every change; who compares it before and after cannot miss one.
        self._changes = 0
        self.waiting = 0
        self._closed = False
        self._polling = False
        #: The newest one; it may have stopped polling and be on its way out.
        self._poller: threading.Thread | None = None
        self._failure: PagefileError | None = None
        #: Held always, so that waiting for it is a sleep that `close` can end.
        self._asleep = threading.Lock()
        self._asleep.acquire()

    def until(self, reached: Callable[[], bool], timeout: float) -> bool:
        """Sleep until `reached()`, which is asked again after every change of the file.

        Raises:
            Forbidden: the file was closed meanwhile.
        """
        # Before the lock: in a forked child it may be held by a thread that is not there.
        self._file.require_own_process()
        deadline = time.monotonic() + timeout
        with self._lock:
            self.waiting += 1
        try:
            while True:
                with self._lock:
                    self._require_open()
                    self._start_poller()
                    seen = self._changes
                if reached():
                    return True
                if not self._sleep(seen, deadline):
                    return False
        finally:
            with self._lock:
                self.waiting -= 1

    def _sleep(self, seen: int, deadline: float) -> bool:
        """Until there is a change after `seen`; False when the deadline comes first."""
        with self._lock:
            told = self._changed.join() if self._changes == seen and not self._closed else None
        if told is not None and not told.wait(deadline - time.monotonic()):
            with self._lock:
                self._changed.leave(told)
                if self._changes == seen and not self._closed:
                    return False
        failure = self._failure
        if failure is not None:
            # Each waiter raises its own copy: it grows a traceback of its own.
            raise copy.copy(failure) from failure
        return True

    def notice(self) -> None:
        """This process has committed: whoever waits looks again.

        Needs calling only while `waiting` is not 0, which may be asked without a
        lock: who comes to wait after the commit sees it without being told.
        """
        with self._lock:
            self._note_change()

    def close(self) -> None:
        """End the poller, before the file is closed under it, and wake all who wait."""
        if os.getpid() != self._pid:
            return  # The threads are the parent's, and the lock may be held by one of them.
        with self._lock:
            self._closed = True
            self._changed.wake()
            poller = self._poller
            if poller is not None and self._asleep.locked():
                self._asleep.release()
        if poller is not None:
            poller.join()

    def _require_open(self) -> None:
        if self._closed:
            raise Forbidden(
                f"{self._file.path} is closed on this handle", "call pagefile.open again"
            )

    def _note_change(self) -> None:
        self._changes += 1
        self._changed.wake()

    def _start_poller(self) -> None:
        if not self._polling:
            self._polling, self._failure = True, None
            self._poller = threading.Thread(
                target=self._poll, args=(self._poller,), name="pagefile-watch", daemon=True
            )
            self._poller.start()

    def _poll(self, previous: threading.Thread | None) -> None:
        failure: PagefileError | None = _stopped()
        try:
            if previous is not None:
                previous.join()  # So that `close`, which joins the newest, joins them all.
            self._poll_while_waited_for()
            failure = None
        except PagefileError as error:
            failure = error
        finally:
            # Whatever ended it: nobody may sleep on a poller that is gone.
            with self._lock:
                if failure is not None:
                    self._polling, self._failure = False, failure
                    self._note_change()

    def _poll_while_waited_for(self) -> None:
        version, changed_at = -1, time.monotonic()
        # The same connection throughout: the number only means something to it.
        with self._file.reader() as connection:
            while True:
                self._file.look()
                # The first answer counts as a change: what came before it was not watched.
                answer = fetch(connection, "PRAGMA data_version")[0][0]
                now = time.monotonic()
                with self._lock:
                    if not self.waiting or self._closed:
                        self._polling = False
                        return
                    if answer != version:
                        version, changed_at = answer, now
                        self._note_change()
                pause = (now - changed_at) * _SHARE_OF_QUIET
                pause = min(max(pause, _LEAST_POLL_SECONDS), _MOST_POLL_SECONDS)
                self._asleep.acquire(timeout=pause)


def _stopped() -> Unavailable:
    return Unavailable("watching the file stopped on an unexpected error", "wait again")
