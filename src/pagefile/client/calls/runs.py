"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pagefile.client import shapes
from pagefile.client.connection import Link
from pagefile.client.page import Page
from pagefile.client.request import asked, given, place


class Runs:
    """Routes about runs; see `docs/reference/http.md`."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def boot(
        self,
        objective: str,
        *,
        acceptance_criteria: Sequence[str] | None = None,
        constraints: Sequence[str] | None = None,
        run_id: str | None = None,
        task_id: str | None = None,
        thread_id: str | None = None,
        user_id: str | None = None,
        current_stage: str = "BOOT",
        config: shapes.runs.RunConfig | Mapping[str, Any] | None = None,
        gate: Literal["milestone", "none"] = "milestone",
        idempotency_key: str | None = None,
    ) -> shapes.runs.Booted:
        """Start a run. An id that is taken is a conflict: nothing is ever reset."""
        ask = asked(
            "POST",
            "/v1/runs",
            body={
                "objective": objective,
                **given(
                    acceptance_criteria=acceptance_criteria,
                    constraints=constraints,
                    run_id=run_id,
                    task_id=task_id,
                    thread_id=thread_id,
                    user_id=self._link.user(user_id),
                    current_stage=current_stage,
                    config=config,
                    gate=gate,
                ),
            },
            key=idempotency_key,
        )
        return self._link.send(ask, shapes.runs.Booted)

    def get(self, run_id: str, *, seq: int | None = None, at: int | None = None) -> dict[str, Any]:
        """A working set as it is, at sequence number `seq`, or `at` a position of the store."""
        ask = asked(
            "GET",
            place("/v1/runs/{run_id}", run_id=run_id),
            query=given(seq=seq, at=at),
            is_safe=True,
        )
        return self._link.send(ask, dict[str, Any])

    def patch(
        self,
        run_id: str,
        *,
        set: Mapping[str, Any] | None = None,
        ops: Sequence[Mapping[str, Any]] | None = None,
        expected_seq: int | None = None,
        schema_version: str | None = None,
        idempotency_key: str | None = None,
    ) -> shapes.runs.Patched:
        """Change the working set, if it is still at `expected_seq`."""
        ask = asked(
            "PATCH",
            place("/v1/runs/{run_id}", run_id=run_id),
            body=given(set=set, ops=ops, expected_seq=expected_seq, _schema_version=schema_version),
            key=idempotency_key,
        )
        return self._link.send(ask, shapes.runs.Patched)

    def delete(self, run_id: str, *, idempotency_key: str | None = None) -> shapes.runs.Deleted:
        """End a run; needs `admin`. Its id is not free again."""
        ask = asked("DELETE", place("/v1/runs/{run_id}", run_id=run_id), key=idempotency_key)
        return self._link.send(ask, shapes.runs.Deleted)

    def fork(
        self,
        run_id: str,
        *,
        at: int | None = None,
        new_run_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> shapes.runs.Booted:
        """A new run that begins where another stands, or stood at a sequence number."""
        ask = asked(
            "POST",
            place("/v1/runs/{run_id}/fork", run_id=run_id),
            body=given(at=at, new_run_id=new_run_id),
            key=idempotency_key,
        )
        return self._link.send(ask, shapes.runs.Booted)

    def rollback(
        self, run_id: str, seq: int, *, idempotency_key: str | None = None
    ) -> shapes.runs.Patched:
        """Make an earlier state the newest; nothing is erased."""
        ask = asked(
            "POST",
            place("/v1/runs/{run_id}/rollback", run_id=run_id),
            body={"seq": seq},
            key=idempotency_key,
        )
        return self._link.send(ask, shapes.runs.Patched)

    def diff(self, run_id: str, a: int, b: int) -> dict[str, Any]:
        """What changed between two sequence numbers."""
        ask = asked(
            "GET",
            place("/v1/runs/{run_id}/diff", run_id=run_id),
            query={"a": a, "b": b},
            is_safe=True,
        )
        return self._link.send(ask, dict[str, Any])

    def rebuild(self, run_id: str) -> shapes.runs.Rebuilt:
        """Fold the ledger, and compare with what is stored."""
        ask = asked("GET", place("/v1/runs/{run_id}/rebuild", run_id=run_id), is_safe=True)
        return self._link.send(ask, shapes.runs.Rebuilt)

    def repair(self, run_id: str, *, idempotency_key: str | None = None) -> shapes.runs.Repaired:
        """Make a damaged working set again from the ledger, as its newest version."""
        ask = asked("POST", place("/v1/runs/{run_id}/repair", run_id=run_id), key=idempotency_key)
        return self._link.send(ask, shapes.runs.Repaired)

    def evicted(self, run_id: str, *, q: str | None = None, limit: int = 100) -> shapes.runs.Items:
        """What left the working set; with `q`, what holds every word of it."""
        ask = asked(
            "GET",
            place("/v1/runs/{run_id}/evicted", run_id=run_id),
            query=given(q=q, limit=limit),
            is_safe=True,
        )
        return self._link.send(ask, shapes.runs.Items)

    def page_in(
        self, run_id: str, item_id: str, *, idempotency_key: str | None = None
    ) -> shapes.runs.Patched:
        """Bring an evicted item back to where it was."""
        ask = asked(
            "POST",
            place("/v1/runs/{run_id}/evicted/{item_id}/page-in", run_id=run_id, item_id=item_id),
            key=idempotency_key,
        )
        return self._link.send(ask, shapes.runs.Patched)

    def brief(
        self,
        run_id: str,
        *,
        max_tokens: int | None = None,
        min_confidence: float = 0.8,
        top_k: int = 8,
    ) -> shapes.runs.Brief:
        """The working set as Markdown, with long-term items, within a token budget."""
        ask = asked(
            "GET",
            place("/v1/runs/{run_id}/brief", run_id=run_id),
            query=given(max_tokens=max_tokens, min_confidence=min_confidence, top_k=top_k),
            is_safe=True,
        )
        return self._link.send(ask, shapes.runs.Brief)

    def list(self, *, limit: int = 100, cursor: str | None = None) -> Page[str]:
        """Ids of runs, in order."""
        ask = asked("GET", "/v1/runs", query=given(limit=limit, cursor=cursor), is_safe=True)
        return self._link.send(ask, Page[str])
