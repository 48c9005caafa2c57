"""What runs store, under which names, and what erasure and export do with it.

Shapes are checked as far as their readers depend on them.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from pathlib import Path
from typing import Any

import msgspec

from pagefile.errors import Invalid, shown
from pagefile.memory.items import item as run_events
from pagefile.memory.items.item import Place
from pagefile.store import clock
from pagefile.store.batch import Append, Put
from pagefile.store.codec.decoder import convert
from pagefile.store.kinds import Kind, require, require_bare

# Where runs keep their things in a store, and what may name a run.


#: Documents and logs that memory writes into, too: working sets, and events of runs.
RUNS, LEDGERS = run_events.RUNS, run_events.LEDGERS
#: Logs: what left a working set to respect its budget.
EVICTED = "evicted/"
#: Documents: the milestones of each run.
EPISODES = "episode/"
#: Documents: which long-term items came with a run that was restored from a pack.
BROUGHT = "brought/"

#: Kinds of versions of a run's document. While a run is being restored its last one is not
#: a working set yet, so nobody takes it for a run; a gone one only keeps the numbers right.
WORKING_SET = "working_set"
RESTORING = "restoring"
GONE = "gone"

#: What the id of a run, a task, a milestone is made of.
ID = "[A-Za-z0-9_-]{1,64}"
_ID = re.compile(ID)


def is_id(value: object) -> bool:
    """Whether it is safe in any name, path or address."""
    return type(value) is str and _ID.fullmatch(value) is not None


def require_id(field: str, value: object) -> str:
    """An id, as `is_id` knows one."""
    if type(value) is not str or not is_id(value):
        raise Invalid(
            field,
            f"{shown(value)} is no id",
            "use 1 to 64 letters, digits, '_' and '-'",
        )
    return value


def path_from(path: object) -> Path | None:
    """A path that the system can be asked about; None for what is none, or too long for one."""
    told = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    if not isinstance(told, str) or "\x00" in told:
        return None
    try:
        os.stat(told)
    except UnicodeEncodeError:
        return None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return None
    return Path(told)


def made_id(prefix: str) -> str:
    """A new id: the prefix and 32 hexadecimal digits."""
    return f"{prefix}_{clock.uuid4().hex}"


def episode_name(run_id: str, episode_id: str) -> str:
    """The document of one milestone."""
    return f"{EPISODES}{run_id}/{episode_id}"


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
