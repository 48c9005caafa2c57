"""What a run proposes to remember: long-term items, with every step in the run's ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pagefile.errors import Forbidden
from pagefile.memory.items.plan import Preview
from pagefile.memory.items.proposal import ItemBatch
from pagefile.memory.items.store import Committed, LongTermItems, Proposal
from pagefile.runs.working_set import WorkingRun
from pagefile.store.batch import Operation


class Knowledge:
    """The long-term items that one run proposes. Each step is one commit with its event."""

    def __init__(self, run: WorkingRun, items: LongTermItems) -> None:
        self._run = run
        self._items = items

    def propose(
        self,
        mcrs: Sequence[Mapping[str, Any]],
        *,
        scope_filters: Mapping[str, Any] | None = None,
        project_id: str | None = None,
        writer_id: str = "api",
    ) -> Proposal:
        """Stage changes for this run; see `LongTermItems.propose`."""

        self._run.require()

        def recorded(batch_id: str, _: Sequence[str]) -> list[Operation]:
            payload = {"batch_id": batch_id, "count": len(mcrs)}
            return [self._run.ledger.event("MEMORY_PROPOSE", payload, writer_id)]

        with self._run.recording("propose", writer_id):
            return self._items.propose(
                mcrs,
                scope_filters=scope_filters,
                run_id=self._run.run_id,
                user_id=self._run.user_id,
                project_id=project_id,
                beside=recorded,
            )

    def preview(self, batch_id: str) -> Preview:
        """What committing would change; nothing does."""
        self._require_own(batch_id)
        return self._items.preview(batch_id)

    def list_batches(self, status: str | None = None, *, limit: int = 100) -> list[ItemBatch]:
        """This run's batches, in the order of creation."""
        return list(self._items.list_batches(status, self._run.run_id, limit=limit).items)

    def issue_token(self, *, ttl_seconds: int = 300, writer_id: str = "api") -> str:
        """A token that lets one batch of this run pass, once; the ledger tells of it."""
        self._run.require()

        def recorded(_: str, __: Sequence[str]) -> list[Operation]:
            payload = {"ttl_seconds": ttl_seconds}
            return [self._run.ledger.event("MEMORY_TOKEN", payload, writer_id)]

        with self._run.recording("issue_token", writer_id):
            return self._items.issue_token(
                self._run.run_id,
                ttl_seconds=ttl_seconds,
                user_id=self._run.user_id,
                beside=recorded,
            )

    def commit(
        self,
        batch_id: str,
        *,
        token: str | None = None,
        reviewer: str | None = None,
        writer_id: str = "api",
    ) -> Committed:
        """Make a batch of this run true; see `LongTermItems.commit`."""

        def recorded(batch: str, memory_ids: Sequence[str]) -> list[Operation]:
            payload = {"batch_id": batch, "memory_ids": list(memory_ids)}
            return [self._run.ledger.event("MEMORY_COMMIT", payload, writer_id)]

        with self._run.recording("commit", writer_id):
            self._require_own(batch_id)
            return self._items.commit(batch_id, token=token, reviewer=reviewer, beside=recorded)

    def abort(self, batch_id: str, *, writer_id: str = "api") -> ItemBatch:
        """Withdraw a batch of this run."""

        def recorded(batch: str, _: Sequence[str]) -> list[Operation]:
            return [self._run.ledger.event("MEMORY_ABORT", {"batch_id": batch}, writer_id)]

        with self._run.recording("abort", writer_id):
            self._require_own(batch_id)
            return self._items.abort(batch_id, beside=recorded)

    def undo(
        self, batch_id: str, *, reviewer: str | None = None, writer_id: str = "api"
    ) -> Committed:
        """Restore what a batch of this run changed."""

        def recorded(batch: str, _: Sequence[str]) -> list[Operation]:
            return [self._run.ledger.event("MEMORY_UNDO", {"batch_id": batch}, writer_id)]

        with self._run.recording("undo", writer_id):
            self._require_own(batch_id)
            return self._items.undo(batch_id, reviewer=reviewer, beside=recorded)

    def _require_own(self, batch_id: str) -> None:
        self._run.require()
        batch = self._items.batch(batch_id)
        if batch.run_id != self._run.run_id:
            raise Forbidden(
                f"batch {batch_id!r} is not of {self._run!r}", "use the run that proposed it"
            )
