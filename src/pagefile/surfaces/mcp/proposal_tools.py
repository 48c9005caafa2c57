"""Tools about long-term items: propose changes, and commit them once somebody agreed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from pagefile.errors import Forbidden
from pagefile.memory.items.proposal import no_batch
from pagefile.surfaces.mcp.budget import Capped, LeftOut
from pagefile.surfaces.mcp.caller import Caller
from pagefile.surfaces.mcp.memory_tools import UserId
from pagefile.surfaces.mcp.tool import Tool

_FURTHER = "they are committed; ask again with a larger max_tokens to see all ids"
_SCHEMA = "2.1"
_WRITER = "mcp"


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One change of what is known for the long term."""

    op: Literal["add", "supersede", "deprecate", "noop"]
    content: Annotated[str, Meta(description="What is known; why, for deprecate and noop.")]
    rationale: Annotated[str, Meta(description="Why it should be kept.")]
    type: Literal["fact", "preference", "policy", "decision", "invariant"] = "fact"
    confidence: Annotated[float, Meta(ge=0, le=1)] = 0.8
    scope: (
        Annotated[
            Literal["user", "project", "global"],
            Meta(description="Who it is about; the user, if one is named, else everybody."),
        ]
        | None
    ) = None
    project_id: str | None = None
    supersedes: Annotated[list[str], Meta(description="Ids that it replaces.")] | None = None
    target_memory_id: Annotated[str, Meta(description="The id to deprecate.")] | None = None
    source_refs: Annotated[list[str], Meta(description="Where it comes from.")] = []


class ProposeMemory(Capped, frozen=True, kw_only=True):
    changes: Annotated[list[Change], Meta(min_length=1, max_length=128)]
    user_id: UserId | None = None
    run_id: Annotated[str, Meta(description="The run that learned it.")] | None = None


class Proposed(msgspec.Struct, frozen=True):
    batch_id: str
    count: int
    expires: datetime
    problems: Sequence[str] = ()
    left_out: LeftOut | None = None


def propose(caller: Caller, given: ProposeMemory) -> Proposed:
    user = caller.user(given.user_id)
    run = None if given.run_id is None else caller.run(given.run_id)
    requests = [_request(caller, change, user) for change in given.changes]
    if run is None:
        made = caller.pf.items.propose(requests, user_id=user)
    else:  # A run's ledger tells of every step.
        made = run.memory.propose(requests, writer_id=_WRITER)
    problems = caller.pf.items.preview(made.batch_id).problems

    def told(some: Sequence[str], left: LeftOut | None) -> Proposed:
        return Proposed(made.batch_id, made.count, made.expires, some, left)

    return caller.budget.filled(problems, told, "mend these first")


def _request(caller: Caller, change: Change, user: str | None) -> dict[str, Any]:
    scope = change.scope or ("global" if user is None else "user")
    if scope != "user" and caller.identity.user is not None:
        raise Forbidden(
            f"this connection is one user's, and scope {scope!r} concerns others",
            "use scope 'user'",
        )
    fields = {
        name: value
        for name, value in msgspec.structs.asdict(change).items()
        if value is not None and name != "scope"
    }
    owner = {"user_id": user} if scope == "user" and user is not None else {}
    return {"_schema_version": _SCHEMA, "scope": scope, **fields, **owner}


class CommitMemory(Capped, frozen=True, kw_only=True):
    batch_id: Annotated[str, Meta(description="What propose_memory gave.")]
    reviewer: Annotated[str, Meta(description="Who agreed to it: a person's name.")]


class Committed(msgspec.Struct, frozen=True):
    batch_id: str
    position: int
    memory_ids: Sequence[str]
    left_out: LeftOut | None = None


def commit(caller: Caller, given: CommitMemory) -> Committed:
    batch = caller.pf.items.batch(given.batch_id)
    own = caller.identity.user
    if own is not None and batch.user_id != own:
        raise no_batch(given.batch_id)
    if batch.run_id is None:
        done = caller.pf.items.commit(given.batch_id, reviewer=given.reviewer)
    else:
        memory = caller.run(batch.run_id).memory
        done = memory.commit(given.batch_id, reviewer=given.reviewer, writer_id=_WRITER)

    def told(ids: Sequence[str], left: LeftOut | None) -> Committed:
        return Committed(done.batch_id, done.position, ids, left)

    return caller.budget.filled(done.memory_ids, told, _FURTHER)


PROPOSAL_TOOLS = (
    Tool(
        name="propose_memory",
        title="Propose long-term knowledge",
        about="Stage changes of what is known for the long term. Nothing holds before"
        " commit_memory; show the changes to a person first.",
        takes=ProposeMemory,
        gives=Proposed,
        call=propose,
    ),
    Tool(
        name="commit_memory",
        title="Commit long-term knowledge",
        about="Make a proposed batch true, all of it or nothing. Call it only after the person"
        " named as reviewer agreed.",
        takes=CommitMemory,
        gives=Committed,
        call=commit,
        destroys=True,
        repeatable=True,
    ),
)
