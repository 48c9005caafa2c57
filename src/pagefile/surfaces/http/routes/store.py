"""The store itself, for operators of a tenant: history, as of a position, proofs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Query, Request, Response

from pagefile.errors import NotFound
from pagefile.store.records import Change, Document, Entry, Head, Problem, Stats
from pagefile.surfaces.http.bodies import body_of, reply
from pagefile.surfaces.http.call import Caller, caller_of
from pagefile.surfaces.http.openapi import told
from pagefile.surfaces.http.pagination import (
    Cursor,
    Limit,
    Page,
    cursor_of,
    number_in,
    page_by_name,
    place_in,
)

router = APIRouter(prefix="/v1/store", tags=["store"])

Name = Annotated[str, Query(max_length=512, description="The document's or log's name.")]
Number = Annotated[int | None, Query(ge=0, le=10**15)]


class HeadShown(msgspec.Struct, kw_only=True):
    """The end of the tenant's commit log; keep it elsewhere to prove that nothing was cut."""

    position: int
    digest: str


class HeadGiven(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A head that was kept elsewhere."""

    position: int | None = None
    digest: str | None = None


class ReportShown(msgspec.Struct, kw_only=True):
    """What an examination found."""

    ok: bool
    commits: int
    records: int
    problems: list[Problem]
    head: HeadShown


class Stored(msgspec.Struct, kw_only=True):
    """One entry of a log, or version of a document. `value` is null when `erased`."""

    name: str
    number: int
    position: int
    time: str
    user: str | None
    kind: str
    actor: str
    sources: list[str]
    erased: bool
    deleted: bool
    value: Any


class VectorsShown(msgspec.Struct, kw_only=True):
    """Where a user's vectors are; `waiting` entries have not reached the arm yet."""

    arm: str
    indexed: int
    waiting: int


class Synced(msgspec.Struct, kw_only=True):
    """How many vectors the arm was given."""

    ok: bool
    given: int


class Changes(msgspec.Struct, kw_only=True):
    """Commits after a position, oldest first."""

    items: list[Change]
    cursor: str | None


@router.get("/stats", **told(gives=Stats))
async def stats(request: Request) -> Response:
    """Numbers about the tenant, and the engine that holds it."""
    return reply(await _operator(request).pf.stats())


@router.get("/head", **told(gives=HeadShown))
async def head(request: Request) -> Response:
    """The last position, and the digest of everything up to it."""
    return reply(_head(await _operator(request).pf.store.head()))


@router.post("/verify", **told(takes=HeadGiven, gives=ReportShown, optional=True, refuses=(404,)))
async def verify(request: Request) -> Response:
    """Walk the hash chain of the tenant; with a head kept elsewhere, prove that nothing is cut."""
    caller = _operator(request)
    given = await body_of(request, HeadGiven, may_be_empty=True)
    kept = None
    if given.position is not None and given.digest is not None:
        try:
            kept = Head(given.position, bytes.fromhex(given.digest))
        except ValueError:
            raise NotFound("the digest is no hexadecimal", "give a head as it was given") from None
    report = await caller.pf.verify(head=kept)
    return reply(_report(report))


@router.post("/check", **told(gives=ReportShown))
async def check(request: Request) -> Response:
    """Examine the engine's structures: files, indexes, counters."""
    return reply(_report(await _operator(request).pf.check()))


@router.get("/changes", **told(gives=Changes))
async def changes(request: Request, limit: Limit = 100, cursor: Cursor = None) -> Response:
    """What happened, commit by commit, erasures included."""
    caller = _operator(request)
    found = await caller.pf.store.changes(number_in(cursor), limit=limit)
    after = cursor_of(found[-1].position) if len(found) == limit else None
    return reply(Changes(items=found, cursor=after))


@router.get("/names", **told(gives=Page))
async def names(
    request: Request,
    kind: Literal["log", "document"],
    prefix: Annotated[str, Query(max_length=512)] = "",
    limit: Limit = 100,
    cursor: Cursor = None,
) -> Response:
    """Names of living logs or documents, in order."""
    caller = _operator(request)
    found = await caller.pf.store.names(kind, prefix=prefix, after=place_in(cursor), limit=limit)
    return reply(page_by_name(found, limit))


@router.get("/document", **told(gives=Stored, refuses=(404,)))
async def document(
    request: Request, name: Name, version: Number = None, at: Number = None
) -> Response:
    """A document now, at a version, or as of a position."""
    caller = _operator(request)
    found = await caller.pf.store.get(name, version=version, at=at)
    if found is None:
        raise NotFound("there is no such document", "list the names")
    return reply(_stored(found, found.name, found.version, found.deleted))


@router.get("/document/history", **told(gives=Page, refuses=(404,)))
async def document_history(
    request: Request, name: Name, limit: Limit = 100, cursor: Cursor = None
) -> Response:
    """Versions of a document, oldest first."""
    caller = _operator(request)
    found = await caller.pf.store.history(name, after=number_in(cursor), limit=limit)
    after = cursor_of(found[-1].version) if len(found) == limit else None
    items = [_stored(each, each.name, each.version, each.deleted) for each in found]
    return reply(Page(items=items, cursor=after))


@router.get("/log", **told(gives=Page, refuses=(404,)))
async def log(
    request: Request, name: Name, limit: Limit = 100, cursor: Cursor = None, at: Number = None
) -> Response:
    """Entries of a log, oldest first, now or as of a position."""
    caller = _operator(request)
    start = number_in(cursor)
    found = await caller.pf.store.read(name, start, limit=limit, at=at)
    after = cursor_of(found[-1].index + 1) if len(found) == limit else None
    items = [_stored(each, each.log, each.index, False) for each in found]
    return reply(Page(items=items, cursor=after))


@router.get("/vectors", **told(gives=VectorsShown))
async def vectors(
    request: Request, user_id: Annotated[str | None, Query(max_length=512)] = None
) -> Response:
    """Where a user's vectors are, and how far the vector arm lags behind."""
    caller = caller_of(request)
    memory = await caller.memory()
    found = await memory.vector_status(user_id=caller.user(user_id))
    return reply(VectorsShown(arm=found.arm, indexed=found.indexed, waiting=found.waiting))


@router.post("/vectors/sync", **told(gives=Synced))
async def sync_vectors(request: Request) -> Response:
    """Bring the vector arm of the tenant up to date."""
    caller = _operator(request)
    memory = await caller.memory()
    return reply(Synced(ok=True, given=await memory.sync_vectors()))


@router.post("/reindex", **told(gives=dict[str, int]))
async def reindex(request: Request) -> Response:
    """Make the search index anew, with the embedder of this server."""
    caller = _operator(request)
    memory = await caller.memory()
    return reply({"entries": await memory.reindex()})


def _operator(request: Request) -> Caller:
    caller = caller_of(request)
    caller.require("admin")
    caller.require_whole_tenant()
    return caller


def _head(head: Head) -> HeadShown:
    return HeadShown(position=head.position, digest=head.digest.hex())


def _report(report: Any) -> ReportShown:
    return ReportShown(
        ok=bool(report),
        commits=report.commits,
        records=report.records,
        problems=list(report.problems),
        head=_head(report.head),
    )


def _stored(record: Entry | Document, name: str, number: int, deleted: bool) -> Stored:
    gone = record.erased
    return Stored(
        name=name,
        number=number,
        position=record.position,
        time=record.time.isoformat(),
        user=None if gone else record.user,
        kind="" if gone else record.kind,
        actor="" if gone else record.actor,
        sources=[] if gone else list(record.sources),
        erased=gone,
        deleted=deleted,
        value=None if gone or deleted else msgspec.Raw(record.body),
    )
