"""A plain-Python model of the store.

It keeps a full copy of its state for every position, because it may: it never
has to be fast. `stories.py` compares an engine with it.
"""

from __future__ import annotations

import copy
from typing import Any

from pagefile.errors import Conflict, Invalid, NotFound
from pagefile.store.batch import Append, Delete, Drop, Fork, Operation, Prune, Put

ERASED = "«erased»"
_GONE = object()


class _Record:
    """One entry or version; shared between copies of the model, as in the store."""

    def __init__(self, user: str | None, value: Any, key: str | None) -> None:
        self.user = user
        self.value = value
        self.key = key
        self.is_pruned = False


class _Log:
    def __init__(self, number: int) -> None:
        self.number = number
        self.entries: list[_Record] = []
        self.pruned = 0
        #: The number of the log it forks, and how much it shares with it.
        self.base = 0
        self.base_at = 0

    @property
    def own(self) -> list[_Record]:
        return [record for record in self.entries[self.base_at :] if not record.is_pruned]


class _State:
    """What the store shows at one position."""

    def __init__(self) -> None:
        self.logs: dict[str, _Log] = {}
        self.documents: dict[str, list[_Record]] = {}

    def clone(self) -> _State:
        twin = _State()
        for name, log in self.logs.items():
            twin.logs[name] = copy.copy(log)
            twin.logs[name].entries = list(log.entries)
        twin.documents = {name: list(versions) for name, versions in self.documents.items()}
        return twin


class Model:
    """The store, as one would write it without caring for anything but meaning."""

    def __init__(self) -> None:
        self.states = [_State()]
        #: Every record of a user (or nobody), wherever it is.
        self.records: list[_Record] = []
        #: Base and shared length of every log there has been, by number.
        self.bases: dict[int, tuple[int, int]] = {}
        #: Every log there has been, as it was last, by number.
        self.latest: dict[int, _Log] = {}
        #: Numbers of logs whose names an erasure took: nobody can ask for them any more.
        self.forgotten: set[int] = set()

    @property
    def now(self) -> _State:
        return self.states[-1]

    def commit(self, operations: list[Operation]) -> None:
        state = self.now.clone()
        self._dropping: list[_Log] = []
        added: list[_Record] = []
        prunings: list[tuple[_Log, int]] = []
        notes: set[str] = set()
        for operation in operations:
            self._apply(state, operation, added, prunings, notes)
        self.states.append(state)
        self.records += added
        for log, before in prunings:
            self._prune(state, log, before)
        for log in (*self._dropping, *state.logs.values()):
            self.latest[log.number] = log
        for log in self._dropping:
            self._free_for(state, log)

    def _apply(
        self,
        state: _State,
        operation: Operation,
        added: list[_Record],
        prunings: list[tuple[_Log, int]],
        notes: set[str],
    ) -> None:
        for name in (getattr(operation, "log", None), getattr(operation, "base", None)):
            if f"dropped {name}" in notes:
                raise Invalid("batch", "dropped in the same batch", "")
        match operation:
            case Append(log=name):
                record = _Record(operation.user, operation.value, operation.keys.get("k"))  # type: ignore[arg-type]
                if name not in state.logs:
                    state.logs[name] = self._new_log(0, 0)
                state.logs[name].entries.append(record)
                added.append(record)
                notes.add(f"appended {name}")
            case Put(document=name):
                record = _Record(operation.user, operation.value, operation.keys.get("k"))  # type: ignore[arg-type]
                state.documents.setdefault(name, []).append(record)
                added.append(record)
            case Delete(document=name):
                versions = state.documents.get(name)
                if not versions or versions[-1].value is _GONE:
                    raise NotFound("nothing to delete")
                versions.append(_Record(None, _GONE, None))
            case Fork(log=name, base=base, at=at):
                self._fork(state, name, base, at)
            case Drop(log=name):
                if name not in state.logs:
                    raise NotFound("nothing to drop")
                if f"appended {name}" in notes:
                    raise Invalid("drop", "also appended to", "")
                self._dropping.append(state.logs.pop(name))
                notes.add(f"dropped {name}")
            case Prune(before=before, log=str(name)):
                if name not in state.logs:
                    raise NotFound("nothing to prune")
                log = state.logs[name]
                before = len(log.entries) if before is None else before
                if before > len(log.entries):
                    raise Invalid("prune", "beyond the end", "")
                if f"appended {name}" in notes:
                    raise Invalid("prune", "also written to", "")
                prunings.append((log, before))

    def _new_log(self, base: int, base_at: int) -> _Log:
        log = _Log(len(self.bases) + 1)
        log.base, log.base_at = base, base_at
        self.bases[log.number] = (base, base_at)
        return log

    def _fork(self, state: _State, name: str, base: str, at: int | None) -> None:
        if base not in state.logs:
            raise NotFound("nothing to fork")
        if name in state.logs:
            raise Conflict("exists", target=name, expected=0, current=0)
        parent = state.logs[base]
        end = len(parent.entries) if at is None else at
        if not parent.pruned <= end <= len(parent.entries):
            raise Invalid("fork.at", "outside", "")
        owner = parent.number
        while self.bases[owner][0] and end <= self.bases[owner][1]:
            owner = self.bases[owner][0]
        child = state.logs[name] = self._new_log(owner, end)
        child.entries = parent.entries[:end]
        child.pruned = parent.pruned

    def _prune(self, state: _State, log: _Log, before: int) -> None:
        """What a living fork shares stays, hidden from the log itself."""
        log.pruned = max(log.pruned, before)
        shared = max((self._reach(c.number, log.number) for c in state.logs.values()), default=0)
        for record in log.entries[max(log.base_at, shared) : before]:
            record.is_pruned = True

    def _free_for(self, state: _State, dropped: _Log) -> None:
        """What bases had let go and kept for this fork alone goes with it."""
        base = dropped.base
        while base:
            ancestor = self.latest[base]
            if ancestor.pruned:
                self._prune(state, ancestor, ancestor.pruned)
            base = ancestor.base

    def _reach(self, number: int, ancestor: int) -> int:
        """How many entries of `ancestor` the log shares, directly or through other forks."""
        base, reach = self.bases[number]
        while base and base != ancestor:
            base, above = self.bases[base]
            reach = min(reach, above)
        return reach if base else 0

    def erase_user(self, user: str | None) -> None:
        """Erase what the user has, and end what is then empty."""
        doomed = [
            r for r in self.records if r.value is not ERASED and not r.is_pruned and r.user == user
        ]
        if not doomed:
            return
        marked = {id(r) for r in doomed}
        state = self.now.clone()
        self.latest |= {log.number: log for log in state.logs.values()}
        emptied = {log.number for log in self.latest.values() if _shows_nothing(log, marked)}
        self.forgotten |= emptied
        dropped = [log for log in state.logs.values() if log.number in emptied]
        state.logs = {name: log for name, log in state.logs.items() if log not in dropped}
        ended: set[int] = set()
        for name, versions in list(state.documents.items()):
            if _is_emptied(versions, marked):
                ended |= {id(r) for r in versions}
                del state.documents[name]
        self.states.append(state)
        for past in self.states:
            # The name is forgotten, so the past cannot be asked for it either.
            for name, versions in list(past.documents.items()):
                if any(id(r) in ended for r in versions):
                    del past.documents[name]
        for record in doomed:
            record.value, record.key, record.user = ERASED, None, ERASED
        for log in dropped:
            self._free_for(state, log)

    def shown_at(self, position: int) -> dict[str, Any]:
        """What a reader sees now of a position: what was pruned or erased since is gone."""
        state = self.states[position]
        logs = {
            name: [
                (i, record.value)
                for i, record in enumerate(log.entries)
                if i >= self.latest[log.number].pruned and not record.is_pruned
            ]
            for name, log in state.logs.items()
            if log.number not in self.forgotten
        }
        return {"logs": logs, "documents": shown_by_model(state)["documents"]}


def _shows_nothing(log: _Log, doomed: set[int]) -> bool:
    """Whether an erasure leaves nothing of what the log holds, and of what it shares."""
    shared = [r for r in log.entries[log.pruned : log.base_at] if not r.is_pruned]
    return _is_emptied(log.own, doomed) and all(
        r.value is ERASED or id(r) in doomed for r in shared
    )


def _is_emptied(records: list[_Record], doomed: set[int]) -> bool:
    return any(id(r) in doomed for r in records) and all(
        r.value in (ERASED, _GONE) or id(r) in doomed for r in records
    )


def shown_by_model(state: _State) -> dict[str, Any]:
    """What a reader sees."""
    logs = {
        name: [(i, r.value) for i, r in enumerate(log.entries) if i >= log.pruned]
        for name, log in state.logs.items()
    }
    documents = {
        name: (len(versions), versions[-1].value)
        for name, versions in state.documents.items()
        if versions[-1].value is not _GONE
    }
    return {"logs": logs, "documents": documents}
