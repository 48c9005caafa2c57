"""Packs that wait to be downloaded: a folder for each tenant, names that we made."""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from starlette.requests import Request

from pagefile.errors import LimitExceeded, NotFound, Unavailable
from pagefile.runs.packs.users import holds_user, was_forgotten
from pagefile.store.store import Store
from pagefile.surfaces.http.problems import Refused

_NAME = re.compile(r"([A-Za-z0-9_-]{1,64})_(pack_[0-9a-f]{32})\.zip")
_ID = re.compile(r"pack_[0-9a-f]{32}")
ZIP = "application/zip"
_MEDIA = frozenset({ZIP, "application/octet-stream", "application/x-zip-compressed"})


class PackInfo(msgspec.Struct, kw_only=True):
    """A pack that can be downloaded."""

    pack_id: str
    run_id: str
    size_bytes: int
    download: str


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


@asynccontextmanager
async def uploaded(request: Request, media: frozenset[str] = _MEDIA) -> AsyncIterator[Path]:
    """The request's body in a private file, which goes when the block ends.

    It is written as it comes, so that a large one takes no memory.
    """
    import asyncio

    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in media:
        raise Refused(415, f"the body is {given or 'of no type'}: send {sorted(media)[0]}")
    with tempfile.TemporaryDirectory(prefix="pagefile-upload-") as folder:
        path = Path(folder) / "body"
        try:
            with path.open("xb") as file:
                async for chunk in request.stream():
                    await asyncio.to_thread(file.write, chunk)
        except OSError as error:
            raise Unavailable(
                f"the upload could not be kept ({error.strerror})", "look at the server's disk"
            ) from error
        yield path


def no_pack() -> NotFound:
    """The refusal of a pack that is not there, or not the caller's: they look the same."""
    return NotFound("there is no such pack here", "list the packs, or upload one")
