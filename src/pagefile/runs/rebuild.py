"""The working set as the fold of its ledger: proof that the two agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pagefile.errors import Corrupt
from pagefile.runs.patch import apply_patch, diff
from pagefile.runs.working import WorkingRun, WorkingSet, events_of


class Rebuilt(msgspec.Struct, frozen=True):
    """What the ledger says the working set is; true when the stored one is the same."""

    ws: WorkingSet
    difference: dict[str, Any]

    def __bool__(self) -> bool:
        return not self.difference


def rebuild(run: WorkingRun) -> Rebuilt:
    """Fold the ledger from its first event and hold the result against what is stored.

    Raises:
        Corrupt: the ledger does not begin with the run's start, or part of it was erased.
        NotFound: there is no such run.
    """
    stored, stop = run.now()
    wanted = {p["to_seq"] for kind, p in events_of(run.ledger, stop) if kind == "WS_ROLLBACK"}
    kept: dict[int, WorkingSet] = {}
    ws: WorkingSet | None = None
    for kind, payload in events_of(run.ledger, stop):
        if kind == "RUN_START" and "working_set" in payload:
            ws = payload["working_set"]
        elif kind in ("WS_UPDATE_APPLIED", "WS_ROLLBACK"):
            if ws is None:
                break
            if payload["new_seq"] != ws["_update_seq"] + 1:
                raise _erased(run, f"nothing of sequence {ws['_update_seq'] + 1}")
            if kind == "WS_UPDATE_APPLIED":
                ws = _applied(ws, payload, run.config.pinned_context_max_items)
            elif payload["to_seq"] in kept:
                ws = kept[payload["to_seq"]]
            else:
                raise _erased(run, f"nothing of sequence {payload['to_seq']}")
            ws = ws | {"_update_seq": payload["new_seq"]}
        if ws is not None and ws["_update_seq"] in wanted:
            kept[ws["_update_seq"]] = ws
    if ws is None:
        raise _erased(run, "no start")
    return Rebuilt(ws, diff(ws, stored))


def _erased(run: WorkingRun, what: str) -> Corrupt:
    return Corrupt(
        f"the ledger of {run!r} has {what}",
        "part of it was erased; the stored working set is all there is",
    )


def _applied(ws: WorkingSet, payload: Mapping[str, Any], most_pinned: int) -> WorkingSet:
    after = apply_patch(ws, payload["patch"])
    gone = set(payload.get("evicted", ()))
    if gone:
        after["sliding_context"] = [i for i in after["sliding_context"] if i["id"] not in gone]
    surplus = max(0, len(after["pinned_context"]) - most_pinned)
    after["pinned_context"] = after["pinned_context"][surplus:]
    return after
