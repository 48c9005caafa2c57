"""What a run writes into its ledger: events by themselves, and refusals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from pagefile.errors import NotFound, PagefileError
from pagefile.runs.ledger import Identity, Ledger
from pagefile.runs.redaction import redact
from pagefile.store.batch import Append, Batch, Drop, Prune
from pagefile.store.store import Store


class Recorder:
    """A run that is known by its ids, and its ledger."""

    def __init__(self, store: Store, identity: Identity) -> None:
        self._store = store
        self._identity = identity
        self.ledger = Ledger(store, identity)

    def __repr__(self) -> str:
        return f"<Run {self.run_id!r}>"

    @property
    def run_id(self) -> str:
        return self._identity.run_id

    @property
    def user_id(self) -> str | None:
        return self._identity.user_id

    @property
    def ids(self) -> dict[str, str]:
        """The fields of the working set that say whose it is."""
        own = self._identity
        return {"task_id": own.task_id, "thread_id": own.thread_id, "run_id": own.run_id}

    def require(self) -> None:
        """Refuse what would be recorded for a run that was deleted or erased."""
        if not self._store.has_log(self.ledger.log):
            raise self._gone()

    def record(
        self,
        event_type: str,
        payload: Mapping[str, Any],
        writer_id: str,
        parent_event_id: str | None = None,
    ) -> int:
        """Append an event of any type by itself, secrets redacted; its `sequence_id`."""
        return self._record(
            self.ledger.event(event_type, redact(payload), writer_id, parent_event_id)
        )

    @contextmanager
    def recording(self, operation: str, writer_id: str) -> Iterator[None]:
        """Whatever is refused inside leaves its event, in a commit of its own, and is raised."""
        try:
            yield
        except PagefileError as error:
            told = {
                "error_type": error.code,
                "message": str(error)[:2_000],
                "details": {"operation": operation},
            }
            try:
                self.record("ERROR", told, writer_id)
            except PagefileError as unlogged:
                error.add_note(f"and the refusal could not be recorded: {unlogged}")
            raise

    def _record(self, event: Append) -> int:
        """Append an event by itself; a run that ended does not get a new ledger by it."""
        self.require()
        index = self._store.append(event).index
        if index == 0:  # A ledger's first event is the start: this one ended just now.
            with suppress(NotFound):
                self._store.commit(Batch([Prune(None, log=event.log), Drop(event.log)]))
            raise self._gone()
        return index + 1

    def _gone(self) -> NotFound:
        return NotFound(f"there is no run {self.run_id!r}", "boot it, or list the runs")
