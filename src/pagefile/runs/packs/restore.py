"""A resume pack becomes a run again, in any store, under an id of its own.

The pack is read to its end and found sound before the store is touched. Then
it is written in bounded commits. Until the last of them, which has the newest
version of the working set, there is no such run for anybody: `open`, `list`
and `exists` do not show it, and its id is taken. If that last commit never
comes, what was written before stays unseen; `Runs.delete` removes it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pagefile.context.names import THREADS
from pagefile.errors import Conflict, Forbidden
from pagefile.memory.privacy.tombstones import Forgotten, forgotten_of
from pagefile.runs.config import config_from
from pagefile.runs.kinds import (
    BROUGHT,
    EPISODES,
    GONE,
    RESTORING,
    RUNS,
    WORKING_SET,
    made_id,
    require_id,
)
from pagefile.runs.ledger import Identity, copied
from pagefile.runs.packs.format import PackLimits, Progress, encode_json
from pagefile.runs.packs.members import PackedSlot
from pagefile.runs.packs.reader import Contents, open_pack
from pagefile.runs.run import Run
from pagefile.runs.working_set import Archive
from pagefile.store.arguments import require_callable, require_flag
from pagefile.store.batch import (
    Absent,
    Append,
    Batch,
    Condition,
    LengthIs,
    Operation,
    Put,
    VersionIs,
)
from pagefile.store.store import Store

if TYPE_CHECKING:
    from pagefile.runs.runs import Runs

#: What one commit of a restore holds at most, so that other writers are not kept waiting.
_MOST_OPERATIONS = 1_000
_MOST_BYTES = 4 * 1024 * 1024
_WRITER = "restore"


def restore_from_pack(
    runs: Runs,
    path: str | os.PathLike[str],
    *,
    new_run_id: str | None = None,
    limits: PackLimits | None = None,
    progress: Progress | None = None,
    with_items: bool = True,
) -> Run:
    """Make a run of a pack; it goes on where the packed one stood.

    The working set has the new run id, and a new thread id when the pack brings
    slots, which are put in a thread of their own. Events and milestones are as
    they were; one more event, `RUN_RESTORED`, names the pack and the run it was
    made of. Long-term items that the store has already stay as they are; without
    `with_items` none is brought, for who has not reviewed them. What was forgotten
    of a user stays so: their slots leave their places alone, their items nothing.

    Raises:
        Conflict: the run id is taken. Nothing was stored.
        Forbidden: the packed run was forgotten with its user. Nothing was stored.
        Invalid, Corrupt, LimitExceeded, Unsupported: what is wrong with the pack;
            `errors` has a class for each reason. Nothing was stored.
    """
    run_id = require_id("new_run_id", made_id("run") if new_run_id is None else new_run_id)
    require_flag("with_items", with_items)
    if progress is not None:
        require_callable("progress", progress)
    _require_free(runs._store, run_id)
    reading = None if progress is None else _half(progress, False)
    writing = None if progress is None else _half(progress, True)
    with open_pack(path, limits, reading) as contents:
        return _Restoring(runs, contents, run_id, writing, with_items).write()


def _half(progress: Progress, is_second: bool) -> Progress:
    """Reading all of it is one half of a restore, writing it the other."""
    return lambda done, total: progress(done + total if is_second else done, 2 * total)


def _require_free(store: Store, run_id: str) -> None:
    if store.get(RUNS + run_id) is not None:
        raise _taken(run_id, 1)


def _taken(run_id: str, current: int) -> Conflict:
    return Conflict(
        f"run {run_id!r} exists, or was begun",
        "choose another id",
        target=run_id,
        expected=0,
        current=current,
    )


class _Restoring:
    """One restore under way."""

    def __init__(
        self,
        runs: Runs,
        contents: Contents,
        run_id: str,
        progress: Progress | None,
        with_items: bool,
    ) -> None:
        self._store = runs._store
        self._contents = contents
        self._with_items = with_items
        self._forgotten: dict[str | None, Forgotten] = {}
        for each in (contents.report.run_id, run_id):
            self._require_remembered(each)
        self._report = contents.report
        ws = contents.ws
        thread_id = made_id("thread") if self._report.slots else ws["thread_id"]
        self._ids = {"run_id": run_id, "thread_id": thread_id}
        identity = Identity(run_id, ws["task_id"], thread_id, contents.user_id)
        self._identity = identity
        first = next(contents.events())
        config = config_from(first["payload"].get("config", {}))
        self.run = Run(self._store, identity, config, runs._items)
        self._document = RUNS + run_id
        self._archive = Archive(self._store, run_id, contents.user_id)
        self._thread = THREADS + thread_id
        self._progress = progress
        self._done = 0
        self._total = self._report.versions + self._report.events
        # What has been written, and what is to be written next.
        self._lengths = {self.run.ledger.log: 0, self._archive.log: 0, self._thread: 0}
        self._version = 0
        self._pending: list[Operation] = []
        self._when: list[Condition] = []
        self._size = 0

    def _require_remembered(self, run_id: str) -> None:
        """Refuse a run that was forgotten; one that is nobody's cannot be."""
        user_id = self._contents.user_id
        if user_id is not None and self._was_forgotten(user_id, RUNS + run_id):
            raise Forbidden(
                f"run {run_id!r} was forgotten, and is not stored again", "boot a new one"
            )

    def _was_forgotten(self, user_id: str | None, name: str) -> bool:
        if user_id not in self._forgotten:
            self._forgotten[user_id] = forgotten_of(self._store, user_id)
        return self._forgotten[user_id].among([name]) is not None

    def write(self) -> Run:
        """All of it; the last commit makes it a run."""
        last = self._write_history()
        for event in self._contents.events():
            self._add(copied(self._identity, event), counted=True)
        for item, writer in self._contents.evicted():
            self._add(self._archive.keep(item, writer))
        self._write_slots()
        for episode in self._contents.episodes():
            put = episode.put(self.run.run_id, self.run.user_id)
            self._add(put, when=Absent(put.document))
        self._write_items()
        fork = {
            "pack_id": self._report.pack_id,
            "parent_run_id": self._report.run_id,
            "thread_id": self._identity.thread_id,
        }
        self._add(self.run.ledger.event("RUN_RESTORED", fork, _WRITER), last=True)
        self._add(self._version_put(last, WORKING_SET), last=True)
        self._flush()
        return self.run

    # The parts

    def _write_history(self) -> dict[str, Any]:
        """All versions but the last, which is returned."""
        seq, held = 0, self._contents.ws
        for number, ws in self._contents.history():
            if number == held["_update_seq"]:
                continue  # To the end of the member, where its digest is tested.
            for _ in range(seq, number):
                self._add(self._version_put({}, GONE))
            state = (GONE, {}) if ws is None else (RESTORING, ws)
            self._add(self._version_put(state[1], state[0]), counted=True)
            seq = number + 1
        for _ in range(seq, held["_update_seq"]):
            self._add(self._version_put({}, GONE))
        return held

    def _version_put(self, ws: dict[str, Any], kind: str) -> Put:
        value = ws | self._ids if ws else ws
        return Put(self._document, value, self.run.user_id, kind)

    def _write_slots(self) -> None:
        log = THREADS + self._contents.ws["thread_id"]
        texts: dict[str, str] = {}
        stored: set[tuple[str, str | None]] = set()
        for slot in self._contents.slots():
            if not slot.erased and self._was_forgotten(slot.user, log):
                slot = PackedSlot(slot.index, slot.time_us, erased=True)
            if slot.usage_text:
                texts[slot.usage] = slot.usage_text
            known = (slot.usage, slot.user)
            if slot.usage in texts and known not in stored:
                # A text stands in a pack once, and in a store with each user who has it.
                stored.add(known)
                self._add_if_new(slot.put_usage(texts[slot.usage]))
            self._add(slot.append(self._thread), size=len(slot.body))

    def _write_items(self) -> None:
        """Just before the end: nobody is to meet the memories of a run that never came."""
        brought = []
        for item in self._contents.items() if self._with_items else ():
            if self._was_forgotten(item.item.user_id, item.document):
                continue
            brought.append(item.document)
            self._add_if_new(item.put())
        if brought:
            note = Put(BROUGHT + self.run.run_id, brought, self.run.user_id, "brought")
            self._add(note, last=True)

    def _add_if_new(self, put: Put) -> None:
        """What the store has already stays as it is there."""
        if self._store.get(put.document) is None:
            self._add(put, when=Absent(put.document))

    # Committing

    def _add(
        self,
        operation: Operation,
        *,
        when: Condition | None = None,
        size: int | None = None,
        counted: bool = False,
        last: bool = False,
    ) -> None:
        """One more operation; the ones of the end stay together."""
        size = _size_of(operation) if size is None else size
        is_full = len(self._pending) >= _MOST_OPERATIONS or self._size + size > _MOST_BYTES
        if is_full and self._pending and not last:
            self._flush()
        self._pending.append(operation)
        if when is not None:
            self._when.append(when)
        self._size += size
        if counted:
            self._done += 1

    def _flush(self) -> None:
        pending, when = self._pending, [*self._when, *self._unchanged()]
        self._pending, self._when, self._size = [], [], 0
        self._commit(pending, when)
        for operation in pending:
            if isinstance(operation, Append):
                self._lengths[operation.log] += 1
            elif isinstance(operation, Put) and operation.document == self._document:
                self._version += 1
        if self._progress is not None:
            self._progress(self._done, self._total)

    def _unchanged(self) -> Iterator[Condition]:
        """Nobody but us has written to what is to be the run."""
        yield VersionIs(self._document, self._version)
        for known in self._forgotten.values():
            yield VersionIs(known.document, known.version)
        for log, length in self._lengths.items():
            if log != self._thread or self._report.slots:
                yield LengthIs(log, length)

    def _commit(self, operations: list[Operation], when: list[Condition]) -> None:
        while True:
            try:
                self._store.commit(Batch(operations, when))
            except Conflict as error:
                if any(error.target == each.document for each in self._forgotten.values()):
                    raise  # Somebody was forgotten meanwhile: what was written so far stays unseen.
                known = [c for c in when if isinstance(c, Absent) and c.document == error.target]
                if not known or error.target.startswith(EPISODES):
                    raise _taken(self.run.run_id, error.current) from error
                # Somebody made the same item, or stored the same text, meanwhile: theirs stays.
                when = [c for c in when if c not in known]
                operations = [
                    o for o in operations if not (isinstance(o, Put) and o.document == error.target)
                ]
                continue
            return


def _size_of(operation: Operation) -> int:
    """How many bytes its value takes; encoding it twice costs less than weighing it in Python."""
    return len(encode_json(operation.value)) if isinstance(operation, (Put, Append)) else 0
