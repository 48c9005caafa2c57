"""All runs of a tenant: boot, open, list, fork, delete."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pagefile.context.names import log_of
from pagefile.context.slot import is_anothers
from pagefile.errors import Conflict, Corrupt, Forbidden, Invalid, NotFound, shown
from pagefile.memory.items.store import LongTermItems
from pagefile.runs.config import RunConfig, config_from, redact
from pagefile.runs.eviction import fit
from pagefile.runs.kinds import (
    BROUGHT,
    EPISODES,
    EVICTED,
    LEDGERS,
    RUNS,
    WORKING_SET,
    made_id,
    require_id,
)
from pagefile.runs.ledger import Identity, body_of, commit_unless_forgotten
from pagefile.runs.patch import WorkingSet, working_set_in
from pagefile.runs.rebuild import identity_told
from pagefile.runs.run import Run
from pagefile.runs.schema import artifacts
from pagefile.store.batch import (
    Batch,
    Condition,
    Delete,
    Drop,
    Fork,
    LengthIs,
    Operation,
    Prune,
    Put,
    VersionIs,
)
from pagefile.store.records import Document
from pagefile.store.store import Store

if TYPE_CHECKING:
    from pagefile.runs.packs.format import PackLimits, PackReport, Progress

_PAGE = 1_000
_ATTEMPTS = 1_000
#: How many of a thread's first and last slots say whose it is.
_LOOKED_AT = 100


class Runs:
    """The runs of one store."""

    def __init__(self, store: Store, items: LongTermItems | None = None) -> None:
        self._store = store
        self._items = LongTermItems(store) if items is None else items

    def boot(
        self,
        objective: str,
        acceptance_criteria: Sequence[str] = (),
        constraints: Sequence[str] = (),
        *,
        task_id: str | None = None,
        thread_id: str | None = None,
        run_id: str | None = None,
        user_id: str | None = None,
        current_stage: str = "BOOT",
        config: RunConfig | None = None,
        settings: Mapping[str, Any] | None = None,
        writer_id: str = "api",
    ) -> Run:
        """Start a run: its working set at sequence 0, and its first event, in one commit.

        `settings` are recorded with the start, secrets redacted.

        Raises:
            Conflict: the run id is taken. Forbidden: it is a user's run, and the thread
            begins or ends with what others said, or one of its id was forgotten.
            Invalid, LimitExceeded: nothing was stored.
        """
        chosen = RunConfig() if config is None else config
        if not isinstance(chosen, RunConfig):
            raise Invalid("config", f"{shown(config)} is no RunConfig", "give RunConfig(…)")
        if settings is not None and not isinstance(settings, Mapping):
            raise Invalid("settings", f"{shown(settings)} is no mapping", "give a dict")
        identity = Identity(
            require_id("run_id", made_id("run") if run_id is None else run_id),
            require_id("task_id", made_id("task") if task_id is None else task_id),
            require_id("thread_id", made_id("thread") if thread_id is None else thread_id),
            user_id,
        )
        self._require_own_thread(identity)
        ws = _initial(identity, objective, acceptance_criteria, constraints, current_stage)
        artifacts.check("working_set", ws)
        fit(ws, chosen.budget, chosen.counter())
        recorded = redact(dict(settings or {})) | chosen.to_json()
        return self._start(identity, chosen, ws, {"config": recorded}, writer_id)

    def _require_own_thread(self, identity: Identity) -> None:
        """Refuse a user's run where others are seen to speak, at either end of the thread.

        It is a courtesy: others may speak there tomorrow. What shows a user's run
        (prompts, packs) leaves out what others said, wherever in the thread it is.
        """
        try:
            log = log_of(identity.thread_id)
        except Invalid:
            return
        if identity.user_id is None or not self._store.has_log(log):
            return
        found = [*self._store.read(log, limit=_LOOKED_AT), *self._store.read(log, -_LOOKED_AT)]
        if any(is_anothers(entry, identity.user_id) for entry in found):
            raise Forbidden(
                f"others speak in thread {identity.thread_id!r}", "choose another thread_id"
            )

    def _start(
        self,
        identity: Identity,
        config: RunConfig,
        ws: WorkingSet,
        payload: Mapping[str, Any],
        writer_id: str,
        more: Sequence[tuple[str, Mapping[str, Any]]] = (),
        beside: Sequence[Operation] = (),
    ) -> Run:
        run = Run(self._store, identity, config, self._items)
        started = run.ledger.event("RUN_START", {**payload, "working_set": ws}, writer_id)
        operations: list[Operation] = [
            Put(RUNS + identity.run_id, ws, identity.user_id, WORKING_SET),
            started,
            *(run.ledger.event(kind, what, writer_id) for kind, what in more),
            *beside,
        ]
        # Never written, not merely absent: sequence numbers and versions go together.
        is_new: list[Condition] = [
            VersionIs(RUNS + identity.run_id, 0),
            LengthIs(run.ledger.log, 0),
        ]
        try:
            commit_unless_forgotten(self._store, identity, Batch(operations, is_new))
        except Conflict as error:
            raise self._taken(identity, error) from error
        return run

    def _taken(self, identity: Identity, error: Conflict) -> Conflict:
        """What is said of a run id that is taken: to a user, nothing of another's run but that."""
        found = self._store.get(RUNS + identity.run_id)
        fact, next_step, current = "exists", "open it, or choose another id", error.current
        if identity.user_id is not None and (found is None or found.user != identity.user_id):
            fact, next_step, current = "is taken", "choose another id", 1
        elif found is None:
            fact, next_step = "was deleted", "choose another id: it stays taken"
        return Conflict(
            f"run {identity.run_id!r} {fact}",
            next_step,
            target=identity.run_id,
            expected=0,
            current=current,
        )

    def open(self, run_id: str) -> Run:
        """A run that was booted before, in whatever process.

        Raises:
            NotFound: there is no such run.
        """
        name = RUNS + require_id("run_id", run_id)
        found = self._store.get(name)
        first = self._store.read(LEDGERS + run_id, limit=1)
        if not _is_run(found) or not first:
            raise NotFound(f"there is no run {run_id!r}", "boot it, or list the runs")
        assert found is not None
        try:
            ws = working_set_in(found)
            identity = Identity(run_id, ws["task_id"], ws["thread_id"], found.user)
        except Corrupt:  # Whoever loads it is told; its ledger is there, and repairs it.
            identity = identity_told(self._store, run_id, found.user)
        recorded = {} if first[0].erased else body_of(first[0])["payload"].get("config", {})
        return Run(self._store, identity, config_from(recorded), self._items)

    def list(self, *, after: str = "", limit: int = 100) -> list[str]:
        """Ids of runs, in order."""
        if type(after) is not str:
            raise Invalid("after", f"{shown(after)} is no run id", "give the last id of a page")
        names = self._store.names(
            "document", prefix=RUNS, after=RUNS + after if after else "", limit=limit
        )
        return [name.removeprefix(RUNS) for name in names if _is_run(self._store.get(name))]

    def exists(self, run_id: str) -> bool:
        return _is_run(self._store.get(RUNS + require_id("run_id", run_id)))

    def fork(
        self,
        run_id: str,
        at: int | None = None,
        *,
        new_run_id: str | None = None,
        writer_id: str = "api",
    ) -> Run:
        """A new run that begins where another stands, or stood at sequence `at`.

        What had left by then can be found and paged in there too.
        """
        parent = self.open(run_id)
        with parent.recording("fork", writer_id):
            ws = parent.load() if at is None else parent.at(at)
            seq = ws["_update_seq"]
            made = made_id("run") if new_run_id is None else new_run_id
            identity = Identity(
                require_id("new_run_id", made), ws["task_id"], ws["thread_id"], parent.user_id
            )
            shared = parent._archive.length_at(parent.ledger, seq)
            ws = ws | {"run_id": identity.run_id, "_update_seq": 0}
            origin = {"parent_run_id": run_id, "at_seq": seq}
            return self._start(
                identity,
                parent.config,
                ws,
                {"config": parent.config.to_json(), "parent": origin},
                writer_id,
                [("RUN_FORKED", origin)],
                [Fork(EVICTED + identity.run_id, EVICTED + run_id, shared)] if shared else [],
            )

    def restore_from_pack(
        self,
        path: str | os.PathLike[str],
        new_run_id: str | None = None,
        *,
        limits: PackLimits | None = None,
        progress: Progress | None = None,
        with_items: bool = True,
    ) -> Run:
        """Make a run of a resume pack; everything is checked before anything is stored.

        Without `with_items` its long-term items stay out: they were reviewed elsewhere.
        """
        from pagefile.runs.packs.restore import restore_from_pack

        return restore_from_pack(
            self,
            path,
            new_run_id=new_run_id,
            limits=limits,
            progress=progress,
            with_items=with_items,
        )

    def verify_pack(
        self,
        path: str | os.PathLike[str],
        *,
        limits: PackLimits | None = None,
        progress: Progress | None = None,
    ) -> PackReport:
        """Check a resume pack without storing anything; raises what is wrong with it."""
        from pagefile.runs.packs.reader import verify_pack

        return verify_pack(path, limits, progress=progress)

    def import_jsonl(
        self,
        path: str | os.PathLike[str],
        *,
        new_run_id: str | None = None,
        user_id: str | None = None,
    ) -> Run:
        """Make a run of an exported ledger; everything is checked before anything is stored.

        The run is `user_id`'s, or nobody's: the ledger does not say whose it was.
        """
        from pagefile.runs.ledger_import import import_jsonl

        return import_jsonl(self, path, new_run_id=new_run_id, user_id=user_id)

    def delete(self, run_id: str) -> bool:
        """End a run: working set, ledger, episodes and what was evicted; True if there was one.

        Others who change the run meanwhile make it try again.
        Its id is not free again. To remove the content for good, erase its user or logs.
        """
        name, ledger = RUNS + require_id("run_id", run_id), LEDGERS + run_id
        for _ in range(_ATTEMPTS):
            found, length = self._store.get(name), self._store.length(ledger)
            if found is None:
                return False
            operations: list[Operation] = [Delete(name)]
            for log in (ledger, EVICTED + run_id):
                if self._store.has_log(log):
                    operations += [Prune(None, log=log), Drop(log)]
            if self._store.get(BROUGHT + run_id) is not None:
                operations.append(Delete(BROUGHT + run_id))
            operations += [Delete(episode) for episode in self._episodes(run_id)]
            # What evicts writes a version, and a milestone an event: nothing is left behind.
            unchanged: list[Condition] = [VersionIs(name, found.version), LengthIs(ledger, length)]
            try:
                self._store.commit(Batch(operations, unchanged))
            except (Conflict, NotFound) as error:
                refusal = error
                continue
            return True
        raise refusal

    def _episodes(self, run_id: str) -> Iterator[str]:
        prefix, after = f"{EPISODES}{run_id}/", ""
        while True:
            names = self._store.names("document", prefix=prefix, after=after, limit=_PAGE)
            yield from names
            if len(names) < _PAGE:
                return
            after = names[-1]


def _is_run(found: Document | None) -> bool:
    """Whether the document is a run; one that is being restored, or is erased, is none."""
    return found is not None and not found.erased and found.kind == WORKING_SET


def _initial(
    identity: Identity,
    objective: str,
    acceptance_criteria: Sequence[str],
    constraints: Sequence[str],
    current_stage: str,
) -> WorkingSet:
    for field, value in (
        ("acceptance_criteria", acceptance_criteria),
        ("constraints", constraints),
    ):
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise Invalid(field, "is no list", "give a list of texts")
    return {
        "_schema_version": artifacts.SCHEMA_VERSION,
        "_update_seq": 0,
        "task_id": identity.task_id,
        "thread_id": identity.thread_id,
        "run_id": identity.run_id,
        "status": "BOOT",
        "objective": objective,
        "acceptance_criteria": list(acceptance_criteria),
        "current_stage": current_stage,
        "next_action": "",
        "constraints": list(constraints),
        "artifact_refs": [],
        "blockers": [],
        "last_action_summary": "",
        "pinned_context": [],
        "sliding_context": [],
    }
