"""The memory engine against a list and a lock: the CPU that the promises cost."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pagefile
from _context_plain import BufferSlot, SlotMetadata
from _measure import Subject, cpu_ratio, measure, rate_ratio
from _row import Row, Target
from _workplace import LOG, VALUE, Workplace, append_many
from pagefile import Append, Batch, Store

_APPENDS = 10_000
_BATCH = 100
_LIST = "list, lock and frozen slot (10 fields of metadata)"
_BARE = "list, lock and bare slot (4 fields)"
_SINGLE = "memory:, one append per commit"
_BATCH_OF_ONE = "memory:, commit of a batch of one"
_BATCHED = f"memory:, {_BATCH} appends per commit"


@dataclass(frozen=True)
class BareSlot:
    """The least one could keep: no sender, no type, a datetime instead of its text."""

    log: str
    index: int
    time: datetime
    payload: Any


@dataclass
class SlotList:
    """The hand-written store: no encoding, no digest, no isolation of the payload."""

    slots: list[BufferSlot | BareSlot] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def append(self, log: str, payload: Any) -> BufferSlot:
        with self.lock:
            now = datetime.now(UTC).isoformat()
            metadata = SlotMetadata(log, "a", "b", len(self.slots), now, type(payload).__name__)
            slot = BufferSlot(payload, metadata)
            self.slots.append(slot)
            return slot

    def append_bare(self, log: str, payload: Any) -> BareSlot:
        with self.lock:
            slot = BareSlot(log, len(self.slots), datetime.now(UTC), payload)
            self.slots.append(slot)
            return slot


class _Fresh:
    """Both stores, empty again before each round: a round's cost must not depend on the last."""

    slots: SlotList
    store: Store

    def renew(self) -> None:
        self.slots = SlotList()
        self.store = pagefile.open("memory:").store

    def append_slots(self) -> int:
        for _ in range(_APPENDS):
            self.slots.append(LOG, VALUE)
        return _APPENDS

    def append_bare_slots(self) -> int:
        for _ in range(_APPENDS):
            self.slots.append_bare(LOG, VALUE)
        return _APPENDS

    def append_singly(self) -> int:
        for _ in range(_APPENDS):
            self.store.append(Append(LOG, VALUE))
        return _APPENDS

    def append_in_batches_of_one(self) -> int:
        return append_many(self.store, _APPENDS)

    def append_in_batches(self) -> int:
        for _ in range(_APPENDS // _BATCH):
            self.store.commit(Batch([Append(LOG, VALUE) for _ in range(_BATCH)]))
        return _APPENDS


def memory(place: Workplace) -> list[Row]:
    """One append per commit by CPU, batches of 100 by rate; all figures are per entry."""
    fresh = _Fresh()
    rounds = place.rounds(32)
    place.announce("memory", rounds)
    timings = measure(
        [
            Subject(_LIST, fresh.append_slots, fresh.renew),
            Subject(_BARE, fresh.append_bare_slots, fresh.renew),
            Subject(_SINGLE, fresh.append_singly, fresh.renew),
            Subject(_BATCH_OF_ONE, fresh.append_in_batches_of_one, fresh.renew),
            Subject(_BATCHED, fresh.append_in_batches, fresh.renew),
        ],
        rounds,
        place.advance,
    )
    peer, single, batched = timings[_LIST], timings[_SINGLE], timings[_BATCHED]
    cpu, rate = cpu_ratio(single, peer), rate_ratio(batched, peer)
    return [
        Row("memory", _LIST, peer),
        Row("memory", _BARE, timings[_BARE], "× CPU of the list", cpu_ratio(timings[_BARE], peer)),
        Row("memory", _SINGLE, single, "× CPU of the list", cpu, Target(high=3)),
        Row(
            "memory",
            _BATCH_OF_ONE,
            timings[_BATCH_OF_ONE],
            "× CPU of the list",
            cpu_ratio(timings[_BATCH_OF_ONE], peer),
        ),
        Row("memory", _BATCHED, batched, "× rate of the list", rate, Target(low=1)),
    ]
