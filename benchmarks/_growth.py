"""What size costs: longer logs, more logs, the last entries of a long log.

Level `process` on the file, so that the disk is not the subject; CPU is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Literal

from _measure import Subject, Timing, cpu_ratio, measure
from _row import Row, Target
from _workplace import LOG, VALUE, Workplace, append_many, append_one
from pagefile import Append, Batch, Options, Store

EngineName = Literal["memory", "sqlite"]
ENGINES: tuple[EngineName, ...] = ("memory", "sqlite")

#: Logs are built this many entries at a time.
_BUILD_BATCH = 5_000
_TAIL = 50
_WITHIN_A_FIFTH = Target(0.8, 1.2)


def tail(place: Workplace) -> list[Row]:
    """Reading the last entries of a short log and of a long one."""
    lengths = [1_000, _longest(place)]
    rows: list[Row] = []
    for engine in ENGINES:
        subjects = []
        for length in lengths:
            store = _built(place, engine, length)
            subjects.append(Subject(f"{engine}, {length:,} entries", _tail_reader(store)))
        rows += _compared(place, "tail", subjects, "× CPU of the short log")
    return rows


def length(place: Workplace) -> list[Row]:
    """Appends at the end of ever longer logs."""
    lengths = [n for n in (1_000, 10_000, 100_000, 1_000_000) if n <= _longest(place)]
    rows: list[Row] = []
    for engine in ENGINES:
        subjects = []
        for entries in lengths:
            store = _built(place, engine, entries)
            subjects.append(Subject(f"{engine}, {entries:,} entries", _appender(store)))
        rows += _compared(place, "length", subjects, "× CPU at 1,000 entries")
    return rows


def spread_out(place: Workplace) -> list[Row]:
    """Appends that go to one log after another, all short."""
    rows: list[Row] = []
    for engine in ENGINES:
        subjects = []
        for logs in (1, 100, 10_000):
            store = _open(place, engine)
            names = [f"log-{number}" for number in range(logs)]
            for start in range(0, logs, _BUILD_BATCH):
                store.commit(
                    Batch([Append(name, VALUE) for name in names[start : start + _BUILD_BATCH]])
                )
            subjects.append(
                Subject(f"{engine}, {logs:,} log{'s' * (logs > 1)}", _round_robin(store, names))
            )
        rows += _compared(place, "spread", subjects, "× CPU with 1 log")
    return rows


def _longest(place: Workplace) -> int:
    return 100_000 if place.quick else 1_000_000


def _open(place: Workplace, engine: EngineName) -> Store:
    if engine == "memory":
        return place.open_store("memory:")
    return place.open_store(place.new_path(), Options(durability="process"))


def _built(place: Workplace, engine: EngineName, entries: int) -> Store:
    place.announce(f"building {entries:,} entries in {engine}", entries // _BUILD_BATCH)
    store = _open(place, engine)
    for start in range(0, entries, _BUILD_BATCH):
        count = min(_BUILD_BATCH, entries - start)
        store.commit(Batch([Append(LOG, VALUE) for _ in range(count)]))
        place.advance()
    return store


def _appender(store: Store) -> Callable[[], int]:
    # Few enough that the shortest log is still short after the last round.
    return lambda: append_many(store, 250)


def _round_robin(store: Store, names: list[str]) -> Callable[[], int]:
    turns = itertools.cycle(names)

    def work() -> int:
        for _ in range(1_000):
            append_one(store, next(turns))
        return 1_000

    return work


def _tail_reader(store: Store) -> Callable[[], int]:
    def work() -> int:
        for _ in range(200):
            if len(store.read(LOG, -_TAIL)) != _TAIL:
                raise RuntimeError(f"read did not return the last {_TAIL}")
        return 200

    return work


def _compared(place: Workplace, case: str, subjects: list[Subject], meaning: str) -> list[Row]:
    """All subjects against the first, by CPU."""
    rounds = place.rounds(16)
    place.announce(case, rounds)
    timings = measure(subjects, rounds, place.advance)
    return [_held_against(case, subjects[0], subject, timings, meaning) for subject in subjects]


def _held_against(
    case: str, peer: Subject, subject: Subject, timings: dict[str, Timing], meaning: str
) -> Row:
    timing = timings[subject.name]
    if subject is peer:
        return Row(case, subject.name, timing)
    ratio = cpu_ratio(timing, timings[peer.name])
    return Row(case, subject.name, timing, meaning, ratio, _WITHIN_A_FIFTH)
