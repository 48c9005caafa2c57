"""Blocks: named text that stands in every prompt."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Path, Request, Response

from pagefile.errors import Conflict
from pagefile.memory.blocks import MemoryBlock
from pagefile.surfaces.http import etag
from pagefile.surfaces.http.bodies import body_of, reply
from pagefile.surfaces.http.call import caller_of
from pagefile.surfaces.http.openapi import GUARDS, KNOWS, told
from pagefile.surfaces.http.pagination import Cursor, Limit, cursor_of, number_in
from pagefile.surfaces.http.routes.items import UserId

router = APIRouter(prefix="/v1/blocks", tags=["blocks"])

Name = Annotated[str, Path(max_length=512)]


class Text(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The text; `expected_version` refuses when the block is at another, 0 is none yet."""

    content: str
    user_id: str | None = None
    expected_version: int | None = None


class BlockList(msgspec.Struct, kw_only=True):
    """Blocks, in their order."""

    items: list[MemoryBlock]
    cursor: str | None = None


class Removed(msgspec.Struct, kw_only=True):
    """It is gone."""

    ok: bool


@router.get("", **told(gives=BlockList))
async def list_blocks(request: Request, user_id: UserId = None) -> Response:
    """All blocks of a user, in order."""
    caller = caller_of(request)
    memory = await caller.memory()
    return reply(BlockList(items=await memory.working(user_id=caller.user(user_id))))


@router.get("/{name}", **told(gives=MemoryBlock, headers=KNOWS))
async def get_block(request: Request, name: Name, user_id: UserId = None) -> Response:
    """One block; `ETag` is its version."""
    caller = caller_of(request)
    memory = await caller.memory()
    block = await memory.block(name, user_id=caller.user(user_id))
    if etag.is_known(request, block.version):
        return etag.not_modified(block.version)
    return reply(block, headers=etag.tag(block.version))


@router.put("/{name}", **told(takes=Text, gives=MemoryBlock, headers=GUARDS))
async def put_block(request: Request, name: Name) -> Response:
    """Replace a block's text; the block is made when there is none."""
    caller = caller_of(request)
    memory = await caller.memory()
    given = await body_of(request, Text)
    try:
        block = await memory.update_block(
            name,
            given.content,
            user_id=caller.user(given.user_id),
            expected_version=etag.expected(request, given.expected_version),
        )
    except Conflict as error:
        raise etag.refusal(request, error) from error
    return reply(block, headers=etag.tag(block.version))


@router.post("/{name}/append", **told(takes=Text, gives=MemoryBlock, headers=GUARDS))
async def append_block(request: Request, name: Name) -> Response:
    """Add to the end of a block; however many write at once, nothing is lost."""
    caller = caller_of(request)
    memory = await caller.memory()
    given = await body_of(request, Text)
    try:
        block = await memory.append_block(
            name,
            given.content,
            user_id=caller.user(given.user_id),
            expected_version=etag.expected(request, given.expected_version),
        )
    except Conflict as error:
        raise etag.refusal(request, error) from error
    return reply(block, headers=etag.tag(block.version))


@router.delete("/{name}", **told(gives=Removed, headers=GUARDS))
async def delete_block(request: Request, name: Name, user_id: UserId = None) -> Response:
    """Delete a block; older versions stay readable until they are forgotten."""
    caller = caller_of(request)
    memory = await caller.memory()
    try:
        await memory.delete_block(
            name, user_id=caller.user(user_id), expected_version=etag.expected(request)
        )
    except Conflict as error:
        raise etag.refusal(request, error) from error
    return reply(Removed(ok=True))


@router.get("/{name}/history", **told(gives=BlockList))
async def block_history(
    request: Request, name: Name, user_id: UserId = None, limit: Limit = 100, cursor: Cursor = None
) -> Response:
    """Versions of a block, oldest first."""
    caller = caller_of(request)
    memory = await caller.memory()
    found = await memory.block_history(
        name, user_id=caller.user(user_id), after=number_in(cursor), limit=limit
    )
    after = cursor_of(found[-1].version) if len(found) == limit else None
    return reply(BlockList(items=found, cursor=after))
