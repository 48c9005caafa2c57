"""What a patch costs, next to checking the same documents with jsonschema.

    python benchmarks/runs.py [--json] [--quick] [--only NAME]

The peer does what an earlier system did for each patch, and no more: it checks
the patch once and the working set three times, with a validator made anew each
time. Ours is given twice: validate, fold and evict by themselves, and the
whole of `apply_patch` on `memory:`, with ledger, digests and commit. Targets
are printed with whether this run met them, and never asserted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jsonschema import Draft202012Validator

from _measure import Subject, cpu_ratio, measure, spread
from _row import Row, Target
from _run import Suite, run
from _workplace import Workplace
from pagefile import Batch
from pagefile.runs import artifacts
from pagefile.runs.config import RunConfig
from pagefile.runs.eviction import fit
from pagefile.runs.patch import apply_patch
from pagefile.runs.run import Run
from pagefile.runs.runs import Runs

_CONFIG = RunConfig(ws_max_tokens=6_000)


def empty(place: Workplace) -> list[Row]:
    """A small field of a working set without sliding items."""
    return _patches(place, "empty", 0, 10)


def full(place: Workplace) -> list[Row]:
    """The same beside 95 sliding items."""
    return _patches(place, "95 items", 95, 100)


def ledger(place: Workplace) -> list[Row]:
    """An event at the end of ever longer ledgers."""
    lengths = [1_000, 10_000 if place.quick else 1_000_000]
    subjects = []
    for length in lengths:
        own = _booted(place, 0)
        for start in range(0, length, 5_000):
            count = min(5_000, length - start)
            events = [own.ledger.event("TOOL_CALL", {"tool_name": "t"}) for _ in range(count)]
            own._store.commit(Batch(events))
        subjects.append(Subject(f"{length:,} events", _logger(own)))
    timings = measure(subjects, place.rounds(16), place.advance)
    peer, ours = (timings[subject.name] for subject in subjects)
    ratio = cpu_ratio(ours, peer)
    return [
        Row("ledger", subjects[0].name, peer),
        Row("ledger", subjects[1].name, ours, "× CPU of the short one", ratio, Target(0.8, 1.2)),
    ]


def _logger(own: Run) -> Callable[[], int]:
    def log() -> int:
        for _ in range(200):
            own.log("TOOL_CALL", {"tool_name": "t"})
        return 200

    return log


def _booted(place: Workplace, items: int) -> Run:
    booted = Runs(place.open_store("memory:")).boot("Measure", ["c"] * 3, config=_CONFIG)
    if items:
        result = booted.apply_patch(
            _patch(0, {"sliding_context": [_item(n) for n in range(items)]})
        )
        assert result.ok, result
    return booted


def _patches(place: Workplace, case: str, items: int, times: int) -> list[Row]:
    count = 20
    own = _booted(place, items)
    ws = own.load()
    counter = _CONFIG.counter()
    schemas = {name: artifacts.schema(name) for name in ("ws_patch", "working_set")}
    number = 0

    def peer() -> int:
        for _ in range(count):
            patch = _patch(ws["_update_seq"], {"next_action": "do it"})
            for name, document in (("ws_patch", patch), *[("working_set", ws)] * 3):
                assert Draft202012Validator(schemas[name]).is_valid(document)
        return count

    def pure() -> int:
        for _ in range(count):
            patch = _patch(ws["_update_seq"], {"next_action": "do it"})
            artifacts.check("ws_patch", patch)
            fit(apply_patch(ws, patch), _CONFIG.budget, counter)
        return count

    def whole() -> int:
        nonlocal number
        for _ in range(count):
            number += 1
            result = own.apply_patch(_patch(_seq_of(own), {"next_action": f"do {number}"}))
            assert result.ok, result
        return count

    subjects = [
        Subject("jsonschema, as before", peer),
        Subject("validate, fold and evict", pure),
        Subject("apply_patch on memory:", whole),
    ]
    place.announce(f"patches, {case}", place.rounds(24))
    timings = measure(subjects, place.rounds(24), place.advance)
    theirs = timings[subjects[0].name]
    rows = [Row(case, subjects[0].name, theirs)]
    for subject, target in zip(subjects[1:], (Target(low=times), None), strict=True):
        mine = timings[subject.name]
        ratio = spread([t / m for m, t in zip(mine.cpu, theirs.cpu, strict=True)])
        rows.append(Row(case, subject.name, mine, "× per CPU-second", ratio, target))
    return rows


def _seq_of(own: Run) -> int:
    assert own._seen is not None
    return int(own._seen["_update_seq"])


def _patch(seq: int, fields: dict[str, Any]) -> dict[str, Any]:
    return {"_schema_version": "2.1", "expected_seq": seq, "set": fields}


def _item(n: int) -> dict[str, Any]:
    return {
        "id": f"s{n}",
        "content": f"{n} " + "words of some length " * 3,
        "timestamp": f"2026-01-01T00:{n // 60:02}:{n % 60:02}Z",
        "priority": n % 10,
    }


SUITE = Suite(
    title="Pagefile run benchmarks",
    about="What a patch costs, next to jsonschema.",
    cases={"empty": empty, "full": full, "ledger": ledger},
)

if __name__ == "__main__":
    raise SystemExit(run(SUITE))
