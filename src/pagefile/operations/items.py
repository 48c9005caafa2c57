"""Long-term items: searched, read, and the batches that change them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec

from pagefile.errors import Invalid
from pagefile.memory.items.change import ItemType
from pagefile.memory.items.item import MemoryItem, Revision, place_of, visible
from pagefile.memory.items.plan import Preview
from pagefile.memory.items.proposal import ItemBatch
from pagefile.memory.items.reader import Hit, candidates
from pagefile.memory.items.store import Committed, LongTermItems, Proposal
from pagefile.operations.answer import cursor_of, cut, number_in, place_in, room_for
from pagefile.operations.caller import Caller
from pagefile.operations.operation import get, operation, post
from pagefile.runs.run import Knowledge
from pagefile.store.store import Store

Scope = Literal["user", "project", "global"]
Mcrs = Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1, max_length=128)]
#: What is newer comes first; of equal moments the order is one that does not change.
_Order = tuple[int, str, str]
#: How far a question reaches.
_MOST_FOUND = 1_000


class Hits(msgspec.Struct, kw_only=True):
    """Items that share a word with the question, best first; without one, the newest first."""

    items: list[Hit]
    cursor: str | None


class Revisions(msgspec.Struct, kw_only=True):
    """Versions of an item, oldest first."""

    items: list[Revision]
    cursor: str | None


class Token(msgspec.Struct, kw_only=True):
    """A token that lets one batch of the run pass, once."""

    token: str
    ttl_seconds: int


@operation(LongTermItems.search, http=get("/v1/items", "items"), span="search_memory")
async def search_items(
    caller: Caller,
    *,
    q: Annotated[str, msgspec.Meta(max_length=10_000)] = "",
    user_id: str | None = None,
    project_id: str | None = None,
    scope: Scope | None = None,
    status: Literal["proposed", "active", "superseded", "deprecated", "rejected", "any"] = "active",
    type: Literal["fact", "preference", "policy", "decision", "invariant"] | None = None,
    limit: int = 8,
    cursor: str | None = None,
) -> Hits:
    """Items that share a word with the question, best first; without one, the newest first."""
    wanted = None if status == "any" else status
    if not q.strip():
        newest, more = await asyncio.to_thread(
            newest_items,
            caller.pf.sync.store,
            statuses=(wanted,),
            scope=scope,
            user_id=user_id,
            project_id=project_id,
            item_type=type,
            limit=limit,
            cursor=cursor,
        )
        return Hits(items=[Hit(item, 0.0) for item in newest], cursor=more)
    start = number_in(cursor)
    found = await caller.pf.items.search(
        q,
        scope=scope,
        user_id=user_id,
        project_id=project_id,
        status=wanted,
        type=type,
        top_k=room_for(start, limit, _MOST_FOUND),
    )
    items, more = cut(found, start, limit)
    return Hits(items=items, cursor=more)


get_item = operation(LongTermItems.get, http=get("/v1/items/{memory_id}", "items"))

item_history = operation(
    LongTermItems.history,
    http=get("/v1/items/{memory_id}/history", "items"),
    gives=Revisions,
    page="version",
)


# Batches


@operation(
    LongTermItems.propose,
    http=post("/v1/batches", "batches", 201),
    takes="NewBatch: Change requests of schema mcr 2.1, all or none.",
)
async def propose(
    caller: Caller,
    *,
    mcrs: Mcrs,
    scope_filters: dict[str, Any] | None = None,
    user_id: str | None = None,
    project_id: str | None = None,
    ttl_seconds: int = 604_800,
) -> Proposal:
    """Stage changes to long-term items; nothing holds before they are committed."""
    caller.require_own_scope(mcrs)
    return await caller.pf.items.propose(
        mcrs,
        scope_filters=scope_filters,
        user_id=user_id,
        project_id=project_id,
        ttl_seconds=ttl_seconds,
    )


list_batches = operation(
    LongTermItems.list_batches,
    http=get("/v1/batches", "batches"),
    whole_tenant=True,
    wire={
        "cursor": Annotated[str, msgspec.Meta(max_length=4_096)] | None,
        "status": Literal["staged", "committed", "aborted", "undone", "expired"] | None,
    },
)


@operation(LongTermItems.batch, http=get("/v1/batches/{batch_id}", "batches"))
async def get_batch(caller: Caller, batch_id: str) -> ItemBatch:
    """One batch."""
    return await caller.batch(batch_id)


@operation(LongTermItems.preview, http=get("/v1/batches/{batch_id}/preview", "batches"))
async def preview(caller: Caller, batch_id: str) -> Preview:
    """What committing would do now; changes nothing."""
    await caller.batch(batch_id)
    return await caller.pf.items.preview(batch_id)


@operation(
    LongTermItems.commit,
    http=post("/v1/batches/{batch_id}/commit", "batches"),
    takes=(
        "Decision: What lets a batch pass: a milestone's token, or a reviewer, which needs `admin`."
    ),
    may_be_empty=True,
    span="upsert_memory",
)
async def commit(
    caller: Caller, batch_id: str, *, token: str | None = None, reviewer: str | None = None
) -> Committed:
    """Make a batch true, all or none. Doing it again answers the same."""
    batch = await caller.batch(batch_id)
    if reviewer is not None:
        caller.require("admin")
    if batch.run_id is None:
        return await caller.pf.items.commit(batch_id, token=token, reviewer=reviewer)
    run = await caller.run(batch.run_id)
    return await run.memory.commit(
        batch_id, token=token, reviewer=reviewer, writer_id=caller.writer_id
    )


@operation(LongTermItems.abort, http=post("/v1/batches/{batch_id}/abort", "batches"))
async def abort(caller: Caller, batch_id: str) -> ItemBatch:
    """Withdraw a batch that is staged or expired."""
    batch = await caller.batch(batch_id)
    if batch.run_id is None:
        return await caller.pf.items.abort(batch_id)
    run = await caller.run(batch.run_id)
    return await run.memory.abort(batch_id, writer_id=caller.writer_id)


@operation(LongTermItems.undo, http=post("/v1/batches/{batch_id}/undo", "batches"), right="admin")
async def undo(caller: Caller, batch_id: str) -> Committed:
    """Restore every item that the batch changed; needs `admin`."""
    batch, name = await caller.batch(batch_id), caller.writer_id
    if batch.run_id is None:
        return await caller.pf.items.undo(batch_id, reviewer=name)
    run = await caller.run(batch.run_id)
    return await run.memory.undo(batch_id, reviewer=name, writer_id=name)


@operation(
    Knowledge.propose,
    http=post("/v1/runs/{run_id}/batches", "batches", 201),
    takes="RunBatch: Change requests of one run.",
)
async def propose_for_run(
    caller: Caller,
    run_id: str,
    *,
    mcrs: Mcrs,
    scope_filters: dict[str, Any] | None = None,
    project_id: str | None = None,
) -> Proposal:
    """Stage changes for a run; the step is in its ledger."""
    caller.require_own_scope(mcrs)
    run = await caller.run(run_id)
    return await run.memory.propose(
        mcrs, scope_filters=scope_filters, project_id=project_id, writer_id=caller.writer_id
    )


@operation(
    Knowledge.issue_token,
    http=post("/v1/runs/{run_id}/tokens", "batches", 201),
    right="admin",
    takes="TokenRequest: How long a token counts.",
    may_be_empty=True,
)
async def issue_token(caller: Caller, run_id: str, *, ttl_seconds: int = 300) -> Token:
    """A token that lets one batch of this run pass; needs `admin`."""
    run = await caller.run(run_id)
    token = await run.memory.issue_token(ttl_seconds=ttl_seconds, writer_id=caller.writer_id)
    return Token(token=token, ttl_seconds=ttl_seconds)


def newest_items(
    store: Store,
    *,
    statuses: Sequence[str | None] = ("active",),
    scope: Scope | None = None,
    user_id: str | None = None,
    project_id: str | None = None,
    item_type: ItemType | None = None,
    limit: int,
    cursor: str | None = None,
) -> tuple[list[MemoryItem], str | None]:
    """A page of what may be seen with this user and project, and where the next begins.

    Raises:
        Invalid: the cursor is not of this listing, or the scope's owner is missing.
    """
    places = visible(user_id, project_id)
    if scope is not None:
        if {"user": user_id, "project": project_id, "global": ""}[scope] is None:
            raise Invalid(f"{scope}_id", f"is missing, and scope is {scope}", f"give {scope}_id")
        places = [place_of(scope, user_id, project_id)]
    found = [one for status in statuses for one in candidates(store, places, status, item_type)]
    found.sort(key=_order)
    if cursor:
        behind = _order_in(cursor)
        found = [item for item in found if _order(item) > behind]
    page = found[:limit]
    more = cursor_of("{} {} {}".format(*_order(page[-1]))) if len(found) > limit else None
    return page, more


def _order(item: MemoryItem) -> _Order:
    return -round(item.updated_at.timestamp() * 1_000_000), item.scope, item.memory_id


def _order_in(cursor: str) -> _Order:
    when, _, rest = place_in(cursor).partition(" ")
    scope, mark, memory_id = rest.partition(" ")
    digits = when.removeprefix("-")
    if not mark or not digits.isdecimal() or not digits.isascii() or len(digits) > 18:
        raise Invalid("cursor", "is not of this listing", "give `cursor` of the page before")
    return int(when), scope, memory_id
