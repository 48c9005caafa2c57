"""Consolidation as `Memory` offers it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import datetime

from pagefile.errors import Invalid, shown
from pagefile.memory.consolidation.claims import reopen_failed
from pagefile.memory.consolidation.consolidation import (
    Consolidation,
    ConsolidationPolicy,
    ConsolidationReport,
)
from pagefile.memory.extraction.candidate import Extractor, chosen_extractor
from pagefile.memory.facts.index import FactIndexing
from pagefile.memory.facts.store import FactStore
from pagefile.store.arguments import require_callable, require_count, require_flag
from pagefile.store.store import Store


class Consolidating:
    """The part of `Memory` that turns episodes into facts."""

    _facts: FactStore
    _store: Store
    _indexing: FactIndexing
    #: A name is looked up at the first consolidation: what it stands for may need a library.
    _extractor: Extractor | str
    #: What was made from a name, and is closed with the memory.
    _made_here: Extractor | None = None
    _policy: ConsolidationPolicy
    _clock: Callable[[], datetime]

    def consolidate(
        self,
        *,
        limit: int = 1_000,
        cancel: threading.Event | None = None,
        progress: Callable[[int], None] | None = None,
        retry_failed: bool = False,
    ) -> ConsolidationReport:
        """Read up to `limit` episodes that are unread, of all users, and keep what they state.

        What the extractor is sure of becomes facts, the rest waits in `proposals`.
        Any number of workers may do this at once. `progress` is called with the
        number of episodes read so far; setting `cancel` ends it early.
        `retry_failed` opens before what was given up, or waits after a failure:
        for when what they failed by has been mended.

        Raises:
            Forbidden, Invalid: the extractor's settings are wrong; no episode is blamed.
        """
        require_count(limit, "limit", most=1_000_000)
        if cancel is not None and not callable(getattr(cancel, "is_set", None)):
            raise Invalid("cancel", shown(cancel), "give a threading.Event")
        if progress is not None:
            require_callable("progress", progress)
        require_flag("retry_failed", retry_failed)
        if isinstance(self._extractor, str):
            self._extractor = self._made_here = chosen_extractor(self._extractor)
        consolidation = Consolidation(
            self._store, self._facts, self._indexing, self._extractor, self._policy, self._clock
        )
        if retry_failed and not (cancel is not None and cancel.is_set()):
            reopen_failed(self._store)
        return consolidation.run(limit, cancel, progress)

    def _close_extractor(self) -> None:
        close = getattr(self._made_here, "close", None)
        if close is not None:
            close()
