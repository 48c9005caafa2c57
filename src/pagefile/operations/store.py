"""The store itself, for operators of a tenant: history, as of a position, proofs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from pagefile.errors import NotFound
from pagefile.handle import Pagefile
from pagefile.memory.memory import Memory
from pagefile.operations.answer import Page, behind, cursor_of, number_in
from pagefile.operations.binder import Number
from pagefile.operations.caller import Caller
from pagefile.operations.operation import get, operation, post
from pagefile.store.records import Change, Document, Entry, Head, Problem
from pagefile.store.store import Store

Name = Annotated[str, msgspec.Meta(max_length=512, description="The document's or log's name.")]


class HeadShown(msgspec.Struct, kw_only=True):
    """The end of the tenant's commit log; keep it elsewhere to prove that nothing was cut."""

    position: int
    digest: str


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


stats = operation(
    Pagefile.stats, http=get("/v1/store/stats", "store"), right="admin", whole_tenant=True
)


@operation(Store.head, http=get("/v1/store/head", "store"), right="admin", whole_tenant=True)
async def head(caller: Caller) -> HeadShown:
    """The last position, and the digest of everything up to it."""
    return _head(await caller.pf.store.head())


@operation(
    Pagefile.verify,
    http=post("/v1/store/verify", "store"),
    right="admin",
    changes=False,
    whole_tenant=True,
    takes="HeadGiven: A head that was kept elsewhere.",
    may_be_empty=True,
    refuses=(404,),
)
async def verify(
    caller: Caller, *, position: int | None = None, digest: str | None = None
) -> ReportShown:
    """Walk the hash chain of the tenant; with a head kept elsewhere, prove that nothing is cut."""
    kept = None
    if position is not None and digest is not None:
        try:
            kept = Head(position, bytes.fromhex(digest))
        except ValueError:
            raise NotFound("the digest is not hexadecimal", "give a head as it was given") from None
    return _report(await caller.pf.verify(head=kept))


@operation(
    Pagefile.check,
    http=post("/v1/store/check", "store"),
    right="admin",
    changes=False,
    whole_tenant=True,
)
async def check(caller: Caller) -> ReportShown:
    """Examine the engine's structures: files, indexes, counters."""
    return _report(await caller.pf.check())


@operation(Store.changes, http=get("/v1/store/changes", "store"), right="admin", whole_tenant=True)
async def changes(caller: Caller, *, limit: int = 100, cursor: str | None = None) -> Changes:
    """What happened, commit by commit, erasures included."""
    found = await caller.pf.store.changes(number_in(cursor), limit=limit)
    return Changes(items=found, cursor=behind(found, limit, "position"))


names = operation(
    Store.names,
    http=get("/v1/store/names", "store"),
    right="admin",
    whole_tenant=True,
    wire={"kind": Literal["log", "document"]},
    gives=Page,
    page="",
)


@operation(
    Store.get,
    http=get("/v1/store/document", "store"),
    right="admin",
    whole_tenant=True,
    refuses=(404,),
)
async def document(
    caller: Caller, *, name: Name, version: Number | None = None, at: Number | None = None
) -> Stored:
    """A document now, at a version, or as of a position."""
    found = await caller.pf.store.get(name, version=version, at=at)
    if found is None:
        raise NotFound("there is no such document", "list the names")
    return _stored(found, found.name, found.version, found.deleted)


@operation(
    Store.history,
    http=get("/v1/store/document/history", "store"),
    right="admin",
    whole_tenant=True,
    refuses=(404,),
)
async def document_history(
    caller: Caller, *, name: Name, limit: int = 100, cursor: str | None = None
) -> Page:
    """Versions of a document, oldest first."""
    found = await caller.pf.store.history(name, after=number_in(cursor), limit=limit)
    items = [_stored(each, each.name, each.version, each.deleted) for each in found]
    return Page(items=items, cursor=behind(found, limit, "version"))


@operation(
    Store.read,
    http=get("/v1/store/log", "store"),
    right="admin",
    whole_tenant=True,
    refuses=(404,),
)
async def log(
    caller: Caller,
    *,
    name: Name,
    limit: int = 100,
    cursor: str | None = None,
    at: Number | None = None,
) -> Page:
    """Entries of a log, oldest first, now or as of a position."""
    found = await caller.pf.store.read(name, number_in(cursor), limit=limit, at=at)
    after = cursor_of(found[-1].index + 1) if len(found) == limit else None
    items = [_stored(each, each.log, each.index, False) for each in found]
    return Page(items=items, cursor=after)


@operation(Memory.vector_status, http=get("/v1/store/vectors", "store"))
async def vectors(caller: Caller, *, user_id: str | None = None) -> VectorsShown:
    """Where a user's vectors are, and how far the vector arm lags behind."""
    memory = await caller.memory()
    found = await memory.vector_status(user_id=user_id)
    return VectorsShown(arm=found.arm, indexed=found.indexed, waiting=found.waiting)


@operation(
    Memory.sync_vectors,
    http=post("/v1/store/vectors/sync", "store"),
    right="admin",
    whole_tenant=True,
)
async def sync_vectors(caller: Caller) -> Synced:
    """Bring the vector arm of the tenant up to date."""
    memory = await caller.memory()
    return Synced(ok=True, given=await memory.sync_vectors())


@operation(
    Memory.reindex, http=post("/v1/store/reindex", "store"), right="admin", whole_tenant=True
)
async def reindex(caller: Caller) -> dict[str, int]:
    """Make the search index again, with the embedder of this server."""
    memory = await caller.memory()
    return {"entries": await memory.reindex()}


#: Traced, and asked for by no name from outside.
_commits = operation(Store.commit, span="pagefile.commit")
_commits_async = operation(Store.commit_async, span="pagefile.commit")
_commits_of_entries = operation(Store.commit_entries, span="pagefile.commit")
_commits_of_entries_async = operation(Store.commit_entries_async, span="pagefile.commit")


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
