"""Resume packs: made, downloaded, uploaded. A client names no path of the server's."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

from pagefile.errors import LimitExceeded, NotFound
from pagefile.operations.answer import Answer, File, cursor_of, place_in
from pagefile.operations.caller import Caller
from pagefile.operations.operation import delete, get, operation, post
from pagefile.runs.packs.format import PackLimits, PackReport
from pagefile.runs.packs.members import holds_user, was_forgotten
from pagefile.runs.run import Run
from pagefile.runs.runs import Runs
from pagefile.store.store import Store

_NAME = re.compile(r"([A-Za-z0-9_-]{1,64})_(pack_[0-9a-f]{32})\.zip")
_ID = re.compile(r"pack_[0-9a-f]{32}")
ZIP = "application/zip"


_JSONL = "application/x-ndjson"
#: How much larger than its upload limit a pack may become when it is read.
_UNPACKED_TIMES = 4
_NewRunId = Annotated[str, msgspec.Meta(max_length=64, description="The id of the new run.")]


class PackInfo(msgspec.Struct, kw_only=True):
    """A pack that can be downloaded."""

    pack_id: str
    run_id: str
    size_bytes: int
    download: str


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


class PackShelf:
    """Finds packs by their ids, in the folder of one tenant and nowhere else."""

    def __init__(self, folder: Path, most: int) -> None:
        self._folder = folder
        self._most = most

    def folder_of(self, tenant: str) -> Path:
        """Where a tenant's packs are; the name says nothing, and leads nowhere else."""
        return self._folder / hashlib.sha256(tenant.encode()).hexdigest()[:32]

    def require_room(self, tenant: str) -> Path:
        """The tenant's folder, if another pack may be put there."""
        folder = self.folder_of(tenant)
        count = len(self._names(folder))
        if count >= self._most:
            raise LimitExceeded(
                "the number of packs that wait to be downloaded",
                limit=self._most,
                wanted=count + 1,
                next_step="delete some of them",
            )
        return folder

    def all(self, tenant: str) -> list[PackInfo]:
        """All packs of a tenant, by id."""
        folder = self.folder_of(tenant)
        found = [info_of(folder / name) for name in self._names(folder)]
        return sorted(found, key=lambda info: info.pack_id)

    def find(self, tenant: str, pack_id: str) -> Path:
        """The file of a pack.

        Raises:
            NotFound: this tenant has no such pack.
        """
        folder = self.folder_of(tenant)
        if _ID.fullmatch(pack_id):
            for name in self._names(folder):
                if name.endswith(f"_{pack_id}.zip"):
                    return folder / name
        raise no_pack()

    def find_named(self, tenant: str, name: str) -> Path:
        """The file of a pack by its id, its name, or the address it is downloaded from."""
        last = name.rpartition("/")[2]
        found = _NAME.fullmatch(last)
        return self.find(tenant, found[2] if found else last)

    def sweep(self, tenant: str, store: Store) -> None:
        """Remove packs of runs that were forgotten, through whatever front."""
        folder = self.folder_of(tenant)
        for name in self._names(folder):
            if was_forgotten(folder / name, info_of(folder / name).run_id, store):
                (folder / name).unlink(missing_ok=True)

    def of_user(self, tenant: str, user_id: str) -> list[Path]:
        """The packs that hold something of a user: a run, slots or items."""
        folder = self.folder_of(tenant)
        return [folder / name for name in self._names(folder) if holds_user(folder / name, user_id)]

    @staticmethod
    def _names(folder: Path) -> list[str]:
        try:
            return [name for name in os.listdir(folder) if _NAME.fullmatch(name)]
        except FileNotFoundError:
            return []


def info_of(path: Path) -> PackInfo:
    """What a pack's name and size say."""
    found = _NAME.fullmatch(path.name)
    assert found is not None
    return PackInfo(
        pack_id=found[2],
        run_id=found[1],
        size_bytes=path.stat().st_size,
        download=f"/v1/packs/{found[2]}",
    )


def no_pack() -> NotFound:
    """The refusal of a pack that is not there, or not the caller's: they look the same."""
    return NotFound("there is no such pack here", "list the packs, or upload one")


@operation(
    Run.create_resume_pack,
    http=post("/v1/runs/{run_id}/packs", "packs", 201),
    takes="NewPack: What the manifest is to hold besides.",
    may_be_empty=True,
)
async def make_pack(
    caller: Caller,
    run_id: str,
    *,
    pointers: dict[str, Any] = {},  # noqa: B006 - the default of a field
) -> Answer[PackInfo]:
    """Put all of a run, as it is now, into a pack that can be downloaded."""
    made = info_of(await packed(caller, run_id, pointers))
    return Answer(made, location=made.download)


@operation(http=get("/v1/packs", "packs"), whole_tenant=True)
async def list_packs(caller: Caller, *, limit: int = 1_000, cursor: str | None = None) -> PackList:
    """Packs that wait to be downloaded."""
    after = place_in(cursor)
    shelf = await swept_shelf(caller)
    found = await asyncio.to_thread(shelf.all, caller.identity.tenant)
    rest = [each for each in found if each.pack_id > after]
    more = cursor_of(rest[limit - 1].pack_id) if len(rest) > limit else None
    return PackList(items=rest[:limit], cursor=more)


@operation(http=get("/v1/packs/{pack_id}", "packs"), gives_file=ZIP, says="The pack.")
async def download(caller: Caller, pack_id: str) -> File:
    """Download a pack."""
    return File(await _own_pack(caller, pack_id))


@operation(http=delete("/v1/packs/{pack_id}", "packs"))
async def remove(caller: Caller, pack_id: str) -> Removed:
    """Remove a pack from the server."""
    path = await _own_pack(caller, pack_id)
    await asyncio.to_thread(path.unlink, missing_ok=True)
    return Removed(ok=True)


@operation(
    Runs.restore_from_pack, http=post("/v1/packs", "packs", 201), upload=ZIP, whole_tenant=True
)
async def upload(
    caller: Caller, upload: Path, *, new_run_id: _NewRunId | None = None
) -> Answer[Restored]:
    """Make a run of an uploaded pack; everything is checked before anything is stored."""
    restored = await restore(caller, upload, new_run_id)
    return Answer(restored, location=f"/v1/runs/{restored.run_id}")


@operation(Runs.verify_pack, http=post("/v1/packs/verify", "packs"), right="read", upload=ZIP)
async def verify(caller: Caller, upload: Path) -> PackReport:
    """Read all of an uploaded pack and check it; stores nothing."""
    return await caller.pf.runs.verify_pack(upload, limits=limits_of(caller))


@operation(
    Runs.import_jsonl, http=post("/v1/runs/import", "packs", 201), upload=_JSONL, whole_tenant=True
)
async def import_ledger(
    caller: Caller, upload: Path, *, new_run_id: _NewRunId | None = None
) -> Restored:
    """Make a run of an exported ledger."""
    run = await caller.pf.runs.import_jsonl(upload, new_run_id=new_run_id)
    return Restored(ok=True, run_id=run.run_id, ws=await run.load())


async def swept_shelf(caller: Caller) -> PackShelf:
    """The shelf, without packs of what was forgotten: by the command line or the library too."""
    shelf = caller.host.packs
    await asyncio.to_thread(shelf.sweep, caller.identity.tenant, caller.pf.sync.store)
    return shelf


async def packed(caller: Caller, run_id: str, pointers: Mapping[str, Any]) -> Path:
    """A pack of a run, on the shelf of its tenant."""
    run = await caller.run(run_id)
    shelf, tenant = await swept_shelf(caller), caller.identity.tenant
    folder = await asyncio.to_thread(shelf.require_room, tenant)
    return await run.create_resume_pack(folder, pointers=pointers, writer_id=caller.writer_id)


async def restore(caller: Caller, path: Path, new_run_id: str | None) -> Restored:
    """A run made of a pack."""
    limits, left_out = limits_of(caller), 0
    with_items = "admin" in caller.identity.rights
    if not with_items:
        left_out = (await caller.pf.runs.verify_pack(path, limits=limits)).items
    run = await caller.pf.runs.restore_from_pack(
        path, new_run_id=new_run_id, limits=limits, with_items=with_items
    )
    ws = await run.load()
    return Restored(ok=True, run_id=run.run_id, ws=ws, items_left_out=left_out)


def limits_of(caller: Caller) -> PackLimits:
    """What an uploaded pack may make of itself."""
    return PackLimits(max_bytes=_UNPACKED_TIMES * caller.host.most_upload_bytes)


async def _own_pack(caller: Caller, pack_id: str) -> Path:
    shelf = await swept_shelf(caller)
    path = await asyncio.to_thread(shelf.find, caller.identity.tenant, pack_id)
    if caller.identity.user_id is not None:
        try:
            await caller.run(info_of(path).run_id)
        except NotFound:
            raise no_pack() from None
    return path
