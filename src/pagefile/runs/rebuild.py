"""The working set as the fold of its ledger: proof that the two agree."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

from pagefile.errors import Conflict, Corrupt, Invalid, NotFound, PagefileError
from pagefile.runs.kinds import GONE, RUNS, WORKING_SET
from pagefile.runs.ledger import Identity, Ledger, body_of
from pagefile.runs.patch import WorkingSet, apply_patch, by_key, diff, working_set_in
from pagefile.runs.schema import artifacts
from pagefile.runs.working_set import WorkingRun, events_of
from pagefile.store.batch import Condition, LengthIs, Put, VersionIs
from pagefile.store.records import Document
from pagefile.store.store import Store

#: What a restored run has of its own, though its first events tell of another.
_IDENTITY = ("task_id", "thread_id", "run_id")


class Rebuilt(msgspec.Struct, frozen=True):
    """What the ledger says the working set is; true when the stored one is the same.

    `since` is the sequence number that the proof begins with: 0, or that of a
    milestone where something before it was erased.
    """

    ws: WorkingSet
    difference: dict[str, Any]
    since: int = 0

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


def rebuild(run: WorkingRun, checkpoint: Callable[[str], WorkingSet]) -> Rebuilt:
    """Fold the ledger and hold the result against what is stored.

    From its first event; where part of it was erased, from the next milestone,
    whose state `checkpoint` gives by its id, and which is held to its digest.

    Raises:
        Corrupt: what comes after a gap has no milestone in it, or something is no event.
        NotFound: there is no such run.
    """
    try:
        return _rebuilt(run, checkpoint)
    except PagefileError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Corrupt(
            f"the ledger of {run!r} has an event that is none ({type(error).__name__}: {error})",
            "something else wrote it; the stored working set is all there is",
        ) from error


def _rebuilt(run: WorkingRun, checkpoint: Callable[[str], WorkingSet]) -> Rebuilt:
    stored, stop = run.now()
    wanted = {p["to_seq"] for kind, p in events_of(run.ledger, stop) if kind == "WS_ROLLBACK"}
    fold = Fold(run.config.most_pinned, wanted)
    is_copied, gap, since = False, "no start", 0
    is_told = True  # Whether nothing is missing since the last state that is known.
    for entry in run.ledger.entries(0, stop):
        if entry.erased:
            is_told = False
            continue
        kind, payload, before = entry.kind, body_of(entry)["payload"], fold.ws
        if fold.take(kind, payload) and fold.ws is None and before is not None:
            gap = f"a gap after sequence {before['_update_seq']}"
        if kind == "MILESTONE" and not is_told:
            found = _readable(checkpoint, payload.get("episode_id", ""))
            if found is not None:
                is_told = True  # Every change has its number: with the same, none is missing.
                if fold.ws is None or fold.ws["_update_seq"] != found["_update_seq"]:
                    fold.resume(found)
                    # Whether it is a copy may have been told by what is gone.
                    is_copied, since = True, int(found["_update_seq"])
        is_copied = is_copied or kind in ("RUN_RESTORED", "RUN_FORKED")
    if fold.ws is None:
        raise _erased(run, gap)
    if fold.ws["_update_seq"] < stored["_update_seq"] and not is_told:
        raise _erased(run, f"a gap after sequence {fold.ws['_update_seq']}")
    ws = fold.ws | {field: stored[field] for field in _IDENTITY} if is_copied else fold.ws
    return Rebuilt(ws, diff(ws, stored), since)


def _readable(checkpoint: Callable[[str], WorkingSet], episode_id: str) -> WorkingSet | None:
    """The state at a milestone; None for one that is gone, or is not what was stored."""
    try:
        return checkpoint(episode_id)
    except (NotFound, Invalid, Corrupt):
        return None


def _erased(run: WorkingRun, what: str) -> Corrupt:
    return Corrupt(
        f"the ledger of {run!r} has {what}, and no milestone behind it",
        "part of it was erased; the stored working set is all there is",
    )


def _applied(
    ws: WorkingSet, payload: Mapping[str, Any], most_pinned: int
) -> tuple[WorkingSet, list[dict[str, Any]]]:
    """The next state, and what left with it."""
    after, left = apply_patch(ws, payload["patch"]), []
    # More than a run pins rotate out, the first ones first. The event says how many: the
    # run's limit stands in its start, which may be gone.
    over = len(after["pinned_context"]) - most_pinned
    over = len(payload["unpinned"]) if "unpinned" in payload else over
    if over > 0:
        left += after["pinned_context"][:over]
        after["pinned_context"] = after["pinned_context"][over:]
    if gone := payload.get("evicted", ()):
        items = by_key("sliding_context", after["sliding_context"])
        left += [items.pop(item_id) for item_id in gone if item_id in items]
        after["sliding_context"] = list(items.values())
    return after, left


# A damaged working set, made again from the ledger: it is the fold of its events.


_ATTEMPTS = 1_000


class Repaired(msgspec.Struct, frozen=True):
    """What became of a repair; where nothing was wrong, nothing was written.

    `found` says what was wrong with the stored working set, or is empty. `ws` is
    the working set as it is now.
    """

    run_id: str
    repaired: bool
    found: str
    ws: WorkingSet


def repair(run: WorkingRun, writer_id: str) -> Repaired:
    """Make the working set that the ledger tells the newest version, with its event.

    Raises:
        NotFound: there is no such run. Corrupt: the ledger does not tell it either.
    """
    with run.recording("repair", writer_id):
        for _ in range(_ATTEMPTS):
            try:
                return _repaired(run, writer_id)
            except Conflict as error:
                refusal = error  # Somebody patched meanwhile, so it is worth another look.
        raise refusal


def identity_told(store: Store, run_id: str, user_id: str | None) -> Identity:
    """What a run is known by, from its ledger alone.

    Raises:
        Corrupt: the ledger does not begin with the run's start.
    """
    ledger = Ledger(store, Identity(run_id, "", "", user_id))
    first = next(ledger.entries(0, 1), None)
    ws = None if first is None or first.erased else body_of(first)["payload"].get("working_set")
    if type(ws) is not dict:
        raise Corrupt(
            f"neither the working set nor the ledger of run {run_id!r} can be read",
            "restore a pack, or a copy of the store",
        )
    artifacts.check("working_set", ws)
    restored = ledger.last_of_type("RUN_RESTORED")
    moved = {} if restored is None or restored.erased else body_of(restored)["payload"]
    thread_id: str = moved.get("thread_id") or ws["thread_id"]
    return Identity(run_id, ws["task_id"], thread_id, user_id)


def _repaired(run: WorkingRun, writer_id: str) -> Repaired:
    document, length = run.stored()
    told = _told(run, document, length)
    found = _wrong_with(document, told)
    if not found:
        return Repaired(run.run_id, False, "", told)
    damaged = document.version - 1
    ws = told | {"_update_seq": damaged + 1}
    payload = {"damaged_seq": damaged, "new_seq": damaged + 1, "reason": found[:2_000]}
    unchanged: list[Condition] = [
        VersionIs(RUNS + run.run_id, document.version),
        LengthIs(run.ledger.log, length),
    ]
    put = Put(RUNS + run.run_id, ws, run.user_id, WORKING_SET)
    run.commit([put, run.ledger.event("WS_REPAIRED", payload, writer_id)], unchanged)
    return Repaired(run.run_id, True, found, ws)


def _told(run: WorkingRun, document: Document, length: int) -> WorkingSet:
    """The working set as the events tell it; past a gap, from an older state that is readable."""
    wanted = {p["to_seq"] for kind, p in events_of(run.ledger, length) if kind == "WS_ROLLBACK"}
    fold = Fold(run.config.most_pinned, wanted)
    for kind, payload in events_of(run.ledger, length):
        if fold.take(kind, payload) and fold.ws is None:
            fold.resume(_is_readable_file(run, document, int(payload["new_seq"])))
    if fold.ws is None or fold.ws["_update_seq"] != document.version - 1:
        raise Corrupt(
            f"the ledger of {run!r} does not tell state {document.version - 1}",
            "roll back to a state that can be read, restore a pack, or a copy of the store",
        )
    # Events that came with a pack, or from a parent, tell of the ids that it had there.
    return fold.ws | run.ids


def _is_readable_file(run: WorkingRun, document: Document, seq: int) -> WorkingSet | None:
    """An older state, if it is there and undamaged."""
    found = None if seq + 1 >= document.version else run.version_of(seq)
    if found is None or found.erased or found.kind == GONE:
        return None
    try:
        return working_set_in(found)
    except Corrupt:
        return None


def _wrong_with(document: Document, told: WorkingSet) -> str:
    """What is wrong with the stored working set, in words; nothing for one that is right."""
    try:
        stored = working_set_in(document)
    except Corrupt as error:
        return error.fact
    fields = diff(told, stored)
    return f"{', '.join(fields)} not as the ledger tells" if fields else ""
