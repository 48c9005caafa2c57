"""What is kept of a user: a profile, an export, an import, and forgetting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.responses import StreamingResponse

from pagefile.errors import Forbidden, Invalid
from pagefile.memory.privacy.export import read_export
from pagefile.memory.privacy.importer import ImportReceipt
from pagefile.memory.profile import MemoryProfile
from pagefile.store.records import Receipt
from pagefile.surfaces.http.bodies import body_of, reply
from pagefile.surfaces.http.call import Caller, caller_of
from pagefile.surfaces.http.openapi import told
from pagefile.surfaces.http.packs import info_of, uploaded
from pagefile.surfaces.http.pagination import Cursor, Limit, Page, page_by_name, place_in
from pagefile.surfaces.http.routes.items import UserId
from pagefile.surfaces.http.routes.packs import as_clients_fault, shelf_of

router = APIRouter(prefix="/v1", tags=["privacy"])

NDJSON = "application/x-ndjson"
#: What a repeated request is told in place of steps that name things.
_SAID_ONCE = "the steps that finish it were in the first answer: forget again to see them"
_MEDIA = frozenset({NDJSON, "application/jsonl", "application/octet-stream"})


class Forgetting(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Whose memories go; a session's, one episode, or what was before a moment.

    A key that is bound to no user has to say which of these is meant: `nobody`, or
    `user_id` null, is everything that belongs to no user. `dry_run` touches nothing.
    """

    user_id: str | msgspec.UnsetType | None = msgspec.UNSET
    nobody: bool = False
    session_id: str | None = None
    episode_id: str | None = None
    before: datetime | None = None
    dry_run: bool = False


class Forgotten(msgspec.Struct, kw_only=True):
    """What was removed, by kind, and how far the removal reaches."""

    count: int
    counts: dict[str, int]
    dry_run: bool
    receipt: Receipt | None


@router.get("/profile", **told(gives=MemoryProfile))
async def profile(request: Request, user_id: UserId = None) -> Response:
    """How much is kept of a user, and a sample."""
    caller = caller_of(request)
    memory = await caller.memory()
    return reply(await memory.profile(user_id=caller.user(user_id)))


@router.get("/users", **told(gives=Page))
async def list_users(request: Request, limit: Limit = 100, cursor: Cursor = None) -> Response:
    """Named users whose memories are kept; needs `admin`."""
    caller = caller_of(request)
    memory = await caller.memory()
    caller.require("admin")
    caller.require_whole_tenant()
    names = await memory.users(after=place_in(cursor), limit=limit)
    return reply(page_by_name(names, limit))


@router.get("/export", **told(binary=NDJSON, says="Lines of JSON, each with its digest."))
async def export(request: Request, user_id: UserId = None) -> Response:
    """Everything that is kept of a user."""
    caller = caller_of(request)
    memory = await caller.memory()
    made = await memory.export(user_id=caller.user(user_id))
    coming = aiter(made)
    # The first line is read before the answer begins: what cannot be exported is refused.
    page = [await anext(coming)]

    async def lines() -> AsyncIterator[bytes]:
        async for line in coming:
            page.append(line)
            if len(page) >= 100:
                yield b"".join(page)
                page.clear()
        yield b"".join(page)

    headers = {"content-disposition": 'attachment; filename="export.jsonl"'}
    return StreamingResponse(lines(), 200, headers, NDJSON)


@router.post("/import", **told(upload=NDJSON, gives=ImportReceipt))
async def import_(request: Request) -> Response:
    """Take an export in; what is there is left, what was forgotten stays forgotten."""
    caller = caller_of(request)
    memory = await caller.memory()
    async with uploaded(request, _MEDIA) as path:
        with as_clients_fault():
            own = caller.identity.user_id
            if own is not None:
                with path.open("rb") as lines:
                    if read_export(lines)[0].user_id != own:
                        raise Forbidden("this key is bound to another user", "use another key")
            own_only = own is not None or "admin" not in caller.identity.rights
            return reply(await memory.import_(path, own_only=own_only))


@router.post("/forget", **told(takes=Forgetting, gives=Forgotten, optional=True))
async def forget(request: Request) -> Response:
    """Erase what is kept of a user, for good, in one commit; needs `admin`."""
    caller = caller_of(request)
    memory = await caller.memory()
    given = await body_of(request, Forgetting, may_be_empty=True)
    if not given.dry_run:
        caller.require("admin")
    user_id = caller.user(_whose(caller, given))
    receipt = await memory.forget(
        user_id=user_id,
        session_id=given.session_id,
        episode_id=given.episode_id,
        before=given.before,
        dry_run=given.dry_run,
    )
    caller.leaves_nothing()
    told_counts = dict(receipt.counts)
    stored = receipt.receipt
    if user_id is not None and not given.dry_run:
        is_all = given.session_id is None and given.before is None and given.episode_id is None
        here, left = await asyncio.to_thread(_without_packs, request, caller, user_id, is_all)
        # Of those on this server's shelf there is nothing more to say.
        others = [step for step in stored.remaining if not any(pack in step for pack in here)]
        stored = msgspec.structs.replace(stored, remaining=(*others, *left))
    answer = Forgotten(
        count=int(receipt), counts=told_counts, dry_run=receipt.dry_run, receipt=stored
    )
    # Streams, threads and packs may be named after the person, and so nothing keeps their names.
    said = (_SAID_ONCE,) if stored.remaining else ()
    nameless = msgspec.structs.replace(stored, removed=(), remaining=said)
    kept = msgspec.structs.replace(answer, receipt=nameless)
    caller.leaves_nothing(bytes(reply(kept).body))
    return reply(answer)


def _whose(caller: Caller, given: Forgetting) -> str | None:
    """The user that is named; nobody has to be meant, and is not what was left out.

    Raises:
        Invalid: nothing says what is to be forgotten. Forbidden: the key is bound to a user.
    """
    user_id = given.user_id
    if given.nobody:
        if isinstance(user_id, str):
            raise Invalid("nobody", "is given beside user_id", "give one of them")
        caller.require_whole_tenant()
        return None
    if not isinstance(user_id, msgspec.UnsetType):
        return user_id
    is_part = given.session_id is not None or given.episode_id is not None
    if caller.identity.user_id is None and not is_part and given.before is None:
        rule = "name the user; `nobody` is everything that belongs to no user"
        raise Invalid("user_id", "is missing, and nothing else says what to forget", rule)
    return None


def _without_packs(
    request: Request, caller: Caller, user_id: str, is_all: bool
) -> tuple[list[str], list[str]]:
    """Remove the packs that wait here and hold something of the user; which, and what to do.

    Of a user who goes in part, a pack may hold what stays: that is for people to say.
    """
    found = shelf_of(request).of_user(caller.identity.tenant, user_id)
    infos = [info_of(path) for path in found]
    here = [info.pack_id for info in infos]
    if not is_all:
        return here, [f"a pack holds more of the user: DELETE {info.download}" for info in infos]
    for path in found:
        path.unlink(missing_ok=True)
    return here, []
