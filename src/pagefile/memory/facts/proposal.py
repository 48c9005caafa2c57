"""Facts that wait for review: proposed by an extractor, committed or rejected by somebody.

memory/candidate/<digest of the user>/<fact id>        in that user's partition
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Literal, Protocol

import msgspec

from pagefile.errors import Conflict, Invalid, NotFound, shown
from pagefile.memory.documents import living, owner_key, plain, require_user, shaped, users_key
from pagefile.memory.facts.fact import Fact, require_reason
from pagefile.memory.items.change import require_name
from pagefile.memory.privacy.isolation import warn_if_anonymous
from pagefile.store.arguments import require_count
from pagefile.store.batch import Batch, Condition, Operation, Put, Query, VersionIs
from pagefile.store.codec.sort_key import microseconds
from pagefile.store.records import Document
from pagefile.store.store import Store

Decision = Literal["proposed", "committed", "rejected"]
_DECISIONS = ("proposed", "committed", "rejected")
#: Documents, one per candidate.
CANDIDATES = "memory/candidate/"
#: A user's candidates, and the tenant's for those who review them, by status and time.
BY_STATUS = "memory.candidate"
OF_TENANT = "memory.candidates"
_ATTEMPTS = 100


class Asserts(Protocol):
    """What stores facts, in one commit with the decision."""

    def asserting(self, facts: Sequence[Fact]) -> tuple[list[Operation], list[Condition]]: ...

    def settles(self, conflict: Conflict, facts: Sequence[Fact]) -> bool: ...


class Ends(Protocol):
    """What ends facts: the store of facts, as far as it is known here."""

    def plan_retraction(
        self,
        fact_id: str,
        *,
        reason: str = "",
        actor: str = "",
        user_id: str | None = None,
        since: datetime | None = None,
        only: bool = False,
    ) -> tuple[list[Put], list[Fact]]: ...


class ProposedFact(msgspec.Struct, frozen=True, kw_only=True):
    """A fact somebody may want to be true: what it was read in, and what became of it.

    With `ends`, the id of a known fact, it says that this one is no longer so:
    committing it ends that fact at `fact.valid_until`.
    """

    fact: Fact
    status: Decision
    proposed_by: str
    proposed_at: datetime
    quote: str = ""
    decided_by: str = ""
    decided_at: datetime | None = None
    reason: str = ""
    ends: str = ""

    @property
    def id(self) -> str:
        """The id that the fact has, or will have."""
        return self.fact.id


class ProposedFacts:
    """The review of what extractors propose. Nothing of it is true before it is committed."""

    def __init__(
        self, store: Store, facts: Ends, indexing: Asserts, clock: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._facts = facts
        self._indexing = indexing
        self._clock = clock

    def waiting(
        self, status: Decision = "proposed", *, user_id: str | None = None, limit: int = 100
    ) -> list[ProposedFact]:
        """A user's candidates of one status, oldest first."""
        require_user(user_id)
        warn_if_anonymous(self._store, user_id)
        return self._listed(status, limit, Query(BY_STATUS, (status,), prefix=True, user=user_id))

    def waiting_everywhere(
        self, status: Decision = "proposed", *, limit: int = 100
    ) -> list[ProposedFact]:
        """Candidates of the whole tenant, oldest first, for those who review them."""
        query = Query(OF_TENANT, (status,), prefix=True, everyone=True)
        return self._listed(status, limit, query)

    def commit(self, fact_id: str, *, reviewer: str, user_id: str | None = None) -> ProposedFact:
        """Make a candidate a fact, in one commit; committed once, however often it is asked.

        Raises:
            NotFound: there is none. Conflict: it was rejected.
        """
        return self._decide(fact_id, "committed", reviewer, user_id, "")

    def reject(
        self, fact_id: str, *, reviewer: str, user_id: str | None = None, reason: str = ""
    ) -> ProposedFact:
        """Say that a candidate is not to be a fact.

        Raises:
            NotFound: there is none. Conflict: it was committed; retract the fact.
        """
        require_reason(reason)
        return self._decide(fact_id, "rejected", reviewer, user_id, reason)

    def _listed(self, status: str, limit: int, query: Query) -> list[ProposedFact]:
        if status not in _DECISIONS:
            raise Invalid("status", shown(status), f"use one of {', '.join(_DECISIONS)}")
        require_count(limit, "limit", most=10_000)
        return [proposed_of(found) for found in living(self._store.find(query, limit=limit).items)]

    def _decide(
        self, fact_id: str, decision: Decision, reviewer: str, user_id: str | None, reason: str
    ) -> ProposedFact:
        require_user(user_id)
        warn_if_anonymous(self._store, user_id)
        require_name("fact_id", fact_id)
        require_name("reviewer", reviewer)
        for _ in range(_ATTEMPTS):
            found = self._store.get(candidate_name(fact_id, user_id))
            if found is None or found.erased:
                raise NotFound(f"there is no candidate {shown(fact_id)} here", "see waiting()")
            candidate = proposed_of(found)
            if candidate.status == decision:
                return candidate
            if candidate.status != "proposed":
                raise Conflict(
                    f"candidate {fact_id!r} was {candidate.status} by {candidate.decided_by!r}",
                    "a committed one can be retracted, a rejected one asserted by hand",
                    target=fact_id,
                    expected=0,
                    current=found.version,
                )
            decided = msgspec.structs.replace(
                candidate,
                status=decision,
                decided_by=reviewer,
                decided_at=self._clock(),
                reason=reason,
            )
            try:
                self._store.commit(self._batch(found, decided))
            except Conflict as conflict:
                last = conflict
                self._indexing.settles(conflict, [decided.fact])
                continue
            return decided
        raise last

    def _batch(self, found: Document, decided: ProposedFact) -> Batch:
        operations: list[Operation] = [put_candidate(decided)]
        conditions: list[Condition] = [VersionIs(found.name, found.version)]
        if decided.status == "committed" and decided.ends:
            operations += self._ending(decided)
        elif decided.status == "committed":
            approved = msgspec.structs.replace(decided.fact, actor=decided.decided_by)
            more, when = self._indexing.asserting([approved])
            operations += more
            conditions += when
        return Batch(operations, conditions)

    def _ending(self, decided: ProposedFact) -> list[Operation]:
        fact = decided.fact
        puts, _ = self._facts.plan_retraction(
            decided.ends,
            reason=f"said in {', '.join(fact.sources)}"[:1_000],
            actor=decided.decided_by,
            user_id=fact.user_id,
            since=fact.valid_until,
        )
        return [msgspec.structs.replace(p, sources=(*p.sources, *fact.sources)) for p in puts]


def candidate_name(fact_id: str, user_id: str | None) -> str:
    """The document of a candidate."""
    return f"{CANDIDATES}{owner_key(user_id)}/{fact_id}"


def put_candidate(candidate: ProposedFact) -> Put:
    """Write a candidate's next version."""
    fact = candidate.fact
    place = (candidate.status, microseconds(candidate.proposed_at), fact.id)
    return Put(
        candidate_name(fact.id, fact.user_id),
        plain(candidate),
        user=fact.user_id,
        kind="candidate",
        actor=candidate.decided_by or candidate.proposed_by,
        sources=fact.sources,
        keys={BY_STATUS: place},
        tenant_keys={OF_TENANT: place, **users_key(fact.user_id)},
    )


def proposed_of(document: Document) -> ProposedFact:
    """The candidate in a stored version."""
    return shaped(document, ProposedFact)
