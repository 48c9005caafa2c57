"""A thread that consolidates now and then, and ends when it is told to."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from typing import Protocol

from pagefile.errors import Invalid, shown
from pagefile.memory.consolidation.consolidation import ConsolidationReport
from pagefile.store.arguments import require_callable
from pagefile.store.threads import Rounds


class Consolidates(Protocol):
    """A memory, as far as the worker knows it."""

    def consolidate(self, *, cancel: threading.Event | None = None) -> ConsolidationReport: ...


class ConsolidationWorker(Rounds):
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
        super().__init__("pagefile-consolidation", interval_seconds)
        for field, call in (("on_consolidated", on_consolidated), ("on_error", on_error)):
            if call is not None:
                require_callable(field, call)
        self._memory = memory
        self._on_consolidated = on_consolidated
        self._on_error = on_error
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

    def _round(self) -> bool:
        self.run_once()
        return False

    def _goes_on_after(self, failure: Exception) -> bool:
        if self._on_error is None:
            return False
        self._on_error(failure)
        return True
