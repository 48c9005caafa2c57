"""What a patch of a working set costs in CPU: applied, counted and evicted, nothing stored.

    python benchmarks/working_set.py [--json] [--quick] [--only NAME] [--folder PATH]

Each case is held against the same work with a counter that remembers nothing.
Operations per CPU second are a million through the CPU column.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from _measure import Subject, cpu_ratio, measure
from _row import Row
from _run import Suite, run
from _workplace import Workplace
from pagefile.runs.eviction import Budget, fit
from pagefile.runs.patch import apply_patch
from pagefile.runs.tokens import Cached, CharsPerFour, TokenCounter

_PATCHES = 1000
_ITEMS = 95
_FRESH = "chars/4, every text counted again"
_WARM = "chars/4, counts remembered"


def _working_set(items: int) -> dict[str, Any]:
    """About 1,900 of 2,000 tokens with 95 items, as agents keep them."""
    return {
        "_schema_version": "2.1",
        "_update_seq": 0,
        "task_id": "task",
        "thread_id": "thread",
        "run_id": "run",
        "status": "BUSY",
        "objective": "Move the shop to the new host without losing an order",
        "acceptance_criteria": ["orders placed during the move arrive", "the old host is off"],
        "current_stage": "MOVE",
        "next_action": "",
        "constraints": ["no downtime", "tests stay green"],
        "artifact_refs": [],
        "blockers": [],
        "last_action_summary": "",
        "pinned_context": [{"id": "p1", "content": "The new host is called tern"}],
        "sliding_context": [_item(number) for number in range(items)],
    }


def _item(number: int) -> dict[str, Any]:
    return {
        "id": f"s{number:05}",
        "content": f"step {number:05}: looked at it, ok",
        "timestamp": f"2026-01-01T00:{number // 60 % 60:02}:{number % 60:02}Z",
        "priority": number % 10,
    }


Work = Callable[[], int]


def _one_field(items: int, counter: TokenCounter) -> Work:
    """A status and a text change; every sliding item is as it was."""
    ws, budget = _working_set(items), Budget()

    def work() -> int:
        now = ws
        for number in range(_PATCHES):
            patch = {"set": {"status": "BUSY", "next_action": f"step {number}"}}
            now = fit(apply_patch(now, patch), budget, counter).ws
        return _PATCHES

    return work


def _one_item_more(items: int, counter: TokenCounter) -> Work:
    """One item comes, and in a full working set another one leaves."""
    ws, budget = _working_set(items), Budget()

    def work() -> int:
        now = ws
        for number in range(items, items + _PATCHES):
            op = {"op": "append", "field": "sliding_context", "items": [_item(number)]}
            now = fit(apply_patch(now, {"set": {}, "ops": [op]}), budget, counter).ws
        return _PATCHES

    return work


def _case(
    name: str, make: Callable[[int, TokenCounter], Work], items: int, place: Workplace
) -> list[Row]:
    rounds = place.rounds(16)
    place.announce(name, rounds)
    subjects = [
        Subject(_FRESH, make(items, CharsPerFour())),
        Subject(_WARM, make(items, Cached(CharsPerFour()))),
    ]
    timings = measure(subjects, rounds, place.advance)
    fresh, warm = timings[_FRESH], timings[_WARM]
    return [Row(name, _FRESH, fresh), Row(name, _WARM, warm, "× CPU", cpu_ratio(warm, fresh))]


def empty(place: Workplace) -> list[Row]:
    return _case("set, no items", _one_field, 0, place)


def full(place: Workplace) -> list[Row]:
    return _case(f"set, {_ITEMS} items", _one_field, _ITEMS, place)


def append(place: Workplace) -> list[Row]:
    return _case(f"append, {_ITEMS} items", _one_item_more, _ITEMS, place)


SUITE = Suite(
    title="Pagefile working set benchmarks",
    about="What a patch costs before it is stored.",
    cases={"empty": empty, "full": full, "append": append},
    notes=["Validation and storing come on top: they are not in these figures."],
)

if __name__ == "__main__":
    raise SystemExit(run(SUITE))
