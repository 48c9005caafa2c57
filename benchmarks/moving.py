"""What it takes to move a tenant into a new file, next to inserting the same rows plainly.

    python benchmarks/moving.py [--json] [--quick] [--only NAME] [--folder PATH]

The peer reads one plain table of the same bodies and inserts it into another with
one `executemany` in one transaction: no history, no keys, no digests, no numbers
per log. The copy checks every digest and is a store after each of its transactions.
"""

from __future__ import annotations

import apsw

from _measure import Subject, measure, rate_ratio
from _row import Row
from _run import Suite, run
from _workplace import LOG, TEXT, Workplace
from pagefile import Admin, Append, Batch

_SLOTS = 100_000
_QUICK_SLOTS = 5_000
_PER_COMMIT = 1
_PEER = "bare apsw, executemany"


def _source(place: Workplace, slots: int) -> Admin:
    admin = place.closing(Admin(place.new_path()))
    memory = place.closing(Admin("memory:"))
    store = memory.open("default").store
    for number in range(0, slots, _PER_COMMIT):
        store.commit(Batch([Append(f"{LOG} {number % 50}", {"n": number, "text": TEXT})]))
    # Made in memory and copied: filling a file commit by commit takes minutes of syncs.
    memory.copy_to(admin, "default")
    return admin


def _table(place: Workplace, slots: int) -> apsw.Connection:
    connection = place.closing(apsw.Connection(str(place.new_path())))
    connection.execute("CREATE TABLE slots (id INTEGER PRIMARY KEY, body BLOB)").fetchall()
    rows = ((number, f'{{"n":{number},"text":"{TEXT}"}}'.encode()) for number in range(slots))
    with connection:
        connection.executemany("INSERT INTO slots VALUES (?, ?)", rows).fetchall()
    return connection


def _case(name: str, target: str, place: Workplace) -> list[Row]:
    slots = _QUICK_SLOTS if place.quick else _SLOTS
    rounds = place.rounds(5)
    place.announce(name, rounds)
    source, table = _source(place, slots), _table(place, slots)

    def copy() -> int:
        with Admin(place.new_path() if target == "sqlite" else target) as made:
            return source.copy_to(made, "default").records

    def insert() -> int:
        made = apsw.Connection(str(place.new_path()))
        made.execute("PRAGMA journal_mode = WAL").fetchall()
        made.execute("CREATE TABLE slots (id INTEGER PRIMARY KEY, body BLOB)").fetchall()
        with made:
            rows = table.execute("SELECT id, body FROM slots")
            made.executemany("INSERT INTO slots VALUES (?, ?)", rows).fetchall()
        made.close()
        return slots

    ours = f"pagefile copy, {name}"
    timings = measure([Subject(_PEER, insert), Subject(ours, copy)], rounds, place.advance)
    ratio = rate_ratio(timings[ours], timings[_PEER])
    return [
        Row(name, _PEER, timings[_PEER]),
        Row(name, ours, timings[ours], "× the rate of executemany", ratio),
    ]


def to_file(place: Workplace) -> list[Row]:
    return _case("file to file", "sqlite", place)


def to_memory(place: Workplace) -> list[Row]:
    return _case("file to memory:", "memory:", place)


SUITE = Suite(
    title="Pagefile copy benchmarks",
    about="What it takes to move a tenant, next to inserting the same rows plainly.",
    cases={"to-file": to_file, "to-memory": to_memory},
)

if __name__ == "__main__":
    raise SystemExit(run(SUITE))
