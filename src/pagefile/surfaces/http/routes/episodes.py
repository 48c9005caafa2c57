"""Episodes of memory: finished exchanges, sessions, and what is learnt from them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Path, Query, Request, Response

from pagefile.memory.consolidation.consolidation import ConsolidationReport
from pagefile.memory.episodes.duplicates import Duplicate
from pagefile.memory.episodes.episode import (
    BY_SESSION,
    BY_TIME,
    Episode,
    Message,
    ToolCall,
    episode_of,
)
from pagefile.memory.episodes.store import bounds_of
from pagefile.memory.serializer import living
from pagefile.store.arguments import MOST_PER_READ
from pagefile.store.batch import Query as Find
from pagefile.surfaces.access.identity import require_user
from pagefile.surfaces.http.bodies import body_of, reply
from pagefile.surfaces.http.call import Caller, caller_of
from pagefile.surfaces.http.openapi import told
from pagefile.surfaces.http.pagination import Cursor, Limit, cut, number_in, room_for
from pagefile.surfaces.http.query_times import Moment, moment_of
from pagefile.surfaces.http.routes.items import UserId

router = APIRouter(prefix="/v1", tags=["episodes"])


class NewEpisode(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A finished exchange. The same `id` with the same content stores nothing."""

    session_id: str
    input: str = ""
    output: str = ""
    id: str | None = None
    user_id: str | None = None
    occurred_at: datetime | None = None
    speaker: str | None = None
    tool_calls: list[ToolCall] = []
    tool_transcript: list[Message] | None = None
    embedding: list[float] | None = None


class NewEpisodes(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Several exchanges in one commit, all or none."""

    episodes: Annotated[list[NewEpisode], msgspec.Meta(min_length=1, max_length=1_000)]


class Remembered(msgspec.Struct, kw_only=True):
    """Its id."""

    id: str


class RememberedAll(msgspec.Struct, kw_only=True):
    """Their ids, in the order given."""

    ids: list[str]


class Messages(msgspec.Struct, kw_only=True):
    """The last messages of a session, oldest first."""

    items: list[Message]


class Consolidation(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How many episodes to read at most, and whether also those that were given up."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 1_000
    retry_failed: bool = False


class Duplicates(msgspec.Struct, kw_only=True):
    """Episodes that say what another says."""

    items: list[Duplicate]
    cursor: str | None


class Episodes(msgspec.Struct, kw_only=True):
    """Exchanges, newest first."""

    items: list[Episode]
    cursor: str | None


@router.post("/episodes", **told(takes=NewEpisode, gives=Remembered, status=201))
async def remember(request: Request) -> Response:
    """Store one exchange, and make it findable, in one commit."""
    caller = caller_of(request)
    memory = await caller.memory()
    given = await body_of(request, NewEpisode)
    return reply(Remembered(id=await memory.remember(_episode(caller, given))), 201)


@router.post("/episodes/batch", **told(takes=NewEpisodes, gives=RememberedAll, status=201))
async def remember_many(request: Request) -> Response:
    """Store up to 1,000 exchanges in one commit, all or none."""
    caller = caller_of(request)
    memory = await caller.memory()
    given = await body_of(request, NewEpisodes)
    made = [_episode(caller, each) for each in given.episodes]
    return reply(RememberedAll(ids=await memory.remember_many(made)), 201)


@router.get("/episodes", **told(gives=Episodes))
async def list_episodes(
    request: Request,
    user_id: UserId = None,
    session_id: Annotated[str | None, Query(max_length=512)] = None,
    since: Moment = None,
    until: Moment = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """Exchanges of a user, or of one session, newest first."""
    caller = caller_of(request)
    whose = require_user(caller.user(user_id))
    low, high = bounds_of((moment_of("since", since), moment_of("until", until)))
    prefix = () if session_id is None else (session_id,)
    query = Find(
        BY_TIME if session_id is None else BY_SESSION,
        low=(*prefix, low),
        high=(*prefix, high + 1),
        user=whose,
        reverse=True,
        cursor=cursor or None,
    )
    page = await caller.pf.store.find(query, limit=limit)
    found = [episode_of(each) for each in living(page.items)]
    return reply(Episodes(items=found, cursor=page.cursor))


@router.get("/episodes/{episode_id}", **told(gives=Episode))
async def get_episode(
    request: Request, episode_id: Annotated[str, Path(max_length=512)], user_id: UserId = None
) -> Response:
    """One exchange."""
    caller = caller_of(request)
    memory = await caller.memory()
    return reply(await memory.episode(episode_id, user_id=caller.user(user_id)))


@router.get("/sessions/{session_id}/messages", **told(gives=Messages))
async def session_messages(
    request: Request,
    session_id: Annotated[str, Path(max_length=512)],
    user_id: UserId = None,
    limit: Limit = 20,
) -> Response:
    """The last messages of a session, oldest first; tool calls stay with their answers."""
    caller = caller_of(request)
    memory = await caller.memory()
    found = await memory.session_messages(session_id, user_id=caller.user(user_id), limit=limit)
    return reply(Messages(items=found))


@router.get("/duplicates", **told(gives=Duplicates))
async def duplicates(
    request: Request,
    user_id: UserId = None,
    threshold: Annotated[float, Query(ge=0.5, le=1)] = 0.9,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """Episodes that say what another says; goes through all of the user's."""
    caller = caller_of(request)
    memory = await caller.memory()
    start = number_in(cursor)
    most = room_for(start, limit, MOST_PER_READ)
    found = await memory.duplicates(user_id=caller.user(user_id), threshold=threshold, limit=most)
    items, more = cut(found, start, limit)
    return reply(Duplicates(items=items, cursor=more))


@router.post("/consolidate", **told(takes=Consolidation, gives=ConsolidationReport, optional=True))
async def consolidate(request: Request) -> Response:
    """Read episodes that nobody read yet, of all users, and keep what they say as facts."""
    caller = caller_of(request)
    memory = await caller.memory()
    caller.require_whole_tenant()
    given = await body_of(request, Consolidation, may_be_empty=True)
    return reply(await memory.consolidate(limit=given.limit, retry_failed=given.retry_failed))


def _episode(caller: Caller, given: NewEpisode) -> Episode:
    fields: dict[str, Any] = msgspec.structs.asdict(given)
    fields["user_id"] = caller.user(given.user_id)
    return Episode(**{name: value for name, value in fields.items() if value is not None})
