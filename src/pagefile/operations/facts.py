"""Facts: asserted, asked for at a time, retracted, explained."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal, cast

import msgspec

from pagefile.errors import Invalid
from pagefile.memory.documents import living, require_user
from pagefile.memory.facts.fact import Fact
from pagefile.memory.facts.graph import StoredGraph, Walk
from pagefile.memory.facts.proposal import (
    BY_STATUS,
    OF_TENANT,
    ProposedFact,
    ProposedFacts,
    proposed_of,
)
from pagefile.memory.facts.store import FactStore
from pagefile.operations.answer import cursor_of, cut, place_in, room_for
from pagefile.operations.binder import Id
from pagefile.operations.caller import Caller
from pagefile.operations.operation import delete, get, operation, post, put
from pagefile.store.arguments import MOST_PER_READ
from pagefile.store.batch import Query
from pagefile.store.codec.decoder import json_decoder

Name = Annotated[str, msgspec.Meta(max_length=4_096)]
Status = Literal["active", "future", "ended", "superseded", "outweighed", "retracted"]
Hops = Annotated[int, msgspec.Meta(ge=1, le=8)]
FanOut = Annotated[int, msgspec.Meta(ge=1, le=1_000)]
_REVIEW = "Review: Whose candidate, and why."


class NewFact(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An assertion. The same under its `id` again changes nothing."""

    subject: str
    predicate: str
    object: str
    id: str | None = None
    user_id: str | None = None
    confidence: float = 1.0
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    sources: list[str] = []
    reason: str = ""


class NewFacts(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Assertions in one commit, all or none."""

    facts: Annotated[list[NewFact], msgspec.Meta(min_length=1, max_length=2_000)]


class Asserted(msgspec.Struct, kw_only=True):
    """Ids of the assertions, in the order given."""

    ids: list[str]


class Facts(msgspec.Struct, kw_only=True):
    """Facts, recorded last first."""

    items: list[Fact]
    cursor: str | None


class Aliases(msgspec.Struct, kw_only=True):
    """Normalised names, and what they stand for."""

    aliases: dict[str, str]


class Done(msgspec.Struct, kw_only=True):
    """It is so."""

    ok: bool


class Proposed(msgspec.Struct, kw_only=True):
    """Candidates that wait, or were decided about, oldest first."""

    items: list[ProposedFact]
    cursor: str | None


@operation(
    FactStore.append_many,
    http=post("/v1/facts", "facts", 201),
    gives=Asserted,
    span="create_memory",
)
async def assert_facts(caller: Caller, body: NewFacts) -> list[str]:
    """Assert facts in one commit; nothing is edited, what holds when is computed."""
    memory = await caller.memory()
    return await memory.facts.append_many([_fact(caller, each) for each in body.facts])


@operation(FactStore.query, http=get("/v1/facts", "facts"), gives=Facts)
async def query_facts(
    caller: Caller,
    *,
    user_id: str | None = None,
    subject: Name | None = None,
    predicate: Name | None = None,
    object: Name | None = None,
    valid_at: datetime | None = None,
    known_at: datetime | None = None,
    history: bool = False,
    status: Status | None = None,
    limit: int = 10,
    cursor: str | None = None,
) -> Facts:
    """Facts that match and hold at `valid_at`, as known at `known_at`; both are now."""
    memory = await caller.memory()
    seen = _Seen.of(cursor)
    found = await memory.facts.query(
        subject=subject,
        predicate=predicate,
        object_=object,
        valid_at=valid_at,
        known_at=seen.known if known_at is None else known_at,
        history=history,
        status=cast(Any, status),
        limit=room_for(seen.count, limit, MOST_PER_READ),
        user_id=user_id,
    )
    items, more = cut(found, seen.count, limit)
    return Facts(items=items, cursor=None if more is None else seen.next(limit, found))


fact_history = operation(
    FactStore.history,
    http=get("/v1/facts/history", "facts"),
    wire={"subject": Name, "predicate": Name},
)

fact_story = operation(
    FactStore.why,
    http=get("/v1/facts/{fact_id}", "facts"),
    wire={"fact_id": Id},
)

retract = operation(
    FactStore.retract,
    http=post("/v1/facts/{fact_id}/retract", "facts"),
    wire={"fact_id": Id},
    takes="Retraction: Why, and from when on; `only` takes back this one assertion.",
    may_be_empty=True,
    gives=Asserted,
    span="delete_memory",
)

list_aliases = operation(
    FactStore.aliases,
    http=get("/v1/aliases", "facts"),
    gives=Aliases,
)

put_alias = operation(
    FactStore.alias,
    http=put("/v1/aliases/{name}", "facts"),
    wire={"name": Id},
    takes="Alias: What a name stands for.",
    gives=Done,
)

delete_alias = operation(
    FactStore.unalias,
    http=delete("/v1/aliases/{name}", "facts"),
    wire={"name": Id},
    gives=Done,
)

declare = operation(
    FactStore.declare,
    http=put("/v1/predicates/{predicate}", "facts"),
    whole_tenant=True,
    wire={"predicate": Id},
    takes="PredicateKind: Whether a predicate holds one object or many.",
    gives=Done,
)


@operation(http=get("/v1/proposals", "facts"), gives=Proposed)
async def list_proposals(
    caller: Caller,
    *,
    user_id: str | None = None,
    status: Literal["proposed", "committed", "rejected"] = "proposed",
    everyone: bool = False,
    limit: int = 100,
    cursor: str | None = None,
) -> Proposed:
    """Candidates for facts that an extractor was not sure of."""
    if everyone:
        caller.require_whole_tenant()
        query = Query(OF_TENANT, (status,), prefix=True, everyone=True, cursor=cursor or None)
    else:
        require_user(user_id)
        query = Query(BY_STATUS, (status,), prefix=True, user=user_id, cursor=cursor or None)
    page = await caller.pf.store.find(query, limit=limit)
    found = [proposed_of(each) for each in living(page.items)]
    return Proposed(items=found, cursor=page.cursor)


@operation(
    ProposedFacts.commit,
    http=post("/v1/proposals/{fact_id}/commit", "facts"),
    right="admin",
    takes=_REVIEW,
    may_be_empty=True,
)
async def commit_proposal(
    caller: Caller, fact_id: Id, *, user_id: str | None = None, reason: str = ""
) -> ProposedFact:
    """Make a candidate a fact."""
    proposals = (await caller.memory()).proposals
    return await proposals.commit(fact_id, reviewer=caller.writer_id, user_id=user_id)


reject_proposal = operation(
    ProposedFacts.reject,
    http=post("/v1/proposals/{fact_id}/reject", "facts"),
    right="admin",
    wire={"fact_id": Id},
    takes=_REVIEW,
    may_be_empty=True,
)

neighbors = operation(
    StoredGraph.neighbors,
    http=get("/v1/graph/neighbors", "graph"),
    wire={"entity": Name, "fan_out": FanOut},
)


@operation(StoredGraph.paths, http=get("/v1/graph/paths", "graph"))
async def paths(
    caller: Caller,
    *,
    start: Name | None = None,
    q: Annotated[str, msgspec.Meta(max_length=10_000)] | None = None,
    user_id: str | None = None,
    hops: Hops = 2,
    valid_at: datetime | None = None,
    known_at: datetime | None = None,
    limit: int = 50,
    fan_out: FanOut = 50,
) -> Walk:
    """Paths from an entity, or from those that a question `q` names."""
    graph = (await caller.memory()).graph
    walk = graph.recall if start is None else graph.paths
    return await walk(
        (q or "") if start is None else start,
        hops=hops,
        valid_at=valid_at,
        known_at=known_at,
        user_id=user_id,
        limit=limit,
        fan_out=fan_out,
    )


append_fact = operation(FactStore.append, span="create_memory")


class _Seen(msgspec.Struct, frozen=True):
    """How many facts were shown, and as of when: what is recorded meanwhile moves none of them."""

    count: int = 0
    known: datetime | None = None

    @staticmethod
    def of(cursor: str | None) -> _Seen:
        if not cursor:
            return _Seen()
        try:
            return _seen_decoder.decode(place_in(cursor))
        except msgspec.MsgspecError as error:
            rule = "give `cursor` of the page before"
            raise Invalid("cursor", "is not a cursor of this listing", rule) from error

    def next(self, limit: int, found: list[Fact]) -> str:
        known = self.known
        if known is None:
            # Another machine's clock may be ahead of ours.
            newest = [fact.recorded_at for fact in found[:1] if fact.recorded_at is not None]
            known = max([datetime.now(UTC), *newest])
        made = _Seen(self.count + limit, known)
        return cursor_of(msgspec.json.encode(made).decode())


_seen_decoder = json_decoder(_Seen)


def _fact(caller: Caller, given: NewFact) -> Fact:
    fields: dict[str, Any] = msgspec.structs.asdict(given) | {
        "user_id": caller.user(given.user_id),
        "sources": tuple(given.sources),
        "actor": caller.writer_id,
    }
    try:
        return Fact(**{name: value for name, value in fields.items() if value is not None})
    except TypeError as error:
        raise Invalid("facts", str(error), "see the schema at /docs") from error
