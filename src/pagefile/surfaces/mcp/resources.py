"""Resources: threads, runs, and resume packs of runs, by address."""

from __future__ import annotations

import tempfile
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from pagefile.errors import Invalid, LimitExceeded, NotFound, shown
from pagefile.surfaces.mcp.budget import encoded
from pagefile.surfaces.mcp.caller import Caller
from pagefile.surfaces.mcp.cursor import Place, cursor_of, names_behind, place_in
from pagefile.surfaces.mcp.identity import READ
from pagefile.surfaces.mcp.rights import NEEDS, PACKING
from pagefile.surfaces.mcp.thread_tools import messages_of

SCHEME: Final = "pagefile://"
_PAGE = 100
#: How many names one page may cost; a page may be empty, and there is more all the same.
_MOST_LOOKED = 5_000
_LOOKED_AT_ONCE = 500
_MOST_MESSAGES = 1_000
_MOST_PACK_BYTES = 16 * 1024 * 1024
_MOST_ADDRESS = 4_096
_JSON = "application/json"
_ZIP = "application/zip"


class Template(msgspec.Struct, frozen=True):
    """A kind of resource, by the form of its addresses."""

    kind: str
    name: str
    about: str
    mime_type: str

    @property
    def address(self) -> str:
        return f"{SCHEME}{self.kind}/{{id}}"


TEMPLATES = (
    Template("threads", "thread", "The newest messages of a thread.", _JSON),
    Template("runs", "run", "The working set of a run.", _JSON),
    Template(
        "packs",
        "pack",
        "A run in one file, as it is now. Reading it is noted in the run's ledger.",
        _ZIP,
    ),
)


class Listed(msgspec.Struct, frozen=True):
    """A thread or a run that there is."""

    uri: str
    name: str
    mime_type: str


class Content(msgspec.Struct, frozen=True):
    """What an address holds."""

    mime_type: str
    text: str | None = None
    blob: bytes = b""


def address_of(kind: str, name: str) -> str:
    """The address of a thread or run."""
    return f"{SCHEME}{kind}/{quote(name, safe='')}"


def listed(caller: Caller, cursor: str | None) -> tuple[list[Listed], str | None]:
    """A page of threads, then of runs; and the cursor of the next page.

    Packs are not listed: there is one for each run.
    """
    caller.require(READ)
    place: Place | None = place_in(cursor)
    found: list[Listed] = []
    looked = 0
    while place is not None and len(found) < _PAGE and looked < _MOST_LOOKED:
        names = names_behind(caller.pf.store, place, _LOOKED_AT_ONCE)
        for name in names:
            if len(found) == _PAGE:
                break
            if _is_readable(caller, place.kind, name):
                found.append(Listed(address_of(place.kind, name), name, _JSON))
                place = Place(place.kind, name)
            else:
                place = place.further()
        looked += len(names)
        if not names:
            place = place.next_kind()
    return found, None if place is None else cursor_of(place)


def _is_readable(caller: Caller, kind: str, name: str) -> bool:
    if kind == "threads" and caller.identity.user is None:
        return True
    try:
        caller.thread(name) if kind == "threads" else caller.run(name)
    except NotFound:
        return False
    return True


def read(caller: Caller, uri: str) -> Content:
    """What an address holds, within the cap of the server.

    Raises:
        NotFound: it holds nothing, or nothing that this caller may see.
    """
    kind, name = _parsed(uri)
    caller.require(NEEDS[PACKING].right if kind == "packs" else READ)
    if kind == "threads":
        view = caller.thread(name)
        return Content(_JSON, encoded(messages_of(caller, view, limit=_MOST_MESSAGES)))
    if kind == "runs":
        return Content(_JSON, encoded(caller.budget.require(caller.run(name).load())))
    return Content(_ZIP, blob=_pack(caller, name))


def _parsed(uri: str) -> tuple[str, str]:
    kind, _, name = uri.removeprefix(SCHEME).partition("/")
    known = [template.kind for template in TEMPLATES]
    if not uri.startswith(SCHEME) or kind not in known or len(uri) > _MOST_ADDRESS:
        raise NotFound(f"there is nothing at {shown(uri)}", "list the resource templates")
    try:
        return kind, unquote(name, errors="strict")
    except UnicodeDecodeError:
        raise Invalid("uri", f"{shown(uri)} is no UTF-8", "percent-encode the id") from None


def _pack(caller: Caller, run_id: str) -> bytes:
    run = caller.run(run_id)
    caller.settled(run.load()["thread_id"])
    with tempfile.TemporaryDirectory(prefix="pagefile_pack_") as folder:
        path = run.create_resume_pack(folder, writer_id="mcp")
        size = path.stat().st_size
        if size > _MOST_PACK_BYTES:
            raise LimitExceeded(
                "a pack in bytes",
                limit=_MOST_PACK_BYTES,
                wanted=size,
                next_step="make it with 'pagefile pack create'",
            )
        return path.read_bytes()
