"""Deadlines of requests under way, looked at twice a second.

A timer for each request costs more than many a request; nobody minds whether a
limit of a minute ends half a second later.
"""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Any, Protocol

from pagefile.errors import Unavailable

_LOOK_SECONDS = 0.5


class Bounded(Protocol):
    """What may take until a moment of the monotonic clock; None is for ever."""

    at: float | None
    is_over: bool

    def end(self) -> None: ...


class Deadline:
    """Ends the block it is entered for when it is over; a context manager.

    `TimeoutError` is raised from the block then, and `is_over` is true.
    """

    __slots__ = ("_deadlines", "_task", "at", "is_over")

    def __init__(
        self, deadlines: Deadlines, seconds: float, task: asyncio.Task[Any] | None
    ) -> None:
        self._deadlines = deadlines
        self.at: float | None = time.monotonic() + seconds
        self.is_over = False
        self._task = task

    def set(self, seconds: float | None) -> None:
        """So long from now; None is no limit."""
        self.at = None if seconds is None else time.monotonic() + seconds

    def end(self) -> None:
        """Interrupt the block."""
        self.is_over = True
        if self._task is not None:
            self._task.cancel()

    def __enter__(self) -> Deadline:
        if self._task is None:
            self._task = asyncio.current_task()
        self._deadlines.running.add(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._deadlines.running.discard(self)
        if self.is_over and self._task is not None:
            others = self._task.uncancel()
            if kind is asyncio.CancelledError and not others:
                raise TimeoutError from error


def too_long(seconds: float) -> Unavailable:
    """What is answered when it is not known what becomes of a request."""
    return Unavailable(
        f"it was not done within {seconds:g} seconds",
        "look whether it happened before you send it again",
        outcome="unknown",
    )


class Deadlines:
    """All deadlines of one event loop."""

    def __init__(self) -> None:
        self.running: set[Bounded] = set()
        self._is_looking = False

    def after(self, seconds: float, task: asyncio.Task[Any] | None = None) -> Deadline:
        """A deadline so long from now; whoever knows the running task saves the search for it."""
        self.watch()
        return Deadline(self, seconds, task)

    def watch(self) -> None:
        """See that `running` is looked at from now on, until it is empty."""
        if not self._is_looking:
            self._is_looking = True
            asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        self._is_looking = bool(self.running)
        if not self._is_looking:
            return
        now = time.monotonic()
        for deadline in [each for each in self.running if each.at is not None]:
            if deadline.at is not None and deadline.at <= now and not deadline.is_over:
                deadline.end()
        asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)
