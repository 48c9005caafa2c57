"""Long-term items: one of them, its history, and a search."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

import msgspec
from fastapi import APIRouter, Query, Request, Response

from pagefile.memory.items.item import MemoryItem, Revision
from pagefile.memory.items.text_search import Hit
from pagefile.surfaces.http.bodies import reply
from pagefile.surfaces.http.call import caller_of
from pagefile.surfaces.http.item_pages import newest_items
from pagefile.surfaces.http.openapi import told
from pagefile.surfaces.http.pagination import Cursor, Limit, cursor_of, cut, number_in, room_for

router = APIRouter(prefix="/v1/items", tags=["items"])

UserId = Annotated[str | None, Query(max_length=512, description="Whose; nobody's when left out.")]
ProjectId = Annotated[str | None, Query(max_length=512)]
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


@router.get("", **told(gives=Hits))
async def search_items(
    request: Request,
    q: Annotated[str, Query(max_length=10_000)] = "",
    user_id: UserId = None,
    project_id: ProjectId = None,
    scope: Literal["user", "project", "global"] | None = None,
    status: Literal["proposed", "active", "superseded", "deprecated", "rejected", "any"] = "active",
    type: Literal["fact", "preference", "policy", "decision", "invariant"] | None = None,
    limit: Limit = 8,
    cursor: Cursor = None,
) -> Response:
    """Items that share a word with the question, best first; without one, the newest first."""
    caller = caller_of(request)
    user, wanted = caller.user(user_id), None if status == "any" else status
    if not q.strip():
        newest, more = await asyncio.to_thread(
            newest_items,
            caller.pf.sync.store,
            statuses=(wanted,),
            scope=scope,
            user_id=user,
            project_id=project_id,
            item_type=type,
            limit=limit,
            cursor=cursor,
        )
        return reply(Hits(items=[Hit(item, 0.0) for item in newest], cursor=more))
    start = number_in(cursor)
    found = await caller.pf.items.search(
        q,
        scope=scope,
        user_id=user,
        project_id=project_id,
        status=wanted,
        type=type,
        top_k=room_for(start, limit, _MOST_FOUND),
    )
    items, more = cut(found, start, limit)
    return reply(Hits(items=items, cursor=more))


@router.get("/{memory_id}", **told(gives=MemoryItem))
async def get_item(
    request: Request, memory_id: str, user_id: UserId = None, project_id: ProjectId = None
) -> Response:
    """The item of that id: the user's, else the project's, else the global one."""
    caller = caller_of(request)
    user = caller.user(user_id)
    return reply(await caller.pf.items.get(memory_id, user_id=user, project_id=project_id))


@router.get("/{memory_id}/history", **told(gives=Revisions))
async def item_history(
    request: Request,
    memory_id: str,
    user_id: UserId = None,
    project_id: ProjectId = None,
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """Every version of an item, and what made it so."""
    caller = caller_of(request)
    found = await caller.pf.items.history(
        memory_id,
        user_id=caller.user(user_id),
        project_id=project_id,
        after=number_in(cursor),
        limit=limit,
    )
    after = cursor_of(found[-1].version) if len(found) == limit else None
    return reply(Revisions(items=found, cursor=after))
