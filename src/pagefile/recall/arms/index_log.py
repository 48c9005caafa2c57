"""One user's index log as a vector arm reads it: ids and vectors, from an entry on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from pagefile.recall.arms.arm import Mark, Part
from pagefile.recall.embed.embedder import Floats, unit_rows
from pagefile.recall.entry import IndexEntry
from pagefile.recall.logs import decoded, log_of
from pagefile.store.records import Entry
from pagefile.store.store import Store

#: How many entries are read, and vectors sent, at once.
BATCH = 500


class VectorLog:
    """The log behind one partition."""

    def __init__(self, store: Store, part: Part, generation: int) -> None:
        self._store = store
        self.part = part
        self.generation = generation
        self._log = log_of(generation, part.owner)

    def ids(self, stored: Sequence[Entry], entries: Sequence[IndexEntry]) -> list[bytes]:
        """The ids of the vectors of these entries; empty for one without."""
        point = self.part.point
        return [
            point(entry.key, at.position, at.index) if entry.vector else b""
            for at, entry in zip(stored, entries, strict=True)
        ]

    def holds(self, mark: Mark | None) -> bool:
        """Whether the mark speaks of this log, and of what it still is."""
        if mark is None or mark.generation != self.generation:
            return False
        if not mark.seen:
            return True
        found = self._store.read(self._log, mark.seen - 1, limit=1)
        return bool(found) and (found[0].index, found[0].position) == (
            mark.seen - 1,
            mark.position,
        )

    def length(self) -> int:
        """How many entries the log has now."""
        return self._store.length(self._log)

    def vectors(self, start: int) -> Iterator[tuple[list[bytes], Floats]]:
        """Ids and vectors of the entries from `start` on, batch by batch."""
        while page := self._store.read(self._log, start, limit=BATCH):
            start = page[-1].index + 1
            stored = [entry for entry in page if not entry.erased]
            entries = [decoded(entry) for entry in stored]
            ids = self.ids(stored, entries)
            raws = [e.vector for e in entries if e.vector]
            if raws:
                numbers = np.frombuffer(b"".join(raws), "<f2").reshape(len(raws), -1)
                rows = unit_rows(numbers, len(raws), self.part.dimensions)
                yield [one for one in ids if one], rows
