"""A working set checked by compiled code, and by jsonschema as people use it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jsonschema import Draft202012Validator

from _measure import Subject, Timing, cpu_ratio, measure
from _row import Row, Target
from _workplace import Workplace
from pagefile.runs.schema.artifacts import check, check_fields, schema

_FULL = 95
_PER_CALL = "jsonschema, a validator per call"
_CACHED = "jsonschema, one validator"
_OURS = "check, the whole working set"
_FIELDS = "check_fields, what a patch sets"


def empty(place: Workplace) -> list[Row]:
    """No items: what a check costs before there is anything to check."""
    return _compare("empty", _working_set(0), place)


def full(place: Workplace) -> list[Row]:
    """As many items as the usual budget of 2,000 tokens holds."""
    return _compare(f"{_FULL} items", _working_set(_FULL), place)


def _working_set(items: int) -> dict[str, Any]:
    return {
        "_schema_version": "2.1",
        "_update_seq": 7,
        "task_id": "task",
        "thread_id": "thread",
        "run_id": "run",
        "status": "BUSY",
        "objective": "Find out why the nightly build fails, and mend it.",
        "acceptance_criteria": ["the build passes twice in a row"],
        "current_stage": "diagnose",
        "next_action": "read the log of the last run",
        "constraints": ["change nothing outside the build"],
        "artifact_refs": [],
        "blockers": [],
        "last_action_summary": "",
        "pinned_context": [],
        "sliding_context": [
            {
                "id": f"item-{i}",
                "content": f"Step {i} printed a warning about a missing file.",
                "timestamp": f"2026-01-31T09:{i // 60:02}:{i % 60:02}Z",
                "priority": i % 10,
            }
            for i in range(items)
        ],
    }


def _compare(case: str, document: dict[str, Any], place: Workplace) -> list[Row]:
    published = schema("working_set")
    cached = Draft202012Validator(published)
    fields = {"status": document["status"], "sliding_context": document["sliding_context"]}

    def validate(validator: Any) -> None:
        if sorted(validator.iter_errors(document), key=lambda error: list(error.path)):
            raise AssertionError("the working set of this benchmark is not valid")

    rounds = place.rounds(32)
    place.announce(case, rounds)
    timings = measure(
        [
            Subject(_PER_CALL, _repeat(lambda: validate(Draft202012Validator(published)), 10)),
            Subject(_CACHED, _repeat(lambda: validate(cached), 10)),
            Subject(_OURS, _repeat(lambda: check("working_set", document), 1_000)),
            Subject(_FIELDS, _repeat(lambda: check_fields(fields), 1_000)),
        ],
        rounds,
        place.advance,
    )
    return _rows(case, timings)


def _repeat(operation: Callable[[], object], times: int) -> Callable[[], int]:
    def work() -> int:
        for _ in range(times):
            operation()
        return times

    return work


def _rows(case: str, timings: dict[str, Timing]) -> list[Row]:
    """By CPU, as a check waits for nothing; wall time here is mostly the neighbours'."""
    slow, cached, ours, fields = (timings[name] for name in (_PER_CALL, _CACHED, _OURS, _FIELDS))
    target = Target(low=10 if case == "empty" else 100)
    less, less_cached = "× less CPU than a validator per call", "× less CPU than one validator"
    return [
        Row(case, _PER_CALL, slow),
        Row(case, _CACHED, cached),
        Row(case, _OURS, ours, less, cpu_ratio(slow, ours), target),
        Row(case, _OURS, ours, less_cached, cpu_ratio(cached, ours)),
        Row(case, _FIELDS, fields, less, cpu_ratio(slow, fields), target),
    ]
