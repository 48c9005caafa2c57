"""Threads that wait and threads that work at intervals."""

from __future__ import annotations

import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from pagefile.errors import Invalid, shown
from pagefile.store.arguments import require_seconds


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


class Rounds:
    """Calls `_round` every `interval_seconds`; leaving it stops the round under way.

    A round that fails ends the thread, and leaving raises its error, unless
    `_goes_on_after` says otherwise. With `daemon`, a program that forgot to leave
    it ends all the same.
    """

    def __init__(self, name: str, interval_seconds: float, *, daemon: bool = False) -> None:
        require_seconds(interval_seconds, "interval_seconds")
        if interval_seconds <= 0:
            raise Invalid("interval_seconds", shown(interval_seconds), "give more than 0")
        self._name = name
        self._daemon = daemon
        self._interval = interval_seconds
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def _round(self) -> bool:
        """Do one; whether there is more to be done at once."""
        raise NotImplementedError

    def _goes_on_after(self, failure: Exception) -> bool:
        return False

    def __enter__(self) -> Self:
        self._stop.clear()
        self._failure = None
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=self._daemon)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if self._failure is not None and error is None:
            raise self._failure

    def _run(self) -> None:
        while not self._stop.is_set():
            more = False
            try:
                more = self._round()
            except Exception as failure:  # noqa: BLE001  Handed on; a thread has nobody above.
                if not self._goes_on_after(failure):
                    self._failure = failure
                    return
            if not more:
                self._stop.wait(self._interval)
