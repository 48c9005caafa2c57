"""Threads for plain handlers. They die with the process: one that hangs holds up nobody's exit."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

_Errand = tuple[
    asyncio.AbstractEventLoop, "asyncio.Future[Any]", contextvars.Context, Callable[[], Any]
]


class DaemonThreads:
    """Runs functions in threads, as many at a time as there is work for."""

    def __init__(self) -> None:
        self._errands: SimpleQueue[_Errand | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._threads = 0

    def run(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """A future of what the function returns; cancelling it lets the thread run on, unheard."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                self._threads += 1
                threading.Thread(
                    target=self._work, name=f"pagefile-handler-{self._threads}", daemon=True
                ).start()
        self._errands.put((loop, future, contextvars.copy_context(), function))
        return future

    def close(self) -> None:
        """Let idle threads end."""
        with self._lock:
            idle, self._idle = self._idle, 0
        for _ in range(idle):
            self._errands.put(None)

    def _work(self) -> None:
        while (errand := self._errands.get()) is not None:
            loop, future, context, function = errand
            result: Any = None
            error: BaseException | None = None
            try:
                result = context.run(function)
            except BaseException as raised:  # noqa: BLE001  Handed to whoever waits.
                error = raised
            with self._lock:
                self._idle += 1
            try:
                loop.call_soon_threadsafe(_settle, future, result, error)
            except RuntimeError:
                continue  # The loop is closed; nobody waits any more.


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, Exception) and not isinstance(error, StopIteration):
        future.set_exception(error)
    else:
        # SystemExit in a handler's thread ends the handler, not the organism.
        stopped = RuntimeError(f"the handler raised {type(error).__name__}")
        stopped.__cause__ = error
        future.set_exception(stopped)
