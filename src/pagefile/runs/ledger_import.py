"""A run from an exported ledger: the events tell every state, so they are all it takes.

They also tell what left the working set, and all of each milestone: those are
stored again with the events. Only slots and long-term items are not in a ledger.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from pagefile.errors import Conflict, Invalid, shown
from pagefile.runs.config import RunConfig, config_from
from pagefile.runs.kinds import RESTORING, RUNS, WORKING_SET, is_id, made_id, path_from, require_id
from pagefile.runs.ledger import Identity, copied, require_lines, require_remembered
from pagefile.runs.milestones import LAST_EVENTS, body_of_episode, digest_of, summary_of
from pagefile.runs.packs.format import encode_json
from pagefile.runs.packs.members import PackedEpisode
from pagefile.runs.patch import WorkingSet
from pagefile.runs.rebuild import Fold
from pagefile.runs.run import Run
from pagefile.runs.schema.timestamps import parse_time
from pagefile.runs.working_set import Archive
from pagefile.store.batch import Append, Batch, Condition, LengthIs, Operation, Put, VersionIs
from pagefile.store.codec.sort_key import moment

if TYPE_CHECKING:
    from pagefile.runs.runs import Runs

_MOST_OPERATIONS = 1_000
_MOST_BYTES = 4 * 1024 * 1024
_WRITER = "import"
Event = dict[str, Any]


def import_jsonl(
    runs: Runs,
    path: str | os.PathLike[str],
    *,
    new_run_id: str | None = None,
    user_id: str | None = None,
) -> Run:
    """Make a run of the events in a file that `Ledger.export_jsonl` wrote.

    Every line is read and folded before anything is stored. The run becomes
    visible with the last commit. It is nobody's, or `user_id`'s: an exported
    ledger does not say whose it was.

    Raises:
        Invalid: a line is no event, the numbers have a gap, or the events do not
            tell the working set. Conflict: the run id is taken. Forbidden: the run
            was forgotten with this user, or others speak in its thread. Nothing was stored.
    """
    run_id = require_id("new_run_id", made_id("run") if new_run_id is None else new_run_id)
    file = path_from(path)
    if file is None:
        raise Invalid("path", f"{shown(path)} is no path", "give one that export_jsonl wrote")
    known = _read_through(file)
    start = known.first["payload"]["working_set"]
    identity = Identity(run_id, start["task_id"], start["thread_id"], user_id)
    runs._require_own_thread(identity)
    for each in (known.first["run_id"], run_id):
        require_remembered(runs._store, each, user_id)
    run = Run(runs._store, identity, known.config, runs._items)
    return _Import(run, known).write(file)


class _Known(msgspec.Struct, frozen=True):
    """What is known of a file that was read to its end."""

    first: Event
    config: RunConfig
    #: The states that were gone back to.
    wanted: frozenset[int]
    last_seq: int


class _Import:
    """One import under way."""

    def __init__(self, run: Run, known: _Known) -> None:
        self._run = run
        self._known = known
        self._document = RUNS + run.run_id
        self._archive = Archive(run._store, run.run_id, run.user_id)
        self._milestones = _Milestones(run)
        # What has been written, and what is to be written next.
        self._version = 0
        self._lengths = {run.ledger.log: 0, self._archive.log: 0}
        self._pending: list[Operation] = []
        self._size = 0

    def write(self, file: Path) -> Run:
        """All of it; the last commit makes it a run."""
        run, known = self._run, self._known
        fold = Fold(known.config.most_pinned, known.wanted)
        held: WorkingSet | None = None
        for event in _events(file):
            if len(self._pending) >= _MOST_OPERATIONS or self._size >= _MOST_BYTES:
                self._flush()
            self._add(copied(run._identity, event))
            if fold.take(event["event_type"], event["payload"]) and fold.ws is not None:
                if held is not None:
                    self._add(self._state(held, RESTORING))
                held = fold.ws
            for item in fold.left:
                self._add(self._archive.keep(item, event["writer_id"]))
            if (put := self._milestones.take(event, fold.ws)) is not None:
                self._add(put)
        assert held is not None
        origin = {"parent_run_id": known.first["run_id"], "at_seq": known.last_seq}
        self._add(run.ledger.event("RUN_FORKED", origin, _WRITER))
        self._add(self._state(held, WORKING_SET))
        self._flush()
        return run

    def _state(self, ws: WorkingSet, kind: str) -> Put:
        return Put(self._document, ws | {"run_id": self._run.run_id}, self._run.user_id, kind)

    def _add(self, operation: Append | Put) -> None:
        self._pending.append(operation)
        self._size += len(encode_json(operation.value))

    def _flush(self) -> None:
        pending, self._pending, self._size = self._pending, [], 0
        when: list[Condition] = [VersionIs(self._document, self._version)]
        when += [LengthIs(log, length) for log, length in self._lengths.items()]
        try:
            self._run._store.commit(Batch(pending, when))
        except Conflict as error:
            raise Conflict(
                f"run {self._run.run_id!r} exists, or was begun",
                "choose another id",
                target=self._run.run_id,
                expected=0,
                current=error.current,
            ) from error
        for operation in pending:
            if isinstance(operation, Append):
                self._lengths[operation.log] += 1
            elif isinstance(operation, Put) and operation.document == self._document:
                self._version += 1


class _Milestones:
    """The episodes that the events tell of, each as it was made."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._before: WorkingSet | None = None
        self._counts: Counter[str] = Counter()
        self._last: deque[tuple[str, datetime]] = deque(maxlen=LAST_EVENTS)
        self._first = 1
        self._commit: Event | None = None
        self._made: set[str] = set()

    def take(self, event: Event, ws: WorkingSet | None) -> Put | None:
        """The episode that this event tells of, if it does."""
        kind, payload = event["event_type"], event["payload"]
        if self._before is None:
            self._before = ws
        if kind == "MEMORY_COMMIT" and "milestone" in payload:
            self._commit = event  # Of the same commit as the milestone, so it is no part of it.
            return None
        if kind != "MILESTONE":
            self._counts[kind] += 1
            self._last.append((kind, moment(parse_time(event["timestamp"]))))
            return None
        put = None if ws is None else self._episode(event, ws)
        self._before, self._first, self._commit = ws, event["sequence_id"] + 1, None
        self._counts.clear()
        self._last.clear()
        return put

    def _episode(self, event: Event, after: WorkingSet) -> Put | None:
        payload, commit = event["payload"], self._commit
        episode_id = payload.get("episode_id", "")
        if not is_id(episode_id) or episode_id in self._made:
            return None
        self._made.add(episode_id)
        with_memory = commit is not None and commit["payload"]["milestone"] == episode_id
        ids = commit["payload"]["memory_ids"] if commit is not None and with_memory else []
        body = body_of_episode(
            episode_id,
            summary_of(self._counts, list(self._last)),
            self._before or after,
            after,
            ids,
            payload.get("next_entry_point", ""),
        )
        whole = body | {"created_at": event["timestamp"]}
        last = event["sequence_id"] - (2 if with_memory else 1)
        packed = PackedEpisode(whole, event["writer_id"], self._first, last, digest_of(body))
        return packed.put(self._run.run_id, self._run.user_id)


def _events(file: Path) -> Iterator[Event]:
    with file.open(encoding="utf-8", errors="strict") as lines:
        try:
            yield from require_lines(lines)
        except UnicodeDecodeError as error:
            raise Invalid("file", f"is no UTF-8 text ({error})", "export it again") from error


def _read_through(file: Path) -> _Known:
    """Every line, as an event and as a part of the whole."""
    if not file.is_file():
        raise Invalid("path", f"there is no file {file}", "give one that export_jsonl wrote")
    first: Event | None = None
    wanted: set[int] = set()
    for number, event in enumerate(_events(file), 1):
        if event["sequence_id"] != number:
            found = event["sequence_id"]
            raise Invalid(f"line {number}", f"has sequence_id {found}", "export the whole ledger")
        first = first or event
        if event["event_type"] == "WS_ROLLBACK":
            wanted.add(event["payload"]["to_seq"])
    if first is None or "working_set" not in first["payload"]:
        raise Invalid("line 1", "does not start a run", "export the ledger from its beginning")
    config = config_from(first["payload"].get("config", {}))
    fold = Fold(config.most_pinned, wanted)
    states = 0
    for number, event in enumerate(_events(file), 1):
        if not fold.take(event["event_type"], event["payload"]):
            continue
        # A state's number is its version's, so none may be missing or told twice.
        if fold.ws is None or fold.ws["_update_seq"] != states:
            raise Invalid(f"line {number}", "does not follow from what came before", "export again")
        states += 1
    assert fold.ws is not None
    return _Known(first, config, frozenset(wanted), int(fold.ws["_update_seq"]))
