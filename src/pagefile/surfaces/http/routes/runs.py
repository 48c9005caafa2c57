"""Runs: boot, patch, history, milestones."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from fastapi import APIRouter, Path, Query, Request, Response

from pagefile.errors import NotFound
from pagefile.runs.config import RunConfig
from pagefile.runs.names import RUNS, WORKING_SET, require_id
from pagefile.runs.patch_result import working_set_in
from pagefile.runs.repair import Repaired
from pagefile.runs.schema.artifacts import SCHEMA_VERSION
from pagefile.store.records import Document
from pagefile.surfaces.http import etag
from pagefile.surfaces.http.bodies import body_of, raw_reply, reply
from pagefile.surfaces.http.call import Call, call_of, caller_of
from pagefile.surfaces.http.openapi import GUARDS, KNOWS, told
from pagefile.surfaces.http.ownership import own_run, require_own_thread
from pagefile.surfaces.http.pagination import Cursor, Limit, Page, cursor_of, place_in
from pagefile.surfaces.http.patches import Patched, patched, refusal_of
from pagefile.surfaces.http.problems import Refused

router = APIRouter(prefix="/v1/runs", tags=["runs"])

Seq = Annotated[int, Query(ge=0, le=10**15)]
Moment = Annotated[int | None, Query(ge=0, le=10**15)]
Gate = Literal["milestone", "none"]


class NewRun(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A run to be booted. `gate` says what a memory batch needs to be committed."""

    objective: str
    acceptance_criteria: list[str] = []
    constraints: list[str] = []
    run_id: str | None = None
    task_id: str | None = None
    thread_id: str | None = None
    user_id: str | None = None
    current_stage: str = "BOOT"
    config: RunConfig | None = None
    gate: Gate = "milestone"


class Booted(msgspec.Struct, kw_only=True):
    """The run, and its first working set."""

    run_id: str
    status: str
    ws: dict[str, Any]


class Patch(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Fields to set whole, operations on lists; `If-Match` may stand for `expected_seq`."""

    set: dict[str, Any] = {}
    ops: list[dict[str, Any]] = []
    expected_seq: int | None = None
    schema_version: str | None = msgspec.field(default=None, name="_schema_version")


class RunFork(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Where to fork, and what to call it."""

    at: int | None = None
    new_run_id: str | None = None


class Rollback(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Which state to go back to."""

    seq: int


class Deleted(msgspec.Struct, kw_only=True):
    """Whether there was something to delete."""

    ok: bool
    deleted: bool


class Rebuilt(msgspec.Struct, kw_only=True):
    """Whether the ledger, folded, gives the stored working set, and what it gives."""

    ok: bool
    ws: dict[str, Any]


class Brief(msgspec.Struct, kw_only=True):
    """The working set as Markdown for a prompt."""

    context_brief: str


class Items(msgspec.Struct, kw_only=True):
    """Items that left the working set, newest first."""

    items: list[dict[str, Any]]


@router.post("", **told(takes=NewRun, gives=Booted, status=201, says="The run.", refuses=(404,)))
async def boot(request: Request) -> Response:
    """Start a run. An id that is taken is a conflict: nothing is ever reset."""
    caller = caller_of(request)
    given = await body_of(request, NewRun)
    if given.thread_id is not None:
        await require_own_thread(caller, given.thread_id)
    run = await caller.pf.runs.boot(
        given.objective,
        given.acceptance_criteria,
        given.constraints,
        task_id=given.task_id,
        thread_id=given.thread_id,
        run_id=given.run_id,
        user_id=caller.user(given.user_id),
        current_stage=given.current_stage,
        config=given.config,
        settings={"gate": given.gate},
        writer_id=caller.writer_id,
    )
    ws = await run.load()
    headers = etag.tag(0) | {"location": f"/v1/runs/{run.run_id}"}
    return reply(Booted(run_id=run.run_id, status=ws["status"], ws=ws), 201, headers)


@router.get("", **told(gives=Page, says="Ids of runs, in order."))
async def list_runs(request: Request, limit: Limit = 100, cursor: Cursor = None) -> Response:
    """Ids of runs, in order."""
    caller = caller_of(request)
    caller.require_whole_tenant()
    names = await caller.pf.runs.list(after=place_in(cursor), limit=limit)
    after = cursor_of(names[-1]) if names else None
    return reply(Page(items=names, cursor=after))


@router.get("/{run_id}", **told(gives=dict[str, Any], says="The working set.", headers=KNOWS))
async def get_run(request: Request, run_id: str, seq: Moment = None, at: Moment = None) -> Response:
    """A working set as it is, at sequence number `seq`, or `at` a position of the store."""
    return await working_set(request, run_id, seq, at)


@router.patch(
    "/{run_id}", **told(takes=Patch, gives=Patched, says="The new working set.", headers=GUARDS)
)
async def patch_run(request: Request, run_id: str) -> Response:
    """Change the working set, if it is still at `expected_seq`."""
    caller = caller_of(request)
    given = await body_of(request, Patch)
    expected = etag.expected(request, given.expected_seq)
    if expected is None:
        raise Refused(422, "expected_seq: say which sequence number you change, or If-Match")
    made: dict[str, Any] = {
        "_schema_version": given.schema_version or SCHEMA_VERSION,
        "expected_seq": expected,
        "set": given.set,
    }
    if given.ops:
        made["ops"] = given.ops
    run = await own_run(caller, run_id)
    answer = await patched(request, run, made, caller.writer_id)
    return reply(answer, headers=etag.tag(answer.ws["_update_seq"]))


@router.delete("/{run_id}", **told(gives=Deleted, says="It is gone."))
async def delete_run(request: Request, run_id: str) -> Response:
    """End a run; needs `admin`. Its id is not free again."""
    caller = caller_of(request)
    caller.require("admin")
    await own_run(caller, run_id)
    return reply(Deleted(ok=True, deleted=await caller.pf.runs.delete(run_id)))


@router.post(
    "/{run_id}/fork",
    **told(takes=RunFork, gives=Booted, status=201, optional=True, says="The new run."),
)
async def fork_run(request: Request, run_id: str) -> Response:
    """A new run that begins where another stands, or stood at a sequence number."""
    caller = caller_of(request)
    given = await body_of(request, RunFork, may_be_empty=True)
    await own_run(caller, run_id)
    run = await caller.pf.runs.fork(
        run_id, given.at, new_run_id=given.new_run_id, writer_id=caller.writer_id
    )
    ws = await run.load()
    headers = etag.tag(0) | {"location": f"/v1/runs/{run.run_id}"}
    return reply(Booted(run_id=run.run_id, status=ws["status"], ws=ws), 201, headers)


@router.post("/{run_id}/rollback", **told(takes=Rollback, gives=Patched))
async def roll_back(request: Request, run_id: str) -> Response:
    """Make an earlier state the newest; nothing is erased."""
    caller = caller_of(request)
    given = await body_of(request, Rollback)
    run = await own_run(caller, run_id)
    result = await run.rollback(given.seq, writer_id=caller.writer_id)
    ws = result.new_ws or {}
    return reply(Patched(ok=True, ws=ws, evicted=[], error=None))


@router.get("/{run_id}/diff", **told(gives=dict[str, Any]))
async def diff_run(request: Request, run_id: str, a: Seq, b: Seq) -> Response:
    """What changed between two sequence numbers."""
    run = await own_run(caller_of(request), run_id)
    return reply(await run.diff(a, b))


@router.get("/{run_id}/rebuild", **told(gives=Rebuilt))
async def rebuild_run(request: Request, run_id: str) -> Response:
    """Fold the ledger, and compare with what is stored."""
    run = await own_run(caller_of(request), run_id)
    rebuilt = await run.rebuild()
    return reply(Rebuilt(ok=bool(rebuilt), ws=rebuilt.ws))


@router.post("/{run_id}/repair", **told(gives=Repaired))
async def repair_run(request: Request, run_id: str) -> Response:
    """Make a damaged working set again from the ledger, as its newest version."""
    caller = caller_of(request)
    run = await own_run(caller, run_id)
    return reply(await run.repair(writer_id=caller.writer_id))


@router.get("/{run_id}/evicted", **told(gives=Items))
async def evicted(
    request: Request,
    run_id: str,
    q: Annotated[str | None, Query(max_length=10_000)] = None,
    limit: Limit = 100,
) -> Response:
    """What left the working set; with `q`, what holds every word of it."""
    run = await own_run(caller_of(request), run_id)
    found = await (run.evicted(limit=limit) if q is None else run.find_evicted(q, limit=limit))
    return reply(Items(items=found))


@router.post("/{run_id}/evicted/{item_id}/page-in", **told(gives=Patched))
async def page_in(
    request: Request, run_id: str, item_id: Annotated[str, Path(max_length=512)]
) -> Response:
    """Bring an evicted item back to where it was."""
    caller = caller_of(request)
    run = await own_run(caller, run_id)
    result = await run.page_in(item_id, writer_id=caller.writer_id)
    if not result.ok:
        raise refusal_of(request, result)
    return reply(Patched(ok=True, ws=result.new_ws or {}, evicted=list(result.evicted), error=None))


@router.get("/{run_id}/brief", **told(gives=Brief))
async def brief(
    request: Request,
    run_id: str,
    max_tokens: Annotated[int | None, Query(ge=1, le=10_000_000)] = None,
    min_confidence: Annotated[float, Query(ge=0, le=1)] = 0.8,
    top_k: Annotated[int, Query(ge=0, le=100, description="Long-term items for it.")] = 8,
) -> Response:
    """The working set as Markdown, with long-term items, within a token budget."""
    caller = caller_of(request)
    run = await own_run(caller, run_id)
    hits: list[dict[str, Any]] = []
    if top_k:
        ws = await run.load()
        found = await caller.pf.items.search(ws["objective"], user_id=run.user_id, top_k=top_k)
        hits = [hit.item.to_v21() for hit in found]
    text = await run.brief(ltm_results=hits, min_confidence=min_confidence, max_tokens=max_tokens)
    return reply(Brief(context_brief=text))


async def working_set(
    request: Request, run_id: str, seq: int | None = None, at: int | None = None
) -> Response:
    """A working set as it is or was; `ETag` is its sequence number."""
    caller = caller_of(request)
    if seq is not None and at is not None:
        raise Refused(422, "seq: give seq or at, not both")
    version = None if seq is None else seq + 1
    name = RUNS + require_id("run_id", run_id)
    call = call_of(request)
    if version is None and at is None and call.reads is not None:
        document = await call.reads.get(name)
    else:
        document = await caller.pf.store.get(name, version=version, at=at)
    seen = _require_working_set(call, run_id, document)
    shown = seen.version - 1
    if etag.is_known(request, shown):
        return etag.not_modified(shown)
    return raw_reply(_readable(seen), headers=etag.tag(shown))


def _require_working_set(call: Call, run_id: str, document: Document | None) -> Document:
    """The document, if it is a working set that the caller may see.

    Raises:
        NotFound: it is not; somebody else's looks as if there were none.
    """
    own = None if call.identity is None else call.identity.user_id
    if (
        document is None
        or document.erased
        or document.kind != WORKING_SET
        or (own is not None and document.user != own)
    ):
        raise NotFound(f"there is no run {run_id!r}", "boot it, or list the runs")
    return document


def _readable(document: Document) -> bytes:
    """The bytes of a working set, which is stored as the JSON it is answered with.

    Raises:
        Corrupt: they are none any more.
    """
    working_set_in(document)
    return document.body
