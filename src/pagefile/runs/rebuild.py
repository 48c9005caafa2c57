"""The working set as the fold of its ledger: proof that the two agree."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from pagefile.errors import Corrupt, PagefileError
from pagefile.runs import artifacts
from pagefile.runs.fields import by_key
from pagefile.runs.patch import apply_patch, diff
from pagefile.runs.result import WorkingSet
from pagefile.runs.working import WorkingRun, events_of

#: What a restored run has of its own, though its first events tell of another.
_IDENTITY = ("task_id", "thread_id", "run_id")


class Rebuilt(msgspec.Struct, frozen=True):
    """What the ledger says the working set is; true when the stored one is the same."""

    ws: WorkingSet
    difference: dict[str, Any]

    def __bool__(self) -> bool:
        return not self.difference


class Fold:
    """The working set that events make, one event after the other.

    `ws` is None as long as they do not tell: before the start of a run, and
    after an event that is gone. `left` are the items that the last event made
    leave, in their order. `most_pinned` is the run's limit, `wanted` are the
    sequence numbers that later events go back to.
    """

    def __init__(self, most_pinned: int, wanted: Collection[int] = ()) -> None:
        self.ws: WorkingSet | None = None
        self.left: list[dict[str, Any]] = []
        self._most_pinned = most_pinned
        self._wanted = wanted
        self._kept: dict[int, WorkingSet] = {}

    def take(self, kind: str, payload: Mapping[str, Any]) -> bool:
        """Go one event further; True when it wrote a version of the working set.

        Raises:
            Invalid: its patch cannot be applied to what was there.
        """
        self.left = []
        if kind == "RUN_START" and "working_set" in payload:
            artifacts.check("working_set", payload["working_set"])
            self.resume(payload["working_set"])
            return True
        if kind not in ("WS_UPDATE_APPLIED", "WS_ROLLBACK", "WS_REPAIRED"):
            return False
        seq, before = int(payload["new_seq"]), self.ws
        if kind == "WS_ROLLBACK":
            after = self._kept.get(payload["to_seq"])
        elif before is None or before["_update_seq"] + 1 != seq:
            after = None
        elif kind == "WS_REPAIRED":
            after = before  # What the ledger told is what was written.
        elif "patch" not in payload:
            after = None
        else:
            after, self.left = _applied(before, payload, self._most_pinned)
        self.resume(None if after is None else after | {"_update_seq": seq})
        return True

    def resume(self, ws: WorkingSet | None) -> None:
        """Go on from here."""
        self.ws = ws
        if ws is not None and ws["_update_seq"] in self._wanted:
            self._kept[ws["_update_seq"]] = ws


def rebuild(run: WorkingRun) -> Rebuilt:
    """Fold the ledger from its first event and hold the result against what is stored.

    Raises:
        Corrupt: the ledger does not begin with the run's start, or part of it was erased
            or is no event.
        NotFound: there is no such run.
    """
    try:
        return _rebuilt(run)
    except PagefileError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Corrupt(
            f"the ledger of {run!r} has an event that is none ({type(error).__name__}: {error})",
            "something else wrote it; the stored working set is all there is",
        ) from error


def _rebuilt(run: WorkingRun) -> Rebuilt:
    stored, stop = run.now()
    wanted = {p["to_seq"] for kind, p in events_of(run.ledger, stop) if kind == "WS_ROLLBACK"}
    fold = Fold(run.config.most_pinned, wanted)
    is_copied, gap = False, "no start"
    for kind, payload in events_of(run.ledger, stop):
        before = fold.ws
        if fold.take(kind, payload) and fold.ws is None and before is not None:
            gap = f"a gap after sequence {before['_update_seq']}"
        is_copied = is_copied or kind in ("RUN_RESTORED", "RUN_FORKED")
    if fold.ws is None:
        raise _erased(run, gap)
    ws = fold.ws | {field: stored[field] for field in _IDENTITY} if is_copied else fold.ws
    return Rebuilt(ws, diff(ws, stored))


def _erased(run: WorkingRun, what: str) -> Corrupt:
    return Corrupt(
        f"the ledger of {run!r} has {what}",
        "part of it was erased; the stored working set is all there is",
    )


def _applied(
    ws: WorkingSet, payload: Mapping[str, Any], most_pinned: int
) -> tuple[WorkingSet, list[dict[str, Any]]]:
    """The next state, and what left with it."""
    after, left = apply_patch(ws, payload["patch"]), []
    # More than a run pins rotate out, the first ones first.
    over = len(after["pinned_context"]) - most_pinned
    if over > 0:
        left += after["pinned_context"][:over]
        after["pinned_context"] = after["pinned_context"][over:]
    if gone := payload.get("evicted", ()):
        items = by_key("sliding_context", after["sliding_context"])
        left += [items.pop(item_id) for item_id in gone if item_id in items]
        after["sliding_context"] = list(items.values())
    return after, left
