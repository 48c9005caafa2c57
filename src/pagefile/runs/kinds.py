"""What runs store under which name, and when a record of an import is one.

Shapes are checked as far as their readers depend on them.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any

import msgspec

from pagefile.memory.items.item import Place
from pagefile.runs.names import (
    BROUGHT,
    EPISODES,
    EVICTED,
    GONE,
    ID,
    LEDGERS,
    RESTORING,
    RUNS,
    WORKING_SET,
)
from pagefile.store.batch import Append, Put
from pagefile.store.codec.decoder import convert
from pagefile.store.kinds import Kind, require, require_bare


class _RunForm(msgspec.Struct, frozen=True):
    run_id: str
    task_id: str
    thread_id: str
    status: str
    objective: str
    next_action: str
    current_stage: str
    last_action_summary: str
    acceptance_criteria: list[str]
    constraints: list[str]
    blockers: list[str]
    artifact_refs: list[Any]
    pinned_context: list[_ContextItem]
    sliding_context: list[_ContextItem]
    update_seq: int = msgspec.field(name="_update_seq")


class _ContextItem(msgspec.Struct, frozen=True):
    id: str
    content: str


class _EventForm(msgspec.Struct, frozen=True):
    event_id: str
    parent_event_id: str | None
    payload: dict[str, Any]


class _MilestoneForm(msgspec.Struct, frozen=True):
    episode_id: str
    summary: str
    ws_before: dict[str, Any]
    ws_after: dict[str, Any]
    memory_commits: list[str]
    next_entry_point: str


class _MilestoneNotes(msgspec.Struct, frozen=True):
    first: int
    last: int
    digest: str


def _run(given: Put, user: str | None, _: bool) -> None:
    require_bare(given)
    require(given.kind in (WORKING_SET, RESTORING, GONE), "is of another kind")
    if given.kind == GONE:
        require(given.value == {}, "is not the end of a run")
        return
    form = convert(given.value, _RunForm)
    require(given.document == RUNS + form.run_id, "stands in another place than it says")
    for name in (form.task_id, form.thread_id):
        require(re.fullmatch(ID, name), "names no task or no thread")


def _event(given: Append, user: str | None, _: bool) -> None:
    convert(given.value, _EventForm)
    require(given.kind and dict(given.keys) == {"type": given.kind}, "has other keys")


def _evicted(given: Append, user: str | None, _: bool) -> None:
    item = convert(given.value, _ContextItem)
    digest = hashlib.sha256(item.id.encode()).hexdigest()
    require(dict(given.keys) == {"item": digest}, "has other keys than it would get")


def _milestone(given: Put, user: str | None, _: bool) -> None:
    require_bare(given)
    form = convert(given.value, _MilestoneForm)
    convert(dict(given.notes), _MilestoneNotes)
    require(given.document.endswith(f"/{form.episode_id}"), "stands in another place")


def _brought(given: Put, user: str | None, own_only: bool) -> None:
    require_bare(given)
    names = convert(given.value, list[str])
    if own_only and user is not None:
        own = Place("user", user).document("")
        require(all(name.startswith(own) for name in names), "names items of others")


KINDS = (
    Kind(
        LEDGERS,
        "the events of a run",
        "log",
        form=ID,
        counted_as="events",
        run_part="events",
        own=True,
        check=_event,
    ),
    Kind(
        RUNS,
        "the working set of a run",
        form=ID,
        counted_as="runs",
        run_part="states",
        own=True,
        check=_run,
    ),
    Kind(
        EVICTED,
        "what left the working set of a run",
        "log",
        form=ID,
        run_part="evicted items",
        own=True,
        check=_evicted,
    ),
    Kind(
        EPISODES,
        "a milestone of a run",
        form=f"{ID}/{ID}",
        counted_as="milestones",
        run_part="milestones",
        own=True,
        check=_milestone,
    ),
    Kind(
        BROUGHT,
        "which long-term items came with a restored run",
        form=ID,
        run_part="brought items",
        own=True,
        check=_brought,
    ),
)
