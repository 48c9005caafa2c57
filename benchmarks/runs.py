"""What a patch costs, next to checking the same documents with jsonschema.

    python benchmarks/runs.py [--json] [--quick] [--only NAME]

The peer does what an earlier system did for each patch, and no more: it checks
the patch once and the working set three times, with a validator made anew each
time. Ours is given twice: validate, fold and evict by themselves, and the
whole of `apply_patch` on `memory:`, with ledger, digests and commit. Beside 95
items each patch brings one more, and the budget is what 95 take: one leaves
every time. Targets are printed with whether this run met them, and never
asserted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from jsonschema import Draft202012Validator

from _measure import Subject, cpu_ratio, measure, spread
from _row import Row, Target
from _run import Suite, run
from _workplace import Workplace
from pagefile import Batch
from pagefile.runs.config import RunConfig
from pagefile.runs.eviction import fit
from pagefile.runs.patch import apply_patch
from pagefile.runs.run import Run
from pagefile.runs.runs import Runs
from pagefile.runs.schema import artifacts

_PEER = "jsonschema, as before"


def empty(place: Workplace) -> list[Row]:
    """A small field of a working set without sliding items."""
    return _patches(place, "empty", 0, 10, lambda n: {"set": {"next_action": f"do {n}"}})


def full(place: Workplace) -> list[Row]:
    """One item more where 95 fill the budget: another one leaves."""

    def one_more(n: int) -> dict[str, Any]:
        return {"ops": [{"op": "append", "field": "sliding_context", "items": [_item(n)]}]}

    return _patches(place, "95 items", 95, 100, one_more)


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
    """A run with so many items, and room for no more."""
    sliding = [_item(n) for n in range(items)]
    runs = Runs(place.open_store("memory:"))
    config = RunConfig()
    if items:
        room = runs.boot("Measure", ["c"] * 3, config=RunConfig(ws_max_tokens=100_000))
        ws = room.load() | {"sliding_context": sliding, "next_action": ""}
        config = RunConfig(ws_max_tokens=fit(ws, room.config.budget, config.counter()).tokens)
    booted = runs.boot("Measure", ["c"] * 3, config=config)
    if items:
        result = booted.apply_patch(_patch(0, {"set": {"sliding_context": sliding}}))
        assert (result.ok, result.evicted) == (True, ()), result
    return booted


def _patches(
    place: Workplace, case: str, items: int, times: int, change: Callable[[int], dict[str, Any]]
) -> list[Row]:
    count = 20
    own = _booted(place, items)
    ws = own.load()
    counter, budget = own.config.counter(), own.config.budget
    schemas = {name: artifacts.schema(name) for name in ("ws_patch", "working_set")}
    number = items
    leaving = 1 if items else 0

    def patches(seq: int) -> Iterator[dict[str, Any]]:
        nonlocal number
        for step in range(count):
            number += 1
            yield _patch(seq + step, change(number))

    def peer() -> int:
        for patch in patches(ws["_update_seq"]):
            for name, document in (("ws_patch", patch), *[("working_set", ws)] * 3):
                assert Draft202012Validator(schemas[name]).is_valid(document)
        return count

    def pure() -> int:
        for patch in patches(ws["_update_seq"]):
            artifacts.check("ws_patch", patch)
            fitted = fit(apply_patch(ws, patch), budget, counter)
            for op in patch.get("ops", ()):
                artifacts.check_fields({op["field"]: fitted.ws[op["field"]]})
            assert len(fitted.evicted) == leaving
        return count

    def whole() -> int:
        for patch in patches(_seq_of(own)):
            result = own.apply_patch(patch)
            assert result.ok, result
            assert len(result.evicted) == leaving
        return count

    subjects = [
        Subject(_PEER, peer),
        Subject("validate, fold and evict", pure),
        Subject("apply_patch on memory:", whole),
    ]
    place.announce(f"patches, {case}", place.rounds(24))
    timings = measure(subjects, place.rounds(24), place.advance)
    theirs = timings[_PEER]
    rows = [Row(case, _PEER, theirs)]
    for subject, target in zip(subjects[1:], (Target(low=times), None), strict=True):
        mine = timings[subject.name]
        ratio = spread([t / m for m, t in zip(mine.cpu, theirs.cpu, strict=True)])
        rows.append(Row(case, subject.name, mine, "× per CPU-second", ratio, target))
    for name, timing in timings.items():
        rate = spread([1 / taken for taken in timing.cpu])
        rows.append(Row(case, name, timing, "patches per CPU-second", rate))
    return rows


def _seq_of(own: Run) -> int:
    assert own._seen is not None
    return int(own._seen["_update_seq"])


def _patch(seq: int, change: dict[str, Any]) -> dict[str, Any]:
    return {"_schema_version": "2.1", "expected_seq": seq, **change}


def _item(n: int) -> dict[str, Any]:
    """All of one length, so that one that comes makes one leave."""
    return {
        "id": f"s{n:07}",
        "content": f"step {n:07}: looked at it, ok",
        "timestamp": f"2026-01-01T{n // 3600 % 24:02}:{n // 60 % 60:02}:{n % 60:02}Z",
        "priority": n % 10,
    }


SUITE = Suite(
    title="Pagefile run benchmarks",
    about="What a patch costs, next to jsonschema.",
    cases={"empty": empty, "full": full, "ledger": ledger},
)

if __name__ == "__main__":
    raise SystemExit(run(SUITE))
