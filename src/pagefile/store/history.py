"""Reading the past: how long a stream was at a position, what a manifest entry says."""

from __future__ import annotations

from typing import Literal

from pagefile.store.engine import DOCUMENT, LOG, Engine, Stream
from pagefile.store.records import Action, Touched

_ACTIONS: dict[int, Literal["append", "put", "delete", "fork", "drop", "prune", "erase"]] = {
    Action.APPEND: "append",
    Action.PUT: "put",
    Action.DELETE: "delete",
    Action.FORK: "fork",
    Action.DROP: "drop",
    Action.PRUNE: "prune",
    Action.ERASE: "erase",
}


class RowGone(LookupError):
    """A row is missing that the stream had a moment ago: it was pruned meanwhile."""


def length_at(engine: Engine, tenant: str, stream: Stream, at: int) -> int:
    """The log's length, or the document's version, at a position.

    Numbers and positions grow together, so it is found by halving, with steps
    that grow from the end: what just happened takes one read, whatever the
    length, and anywhere in a million entries forty are enough.

    Raises:
        RowGone: ask for the stream again, then for this.
    """
    # A version counts itself; an index does not.
    own = 0 if stream.kind == DOCUMENT else 1
    low, high = max(stream.first, stream.pruned) - 1 + own, stream.length
    step = 1
    while low < high:
        middle = max(high - step, low)
        number = middle + 1 - own
        if _position(engine, tenant, stream, number) <= at:
            low = middle + 1
            break
        high, step = middle, 2 * step
    while low < high:
        middle = (low + high) // 2
        number = middle + 1 - own
        before = _position(engine, tenant, stream, number) <= at
        low, high = (middle + 1, high) if before else (low, middle)
    return low


def _position(engine: Engine, tenant: str, stream: Stream, number: int) -> int:
    rows = engine.rows(tenant, stream, number, number, 1)
    if not rows:
        raise RowGone(f"number {number} of {stream.kind} {stream.name!r}")
    return rows[0].position


def actions_of(entry: tuple[int | bytes, ...], stream: Stream | None) -> Touched:
    """One manifest entry, in words."""
    action, numbers = int(entry[0]), [int(part) for part in entry[2:] if isinstance(part, int)]
    first = numbers[0] if numbers else 0
    last = first
    if action == Action.ERASE:
        last = numbers[1]
    elif action == Action.PRUNE:
        first, last = 0, numbers[0] - 1
    name = stream.name if stream is not None and stream.name else None
    return Touched(_ACTIONS[action], stream.kind if stream is not None else LOG, name, first, last)
