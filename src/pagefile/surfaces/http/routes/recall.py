"""Recall: what answers a question, each with why it was found."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Path, Request, Response

from pagefile.memory.provenance import Provenance
from pagefile.memory.recaller import EpisodeMatch, FactMatch
from pagefile.recall.hit import Hit
from pagefile.surfaces.http.bodies import body_of, reply
from pagefile.surfaces.http.call import caller_of
from pagefile.surfaces.http.openapi import told
from pagefile.surfaces.http.routes.items import ProjectId, UserId

router = APIRouter(prefix="/v1", tags=["recall"])

Limit = Annotated[int, msgspec.Meta(ge=0, le=1_000)]
Query = Annotated[str, msgspec.Meta(max_length=100_000)]
_Kind = Literal["episode", "fact", "item"]


class Question(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What to find among episodes; a blank query gives the newest."""

    query: Query
    user_id: str | None = None
    limit: Limit = 5
    session_id: str | None = None
    exclude_session_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    alpha: float | None = None


class FactQuestion(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What to find among facts."""

    query: Query
    user_id: str | None = None
    limit: Limit = 5
    valid_at: datetime | None = None
    known_at: datetime | None = None


class SearchQuestion(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What to find among everything."""

    query: Query
    user_id: str | None = None
    limit: Limit = 10
    kinds: tuple[_Kind, ...] = ("episode", "fact", "item")
    session_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    status: Literal["proposed", "active", "superseded", "deprecated", "rejected"] | None = "active"
    scope: Literal["user", "project", "global"] | None = None
    project_id: str | None = None
    valid_at: datetime | None = None
    known_at: datetime | None = None


class EpisodeMatches(msgspec.Struct, kw_only=True):
    """Episodes, best first."""

    items: list[EpisodeMatch]


class FactMatches(msgspec.Struct, kw_only=True):
    """Facts, best first."""

    items: list[FactMatch]


class Match(msgspec.Struct, kw_only=True):
    """Anything that was found; `kind` says whether `value` is an episode, a fact or an item."""

    kind: _Kind
    id: str
    text: str
    score: float
    at: datetime
    value: Any
    hit: Hit | None


class Matches(msgspec.Struct, kw_only=True):
    """Whatever was found, best first."""

    items: list[Match]


@router.post("/recall", **told(takes=Question, gives=EpisodeMatches))
async def recall(request: Request) -> Response:
    """Episodes that answer a question, each with its score and what it is made of."""
    caller = caller_of(request)
    memory = await caller.memory()
    given = await body_of(request, Question)
    found = await memory.recall_scored(
        given.query,
        limit=given.limit,
        time_range=_range(given.since, given.until),
        user_id=caller.user(given.user_id),
        session_id=given.session_id,
        exclude_session_id=given.exclude_session_id,
        alpha=given.alpha,
    )
    return reply(EpisodeMatches(items=found))


@router.post("/recall/facts", **told(takes=FactQuestion, gives=FactMatches))
async def recall_facts(request: Request) -> Response:
    """Facts that answer a question and hold at `valid_at`, as known at `known_at`."""
    caller = caller_of(request)
    memory = await caller.memory()
    given = await body_of(request, FactQuestion)
    found = await memory.recall_facts_scored(
        given.query,
        limit=given.limit,
        valid_at=given.valid_at,
        known_at=given.known_at,
        user_id=caller.user(given.user_id),
    )
    return reply(FactMatches(items=found))


@router.post("/search", **told(takes=SearchQuestion, gives=Matches))
async def search(request: Request) -> Response:
    """Episodes, facts and long-term items in one list, best first."""
    caller = caller_of(request)
    memory = await caller.memory()
    given = await body_of(request, SearchQuestion)
    found = await memory.search(
        given.query,
        limit=given.limit,
        kinds=given.kinds,
        user_id=caller.user(given.user_id),
        session_id=given.session_id,
        time_range=_range(given.since, given.until),
        status=given.status,
        scope=given.scope,
        project_id=given.project_id,
        valid_at=given.valid_at,
        known_at=given.known_at,
    )
    fields = Match.__struct_fields__
    shown = [Match(**{name: getattr(each, name) for name in fields}) for each in found]
    return reply(Matches(items=shown))


@router.get("/memories/{memory_id}/why", **told(gives=Provenance))
async def why(
    request: Request,
    memory_id: Annotated[str, Path(max_length=512)],
    user_id: UserId = None,
    project_id: ProjectId = None,
) -> Response:
    """Why something is known: its sources, who let it in, what it replaced."""
    caller = caller_of(request)
    memory = await caller.memory()
    found = await memory.why(memory_id, user_id=caller.user(user_id), project_id=project_id)
    return reply(found)


def _range(
    since: datetime | None, until: datetime | None
) -> tuple[datetime | None, datetime | None] | None:
    return None if since is None and until is None else (since, until)
