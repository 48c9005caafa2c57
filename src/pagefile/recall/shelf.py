"""The search index of a tenant: one log for each user, folded in memory when it is asked.

    recall/<generation>/<whose>        in that user's partition

Whatever can be found appends an entry to its user's log, in the commit that
stores it. A partition is the fold of that log: kept in memory while it is used,
brought up to date by reading what came after, and thrown away when what was
last seen is no longer there. So every engine serves recall without knowing of
it, and what one user's search costs depends on that user's memories alone.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator

import msgspec

from pagefile.batch import Append
from pagefile.errors import Corrupt
from pagefile.recall.catalogue import Catalogue
from pagefile.recall.entry import IndexEntry
from pagefile.recall.partition import PartitionIndex
from pagefile.records import Entry
from pagefile.store import Store

_PAGE = 5_000
#: The kind of an entry that says only: something before this was erased, read again.
REREAD = "reread"
_DECODER = msgspec.json.Decoder(IndexEntry)


def log_of(generation: int, whose: str) -> str:
    """The name of the log of one partition."""
    return f"recall/{generation}/{whose}"


def append_entry(log: str, entry: IndexEntry, user: str | None) -> Append:
    """The operation that makes something findable, or no longer so."""
    return Append(log, msgspec.to_builtins(entry), user=user, kind="recall")


class Shelf:
    """The partitions that are in memory, at most `most` of them and none idle too long."""

    def __init__(
        self,
        store: Store,
        *,
        most: int | None,
        idle_seconds: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._most = most
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._resident: OrderedDict[str, _Resident] = OrderedDict()

    def __len__(self) -> int:
        return len(self._resident)

    def partition(self, catalogue: Catalogue, whose: str) -> PartitionIndex:
        """The index of one partition, up to date."""
        resident = self._take(log_of(catalogue.generation, whose))
        with resident.lock:
            resident.catch_up(self._store)
            return resident.index

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

    def _take(self, log: str) -> _Resident:
        now = self._clock()
        with self._lock:
            resident = self._resident.get(log)
            if resident is None:
                resident = self._resident[log] = _Resident(log)
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


class _Resident:
    """One partition in memory, and how much of its log is folded into it."""

    def __init__(self, log: str) -> None:
        self.lock = threading.Lock()
        self.used = 0.0
        self._log = log
        self._start_again()

    def _start_again(self) -> None:
        self.index = PartitionIndex()
        self._seen = 0
        self._position = 0

    def catch_up(self, store: Store) -> None:
        """Fold what the log has beyond what was seen; all of it when that is gone."""
        page = store.read(self._log, max(self._seen - 1, 0), limit=_PAGE)
        if self._seen:
            # The last entry seen is read again: another in its place means another log.
            if not page or (page[0].index, page[0].position) != (self._seen - 1, self._position):
                self._start_again()
                page = store.read(self._log, 0, limit=_PAGE)
            else:
                full = len(page) == _PAGE
                page = page[1:]
                if any(not entry.erased and decoded(entry).kind == REREAD for entry in page):
                    self._start_again()
                    page = store.read(self._log, 0, limit=_PAGE)
                elif page:
                    self._fold(page)
                    page = store.read(self._log, self._seen, limit=_PAGE) if full else []
        while page:
            self._fold(page)
            page = store.read(self._log, self._seen, limit=_PAGE) if len(page) == _PAGE else []

    def _fold(self, page: list[Entry]) -> None:
        entries = [decoded(entry) for entry in page if not entry.erased]
        self.index.add_many([entry for entry in entries if entry.kind != REREAD])
        self._seen = page[-1].index + 1
        self._position = page[-1].position


def entries_of(store: Store, log: str) -> Iterator[Entry]:
    """All entries of a log, page by page."""
    start = 0
    while page := store.read(log, start, limit=_PAGE):
        yield from page
        start = page[-1].index + 1


def decoded(entry: Entry) -> IndexEntry:
    """What an entry of the index says."""
    try:
        return _DECODER.decode(entry.body)
    except msgspec.DecodeError as error:
        raise Corrupt(
            f"entry {entry.index} of {entry.log!r} is none of a search index ({error})",
            "rebuild the index with reindex()",
        ) from error
