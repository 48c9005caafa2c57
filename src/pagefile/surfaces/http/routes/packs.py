"""Resume packs: made, downloaded, uploaded. No path of the server's is ever named by a client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request, Response
from starlette.responses import FileResponse

from pagefile.errors import Corrupt, NotFound, Unsupported
from pagefile.runs.packs.format import PackLimits, PackReport
from pagefile.surfaces.http.bodies import body_of, reply
from pagefile.surfaces.http.call import Caller, caller_of
from pagefile.surfaces.http.openapi import told
from pagefile.surfaces.http.ownership import own_run
from pagefile.surfaces.http.packs import ZIP, PackInfo, PackShelf, info_of, no_pack, uploaded
from pagefile.surfaces.http.pagination import Cursor, Limit, cursor_of, place_in
from pagefile.surfaces.http.problems import AsRefused

router = APIRouter(prefix="/v1", tags=["packs"])

_NewRunId = Annotated[str | None, Query(max_length=64, description="The id of the new run.")]
_JSONL = frozenset({"application/x-ndjson", "application/jsonl", "application/octet-stream"})
#: How much larger than its upload limit a pack may become when it is read.
_UNPACKED_TIMES = 4


class NewPack(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What the manifest is to hold besides."""

    pointers: dict[str, Any] = {}


class PackList(msgspec.Struct, kw_only=True):
    """Packs that can be downloaded, by id."""

    items: list[PackInfo]
    cursor: str | None


class Restored(msgspec.Struct, kw_only=True):
    """The run that was made of a pack.

    `items_left_out` is how many long-term items of the pack were not stored: they
    are those of whoever reviewed them, and come in with `admin` alone.
    """

    ok: bool
    run_id: str
    ws: dict[str, Any]
    items_left_out: int = 0


class Removed(msgspec.Struct, kw_only=True):
    """It is gone."""

    ok: bool


@router.post(
    "/runs/{run_id}/packs", **told(takes=NewPack, gives=PackInfo, status=201, optional=True)
)
async def make_pack(request: Request, run_id: str) -> Response:
    """Put all of a run, as it is now, into a pack that can be downloaded."""
    caller = caller_of(request)
    given = await body_of(request, NewPack, may_be_empty=True)
    path = await packed(request, caller, run_id, given.pointers)
    made = info_of(path)
    return reply(made, 201, {"location": made.download})


@router.get("/packs", **told(gives=PackList))
async def list_packs(request: Request, limit: Limit = 1_000, cursor: Cursor = None) -> Response:
    """Packs that wait to be downloaded."""
    caller = caller_of(request)
    caller.require_whole_tenant()
    after = place_in(cursor)
    shelf = await swept_shelf(request, caller)
    found = await asyncio.to_thread(shelf.all, caller.identity.tenant)
    rest = [each for each in found if each.pack_id > after]
    more = cursor_of(rest[limit - 1].pack_id) if len(rest) > limit else None
    return reply(PackList(items=rest[:limit], cursor=more))


@router.get("/packs/{pack_id}", **told(binary=ZIP, says="The pack."))
async def download(request: Request, pack_id: str) -> Response:
    """Download a pack."""
    caller = caller_of(request)
    path = await _own_pack(request, caller, pack_id)
    return FileResponse(path, media_type=ZIP, filename=path.name)


@router.delete("/packs/{pack_id}", **told(gives=Removed))
async def remove(request: Request, pack_id: str) -> Response:
    """Remove a pack from the server."""
    path = await _own_pack(request, caller_of(request), pack_id)
    await asyncio.to_thread(path.unlink, missing_ok=True)
    return reply(Removed(ok=True))


@router.post("/packs", **told(upload=ZIP, gives=Restored, status=201))
async def upload(request: Request, new_run_id: _NewRunId = None) -> Response:
    """Make a run of an uploaded pack; everything is checked before anything is stored."""
    caller = caller_of(request)
    caller.require_whole_tenant()
    async with uploaded(request) as path:
        restored = await restore(caller, path, new_run_id)
    return reply(restored, 201, {"location": f"/v1/runs/{restored.run_id}"})


@router.post("/packs/verify", **told(upload=ZIP, gives=PackReport))
async def verify(request: Request) -> Response:
    """Read all of an uploaded pack and check it; stores nothing."""
    caller = caller_of(request)
    async with uploaded(request) as path:
        with as_clients_fault():
            return reply(await caller.pf.runs.verify_pack(path, limits=limits_of(caller)))


@router.post("/runs/import", **told(upload="application/x-ndjson", gives=Restored, status=201))
async def import_ledger(request: Request, new_run_id: _NewRunId = None) -> Response:
    """Make a run of an exported ledger."""
    caller = caller_of(request)
    caller.require_whole_tenant()
    async with uploaded(request, _JSONL) as path:
        with as_clients_fault():
            run = await caller.pf.runs.import_jsonl(path, new_run_id=new_run_id)
    return reply(Restored(ok=True, run_id=run.run_id, ws=await run.load()), 201)


def shelf_of(request: Request) -> PackShelf:
    """Where packs wait to be downloaded."""
    shelf: PackShelf = request.app.state.server.packs
    return shelf


async def swept_shelf(request: Request, caller: Caller) -> PackShelf:
    """The shelf, without packs of what was forgotten: by the command line or the library too."""
    shelf = shelf_of(request)
    await asyncio.to_thread(shelf.sweep, caller.identity.tenant, caller.pf.sync.store)
    return shelf


async def packed(request: Request, caller: Caller, run_id: str, pointers: dict[str, Any]) -> Path:
    """A pack of a run, on the shelf of its tenant."""
    run = await own_run(caller, run_id)
    shelf, tenant = await swept_shelf(request, caller), caller.identity.tenant
    folder = await asyncio.to_thread(shelf.require_room, tenant)
    return await run.create_resume_pack(folder, pointers=pointers, writer_id=caller.writer_id)


async def restore(caller: Caller, path: Path, new_run_id: str | None) -> Restored:
    """A run made of a pack."""
    limits, left_out = limits_of(caller), 0
    with_items = "admin" in caller.identity.rights
    with as_clients_fault():
        if not with_items:
            left_out = (await caller.pf.runs.verify_pack(path, limits=limits)).items
        run = await caller.pf.runs.restore_from_pack(
            path, new_run_id=new_run_id, limits=limits, with_items=with_items
        )
    ws = await run.load()
    return Restored(ok=True, run_id=run.run_id, ws=ws, items_left_out=left_out)


def limits_of(caller: Caller) -> PackLimits:
    """What an uploaded pack may make of itself."""
    return PackLimits(max_bytes=_UNPACKED_TIMES * caller.config.max_upload_bytes)


@contextmanager
def as_clients_fault() -> Iterator[None]:
    """A pack that is damaged, or too new, is what was sent, not what is stored."""
    try:
        yield
    except (Corrupt, Unsupported) as error:
        raise AsRefused(error, 422) from error


async def _own_pack(request: Request, caller: Caller, pack_id: str) -> Path:
    shelf = await swept_shelf(request, caller)
    path = await asyncio.to_thread(shelf.find, caller.identity.tenant, pack_id)
    if caller.identity.user_id is not None:
        try:
            await own_run(caller, info_of(path).run_id)
        except NotFound:
            raise no_pack() from None
    return path
