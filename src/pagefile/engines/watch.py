"""Waiting for other processes' commits: one poller for all who wait.

SQLite sends no notifications. Asking it whether the file changed costs a few
microseconds, so one thread asks every few milliseconds while anybody waits,
and none while nobody does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from pagefile.engines.sqlite_file import SqliteFile
from pagefile.engines.sqlite_rows import fetch

_POLL_SECONDS = 0.005


class Watch:
    """Lets any number of threads sleep until the file has changed."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        self._changed = threading.Condition()
        self._waiting = 0
        self._polling = False
        self._closed = False
        self._poller: threading.Thread | None = None

    def until(self, reached: Callable[[], bool], timeout: float) -> bool:
        """Sleep until `reached()`, which is asked again after every change of the file."""
        deadline = time.monotonic() + timeout
        with self._changed:
            self._waiting += 1
            if not self._polling and not self._closed:
                self._polling = True
                self._poller = threading.Thread(
                    target=self._poll, name="pagefile-watch", daemon=True
                )
                self._poller.start()
        try:
            while not reached():
                with self._changed:
                    left = deadline - time.monotonic()
                    if left <= 0 or self._closed:
                        return False
                    # Bounded: a change between `reached` and here is seen next time round.
                    self._changed.wait(min(left, _POLL_SECONDS * 10))
            return True
        finally:
            with self._changed:
                self._waiting -= 1

    def _poll(self) -> None:
        seen = -1
        # The same connection throughout: the number only means something to it.
        with self._file.reader() as connection:
            while True:
                with self._changed:
                    if not self._waiting or self._closed:
                        self._polling = False
                        return
                version = fetch(connection, "PRAGMA data_version")[0][0]
                if version != seen:
                    seen = version
                    with self._changed:
                        self._changed.notify_all()
                time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            poller = self._poller
        if poller is not None:
            poller.join()
