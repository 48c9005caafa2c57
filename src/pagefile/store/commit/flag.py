"""Telling a waiting thread something, also when Ctrl-C comes in between.

The standard `Event` and `Condition` take their lock in Python code: an interrupt
just after that leaves it taken, and everybody who comes later waits for ever. A
bare lock has no such moment, and these two need nothing else.
"""

from __future__ import annotations

import threading
from contextlib import suppress


class Flag:
    """Is up or down; one thread at a time waits for it to go up, which takes it down."""

    __slots__ = ("_down",)

    def __init__(self) -> None:
        self._down = threading.Lock()
        self._down.acquire()

    def set(self) -> None:
        """Raise it, whoever waits or not."""
        if self._down.locked():
            with suppress(RuntimeError):  # Another raised it just now.
                self._down.release()

    def clear(self) -> None:
        """Take it down."""
        self._down.acquire(blocking=False)

    def wait(self, timeout: float) -> bool:
        """Whether it went up within `timeout` seconds."""
        return self._down.acquire(timeout=min(max(timeout, 0.0), threading.TIMEOUT_MAX))


class Crowd:
    """Those who wait for the next change; its owner's mutex is held for `join` and `wake`."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: list[Flag] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self) -> Flag:
        """A flag that goes up with the next change; to be waited for without the mutex."""
        flag = Flag()
        self._waiting.append(flag)
        return flag

    def leave(self, flag: Flag) -> None:
        """Wait no longer. An interrupt may skip this: the next change then clears it away."""
        if flag in self._waiting:
            self._waiting.remove(flag)

    def wake(self) -> None:
        """Everybody who waits looks again."""
        woken, self._waiting = self._waiting, []
        for flag in woken:
            flag.set()
