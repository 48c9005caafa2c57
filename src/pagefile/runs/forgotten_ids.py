"""What was forgotten of a user does not come back as a run of the same id."""

from __future__ import annotations

from pagefile.errors import Conflict, Forbidden
from pagefile.memory.owner import require_user
from pagefile.memory.privacy.tombstones import forgotten_of
from pagefile.runs.ledger import Identity
from pagefile.runs.names import RUNS
from pagefile.store.batch import Batch, VersionIs
from pagefile.store.store import Store

_ATTEMPTS = 100


def require_remembered(
    store: Store, run_id: str, user_id: str | None, next_step: str = "boot a new one"
) -> VersionIs | None:
    """Refuse a run that was forgotten; the condition that nothing was since.

    Raises:
        Forbidden: it was. One that is nobody's cannot have been.
    """
    if user_id is None:
        return None
    require_user(user_id)
    forgotten = forgotten_of(store, user_id)
    if forgotten.among([RUNS + run_id]) is not None:
        raise Forbidden(f"run {run_id!r} was forgotten, and is not stored again", next_step)
    return VersionIs(forgotten.document, forgotten.version)


def commit_unless_forgotten(store: Store, identity: Identity, batch: Batch) -> None:
    """Commit what makes a run, on condition that none of that id was forgotten."""
    for _ in range(_ATTEMPTS):
        allowed = require_remembered(
            store, identity.run_id, identity.user_id, "choose another run_id, or leave it out"
        )
        when = batch.when if allowed is None else [*batch.when, allowed]
        try:
            store.commit(Batch(batch.operations, when))
            return
        except Conflict as conflict:
            if allowed is None or conflict.target != allowed.document:
                raise
            last = conflict  # Something of the user was forgotten meanwhile.
    raise last
