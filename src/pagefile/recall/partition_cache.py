"""The search index of a tenant: one log for each user, folded in memory when it is asked.

Whatever can be found appends an entry to its user's log, in the commit that
stores it. A partition is the fold of that log: kept in memory while it is used,
brought up to date by reading what came after, and thrown away when what was
last seen is no longer there. So every engine serves recall without knowing of
it, and what one user's search costs depends on that user's memories alone.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from functools import cache

from pagefile.recall.arms.arm import Part, VectorArm, VectorLog
from pagefile.recall.arms.remote_vectors import ArmRows
from pagefile.recall.arms.store_arm import KeptLog, KeptRows, KeptVectors
from pagefile.recall.partition import PartitionIndex
from pagefile.recall.records import (
    PAGE,
    REREAD,
    Catalogue,
    IndexEntry,
    decoded,
    entries_of,
    log_of,
    read_catalogue,
)
from pagefile.recall.vectors.vector_index import Vectors
from pagefile.store.records import Entry
from pagefile.store.snapshot import Snapshot
from pagefile.store.store import Store

# Memory that was let go, given back to the system.


def give_back() -> None:
    """Have the allocator return what nobody uses; only glibc's keeps it, and only it is asked.

    For after work that took much more than what it leaves, such as folding a long log.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], object] | None:
    try:
        found: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    return found


#: Folding so many entries at once leaves holes in the heap that are worth giving back.
_LONG = 10_000


class Shelf:
    """The partitions that are in memory, at most `most` of them and none idle too long."""

    def __init__(
        self,
        store: Store,
        *,
        most: int | None,
        idle_seconds: float | None,
        clock: Callable[[], float] = time.monotonic,
        arm: VectorArm | KeptVectors | None = None,
    ) -> None:
        self._store = store
        self.arm = arm
        self._most = most
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._resident: OrderedDict[str, Resident] = OrderedDict()

    def __len__(self) -> int:
        return len(self._resident)

    def partition(
        self, catalogue: Catalogue, whose: str, stamp: int | None = None
    ) -> PartitionIndex | None:
        """The index of one partition, up to date: as of `stamp`, where the store gave one.

        None when the index was made anew meanwhile: ask again with what is in force now.
        """
        resident = self.resident(catalogue, whose)
        with resident.lock:
            if stamp is None or resident.stamp != stamp:
                if not resident.catch_up(self._store) and not self._stands(catalogue):
                    return None
                resident.stamp = stamp
            return resident.index

    def _stands(self, catalogue: Catalogue) -> bool:
        """Whether its logs are there still: they go when another generation is in force."""
        held = read_catalogue(self._store)
        return held is not None and held.generation == catalogue.generation

    def partition_at(
        self, catalogue: Catalogue, whose: str, past: Snapshot
    ) -> tuple[PartitionIndex, Callable[[], bool]]:
        """The index of one partition at a position, and whether it is still that one.

        Where nothing was indexed since, it is the one in memory, which others
        may bring up to date under our hands. An older one is read anew.
        """
        log = log_of(catalogue.generation, whose)
        length = past.length(log)
        if past.live.length(log) == length:
            resident = self._take(log, catalogue, whose)
            with resident.lock:
                resident.catch_up(past.live)
                index, is_same = resident.index, resident.is_at(length)
            if is_same:
                return index, lambda: resident.index is index and resident.is_at(length)
        old = Resident(log)
        old.catch_up(past)
        return old.index, lambda: True

    def resident(self, catalogue: Catalogue, whose: str) -> Resident:
        """One partition in memory, as far as it was folded."""
        return self._take(log_of(catalogue.generation, whose), catalogue, whose)

    def numbers(self, log: str, keys: Collection[str]) -> frozenset[int]:
        """Which entries of a log are about these keys, replaced ones included."""
        return frozenset(
            entry.index
            for entry in entries_of(self._store, log)
            if not entry.erased and decoded(entry).key in keys
        )

    def forget(self) -> None:
        """Let go of everything in memory; it is read again when it is needed."""
        with self._lock:
            self._resident.clear()

    def _take(self, log: str, catalogue: Catalogue, whose: str) -> Resident:
        now = self._clock()
        with self._lock:
            resident = self._resident.get(log)
            if resident is None:
                resident = self._resident[log] = self._made(log, catalogue, whose)
            self._resident.move_to_end(log)
            resident.used = now
            while self._most is not None and len(self._resident) > self._most:
                self._resident.popitem(last=False)
            while self._idle_seconds is not None:
                oldest = next(iter(self._resident.values()))
                if now - oldest.used <= self._idle_seconds:
                    break
                self._resident.popitem(last=False)
        return resident

    def _made(self, log: str, catalogue: Catalogue, whose: str) -> Resident:
        model = catalogue.model
        if self.arm is None or not model.dimensions:
            return Resident(log)
        part = Part(self._store.tenant, whose, model.name, model.dimensions)
        arm, generation = self.arm, catalogue.generation
        if isinstance(arm, KeptVectors):
            kept = KeptLog(self._store, part, generation)
            return Resident(log, kept, lambda: KeptRows(self._store, kept))
        vectors = VectorLog(self._store, part, generation)
        return Resident(log, vectors, lambda: ArmRows(arm, vectors))


class Resident:
    """One partition in memory, and how much of its log is folded into it."""

    def __init__(
        self,
        log: str,
        vectors: VectorLog | None = None,
        rows: Callable[[], Vectors] | None = None,
    ) -> None:
        self.lock = threading.Lock()
        self.used = 0.0
        #: The store's before the log was last read to its end.
        self.stamp: int | None = None
        self._log = log
        self._rows = rows
        #: The log as the arm reads it; None where vectors are kept in this process.
        self.vectors = vectors
        self._start_again()

    def _start_again(self) -> None:
        self.index = PartitionIndex(vectors=None if self._rows is None else self._rows())
        #: Entries before `seen` are folded; `position` is that of the last of them.
        self.seen = 0
        self.position = 0

    def is_at(self, length: int) -> bool:
        """Whether exactly so many entries are folded in."""
        return self.seen == length

    def catch_up(self, store: Store) -> bool:
        """Fold what the log has beyond what was seen; all of it when that is gone.

        Returns whether that is the log as it was in one moment. Of one that was read page by
        page, or is not there, a part may have been dropped in between.
        """
        start = max(self.seen - 1, 0)
        # An entry from here on that says so makes us read again; one before it was heeded.
        since = self.seen or store.length(self._log)
        folded = pages = 0
        while True:
            page = store.read(self._log, start, limit=PAGE)
            pages += 1
            is_last = len(page) < PAGE
            is_same = True
            if start < self.seen:
                # The last entry seen is read again: another in its place means another log.
                is_same = bool(page) and (page[0].index, page[0].position) == (start, self.position)
                page = page[1:]
            stored = [entry for entry in page if not entry.erased]
            entries = [decoded(entry) for entry in stored]
            told = zip(stored, entries, strict=True)
            if not is_same or any(e.kind == REREAD and at.index >= since for at, e in told):
                self._start_again()
                start, since, pages = 0, store.length(self._log), 0
                continue
            if page:
                folded += len(page)
                self._fold(stored, entries)
                self.seen = page[-1].index + 1
                self.position = page[-1].position
            if is_last:
                break
            start = self.seen
        if folded > PAGE:
            self.index.settle()
        if folded > _LONG:
            give_back()
        return pages == 1 and self.seen > 0

    def _fold(self, stored: list[Entry], entries: list[IndexEntry]) -> None:
        if self.vectors is None:
            self.index.add_many([entry for entry in entries if entry.kind != REREAD])
        else:
            ids = self.vectors.ids(stored, entries)
            told = [n for n, entry in enumerate(entries) if entry.kind != REREAD]
            self.index.add_many([entries[n] for n in told], [ids[n] for n in told])
