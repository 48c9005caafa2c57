"""A writer to be killed: commits without end, and says so on stdout after each commit.

    python tests/crash/writer.py PATH NAME MODE SEED

Every line is one acknowledgement: what was committed, the writer's name, its
number, and the places the store gave it. The modes other than "honest" are
faults that the checker in test_crash.py must find.
"""

from __future__ import annotations

import os
import random
import sys

import pagefile
from pagefile import Append, Batch, Conflict, Put, VersionIs


def acknowledge(what: str, name: str, number: int, *places: int) -> None:
    # One system call per line: what a killed process wrote is in the pipe, or is not.
    os.write(1, " ".join(map(str, (what, name, number, *places))).encode() + b"\n")


def append(store: pagefile.Store, name: str, number: int, mode: str) -> None:
    batch = Batch([Append("shared", [name, number])])
    if mode == "early":
        acknowledge("append", name, number, store.length("shared"))
        store.commit(batch)
        return
    commit = store.commit(batch)
    acknowledge("append", name, number, commit.indexes[0])


def count(store: pagefile.Store, name: str, number: int, mode: str) -> None:
    """Read a counter and put the next number, again until nobody was faster."""
    while True:
        current = store.get("counter")
        version, value = (0, 0) if current is None else (current.version, current.value[2])
        when = [] if mode == "unconditional" else [VersionIs("counter", version)]
        try:
            commit = store.commit(Batch([Put("counter", [name, number, value + 1])], when))
        except Conflict:
            continue
        acknowledge("count", name, number, commit.versions[0])
        return


def pair(store: pagefile.Store, name: str, number: int, mode: str) -> None:
    value = [name, number]
    operations: list[Append | Put] = [
        Append("left", value),
        Append("right", value),
        Put("pair", value),
    ]
    if mode == "apart":
        first, second, third = (store.commit(Batch([operation])) for operation in operations)
        places = (first.indexes[0], second.indexes[0], third.versions[0])
    else:
        commit = store.commit(Batch(operations))
        places = (commit.indexes[0], commit.indexes[1], commit.versions[0])
    acknowledge("pair", name, number, *places)


WORK = {
    "honest": (append, count, pair),
    "early": (append,),
    "apart": (pair,),
    "unconditional": (count,),
}


def main(path: str, name: str, mode: str, seed: str) -> None:
    rng = random.Random(seed)
    with pagefile.open(path) as pf:
        number = 0
        while True:
            rng.choice(WORK[mode])(pf.store, name, number, mode)
            number += 1


if __name__ == "__main__":
    main(*sys.argv[1:])
