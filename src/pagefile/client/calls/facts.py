"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from pagefile.client import shapes
from pagefile.client.connection import Link
from pagefile.client.request import asked, given, place


class Facts:
    """Routes about facts; see `docs/reference/http.md`."""

    def __init__(self, link: Link) -> None:
        self._link = link

    def add(
        self,
        facts: Sequence[shapes.facts.NewFact | Mapping[str, Any]],
        *,
        idempotency_key: str | None = None,
    ) -> shapes.facts.Asserted:
        """Assert facts in one commit; nothing is edited, what holds when is computed."""
        ask = asked(
            "POST", "/v1/facts", body={"facts": self._link.owned(facts)}, key=idempotency_key
        )
        return self._link.send(ask, shapes.facts.Asserted)

    def query(
        self,
        *,
        user_id: str | None = None,
        subject: str | None = None,
        predicate: str | None = None,
        object: str | None = None,
        valid_at: datetime | str | None = None,
        known_at: datetime | str | None = None,
        history: bool = False,
        status: Literal["active", "future", "ended", "superseded", "outweighed", "retracted"]
        | None = None,
        limit: int = 10,
        cursor: str | None = None,
    ) -> shapes.facts.Facts:
        """Facts that match and hold at `valid_at`, as known at `known_at`; both are now."""
        ask = asked(
            "GET",
            "/v1/facts",
            query=given(
                user_id=self._link.user(user_id),
                subject=subject,
                predicate=predicate,
                object=object,
                valid_at=valid_at,
                known_at=known_at,
                history=history,
                status=status,
                limit=limit,
                cursor=cursor,
            ),
            is_safe=True,
        )
        return self._link.send(ask, shapes.facts.Facts)

    def history(
        self, subject: str, predicate: str, *, user_id: str | None = None, limit: int = 1000
    ) -> shapes.facts.History:
        """What was believed when, about one subject and predicate."""
        ask = asked(
            "GET",
            "/v1/facts/history",
            query={
                "subject": subject,
                "predicate": predicate,
                **given(user_id=self._link.user(user_id), limit=limit),
            },
            is_safe=True,
        )
        return self._link.send(ask, shapes.facts.History)

    def get(
        self, fact_id: str, *, user_id: str | None = None, known_at: datetime | str | None = None
    ) -> shapes.facts.Story:
        """One assertion: where it holds, what supports it, what took over from it."""
        ask = asked(
            "GET",
            place("/v1/facts/{fact_id}", fact_id=fact_id),
            query=given(user_id=self._link.user(user_id), known_at=known_at),
            is_safe=True,
        )
        return self._link.send(ask, shapes.facts.Story)

    def retract(
        self,
        fact_id: str,
        *,
        reason: str = "",
        user_id: str | None = None,
        since: datetime | None = None,
        only: bool = False,
        idempotency_key: str | None = None,
    ) -> shapes.facts.Asserted:
        """Take a fact away; the ids of the assertions that were taken away now."""
        ask = asked(
            "POST",
            place("/v1/facts/{fact_id}/retract", fact_id=fact_id),
            body=given(reason=reason, user_id=self._link.user(user_id), since=since, only=only),
            key=idempotency_key,
        )
        return self._link.send(ask, shapes.facts.Asserted)

    def aliases(
        self, *, user_id: str | None = None, known_at: datetime | str | None = None
    ) -> shapes.facts.Aliases:
        """Names, and what they stand for."""
        ask = asked(
            "GET",
            "/v1/aliases",
            query=given(user_id=self._link.user(user_id), known_at=known_at),
            is_safe=True,
        )
        return self._link.send(ask, shapes.facts.Aliases)

    def put_alias(
        self,
        name: str,
        canonical: str,
        *,
        user_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> shapes.facts.Done:
        """From now on a name stands for another; nothing is rewritten."""
        ask = asked(
            "PUT",
            place("/v1/aliases/{name}", name=name),
            body={"canonical": canonical, **given(user_id=self._link.user(user_id))},
            key=idempotency_key,
        )
        return self._link.send(ask, shapes.facts.Done)

    def delete_alias(
        self, name: str, *, user_id: str | None = None, idempotency_key: str | None = None
    ) -> shapes.facts.Done:
        """A name stands for itself again."""
        ask = asked(
            "DELETE",
            place("/v1/aliases/{name}", name=name),
            query=given(user_id=self._link.user(user_id)),
            key=idempotency_key,
        )
        return self._link.send(ask, shapes.facts.Done)

    def declare(
        self,
        predicate: str,
        kind: Literal["single", "multi"],
        *,
        idempotency_key: str | None = None,
    ) -> shapes.facts.Done:
        """Say whether a predicate holds one object or many, for all users of the tenant."""
        ask = asked(
            "PUT",
            place("/v1/predicates/{predicate}", predicate=predicate),
            body={"kind": kind},
            key=idempotency_key,
        )
        return self._link.send(ask, shapes.facts.Done)

    def proposals(
        self,
        *,
        user_id: str | None = None,
        status: Literal["proposed", "committed", "rejected"] = "proposed",
        everyone: bool = False,
        limit: int = 100,
        cursor: str | None = None,
    ) -> shapes.facts.Proposed:
        """Candidates for facts that an extractor was not sure of."""
        ask = asked(
            "GET",
            "/v1/proposals",
            query=given(
                user_id=self._link.user(user_id),
                status=status,
                everyone=everyone,
                limit=limit,
                cursor=cursor,
            ),
            is_safe=True,
        )
        return self._link.send(ask, shapes.facts.Proposed)

    def commit_proposal(
        self,
        fact_id: str,
        *,
        user_id: str | None = None,
        reason: str = "",
        idempotency_key: str | None = None,
    ) -> shapes.facts.ProposedFact:
        """Make a candidate a fact; needs `admin`."""
        ask = asked(
            "POST",
            place("/v1/proposals/{fact_id}/commit", fact_id=fact_id),
            body=given(user_id=self._link.user(user_id), reason=reason),
            key=idempotency_key,
        )
        return self._link.send(ask, shapes.facts.ProposedFact)

    def reject_proposal(
        self,
        fact_id: str,
        *,
        user_id: str | None = None,
        reason: str = "",
        idempotency_key: str | None = None,
    ) -> shapes.facts.ProposedFact:
        """Keep a candidate from becoming a fact; needs `admin`."""
        ask = asked(
            "POST",
            place("/v1/proposals/{fact_id}/reject", fact_id=fact_id),
            body=given(user_id=self._link.user(user_id), reason=reason),
            key=idempotency_key,
        )
        return self._link.send(ask, shapes.facts.ProposedFact)
