"""Resources: threads, runs, and resume packs of runs, by address."""

from __future__ import annotations

import tempfile
from typing import Final
from urllib.parse import quote, unquote

import msgspec

from pagefile.context.names import THREADS
from pagefile.errors import Invalid, LimitExceeded, NotFound, shown
from pagefile.surfaces.mcp.budget import encoded
from pagefile.surfaces.mcp.caller import Caller
from pagefile.surfaces.mcp.thread_tools import messages_of

SCHEME: Final = "pagefile://"
_PAGE = 100
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
    caller.require(writes=False)
    kind, _, after = (cursor or "threads:").partition(":")
    if kind == "threads":
        names = _threads_after(caller, after)
        found = [name for name in names if _is_readable(caller, kind, name)]
    elif kind == "runs":
        names = caller.pf.runs.list(after=after, limit=_PAGE)
        found = [name for name in names if _is_readable(caller, kind, name)]
    else:
        raise Invalid("cursor", f"{shown(cursor)} is none of ours", "pass a cursor unchanged")
    more = f"{kind}:{names[-1]}" if len(names) == _PAGE else None
    if more is None and kind == "threads":
        more = "runs:"
    return [Listed(address_of(kind, name), name, _JSON) for name in found], more


def _threads_after(caller: Caller, after: str) -> list[str]:
    start = THREADS + after if after else ""
    names = caller.pf.store.names("log", prefix=THREADS, after=start, limit=_PAGE)
    return [name.removeprefix(THREADS) for name in names]


def _is_readable(caller: Caller, kind: str, name: str) -> bool:
    if caller.identity.user is None:
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
    caller.require(writes=False)
    kind, name = _parsed(uri)
    if kind == "threads":
        view = caller.thread(name)
        return Content(_JSON, encoded(messages_of(caller, view, limit=_MOST_MESSAGES)))
    if kind == "runs":
        return Content(_JSON, encoded(caller.budget.require(caller.run(name).load())))
    caller.require(writes=True)  # Making one is noted in the run's ledger.
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
