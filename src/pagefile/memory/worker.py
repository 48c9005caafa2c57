"""A thread that consolidates now and then, and ends when it is told to."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from pagefile.bounds import require_seconds
from pagefile.errors import Invalid, shown
from pagefile.memory.consolidation_report import ConsolidationReport
from pagefile.naming import require_callable


class Consolidates(Protocol):
    """A memory, as far as the worker knows it."""

    def consolidate(self, *, cancel: threading.Event | None = None) -> ConsolidationReport: ...


class ConsolidationWorker:
    """Consolidates a memory every `interval_seconds` while it is entered.

    Leaving it stops the round under way: what was read is stored, what was
    claimed is given back. `on_error` hears of a round that failed as a whole;
    without it the error is raised on leaving.
    """

    def __init__(
        self,
        memory: Consolidates,
        *,
        interval_seconds: float = 60.0,
        on_consolidated: Callable[[ConsolidationReport], None] | None = None,
        on_error: Callable[[Exception], None] | None = None,
    ) -> None:
        consolidate = getattr(memory, "consolidate", None)
        if not callable(consolidate) or inspect.iscoroutinefunction(consolidate):
            raise Invalid(
                "memory",
                f"{shown(memory)} cannot be consolidated by a thread",
                "give a Memory; of an async handle, the one of its `sync`",
            )
        require_seconds(interval_seconds, "interval_seconds")
        if interval_seconds <= 0:
            raise Invalid("interval_seconds", shown(interval_seconds), "give more than 0")
        for field, call in (("on_consolidated", on_consolidated), ("on_error", on_error)):
            if call is not None:
                require_callable(field, call)
        self._memory = memory
        self._interval = interval_seconds
        self._on_consolidated = on_consolidated
        self._on_error = on_error
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None
        self.iterations = 0
        self.total_extracted = 0

    def run_once(self) -> int:
        """One round; the number of facts and candidates it made."""
        self.iterations += 1
        report = self._memory.consolidate(cancel=self._stop)
        made = report.facts + report.proposed
        self.total_extracted += made
        if made and self._on_consolidated is not None:
            self._on_consolidated(report)
        return made

    def __enter__(self) -> Self:
        self._stop.clear()
        self._failure = None
        self._thread = threading.Thread(target=self._run, name="pagefile-consolidation")
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
            try:
                self.run_once()
            except Exception as failure:  # noqa: BLE001  Handed on; a thread has nobody above.
                if self._on_error is None:
                    self._failure = failure
                    return
                self._on_error(failure)
            self._stop.wait(self._interval)
