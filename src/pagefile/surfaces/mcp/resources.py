"""Resources: threads, runs, and resume packs of runs, by address."""

from __future__ import annotations

import base64
import binascii
import tempfile
from typing import Final, Literal
from urllib.parse import quote, unquote

import msgspec

from pagefile.context.names import THREADS
from pagefile.errors import Invalid, LimitExceeded, NotFound, shown
from pagefile.runs.kinds import RUNS
from pagefile.store.codec.decoder import convert
from pagefile.store.store import Store
from pagefile.surfaces.mcp.budget import encoded
from pagefile.surfaces.mcp.caller import NEEDS, PACKING, READ, Caller
from pagefile.surfaces.mcp.thread_tools import messages_of

# Where a listing goes on: behind a name that the caller was shown, and so many further.
#
# A cursor never holds a name that its reader may not see.


Kind = Literal["threads", "runs"]
_MOST_CURSOR: Final = 4_096
_AT_ONCE = 1_000
_MOST_PASSED = 100_000_000


class Place(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Behind `after`, a name that was shown, and `passed` names that were not."""

    kind: Kind = "threads"
    after: str = ""
    passed: int = 0

    def further(self) -> Place:
        """Behind the next name, which is not shown."""
        return Place(self.kind, self.after, self.passed + 1)

    def next_kind(self) -> Place | None:
        """Where the listing goes on when there are no more of a kind."""
        return Place("runs") if self.kind == "threads" else None


def place_in(cursor: str | None) -> Place:
    """The place that a cursor stands for; None is the beginning.

    Raises:
        Invalid: it is none of ours.
    """
    if cursor is None:
        return Place()
    try:
        if len(cursor) > _MOST_CURSOR:
            raise ValueError
        plain = base64.urlsafe_b64decode(cursor.encode())
        place = convert(msgspec.json.decode(plain), Place)
        if not 0 <= place.passed <= _MOST_PASSED:
            raise ValueError
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise Invalid(
            "cursor", f"{shown(cursor)} is none of ours", "pass a cursor unchanged"
        ) from None
    return place


def cursor_of(place: Place) -> str:
    """A place as clients pass it back."""
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode()


def names_behind(store: Store, place: Place, limit: int) -> list[str]:
    """The next names of a place's kind, whoever may read them."""
    space: Literal["log", "document"] = "log" if place.kind == "threads" else "document"
    prefix = THREADS if place.kind == "threads" else RUNS
    after, left = prefix + place.after if place.after else "", place.passed
    while left:
        passed = store.names(space, prefix=prefix, after=after, limit=min(left, _AT_ONCE))
        if not passed:
            return []
        after, left = passed[-1], left - len(passed)
    names = store.names(space, prefix=prefix, after=after, limit=limit)
    return [name.removeprefix(prefix) for name in names]


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
