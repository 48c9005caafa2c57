"""A run from an exported ledger: the events tell every state, so they are all it takes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pagefile.batch import Batch, Condition, LengthIs, Operation, Put, VersionIs
from pagefile.errors import Conflict, Invalid, shown
from pagefile.runs.config import RunConfig, config_from
from pagefile.runs.ledger import Identity, copied, require_lines
from pagefile.runs.names import RESTORING, RUNS, WORKING_SET, made_id, path_from, require_id
from pagefile.runs.rebuild import Fold
from pagefile.runs.run import Run

if TYPE_CHECKING:
    from pagefile.runs.runs import Runs

_MOST_OPERATIONS = 1_000
_WRITER = "import"
Event = dict[str, Any]


def import_jsonl(runs: Runs, path: str | os.PathLike[str], *, new_run_id: str | None = None) -> Run:
    """Make a run of the events in a file that `Ledger.export_jsonl` wrote.

    Every line is read and folded before anything is stored. The run becomes
    visible with the last commit.

    Raises:
        Invalid: a line is no event, the numbers have a gap, or the events do not
            tell the working set. Conflict: the run id is taken. Nothing was stored.
    """
    run_id = require_id("new_run_id", made_id("run") if new_run_id is None else new_run_id)
    file = path_from(path)
    if file is None:
        raise Invalid("path", f"{shown(path)} is no path", "give one that export_jsonl wrote")
    first, config, wanted, last_seq = _read_through(file)
    start = first["payload"]["working_set"]
    identity = Identity(run_id, start["task_id"], start["thread_id"])
    run = Run(runs._store, identity, config, runs._items)
    document, log = RUNS + run_id, run.ledger.log
    versions = events = 0

    def flush(operations: list[Operation]) -> None:
        nonlocal versions, events
        when: list[Condition] = [VersionIs(document, versions), LengthIs(log, events)]
        try:
            runs._store.commit(Batch(operations, when))
        except Conflict as error:
            raise Conflict(
                f"run {run_id!r} exists, or was begun",
                "choose another id",
                target=run_id,
                expected=0,
                current=error.current,
            ) from error
        versions += sum(isinstance(operation, Put) for operation in operations)
        events += sum(not isinstance(operation, Put) for operation in operations)

    pending: list[Operation] = []
    held: Put | None = None
    fold = Fold(config.most_pinned, wanted)
    for event in _events(file):
        if len(pending) >= _MOST_OPERATIONS:
            flush(pending)
            pending = []
        pending.append(copied(identity, event))
        if fold.take(event["event_type"], event["payload"]) and fold.ws is not None:
            if held is not None:
                pending.append(held)
            held = Put(document, fold.ws | {"run_id": run_id}, None, RESTORING)
    assert held is not None
    origin = {"parent_run_id": first["run_id"], "at_seq": last_seq}
    pending.append(run.ledger.event("RUN_FORKED", origin, _WRITER))
    pending.append(Put(document, held.value, None, WORKING_SET))
    flush(pending)
    return run


def _events(file: Path) -> Iterator[Event]:
    with file.open(encoding="utf-8", errors="strict") as lines:
        try:
            yield from require_lines(lines)
        except UnicodeDecodeError as error:
            raise Invalid("file", f"is no UTF-8 text ({error})", "export it again") from error


def _read_through(file: Path) -> tuple[Event, RunConfig, set[int], int]:
    """The first event, the run's settings, the states gone back to, and the last sequence."""
    if not file.is_file():
        raise Invalid("path", f"there is no file {file}", "give one that export_jsonl wrote")
    first: Event | None = None
    wanted: set[int] = set()
    for number, event in enumerate(_events(file), 1):
        if event["sequence_id"] != number:
            found = event["sequence_id"]
            raise Invalid(f"line {number}", f"has sequence_id {found}", "export the whole ledger")
        first = first or event
        if event["event_type"] == "WS_ROLLBACK":
            wanted.add(event["payload"]["to_seq"])
    if first is None or "working_set" not in first["payload"]:
        raise Invalid("line 1", "does not start a run", "export the ledger from its beginning")
    config = config_from(first["payload"].get("config", {}))
    fold = Fold(config.most_pinned, wanted)
    for number, event in enumerate(_events(file), 1):
        if fold.take(event["event_type"], event["payload"]) and fold.ws is None:
            raise Invalid(f"line {number}", "does not follow from what came before", "export again")
    assert fold.ws is not None
    return first, config, wanted, int(fold.ws["_update_seq"])
