"""A process that races with others on one store, for tests and for `make soak`.

    python -m pagefile.testing.racer URL TASK COUNT NAME

Prints one line of JSON: what it was acknowledged, and every error it met.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

import pagefile
from pagefile.errors import Conflict, PagefileError
from pagefile.store.batch import Append, Batch, Put, VersionIs
from pagefile.store.store import Store

#: How many entries `fill_to_a_limit` may leave.
LIMIT = 100


def append_to_one_log(store: Store, count: int, name: str) -> list[Any]:
    """Indexes acknowledged for appends to a log that everybody appends to, in their order."""
    return [
        store.commit(Batch([Append("shared", {"by": name, "n": n})])).indexes[0]
        for n in range(count)
    ]


def update_one_document(store: Store, count: int, name: str) -> list[Any]:
    """Versions acknowledged for increments of a document that everybody increments."""
    versions: list[int] = []
    while len(versions) < count:
        current = store.get("counter")
        version, value = (0, 0) if current is None else (current.version, current.value)
        batch = Batch([Put("counter", value + 1)], [VersionIs("counter", version)])
        try:
            versions.append(store.commit(batch).versions[0])
        except Conflict:
            continue
    return versions


def update_with_helper(store: Store, count: int, name: str) -> list[Any]:
    """The same through `Store.update`."""
    return [store.update("counter", lambda n: (n or 0) + 1).versions[0] for _ in range(count)]


def fill_to_a_limit(store: Store, count: int, name: str) -> list[Any]:
    """Indexes acknowledged in a log that takes `LIMIT` entries, however many try."""
    indexes: list[int] = []
    for n in range(count):
        try:
            indexes += store.commit(Batch([Append("limited", n, limit=LIMIT)])).indexes
        except pagefile.LimitExceeded:
            continue
    return indexes


TASKS = {
    task.__name__: task
    for task in (append_to_one_log, update_one_document, update_with_helper, fill_to_a_limit)
}


def main(url: str, task: str, count: str, name: str) -> None:
    errors: Counter[str] = Counter()
    acknowledged: list[Any] = []
    with pagefile.open(url) as pf:
        try:
            acknowledged = TASKS[task](pf.store, int(count), name)
        except PagefileError as error:
            errors[f"{type(error).__name__}: {error}"] += 1
    print(json.dumps({"acknowledged": acknowledged, "errors": errors}))


if __name__ == "__main__":
    main(*sys.argv[1:])
