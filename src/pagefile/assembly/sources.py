"""What a prompt is about: a run, a thread, or nothing but a user's memory."""

from __future__ import annotations

from typing import Any

import msgspec

from pagefile.assembly.fixed_part import RunState
from pagefile.context.names import log_of
from pagefile.errors import Forbidden, Invalid, NotFound, shown
from pagefile.memory.owner import require_user
from pagefile.runs.names import RUNS, WORKING_SET, require_id
from pagefile.runs.tokens import TokenCounter, counter_named
from pagefile.store.snapshot import Snapshot

_DEFAULT_COUNTER = "chars/4"


class Source(msgspec.Struct, frozen=True):
    """Where a prompt comes from; `name` is the stream's, empty when there is none."""

    name: str
    user_id: str | None
    thread_id: str | None = None
    run: RunState | None = None
    #: Whose run it is: in its thread, what other users said is not shown.
    only_user: str | None = None


def source_of(past: Snapshot, given: Any, user_id: str | None) -> Source:
    """What the caller means: a run, a thread or its id, or None.

    A run, sync or awaited, is known by its `run_id`, a view of a thread by its
    `thread_id`; both are read here, at the position.

    Raises:
        NotFound: there is no such run or thread at the position.
        Forbidden: the run is another user's.
    """
    require_user(user_id)
    if given is None:
        return Source("", user_id)
    run_id = getattr(given, "run_id", None)
    if run_id is not None:
        return _run(past, require_id("run_id", run_id), user_id)
    thread_id = given if isinstance(given, str) else getattr(given, "thread_id", None)
    if thread_id is None:
        raise Invalid("source", f"{shown(given)} is none", "give a run, a thread, its id, or None")
    log = log_of(thread_id)
    if not past.has_log(log):
        raise NotFound(f"there is no thread {shown(thread_id)}", "append to it first")
    return Source(log, user_id, thread_id)


def _run(past: Snapshot, run_id: str, user_id: str | None) -> Source:
    name = RUNS + run_id
    found = past.get(name)
    if found is None or found.erased or found.kind != WORKING_SET:
        raise NotFound(f"there is no run {run_id!r}", "boot it, or list the runs")
    if user_id is None:
        user_id = found.user
    elif found.user is not None and found.user != user_id:
        raise Forbidden(f"run {run_id!r} is another user's", "leave user_id out, or give the run's")
    ws = found.value
    thread_id = ws["thread_id"] if past.has_log(log_of(ws["thread_id"])) else None
    return Source(name, user_id, thread_id, RunState(ws, found), found.user)


def counter_of(given: TokenCounter | str | None, source: Any) -> TokenCounter:
    """The counter that was named or given; a run's own when none was."""
    if given is None:
        config = getattr(source, "config", None)
        given = getattr(config, "token_counter", _DEFAULT_COUNTER)
    if isinstance(given, str):
        return counter_named(given)
    if not callable(getattr(given, "count", None)) or not isinstance(
        getattr(given, "name", None), str
    ):
        raise Invalid("counter", shown(given), "give the name of a counter, or one with count()")
    return given
