"""A damaged working set, made again from the ledger: it is the fold of its events."""

from __future__ import annotations

import msgspec

from pagefile.errors import Conflict, Corrupt
from pagefile.runs.ledger import Identity, Ledger, body_of
from pagefile.runs.names import GONE, RUNS, WORKING_SET
from pagefile.runs.patch import diff
from pagefile.runs.patch_result import WorkingSet, working_set_in
from pagefile.runs.rebuild import Fold
from pagefile.runs.schema import artifacts
from pagefile.runs.working_set import WorkingRun, events_of
from pagefile.store.batch import Condition, LengthIs, Put, VersionIs
from pagefile.store.records import Document
from pagefile.store.store import Store

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
            fold.resume(_readable(run, document, int(payload["new_seq"])))
    if fold.ws is None or fold.ws["_update_seq"] != document.version - 1:
        raise Corrupt(
            f"the ledger of {run!r} does not tell state {document.version - 1}",
            "roll back to a state that can be read, restore a pack, or a copy of the store",
        )
    # Events that came with a pack, or from a parent, tell of the ids that it had there.
    return fold.ws | run.ids


def _readable(run: WorkingRun, document: Document, seq: int) -> WorkingSet | None:
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
