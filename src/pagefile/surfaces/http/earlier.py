"""The earlier system's paths, with its field names.

Its two servers disagreed; here one answers with the fields of both. What they
answered with 200 and `ok: false` has the status that it deserves, and a body
that still says `ok: false`, `error` and `detail`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from pagefile.errors import Conflict, Corrupt, Forbidden, Invalid, NotFound, Unsupported
from pagefile.memory.items.item import MemoryItem
from pagefile.operations.answer import Answer
from pagefile.operations.items import newest_items
from pagefile.operations.operation import get, operation, patch, post
from pagefile.operations.packs import info_of, packed, restore, swept_shelf
from pagefile.operations.runs import Patched, patched, working_set
from pagefile.runs.schema.artifacts import SCHEMA_VERSION
from pagefile.surfaces.http.problems import AsRefused
from pagefile.surfaces.http.request import Caller

if TYPE_CHECKING:
    from pagefile.aio._types import AsyncRun

_TAG = "earlier system"
_TTL_SECONDS = 300


class OldRun(msgspec.Struct, kw_only=True):
    """What a run is for."""

    objective: str
    task_id: str | None = None
    thread_id: str | None = None
    run_id: str | None = None
    acceptance_criteria: list[str] = []
    constraints: list[str] = []


class OldPatch(msgspec.Struct, kw_only=True):
    """The fields to set, and the version they were made for."""

    patch: dict[str, Any]
    expected_seq: int


class OldStep(msgspec.Struct, kw_only=True):
    """A whole patch of schema ws_patch 2.1."""

    patch: dict[str, Any]


class OldMilestone(msgspec.Struct, kw_only=True):
    """Why, and which memory batch to commit with it."""

    reason: str = "manual"
    memory_batch_id: str | None = None
    next_entry_point: str = ""


class OldProposal(msgspec.Struct, kw_only=True):
    """Change requests of schema mcr 2.1."""

    mcrs: list[dict[str, Any]]
    scope_filters: dict[str, Any] = {}


class OldCommit(msgspec.Struct, kw_only=True):
    """A batch, and what lets it pass where the run asks for it."""

    batch_id: str
    milestone_token: str | None = None
    allow_outside_milestone: bool = False


class OldSnapshot(msgspec.Struct, kw_only=True):
    """What the manifest is to hold besides."""

    zip_pack: bool = True
    pointers: dict[str, Any] = {}


class OldLoad(msgspec.Struct, kw_only=True):
    """A pack of this server: its id, its name, or the address it is downloaded from."""

    pack_path: str
    new_run_id: str | None = None


class Started(msgspec.Struct, kw_only=True):
    """The run, and its first working set."""

    run_id: str
    status: str
    ws: dict[str, Any]


class Stepped(msgspec.Struct, kw_only=True):
    """The working set after a patch, and the brief for the next prompt."""

    ws: dict[str, Any]
    context_brief: str
    ok: bool
    evicted: list[dict[str, Any]]


class Milestoned(msgspec.Struct, kw_only=True):
    """The episode, and a token that lets one more batch of the run pass."""

    episode_id: str
    episode_path: str
    committed_memory_ids: list[str]
    milestone_token: str


class Proposed(msgspec.Struct, kw_only=True):
    """The batch that waits to be committed."""

    ok: bool
    batch_id: str
    staged_count: int
    error: None = None


class OldCommitted(msgspec.Struct, kw_only=True):
    """What the batch made true."""

    ok: bool
    committed_ids: list[str]
    error: None = None


class Found(msgspec.Struct, kw_only=True):
    """Items that match."""

    ok: bool
    items: list[dict[str, Any]]
    count: int
    error: None = None


class Snapshotted(msgspec.Struct, kw_only=True):
    """A pack, by the names of both servers, and where to download it."""

    ok: bool
    pack_id: str
    pack_path: str
    pack_zip: str
    pack_dir: str
    manifest_path: str
    download: str
    error: None = None


class Loaded(msgspec.Struct, kw_only=True):
    """The run that was made of a pack."""

    ok: bool
    run_id: str
    ws: dict[str, Any]
    error: None = None


@operation(http=post("/runs", _TAG), refuses=(404,))
async def create_run(caller: Caller, body: OldRun) -> Answer[Started]:
    """Start a run whose memory batches need no token. A taken id is a conflict."""
    return await _boot(caller, body, "none")


@operation(http=post("/runs/boot", _TAG), refuses=(404,))
async def boot_run(caller: Caller, body: OldRun) -> Answer[Started]:
    """Start a run whose memory batches pass at milestones only."""
    return await _boot(caller, body, "milestone")


@operation(
    http=get("/runs/{run_id}", _TAG), gives=dict[str, Any], says="The working set.", knows=True
)
async def get_run(caller: Caller, run_id: str) -> Answer[msgspec.Raw]:
    """The working set."""
    try:
        return await working_set(caller, run_id)
    except NotFound as error:
        raise AsRefused(error, 404, f"Run {run_id} not found") from error


@operation(
    http=get("/runs/{run_id}/ws", _TAG), gives=dict[str, Any], says="The working set.", knows=True
)
async def get_ws(caller: Caller, run_id: str) -> Answer[msgspec.Raw]:
    """The working set, by the path of the control panel."""
    try:
        return await working_set(caller, run_id)
    except NotFound as error:
        raise AsRefused(error, 404, "run not found") from error


@operation(http=patch("/runs/{run_id}", _TAG))
async def patch_run(caller: Caller, run_id: str, body: OldPatch) -> Answer[Patched]:
    """Set fields of the working set, if it is still at `expected_seq`."""
    run = await _open(caller, run_id, f"Run {run_id} not found")
    made = {
        "_schema_version": SCHEMA_VERSION,
        "expected_seq": body.expected_seq,
        "set": body.patch,
    }
    done = await _patched(caller, run, made, "Conflict: ")
    return Answer(done, version=done.ws["_update_seq"])


@operation(http=post("/runs/{run_id}/step/update", _TAG))
async def step(caller: Caller, run_id: str, body: OldStep) -> Stepped:
    """Apply a whole patch; the answer has the brief for the next prompt."""
    run = await _open(caller, run_id)
    done = await _patched(caller, run, body.patch)
    found = await caller.pf.items.search(done.ws["objective"], user_id=run.user_id, top_k=8)
    brief = await run.brief(ltm_results=[hit.item.to_v21() for hit in found])
    return Stepped(ws=done.ws, context_brief=brief, ok=True, evicted=done.evicted)


@operation(http=post("/runs/{run_id}/milestone", _TAG), may_be_empty=True)
async def milestone(caller: Caller, run_id: str, body: OldMilestone) -> Milestoned:
    """Record a milestone; the token in the answer counts until it is used or expires."""
    run = await _open(caller, run_id)
    try:
        await caller.require_own_batch(body.memory_batch_id)
        made = await run.milestone(
            body.reason,
            memory_batch_id=body.memory_batch_id or None,
            next_entry_point=body.next_entry_point,
            writer_id=caller.writer_id,
        )
    except NotFound as error:
        raise AsRefused(error, 404, f"memory commit: unknown batch_id ({error})") from error
    token = await run.memory.issue_token(ttl_seconds=_TTL_SECONDS, writer_id=caller.writer_id)
    return Milestoned(
        episode_id=made.episode_id,
        episode_path=f"/v1/runs/{run_id}/episodes/{made.episode_id}",
        committed_memory_ids=list(made.committed_memory_ids),
        milestone_token=token,
    )


@operation(http=post("/runs/{run_id}/memory/propose", _TAG))
async def propose(caller: Caller, run_id: str, body: OldProposal) -> Proposed:
    """Stage change requests; nothing holds before they are committed."""
    caller.require_own_scope(body.mcrs)
    run = await _open(caller, run_id)
    made = await run.memory.propose(
        body.mcrs, scope_filters=body.scope_filters or None, writer_id=caller.writer_id
    )
    return Proposed(ok=True, batch_id=made.batch_id, staged_count=made.count)


@operation(http=post("/runs/{run_id}/memory/commit", _TAG))
async def commit(caller: Caller, run_id: str, body: OldCommit) -> OldCommitted:
    """Make a batch true: with a milestone's token, or without where the run has no gate."""
    run = await _open(caller, run_id)
    token = body.milestone_token or None
    reviewer = None
    if token is None and (await gate_of(run) == "none" or _may_skip(caller, body)):
        reviewer = caller.writer_id
    try:
        await caller.require_own_batch(body.batch_id)
        made = await run.memory.commit(
            body.batch_id, token=token, reviewer=reviewer, writer_id=caller.writer_id
        )
    except Forbidden as error:
        text = f"{error}; this run's gate asks for a milestone_token of POST /runs/{{id}}/milestone"
        raise AsRefused(error, 403, text) from error
    except NotFound as error:
        raise AsRefused(error, 404, f"unknown batch_id ({error})") from error
    return OldCommitted(ok=True, committed_ids=list(made.memory_ids))


@operation(http=get("/runs/{run_id}/memory/search", _TAG))
async def search(
    caller: Caller,
    run_id: str,
    *,
    q: Annotated[str, msgspec.Meta(max_length=10_000)] = "",
    top_k: Annotated[int, msgspec.Meta(ge=1, le=1_000)] = 8,
    scope: Literal["user", "project", "global"] | None = None,
    status: Literal["active", "deprecated", "inactive"] = "active",
) -> Found:
    """Items that share a word with the question; the newest for an empty one."""
    run = await _open(caller, run_id)
    found: list[MemoryItem] = []
    statuses: tuple[Any, ...] = {
        "active": ("active",),
        "deprecated": ("deprecated", "superseded"),
        "inactive": ("rejected",),
    }[status]
    # Nobody's items, or the run's user's; a scope that the run has no owner for is empty.
    if scope is None or scope == "global" or (scope == "user" and run.user_id is not None):
        user_id = run.user_id
        if not q.strip():
            found, _ = await asyncio.to_thread(
                newest_items,
                caller.pf.sync.store,
                statuses=statuses,
                scope=scope,
                user_id=user_id,
                limit=top_k,
            )
        for each in statuses if q.strip() else ():
            hits = await caller.pf.items.search(
                q, scope=scope, user_id=user_id, status=each, top_k=top_k
            )
            found += [hit.item for hit in hits]
    fields = ("memory_id", "content", "confidence", "type", "scope", "status")
    items = [item.to_v21() for item in found[:top_k]]
    shown = [{name: item[name] for name in fields} for item in items]
    return Found(ok=True, items=shown, count=len(shown))


@operation(http=post("/runs/{run_id}/snapshot", _TAG))
async def snapshot(caller: Caller, run_id: str) -> Snapshotted:
    """Put the run into a pack; `download` is where to get it."""
    return await _snapshot(caller, run_id, {})


@operation(http=post("/runs/{run_id}/resume/snapshot", _TAG), may_be_empty=True)
async def resume_snapshot(caller: Caller, run_id: str, body: OldSnapshot) -> Snapshotted:
    """Put the run into a pack, with pointers of your own in its manifest."""
    return await _snapshot(caller, run_id, body.pointers)


@operation(http=post("/runs/resume/load", _TAG), whole_tenant=True, refuses=(404,))
async def load(caller: Caller, body: OldLoad) -> Loaded:
    """Make a run of a pack of this server; to bring another, upload it to `/v1/packs`."""
    shelf = await swept_shelf(caller)
    path = shelf.find_named(caller.identity.tenant, body.pack_path)
    try:
        restored = await restore(caller, path, body.new_run_id)
    except (Corrupt, Unsupported) as error:
        raise AsRefused(error, 422) from error
    await caller.run(restored.run_id)  # What is kept of the answer is kept with its user.
    return Loaded(ok=True, run_id=restored.run_id, ws=restored.ws)


async def gate_of(run: AsyncRun) -> str:
    """What a memory batch of the run needs, as it was booted."""
    first = await run.ledger.read(limit=1)
    config: dict[str, Any] = first[0]["payload"].get("config", {}) if first else {}
    return str(config.get("gate", "milestone"))


async def _boot(caller: Caller, given: OldRun, gate: str) -> Answer[Started]:
    if not given.objective.strip():
        raise Invalid("objective", "is blank", "say what the run is for")
    if given.thread_id:
        await caller.require_own_thread(given.thread_id)
    run = await caller.pf.runs.boot(
        given.objective,
        given.acceptance_criteria,
        given.constraints,
        task_id=given.task_id or None,
        thread_id=given.thread_id or None,
        run_id=given.run_id or None,
        user_id=caller.user(None),
        settings={"gate": gate},
        writer_id=caller.writer_id,
    )
    ws = await run.load()
    return Answer(Started(run_id=run.run_id, status=ws["status"], ws=ws), version=0)


async def _open(caller: Caller, run_id: str, words: str = "run not found") -> AsyncRun:
    try:
        return await caller.run(run_id)
    except NotFound as error:
        raise AsRefused(error, 404, words) from error


def _may_skip(caller: Caller, given: OldCommit) -> bool:
    """Past the gate goes who says so and has `admin`: the key decides, not a mode of tests."""
    return given.allow_outside_milestone and "admin" in caller.identity.rights


async def _patched(caller: Caller, run: AsyncRun, made: dict[str, Any], words: str = "") -> Patched:
    try:
        return patched(await run.apply_patch(made, writer_id=caller.writer_id))
    except Conflict as error:
        status = 412 if "if-match" in caller.request.headers else 409
        raise AsRefused(error, status, f"{words}{error}") from error


async def _snapshot(caller: Caller, run_id: str, pointers: dict[str, Any]) -> Snapshotted:
    await _open(caller, run_id)
    path = await packed(caller, run_id, pointers)
    made = info_of(path)
    return Snapshotted(
        ok=True,
        pack_id=made.pack_id,
        pack_path=path.name,
        pack_zip=path.name,
        pack_dir="",
        manifest_path="manifest.v2.1.json",
        download=made.download,
    )
