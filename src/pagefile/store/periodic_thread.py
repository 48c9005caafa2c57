"""A thread that does its round again and again while it is entered, and ends when it is left."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import Self

from pagefile.errors import Invalid, shown
from pagefile.store.arguments import require_seconds


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
