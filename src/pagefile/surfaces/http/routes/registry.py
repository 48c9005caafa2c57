"""The registry: which call path a thread id stands for, and who is answered."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response

from pagefile.errors import NotFound
from pagefile.surfaces.http.bodies import body_of, reply
from pagefile.surfaces.http.call import Caller, caller_of
from pagefile.surfaces.http.openapi import told

router = APIRouter(prefix="/v1/registry", tags=["registry"])


class Registration(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A conversation to be started; without `thread_id` its id is made, under no root."""

    initiator: str
    target: str
    thread_id: str | None = None
    user_id: str | None = None
    table: str | None = None


class NextHop(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Whom to call."""

    next_hop: str


class Root(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The root of the system, or of a table."""

    organism: str = "organism"
    table: str | None = None


class Chain(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A path by its names alone."""

    names: list[str]


class Activation(msgspec.Struct, kw_only=True):
    """A thread id and the path it stands for."""

    thread_id: str
    path: list[str]
    text: str
    conversation: str | None


class Answered(msgspec.Struct, kw_only=True):
    """Whom to answer; both null when nobody waits."""

    name: str | None
    thread_id: str | None


class Done(msgspec.Struct, kw_only=True):
    """It is so."""

    ok: bool


@router.post("/threads", **told(takes=Registration, gives=Activation, status=201, refuses=(404,)))
async def register(request: Request) -> Response:
    """Start a conversation."""
    caller = caller_of(request)
    caller.require_whole_tenant()
    given = await body_of(request, Registration)
    registry, user_id = caller.pf.registry, caller.user(given.user_id)
    if given.thread_id is None:
        made = await registry.start_chain(given.initiator, given.target, user_id=user_id)
    else:
        made = await registry.register_thread(
            given.thread_id, given.initiator, given.target, user_id=user_id, table=given.table
        )
    return reply(await _activation(caller, made), 201)


@router.get("/threads/{thread_id}", **told(gives=Activation))
async def look_up(request: Request, thread_id: str) -> Response:
    """The path of a thread id."""
    caller = caller_of(request)
    caller.require_whole_tenant()
    return reply(await _activation(caller, thread_id))


@router.post("/threads/{thread_id}/call", **told(takes=NextHop, gives=Activation, status=201))
async def call(request: Request, thread_id: str) -> Response:
    """One call from a thread: a new activation with a new id, each time."""
    caller = caller_of(request)
    caller.require_whole_tenant()
    given = await body_of(request, NextHop)
    made = await caller.pf.registry.extend_chain(thread_id, given.next_hop)
    return reply(await _activation(caller, made), 201)


@router.post("/threads/{thread_id}/respond", **told(gives=Answered))
async def respond(request: Request, thread_id: str) -> Response:
    """End an activation, and be told whom to answer. Of all who ask, one is told."""
    caller = caller_of(request)
    caller.require_whole_tenant()
    name, back = await caller.pf.registry.prune_for_response(thread_id)
    return reply(Answered(name=name, thread_id=back))


@router.delete("/threads/{thread_id}", **told(gives=Done))
async def release(request: Request, thread_id: str) -> Response:
    """Release a thread without an answer."""
    caller = caller_of(request)
    caller.require_whole_tenant()
    await caller.pf.registry.cleanup(thread_id)
    return reply(Done(ok=True))


@router.post("/paths", **told(takes=Chain, gives=Activation))
async def path(request: Request) -> Response:
    """The one id of a path given by its names alone."""
    caller = caller_of(request)
    caller.require_whole_tenant()
    given = await body_of(request, Chain)
    made = await caller.pf.registry.get_or_create(tuple(given.names))
    return reply(await _activation(caller, made))


@router.put("/root", **told(takes=Root, gives=Activation, optional=True))
async def make_root(request: Request) -> Response:
    """Make the root of the system or of a table; the same name gives the same id."""
    caller = caller_of(request)
    caller.require_whole_tenant()
    given = await body_of(request, Root, may_be_empty=True)
    registry = caller.pf.registry
    if given.table is None:
        made = await registry.initialize_root(given.organism)
    else:
        made = await registry.initialize_table_root(given.table, given.organism)
    return reply(await _activation(caller, made))


@router.get("/root", **told(gives=Activation, refuses=(404,)))
async def get_root(
    request: Request, table: Annotated[str | None, Query(max_length=512)] = None
) -> Response:
    """The root of the system, or of a table."""
    caller = caller_of(request)
    caller.require_whole_tenant()
    registry = caller.pf.registry
    found = await (registry.root_uuid() if table is None else registry.get_table_root(table))
    if found is None:
        raise NotFound("there is no such root", "make it first")
    return reply(await _activation(caller, found))


async def _activation(caller: Caller, thread_id: str) -> Activation:
    path = await caller.pf.registry.path(thread_id)
    if path is None:
        raise NotFound("no such thread is registered", "register it first")
    return Activation(
        thread_id=thread_id,
        path=list(path.names),
        text=path.text,
        conversation=path.conversation,
    )
