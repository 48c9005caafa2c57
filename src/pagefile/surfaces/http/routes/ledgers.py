"""What happened to a run: its ledger, and its episodes."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request, Response

from pagefile.runs.milestones import Milestone
from pagefile.runs.names import LEDGERS
from pagefile.store.records import Entry
from pagefile.surfaces.http.bodies import body_of, encoded, reply
from pagefile.surfaces.http.call import caller_of
from pagefile.surfaces.http.openapi import RESUMES, told
from pagefile.surfaces.http.ownership import own_run, require_own_batch
from pagefile.surfaces.http.pagination import Cursor, Limit, Page, cursor_of, number_in
from pagefile.surfaces.http.sse import MEDIA_TYPE, after_of, event_stream

router = APIRouter(prefix="/v1/runs/{run_id}", tags=["ledger"])


class NewEvent(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """An event of the agent's own."""

    event_type: str
    payload: dict[str, Any] = {}
    parent_event_id: str | None = None


class Recorded(msgspec.Struct, kw_only=True):
    """Where it stands in the ledger."""

    sequence_id: int


class NewMilestone(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A milestone, and the memory batch that is committed with it."""

    reason: str = "manual"
    memory_batch_id: str | None = None
    next_entry_point: str = ""


@router.get("/ledger", **told(gives=Page, says="Events, oldest first."))
async def read_ledger(
    request: Request,
    run_id: str,
    limit: Limit = 100,
    cursor: Cursor = None,
    event_type: Annotated[str | None, Query(max_length=64)] = None,
    tail: Annotated[int | None, Query(ge=0, le=1_000, description="The last so many.")] = None,
) -> Response:
    """Events of a run, as schema 2.1 describes them."""
    run = await own_run(caller_of(request), run_id)
    if tail is not None:
        return reply(Page(items=await run.ledger.tail(tail), cursor=None))
    events = await run.ledger.read(number_in(cursor), limit=limit, event_type=event_type)
    after = cursor_of(events[-1]["sequence_id"]) if len(events) == limit else None
    return reply(Page(items=events, cursor=after))


@router.post("/ledger", **told(takes=NewEvent, gives=Recorded, status=201))
async def log_event(request: Request, run_id: str) -> Response:
    """Record an event of the agent's own."""
    caller = caller_of(request)
    given = await body_of(request, NewEvent)
    run = await own_run(caller, run_id)
    sequence_id = await run.log(
        given.event_type,
        given.payload,
        writer_id=caller.writer_id,
        parent_event_id=given.parent_event_id,
    )
    return reply(Recorded(sequence_id=sequence_id), 201)


@router.get(
    "/ledger/follow",
    **told(
        binary=MEDIA_TYPE,
        says="Events named `event`, their ids are sequence numbers.",
        headers=RESUMES,
    ),
)
async def follow_ledger(
    request: Request,
    run_id: str,
    after: Annotated[int | None, Query(ge=0, le=10**15)] = None,
    seconds: Annotated[float | None, Query(ge=0, le=86_400)] = None,
) -> Response:
    """New events as server-sent events: behind sequence number `after`, or from now on."""
    caller = caller_of(request)
    await own_run(caller, run_id)
    run = await asyncio.to_thread(caller.pf.sync.runs.open, run_id)
    begin = after_of(request, after)
    followed = caller.pf.feed.follow_async(
        LEDGERS + run_id, None if begin is None else begin - 1, timeout=seconds
    )
    whole = run.ledger.whole

    def event(entry: Entry) -> tuple[int, bytes]:
        return entry.index + 1, encoded(whole(entry))

    return event_stream(followed, event, "event", request.app.state.server.streams)


@router.post("/milestones", **told(takes=NewMilestone, gives=Milestone, status=201, optional=True))
async def make_milestone(request: Request, run_id: str) -> Response:
    """Record a milestone, and commit a memory batch with it: both or neither."""
    caller = caller_of(request)
    given = await body_of(request, NewMilestone, may_be_empty=True)
    run = await own_run(caller, run_id)
    await require_own_batch(caller, given.memory_batch_id)
    made = await run.milestone(
        given.reason,
        memory_batch_id=given.memory_batch_id,
        next_entry_point=given.next_entry_point,
        writer_id=caller.writer_id,
    )
    return reply(made, 201)


@router.get("/episodes", **told(gives=Page, says="Ids of milestones, oldest first."))
async def list_episodes(
    request: Request, run_id: str, limit: Limit = 100, cursor: Cursor = None
) -> Response:
    """Ids of milestones, oldest first."""
    run = await own_run(caller_of(request), run_id)
    every, start = await run.episodes.list(), number_in(cursor)
    stop = start + limit
    after = cursor_of(stop) if stop < len(every) else None
    return reply(Page(items=every[start:stop], cursor=after))


@router.get("/episodes/{episode_id}", **told(gives=dict[str, Any]))
async def get_episode(request: Request, run_id: str, episode_id: str) -> Response:
    """One milestone, its digest checked."""
    run = await own_run(caller_of(request), run_id)
    return reply(await run.episodes.get(episode_id))


@router.get("/episodes/{episode_id}/events", **told(gives=Page))
async def episode_events(request: Request, run_id: str, episode_id: str) -> Response:
    """The events between the milestone before and this one, exactly."""
    run = await own_run(caller_of(request), run_id)
    return reply(Page(items=await run.episodes.events(episode_id), cursor=None))
