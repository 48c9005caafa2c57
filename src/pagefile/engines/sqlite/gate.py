"""A turnstile between processes, so that the write lock is handed on fairly.

SQLite's own lock goes to whoever tries at the right microsecond: a process
that commits without pause would keep it for ever. Here a process passes the
gate first and holds it while it waits for the write lock. The one that just
committed must pass the gate too, and finds the next one standing in it.

The gate is an advisory lock on an empty file next to the database. The kernel
opens it when its holder dies.
"""

from __future__ import annotations

import fcntl
import os
import random
import time
from functools import partial
from pathlib import Path

from pagefile.errors import Unavailable

_FIRST_PAUSE_SECONDS = 0.0002
_LONGEST_PAUSE_SECONDS = 0.002


class Gate:
    """One process's way through the turnstile; used by one thread at a time."""

    def __init__(self, path: Path, mode: int) -> None:
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, mode)
        except PermissionError:
            # Another user's: the lock is advisory, and reading is enough for it.
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        #: Take the gate if nobody holds it, or raise BlockingIOError: a plain system call.
        self.enter = partial(fcntl.flock, self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        #: Let the next one in; harmless when not held.
        self.leave = partial(fcntl.flock, self._file, fcntl.LOCK_UN)

    def pass_through(self, deadline: float) -> None:
        """Take the gate, or raise when the deadline (monotonic seconds) has passed.

        Raises:
            Unavailable: other processes kept the gate; nothing was written.
        """
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                return self.enter()
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise waited_too_long() from None
                time.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(pause * 1.5, _LONGEST_PAUSE_SECONDS)

    def close(self) -> None:
        os.close(self._file)


def waited_too_long() -> Unavailable:
    """What both waits, for the gate and for SQLite's lock, end with."""
    return Unavailable(
        "other processes held the write lock for too long",
        "look for a stopped or debugged process on this file, then retry",
    )
