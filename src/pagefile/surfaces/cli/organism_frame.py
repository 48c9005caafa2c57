"""Organisms at one moment, as numbers: what `pagefile organism top` shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from pagefile.dispatch import Overview, WorkerView

_SECOND = 1_000_000
#: Of conversations and dead letters no more than so many are counted.
MOST_COUNTED = 1_000
_MOST_LETTERS = 5


class ProcessRow(msgspec.Struct, frozen=True):
    """One process. `per_second` is None until two of its heartbeats were seen."""

    worker: str
    pid: int
    alive: bool
    seen_seconds_ago: float
    hops: int
    per_second: float | None
    conversations: int
    waiting: int
    running: int
    errors: int
    dead: int


class ListenerRow(msgspec.Struct, frozen=True):
    """One listener in all processes. `p50` and `p95` are those of the slowest process."""

    listener: str
    runs: int
    per_second: float | None
    waiting: int
    running: int
    mean_seconds: float
    p50_seconds: float
    p95_seconds: float
    max_seconds: float
    errors: int
    timeouts: int


class LetterRow(msgspec.Struct, frozen=True):
    """One dead letter."""

    message_id: str
    listener: str
    code: str
    error: str
    attempts: int


class OrganismFrame(msgspec.Struct, frozen=True):
    """One organism. Of conversations and dead letters at most 1,000 are counted."""

    organism: str
    processes: tuple[ProcessRow, ...]
    listeners: tuple[ListenerRow, ...]
    conversations: int
    unowned: int
    dead_letters: int
    newest_dead_letters: tuple[LetterRow, ...]


class Frames:
    """Makes frames out of overviews; the rates are those between two heartbeats."""

    def __init__(self) -> None:
        #: The last two different heartbeats of each process.
        self._seen: dict[str, tuple[WorkerView, WorkerView | None]] = {}

    def frame(self, overview: Overview, now_us: int) -> OrganismFrame:
        """How it is with an organism."""
        for view in overview.workers:
            last, _ = self._seen.get(view.worker, (None, None))
            if last is None or last.seen_us != view.seen_us:
                self._seen[view.worker] = view, last
        letters = overview.dead_letters
        return OrganismFrame(
            overview.organism,
            tuple(self._process(view, now_us) for view in overview.workers),
            tuple(self._listener(name, overview.workers) for name in _names(overview.workers)),
            len(overview.conversations),
            sum(1 for each in overview.conversations if not each.owner),
            len(letters),
            tuple(
                LetterRow(one.message_id, one.listener, one.code, one.error, one.attempts)
                for one in letters[-_MOST_LETTERS:][::-1]
            ),
        )

    def _process(self, view: WorkerView, now_us: int) -> ProcessRow:
        stats = view.stats
        ago = max(0.0, (now_us - view.seen_us) / _SECOND)
        return ProcessRow(
            view.worker,
            view.pid,
            ago <= view.lease_seconds,
            ago,
            int(stats.get("hops", 0)),
            self._rate(view, lambda stats: stats.get("hops", 0)),
            int(stats.get("conversations", 0)),
            int(stats.get("waiting", 0)),
            int(stats.get("running", 0)),
            int(stats.get("errors", 0)),
            int(stats.get("dead", 0)),
        )

    def _listener(self, name: str, workers: tuple[WorkerView, ...]) -> ListenerRow:
        latencies = [view.stats.get("listeners", {}).get(name, {}) for view in workers]
        queues = [view.stats.get("queues", {}).get(name, {}) for view in workers]
        rates = [
            self._rate(view, lambda stats: stats.get("listeners", {}).get(name, {}).get("count", 0))
            for view in workers
        ]
        known = [rate for rate in rates if rate is not None]
        runs = sum(int(each.get("count", 0)) for each in latencies)
        seconds = sum(each.get("mean", 0.0) * each.get("count", 0) for each in latencies)
        return ListenerRow(
            name,
            runs,
            sum(known) if known else None,
            sum(int(each.get("waiting", 0)) for each in queues),
            sum(int(each.get("running", 0)) for each in queues),
            seconds / runs if runs else 0.0,
            max((float(each.get("p50", 0.0)) for each in latencies), default=0.0),
            max((float(each.get("p95", 0.0)) for each in latencies), default=0.0),
            max((float(each.get("max", 0.0)) for each in latencies), default=0.0),
            sum(int(each.get("errors", 0)) for each in latencies),
            sum(int(each.get("timeouts", 0)) for each in latencies),
        )

    def _rate(self, view: WorkerView, count: Any) -> float | None:
        last, before = self._seen[view.worker]
        if before is None or last.seen_us <= before.seen_us:
            return None
        made = int(count(last.stats)) - int(count(before.stats))
        return max(0.0, made * _SECOND / (last.seen_us - before.seen_us))


def _names(workers: tuple[WorkerView, ...]) -> list[str]:
    found: set[str] = set()
    for view in workers:
        found |= set(view.stats.get("listeners", {})) | set(view.stats.get("queues", {}))
    return sorted(found)
