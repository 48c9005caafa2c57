"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pagefile.client import shapes
from pagefile.client.connection import Link
from pagefile.client.request import asked, given, place


class Batches:
    """Routes about batches; see `docs/reference/http.md`."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def propose(
        self,
        mcrs: Sequence[Mapping[str, Any]],
        *,
        scope_filters: Mapping[str, Any] | None = None,
        user_id: str | None = None,
        project_id: str | None = None,
        ttl_seconds: int = 604800,
        idempotency_key: str | None = None,
    ) -> shapes.batches.Proposal:
        """Stage changes to long-term items; nothing holds before they are committed."""
        ask = asked(
            "POST",
            "/v1/batches",
            body={
                "mcrs": mcrs,
                **given(
                    scope_filters=scope_filters,
                    user_id=self._link.user(user_id),
                    project_id=project_id,
                    ttl_seconds=ttl_seconds,
                ),
            },
            key=idempotency_key,
        )
        return self._link.send(ask, shapes.batches.Proposal)

    def get(self, batch_id: str) -> shapes.batches.ItemBatch:
        """One batch."""
        ask = asked("GET", place("/v1/batches/{batch_id}", batch_id=batch_id), is_safe=True)
        return self._link.send(ask, shapes.batches.ItemBatch)

    def preview(self, batch_id: str) -> shapes.batches.Preview:
        """What committing would do now; changes nothing."""
        ask = asked("GET", place("/v1/batches/{batch_id}/preview", batch_id=batch_id), is_safe=True)
        return self._link.send(ask, shapes.batches.Preview)

    def commit(
        self,
        batch_id: str,
        *,
        token: str | None = None,
        reviewer: str | None = None,
        idempotency_key: str | None = None,
    ) -> shapes.batches.Committed:
        """Make a batch true, all or none. Doing it again answers the same."""
        ask = asked(
            "POST",
            place("/v1/batches/{batch_id}/commit", batch_id=batch_id),
            body=given(token=token, reviewer=reviewer),
            key=idempotency_key,
        )
        return self._link.send(ask, shapes.batches.Committed)

    def abort(
        self, batch_id: str, *, idempotency_key: str | None = None
    ) -> shapes.batches.ItemBatch:
        """Withdraw a batch that is staged or expired."""
        ask = asked(
            "POST", place("/v1/batches/{batch_id}/abort", batch_id=batch_id), key=idempotency_key
        )
        return self._link.send(ask, shapes.batches.ItemBatch)

    def undo(
        self, batch_id: str, *, idempotency_key: str | None = None
    ) -> shapes.batches.Committed:
        """Restore every item that the batch changed; needs `admin`."""
        ask = asked(
            "POST", place("/v1/batches/{batch_id}/undo", batch_id=batch_id), key=idempotency_key
        )
        return self._link.send(ask, shapes.batches.Committed)

    def propose_for_run(
        self,
        run_id: str,
        mcrs: Sequence[Mapping[str, Any]],
        *,
        scope_filters: Mapping[str, Any] | None = None,
        project_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> shapes.batches.Proposal:
        """Stage changes for a run; the step is in its ledger."""
        ask = asked(
            "POST",
            place("/v1/runs/{run_id}/batches", run_id=run_id),
            body={"mcrs": mcrs, **given(scope_filters=scope_filters, project_id=project_id)},
            key=idempotency_key,
        )
        return self._link.send(ask, shapes.batches.Proposal)

    def issue_token(
        self, run_id: str, *, ttl_seconds: int = 300, idempotency_key: str | None = None
    ) -> shapes.batches.Token:
        """A token that lets one batch of this run pass; needs `admin`."""
        ask = asked(
            "POST",
            place("/v1/runs/{run_id}/tokens", run_id=run_id),
            body=given(ttl_seconds=ttl_seconds),
            key=idempotency_key,
        )
        return self._link.send(ask, shapes.batches.Token)

    def list(
        self,
        *,
        limit: int = 100,
        cursor: str | None = None,
        status: Literal["staged", "committed", "aborted", "undone", "expired"] | None = None,
        run_id: str | None = None,
    ) -> shapes.batches.BatchPage:
        """Batches of the whole tenant, for those who review them."""
        ask = asked(
            "GET",
            "/v1/batches",
            query=given(limit=limit, cursor=cursor, status=status, run_id=run_id),
            is_safe=True,
        )
        return self._link.send(ask, shapes.batches.BatchPage)
