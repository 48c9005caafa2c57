"""Batches: changes to long-term items, proposed, looked at, and decided about."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Query, Request, Response

from pagefile.memory.items.plan import Preview
from pagefile.memory.items.proposal import BatchPage, ItemBatch, no_batch
from pagefile.memory.items.store import Committed, Proposal
from pagefile.surfaces.http.bodies import body_of, reply
from pagefile.surfaces.http.call import Caller, caller_of
from pagefile.surfaces.http.openapi import told
from pagefile.surfaces.http.ownership import own_run, require_own_scope
from pagefile.surfaces.http.pagination import Limit

router = APIRouter(prefix="/v1", tags=["batches"])

Status = Literal["staged", "committed", "aborted", "undone", "expired"]
Mcrs = Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1, max_length=128)]


class NewBatch(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Change requests of schema mcr 2.1, all or none."""

    mcrs: Mcrs
    scope_filters: dict[str, Any] | None = None
    user_id: str | None = None
    project_id: str | None = None
    ttl_seconds: int = 604_800


class RunBatch(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Change requests of one run."""

    mcrs: Mcrs
    scope_filters: dict[str, Any] | None = None
    project_id: str | None = None


class Decision(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What lets a batch pass: a milestone's token, or a reviewer, which needs `admin`."""

    token: str | None = None
    reviewer: str | None = None


class Token(msgspec.Struct, kw_only=True):
    """A token that lets one batch of the run pass, once."""

    token: str
    ttl_seconds: int


class TokenRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How long a token counts."""

    ttl_seconds: int = 300


@router.post("/batches", **told(takes=NewBatch, gives=Proposal, status=201))
async def propose(request: Request) -> Response:
    """Stage changes to long-term items; nothing holds before they are committed."""
    caller = caller_of(request)
    given = await body_of(request, NewBatch)
    require_own_scope(caller, given.mcrs)
    made = await caller.pf.items.propose(
        given.mcrs,
        scope_filters=given.scope_filters,
        user_id=caller.user(given.user_id),
        project_id=given.project_id,
        ttl_seconds=given.ttl_seconds,
    )
    return reply(made, 201)


@router.get("/batches", **told(gives=BatchPage))
async def list_batches(
    request: Request,
    limit: Limit = 100,
    cursor: Annotated[str | None, Query(max_length=4_096)] = None,
    status: Status | None = None,
    run_id: Annotated[str | None, Query(max_length=512)] = None,
) -> Response:
    """Batches of the whole tenant, for those who review them."""
    caller = caller_of(request)
    caller.require_whole_tenant()
    return reply(await caller.pf.items.list_batches(status, run_id, limit=limit, cursor=cursor))


@router.get("/batches/{batch_id}", **told(gives=ItemBatch))
async def get_batch(request: Request, batch_id: str) -> Response:
    """One batch."""
    return reply(await _own_batch(caller_of(request), batch_id))


@router.get("/batches/{batch_id}/preview", **told(gives=Preview))
async def preview(request: Request, batch_id: str) -> Response:
    """What committing would do now; changes nothing."""
    caller = caller_of(request)
    await _own_batch(caller, batch_id)
    return reply(await caller.pf.items.preview(batch_id))


@router.post("/batches/{batch_id}/commit", **told(takes=Decision, gives=Committed, optional=True))
async def commit(request: Request, batch_id: str) -> Response:
    """Make a batch true, all or none. Doing it again answers the same."""
    caller = caller_of(request)
    given = await body_of(request, Decision, may_be_empty=True)
    batch = await _own_batch(caller, batch_id)
    reviewer = reviewer_of(caller, given)
    if batch.run_id is not None:
        run = await own_run(caller, batch.run_id)
        made = await run.memory.commit(
            batch_id, token=given.token, reviewer=reviewer, writer_id=caller.writer_id
        )
    else:
        made = await caller.pf.items.commit(batch_id, token=given.token, reviewer=reviewer)
    return reply(made)


@router.post("/batches/{batch_id}/abort", **told(gives=ItemBatch))
async def abort(request: Request, batch_id: str) -> Response:
    """Withdraw a batch that is staged or expired."""
    caller = caller_of(request)
    batch = await _own_batch(caller, batch_id)
    if batch.run_id is not None:
        run = await own_run(caller, batch.run_id)
        return reply(await run.memory.abort(batch_id, writer_id=caller.writer_id))
    return reply(await caller.pf.items.abort(batch_id))


@router.post("/batches/{batch_id}/undo", **told(gives=Committed))
async def undo(request: Request, batch_id: str) -> Response:
    """Restore every item that the batch changed; needs `admin`."""
    caller = caller_of(request)
    caller.require("admin")
    batch = await _own_batch(caller, batch_id)
    name = caller.identity.name
    if batch.run_id is not None:
        run = await own_run(caller, batch.run_id)
        return reply(await run.memory.undo(batch_id, reviewer=name, writer_id=name))
    return reply(await caller.pf.items.undo(batch_id, reviewer=name))


@router.post("/runs/{run_id}/batches", **told(takes=RunBatch, gives=Proposal, status=201))
async def propose_for_run(request: Request, run_id: str) -> Response:
    """Stage changes for a run; the step is in its ledger."""
    caller = caller_of(request)
    given = await body_of(request, RunBatch)
    require_own_scope(caller, given.mcrs)
    run = await own_run(caller, run_id)
    made = await run.memory.propose(
        given.mcrs,
        scope_filters=given.scope_filters,
        project_id=given.project_id,
        writer_id=caller.writer_id,
    )
    return reply(made, 201)


@router.post(
    "/runs/{run_id}/tokens", **told(takes=TokenRequest, gives=Token, status=201, optional=True)
)
async def issue_token(request: Request, run_id: str) -> Response:
    """A token that lets one batch of this run pass; needs `admin`."""
    caller = caller_of(request)
    caller.require("admin")
    given = await body_of(request, TokenRequest, may_be_empty=True)
    run = await own_run(caller, run_id)
    token = await run.memory.issue_token(ttl_seconds=given.ttl_seconds, writer_id=caller.writer_id)
    return reply(Token(token=token, ttl_seconds=given.ttl_seconds), 201)


def reviewer_of(caller: Caller, given: Decision) -> str | None:
    """The reviewer that a decision names; only who has `admin` is one."""
    if given.reviewer is None:
        return None
    caller.require("admin")
    return given.reviewer


async def _own_batch(caller: Caller, batch_id: str) -> ItemBatch:
    batch = await caller.pf.items.batch(batch_id)
    own = caller.identity.user_id
    if own is not None and batch.user_id != own:
        raise no_batch(batch_id)
    caller.touches(batch.user_id)
    return batch
