"""Facts: asserted, asked for at a time, retracted, explained."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal, cast

import msgspec
from fastapi import APIRouter, Path, Query, Request, Response

from pagefile.errors import Invalid
from pagefile.memory.facts.fact import Fact
from pagefile.memory.facts.history import History, Story
from pagefile.memory.facts.proposal import BY_STATUS, OF_TENANT, ProposedFact, proposed_of
from pagefile.memory.serializer import living
from pagefile.store.arguments import MOST_PER_READ
from pagefile.store.batch import Query as Find
from pagefile.store.codec.decoder import json_decoder
from pagefile.surfaces.access.identity import require_user
from pagefile.surfaces.http.bodies import body_of, reply
from pagefile.surfaces.http.call import Caller, caller_of
from pagefile.surfaces.http.openapi import told
from pagefile.surfaces.http.pagination import Cursor, Limit, cursor_of, cut, place_in, room_for
from pagefile.surfaces.http.query_times import Moment, moment_of
from pagefile.surfaces.http.routes.items import UserId

router = APIRouter(prefix="/v1", tags=["facts"])

FactId = Annotated[str, Path(max_length=512)]
Text = Annotated[str | None, Query(max_length=4_096)]
FactStatus = Literal["active", "future", "ended", "superseded", "outweighed", "retracted"]


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


class Retraction(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Why, and from when on; `only` takes back this one assertion."""

    reason: str = ""
    user_id: str | None = None
    since: datetime | None = None
    only: bool = False


class Alias(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a name stands for."""

    canonical: str
    user_id: str | None = None


class Aliases(msgspec.Struct, kw_only=True):
    """Normalised names, and what they stand for."""

    aliases: dict[str, str]


class PredicateKind(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Whether a predicate holds one object or many."""

    kind: Literal["single", "multi"]


class Proposed(msgspec.Struct, kw_only=True):
    """Candidates that wait, or were decided about, oldest first."""

    items: list[ProposedFact]
    cursor: str | None


class Review(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Whose candidate, and why."""

    user_id: str | None = None
    reason: str = ""


class Done(msgspec.Struct, kw_only=True):
    """It is so."""

    ok: bool


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
            raise Invalid("cursor", "is none of this listing", rule) from error

    def next(self, limit: int, found: list[Fact]) -> str:
        known = self.known
        if known is None:
            # Another machine's clock may be ahead of ours.
            newest = [fact.recorded_at for fact in found[:1] if fact.recorded_at is not None]
            known = max([datetime.now(UTC), *newest])
        made = _Seen(self.count + limit, known)
        return cursor_of(msgspec.json.encode(made).decode())


_seen_decoder = json_decoder(_Seen)


@router.post("/facts", **told(takes=NewFacts, gives=Asserted, status=201))
async def assert_facts(request: Request) -> Response:
    """Assert facts in one commit; nothing is edited, what holds when is computed."""
    caller = caller_of(request)
    memory = await caller.memory()
    given = await body_of(request, NewFacts)
    made = [_fact(caller, each) for each in given.facts]
    return reply(Asserted(ids=await memory.facts.append_many(made)), 201)


@router.get("/facts", **told(gives=Facts))
async def query_facts(
    request: Request,
    user_id: UserId = None,
    subject: Text = None,
    predicate: Text = None,
    object: Text = None,
    valid_at: Moment = None,
    known_at: Moment = None,
    history: bool = False,
    status: FactStatus | None = None,
    limit: Limit = 10,
    cursor: Cursor = None,
) -> Response:
    """Facts that match and hold at `valid_at`, as known at `known_at`; both are now."""
    caller = caller_of(request)
    memory = await caller.memory()
    seen = _Seen.of(cursor)
    valid, known = moment_of("valid_at", valid_at), moment_of("known_at", known_at)
    known = seen.known if known is None else known
    found = await memory.facts.query(
        subject=subject,
        predicate=predicate,
        object_=object,
        valid_at=valid,
        known_at=known,
        history=history,
        status=cast(Any, status),
        limit=room_for(seen.count, limit, MOST_PER_READ),
        user_id=caller.user(user_id),
    )
    items, more = cut(found, seen.count, limit)
    return reply(Facts(items=items, cursor=None if more is None else seen.next(limit, found)))


@router.get("/facts/history", **told(gives=History))
async def fact_history(
    request: Request,
    subject: Annotated[str, Query(max_length=4_096)],
    predicate: Annotated[str, Query(max_length=4_096)],
    user_id: UserId = None,
    limit: Limit = 1_000,
) -> Response:
    """What was believed when, about one subject and predicate."""
    caller = caller_of(request)
    memory = await caller.memory()
    found = await memory.facts.history(
        subject, predicate, user_id=caller.user(user_id), limit=limit
    )
    return reply(found)


@router.get("/facts/{fact_id}", **told(gives=Story))
async def fact_story(
    request: Request, fact_id: FactId, user_id: UserId = None, known_at: Moment = None
) -> Response:
    """One assertion: where it holds, what supports it, what took over from it."""
    caller = caller_of(request)
    memory = await caller.memory()
    found = await memory.facts.why(
        fact_id, user_id=caller.user(user_id), known_at=moment_of("known_at", known_at)
    )
    return reply(found)


@router.post("/facts/{fact_id}/retract", **told(takes=Retraction, gives=Asserted, optional=True))
async def retract(request: Request, fact_id: FactId) -> Response:
    """Take a fact away; the ids of the assertions that were taken away now."""
    caller = caller_of(request)
    memory = await caller.memory()
    given = await body_of(request, Retraction, may_be_empty=True)
    gone = await memory.facts.retract(
        fact_id,
        reason=given.reason,
        actor=caller.writer_id,
        user_id=caller.user(given.user_id),
        since=given.since,
        only=given.only,
    )
    return reply(Asserted(ids=gone))


@router.get("/aliases", **told(gives=Aliases))
async def list_aliases(
    request: Request, user_id: UserId = None, known_at: Moment = None
) -> Response:
    """Names, and what they stand for."""
    caller = caller_of(request)
    memory = await caller.memory()
    found = await memory.facts.aliases(
        user_id=caller.user(user_id), known_at=moment_of("known_at", known_at)
    )
    return reply(Aliases(aliases=found))


@router.put("/aliases/{name}", **told(takes=Alias, gives=Done))
async def put_alias(request: Request, name: FactId) -> Response:
    """From now on a name stands for another; nothing is rewritten."""
    caller = caller_of(request)
    memory = await caller.memory()
    given = await body_of(request, Alias)
    await memory.facts.alias(
        name, given.canonical, user_id=caller.user(given.user_id), actor=caller.writer_id
    )
    return reply(Done(ok=True))


@router.delete("/aliases/{name}", **told(gives=Done))
async def delete_alias(request: Request, name: FactId, user_id: UserId = None) -> Response:
    """A name stands for itself again."""
    caller = caller_of(request)
    memory = await caller.memory()
    await memory.facts.unalias(name, user_id=caller.user(user_id), actor=caller.writer_id)
    return reply(Done(ok=True))


@router.put("/predicates/{predicate}", **told(takes=PredicateKind, gives=Done))
async def declare(request: Request, predicate: FactId) -> Response:
    """Say whether a predicate holds one object or many, for all users of the tenant."""
    caller = caller_of(request)
    memory = await caller.memory()
    caller.require_whole_tenant()
    given = await body_of(request, PredicateKind)
    await memory.facts.declare(predicate, given.kind, actor=caller.writer_id)
    return reply(Done(ok=True))


@router.get("/proposals", **told(gives=Proposed))
async def list_proposals(
    request: Request,
    user_id: UserId = None,
    status: Literal["proposed", "committed", "rejected"] = "proposed",
    everyone: bool = False,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """Candidates for facts that an extractor was not sure of."""
    caller = caller_of(request)
    if everyone:
        caller.require_whole_tenant()
        query = Find(OF_TENANT, (status,), prefix=True, everyone=True, cursor=cursor or None)
    else:
        whose = require_user(caller.user(user_id))
        query = Find(BY_STATUS, (status,), prefix=True, user=whose, cursor=cursor or None)
    page = await caller.pf.store.find(query, limit=limit)
    found = [proposed_of(each) for each in living(page.items)]
    return reply(Proposed(items=found, cursor=page.cursor))


@router.post("/proposals/{fact_id}/commit", **told(takes=Review, gives=ProposedFact, optional=True))
async def commit_proposal(request: Request, fact_id: FactId) -> Response:
    """Make a candidate a fact; needs `admin`."""
    caller = caller_of(request)
    memory = await caller.memory()
    caller.require("admin")
    given = await body_of(request, Review, may_be_empty=True)
    made = await memory.proposals.commit(
        fact_id, reviewer=caller.writer_id, user_id=caller.user(given.user_id)
    )
    return reply(made)


@router.post("/proposals/{fact_id}/reject", **told(takes=Review, gives=ProposedFact, optional=True))
async def reject_proposal(request: Request, fact_id: FactId) -> Response:
    """Keep a candidate from becoming a fact; needs `admin`."""
    caller = caller_of(request)
    memory = await caller.memory()
    caller.require("admin")
    given = await body_of(request, Review, may_be_empty=True)
    made = await memory.proposals.reject(
        fact_id,
        reviewer=caller.writer_id,
        user_id=caller.user(given.user_id),
        reason=given.reason,
    )
    return reply(made)


def _fact(caller: Caller, given: NewFact) -> Fact:
    fields = msgspec.structs.asdict(given) | {
        "user_id": caller.user(given.user_id),
        "sources": tuple(given.sources),
        "actor": caller.writer_id,
    }
    try:
        return Fact(**{name: value for name, value in fields.items() if value is not None})
    except TypeError as error:
        raise Invalid("facts", str(error), "see the schema at /docs") from error
