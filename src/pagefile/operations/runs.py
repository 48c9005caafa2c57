"""Runs: boot, patch, history; their ledgers and milestones."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated, Any, Literal

import msgspec

from pagefile.errors import (
    Conflict,
    Invalid,
    LimitExceeded,
    NotFound,
    revive,
)
from pagefile.operations.answer import (
    EVENTS,
    Answer,
    Events,
    Page,
    behind,
    cursor_of,
    cut,
    encoded,
    number_in,
    place_in,
)
from pagefile.operations.binder import Id, Number
from pagefile.operations.caller import Caller
from pagefile.operations.operation import delete, get, operation, patch, post
from pagefile.runs.config import RunConfig
from pagefile.runs.kinds import LEDGERS, RUNS, WORKING_SET, require_id
from pagefile.runs.ledger import Ledger
from pagefile.runs.milestones import Episodes, Milestone
from pagefile.runs.patch import PatchResult, working_set_in
from pagefile.runs.run import Run
from pagefile.runs.runs import Runs
from pagefile.runs.schema.artifacts import SCHEMA_VERSION
from pagefile.store.records import Entry

_NUMBERS = re.compile(r"expected_seq=(\d+) current_seq=(-?\d+)")
_SECONDS = Annotated[float, msgspec.Meta(ge=0, le=86_400)]


class Booted(msgspec.Struct, kw_only=True):
    """The run, and its first working set."""

    run_id: str
    status: str
    ws: dict[str, Any]


class Patched(msgspec.Struct, kw_only=True):
    """The working set after a patch, and the items that had to leave."""

    ok: bool
    ws: dict[str, Any]
    evicted: list[dict[str, Any]]
    error: None = None


class Patch(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Fields to set whole, operations on lists; `If-Match` may stand for `expected_seq`."""

    set: dict[str, Any] = {}
    ops: list[dict[str, Any]] = []
    expected_seq: int | None = None
    schema_version: str | None = msgspec.field(default=None, name="_schema_version")


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


class Recorded(msgspec.Struct, kw_only=True):
    """Where it stands in the ledger."""

    sequence_id: int


@operation(
    Runs.boot,
    http=post("/v1/runs", "runs", 201),
    takes="NewRun: A run to be booted. `gate` says what a memory batch needs to be committed.",
    says="The run.",
    refuses=(404,),
)
async def boot(
    caller: Caller,
    *,
    objective: str,
    acceptance_criteria: list[str] = [],  # noqa: B006 - the default of a field
    constraints: list[str] = [],  # noqa: B006
    run_id: str | None = None,
    task_id: str | None = None,
    thread_id: str | None = None,
    user_id: str | None = None,
    current_stage: str = "BOOT",
    config: RunConfig | None = None,
    gate: Literal["milestone", "none"] = "milestone",
) -> Answer[Booted]:
    """Start a run. An id that is taken is a conflict: nothing is ever reset."""
    if thread_id is not None:
        await caller.require_own_thread(thread_id)
    run = await caller.pf.runs.boot(
        objective,
        acceptance_criteria,
        constraints,
        task_id=task_id,
        thread_id=thread_id,
        run_id=run_id,
        user_id=user_id,
        current_stage=current_stage,
        config=config,
        settings={"gate": gate},
        writer_id=caller.writer_id,
    )
    return _booted(run.run_id, await run.load())


@operation(
    Runs.list, http=get("/v1/runs", "runs"), whole_tenant=True, says="Ids of runs, in order."
)
async def list_runs(caller: Caller, *, limit: int = 100, cursor: str | None = None) -> Page:
    """Ids of runs, in order."""
    names = await caller.pf.runs.list(after=place_in(cursor), limit=limit)
    # There may be more behind a page that is not full: not every document is a run.
    return Page(items=names, cursor=cursor_of(names[-1]) if names else None)


@operation(
    Run.load,
    http=get("/v1/runs/{run_id}", "runs"),
    gives=dict[str, Any],
    says="The working set.",
    knows=True,
)
async def get_run(
    caller: Caller, run_id: str, *, seq: Number | None = None, at: Number | None = None
) -> Answer[msgspec.Raw]:
    """A working set as it is, at sequence number `seq`, or `at` a position of the store."""
    return await working_set(caller, run_id, seq, at)


@operation(
    Run.apply_patch,
    http=patch("/v1/runs/{run_id}", "runs"),
    says="The new working set.",
    guard="expected_seq",
)
async def patch_run(
    caller: Caller, run_id: str, body: Patch, expected_seq: int | None
) -> Answer[Patched]:
    """Change the working set, if it is still at `expected_seq`."""
    if expected_seq is None:
        rule = "say which sequence number you change, or send If-Match"
        raise Invalid("expected_seq", "is missing", rule)
    made: dict[str, Any] = {
        "_schema_version": body.schema_version or SCHEMA_VERSION,
        "expected_seq": expected_seq,
        "set": body.set,
    }
    if body.ops:
        made["ops"] = body.ops
    run = await caller.run(run_id)
    done = patched(await run.apply_patch(made, writer_id=caller.writer_id))
    return Answer(done, version=done.ws["_update_seq"])


@operation(Runs.delete, http=delete("/v1/runs/{run_id}", "runs"), right="admin", says="It is gone.")
async def delete_run(caller: Caller, run_id: str) -> Deleted:
    """End a run; needs `admin`. Its id is not free again."""
    await caller.run(run_id)
    return Deleted(ok=True, deleted=await caller.pf.runs.delete(run_id))


@operation(
    Runs.fork,
    http=post("/v1/runs/{run_id}/fork", "runs", 201),
    takes="RunFork: Where to fork, and what to call it.",
    may_be_empty=True,
    says="The new run.",
)
async def fork_run(
    caller: Caller, run_id: str, *, at: int | None = None, new_run_id: str | None = None
) -> Answer[Booted]:
    """A new run that begins where another stands, or stood at a sequence number."""
    await caller.run(run_id)
    run = await caller.pf.runs.fork(run_id, at, new_run_id=new_run_id, writer_id=caller.writer_id)
    return _booted(run.run_id, await run.load())


@operation(
    Run.rollback,
    http=post("/v1/runs/{run_id}/rollback", "runs"),
    takes="Rollback: Which state to go back to.",
)
async def roll_back(caller: Caller, run_id: str, *, seq: int) -> Patched:
    """Make an earlier state the newest; nothing is erased."""
    run = await caller.run(run_id)
    result = await run.rollback(seq, writer_id=caller.writer_id)
    return Patched(ok=True, ws=result.new_ws or {}, evicted=[])


diff_run = operation(
    Run.diff,
    http=get("/v1/runs/{run_id}/diff", "runs"),
    wire={"a": Number, "b": Number},
)


@operation(Run.rebuild, http=get("/v1/runs/{run_id}/rebuild", "runs"))
async def rebuild_run(caller: Caller, run_id: str) -> Rebuilt:
    """Fold the ledger, and compare with what is stored."""
    rebuilt = await (await caller.run(run_id)).rebuild()
    return Rebuilt(ok=bool(rebuilt), ws=rebuilt.ws)


repair_run = operation(Run.repair, http=post("/v1/runs/{run_id}/repair", "runs"))


@operation(Run.evicted, http=get("/v1/runs/{run_id}/evicted", "runs"))
async def evicted(
    caller: Caller,
    run_id: str,
    *,
    q: Annotated[str, msgspec.Meta(max_length=10_000)] | None = None,
    limit: int = 100,
) -> Items:
    """What left the working set; with `q`, what holds every word of it."""
    run = await caller.run(run_id)
    found = await (run.evicted(limit=limit) if q is None else run.find_evicted(q, limit=limit))
    return Items(items=found)


@operation(Run.page_in, http=post("/v1/runs/{run_id}/evicted/{item_id}/page-in", "runs"))
async def page_in(caller: Caller, run_id: str, item_id: Id) -> Patched:
    """Bring an evicted item back to where it was."""
    run = await caller.run(run_id)
    return patched(await run.page_in(item_id, writer_id=caller.writer_id))


@operation(Run.brief, http=get("/v1/runs/{run_id}/brief", "runs"))
async def brief(
    caller: Caller,
    run_id: str,
    *,
    max_tokens: Annotated[int, msgspec.Meta(ge=1, le=10_000_000)] | None = None,
    min_confidence: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.8,
    top_k: Annotated[int, msgspec.Meta(ge=0, le=100, description="Long-term items for it.")] = 8,
) -> Brief:
    """The working set as Markdown, with long-term items, within a token budget."""
    run = await caller.run(run_id)
    hits: list[dict[str, Any]] = []
    if top_k:
        ws = await run.load()
        found = await caller.pf.items.search(ws["objective"], user_id=run.user_id, top_k=top_k)
        hits = [hit.item.to_v21() for hit in found]
    text = await run.brief(ltm_results=hits, min_confidence=min_confidence, max_tokens=max_tokens)
    return Brief(context_brief=text)


# What happened to it


@operation(
    Ledger.read, http=get("/v1/runs/{run_id}/ledger", "ledger"), says="Events, oldest first."
)
async def read_ledger(
    caller: Caller,
    run_id: str,
    *,
    limit: int = 100,
    cursor: str | None = None,
    event_type: Annotated[str, msgspec.Meta(max_length=64)] | None = None,
    tail: Annotated[int, msgspec.Meta(ge=0, le=1_000, description="The last so many.")]
    | None = None,
) -> Page:
    """Events of a run, as schema 2.1 describes them."""
    run = await caller.run(run_id)
    if tail is not None:
        return Page(items=await run.ledger.tail(tail), cursor=None)
    events = await run.ledger.read(number_in(cursor), limit=limit, event_type=event_type)
    return Page(items=events, cursor=behind(events, limit, "sequence_id"))


@operation(
    Run.log,
    http=post("/v1/runs/{run_id}/ledger", "ledger", 201),
    takes="NewEvent: An event of the agent's own.",
)
async def log_event(
    caller: Caller,
    run_id: str,
    *,
    event_type: str,
    payload: dict[str, Any] = {},  # noqa: B006 - the default of a field
    parent_event_id: str | None = None,
) -> Recorded:
    """Record an event of the agent's own."""
    run = await caller.run(run_id)
    number = await run.log(
        event_type, payload, writer_id=caller.writer_id, parent_event_id=parent_event_id
    )
    return Recorded(sequence_id=number)


@operation(
    http=get("/v1/runs/{run_id}/ledger/follow", "ledger"),
    gives_file=EVENTS,
    says="Events named `event`, their ids are sequence numbers.",
    resumes=True,
)
async def follow_ledger(
    caller: Caller, run_id: str, *, after: Number | None = None, seconds: _SECONDS | None = None
) -> Events:
    """New events as server-sent events: behind sequence number `after`, or from now on."""
    await caller.run(run_id)
    run = await asyncio.to_thread(caller.pf.sync.runs.open, run_id)
    followed = caller.pf.feed.follow_async(
        LEDGERS + run_id, None if after is None else after - 1, timeout=seconds
    )
    whole = run.ledger.whole

    def event(entry: Entry) -> tuple[int, bytes]:
        return entry.index + 1, encoded(whole(entry))

    return Events(followed, "event", event)


@operation(
    Run.milestone,
    http=post("/v1/runs/{run_id}/milestones", "ledger", 201),
    takes="NewMilestone: A milestone, and the memory batch that is committed with it.",
    may_be_empty=True,
)
async def make_milestone(
    caller: Caller,
    run_id: str,
    *,
    reason: str = "manual",
    memory_batch_id: str | None = None,
    next_entry_point: str = "",
) -> Milestone:
    """Record a milestone, and commit a memory batch with it: both or neither."""
    run = await caller.run(run_id)
    await caller.require_own_batch(memory_batch_id)
    return await run.milestone(
        reason,
        memory_batch_id=memory_batch_id,
        next_entry_point=next_entry_point,
        writer_id=caller.writer_id,
    )


@operation(
    Episodes.list,
    http=get("/v1/runs/{run_id}/episodes", "ledger"),
    says="Ids of milestones, oldest first.",
)
async def list_episodes(
    caller: Caller, run_id: str, *, limit: int = 100, cursor: str | None = None
) -> Page:
    """Ids of milestones, oldest first."""
    run = await caller.run(run_id)
    items, more = cut(await run.episodes.list(), number_in(cursor), limit)
    return Page(items=items, cursor=more)


get_episode = operation(
    Episodes.get,
    http=get("/v1/runs/{run_id}/episodes/{episode_id}", "ledger"),
)


@operation(Episodes.events, http=get("/v1/runs/{run_id}/episodes/{episode_id}/events", "ledger"))
async def episode_events(caller: Caller, run_id: str, episode_id: str) -> Page:
    """The events between the milestone before and this one, exactly."""
    run = await caller.run(run_id)
    return Page(items=await run.episodes.events(episode_id), cursor=None)


async def working_set(
    caller: Caller, run_id: str, seq: int | None = None, at: int | None = None
) -> Answer[msgspec.Raw]:
    """A working set as it is or was, as the bytes that it is stored as.

    Raises:
        NotFound: there is none; or it is somebody else's, which looks the same.
    """
    if seq is not None and at is not None:
        raise Invalid("seq", "is given beside at", "give seq or at, not both")
    version = None if seq is None else seq + 1
    name = RUNS + require_id("run_id", run_id)
    if version is None and at is None:
        found = await caller.document(name)
    else:
        found = await caller.pf.store.get(name, version=version, at=at)
    own = caller.identity.user_id
    if (
        found is None
        or found.erased
        or found.kind != WORKING_SET
        or (own is not None and found.user != own)
    ):
        raise NotFound(f"there is no run {run_id!r}", "boot it, or list the runs")
    working_set_in(found)  # Refuses one that is damaged.
    return Answer(msgspec.Raw(found.body), version=found.version - 1)


def patched(result: PatchResult) -> Patched:
    """What a patch made, or the error that its refusal is.

    Raises:
        Conflict: it was made for another sequence number. LimitExceeded: it does not fit.
        Invalid: it breaks the schema.
    """
    if result.ok:
        return Patched(ok=True, ws=result.new_ws or {}, evicted=list(result.evicted))
    text = result.error or "it was refused"
    if result.code == Conflict.code:
        found = _NUMBERS.search(text)
        expected, current = (int(found[1]), int(found[2])) if found else (0, 0)
        raise Conflict(text, target="working set", expected=expected, current=current)
    state: dict[str, Any] = {"fact": text, "next_step": ""}
    if result.code == LimitExceeded.code:
        raise revive(LimitExceeded, (text,), state)
    rule = "fix it as schema ws_patch 2.1 says"
    raise revive(Invalid, (text,), state | {"field": "patch", "rule": rule})


def _booted(run_id: str, ws: dict[str, Any]) -> Answer[Booted]:
    made = Booted(run_id=run_id, status=ws["status"], ws=ws)
    return Answer(made, version=0, location=f"/v1/runs/{run_id}")
