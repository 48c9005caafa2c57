"""What memory records in the ledger of a run, in the form that `runs.ledger` reads.

Runs stand above memory, so that form is known here by its fields alone; tests
hold the two together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from pagefile.store import clock
from pagefile.store.batch import Append, Condition, VersionIs
from pagefile.store.store import Store

#: Documents: the working set of each run.
RUNS = "run/"
#: Logs: the events of each run.
LEDGERS = "ledger/"
_WORKING_SET = "working_set"


class RunEvent(msgspec.Struct, frozen=True):
    """An event for a run, and that the run is still there to take it."""

    operation: Append
    condition: Condition


def run_event(
    store: Store, run_id: str, kind: str, payload: Mapping[str, Any], writer_id: str
) -> RunEvent | None:
    """The event; None where there is no such run: ids of batches may name runs of elsewhere."""
    run = store.get(RUNS + run_id)
    if run is None or run.erased or run.kind != _WORKING_SET:
        return None
    body = {"event_id": str(clock.uuid4()), "parent_event_id": None, "payload": dict(payload)}
    append = Append(LEDGERS + run_id, body, run.user, kind, writer_id, (), {"type": kind})
    return RunEvent(append, VersionIs(run.name, run.version))
