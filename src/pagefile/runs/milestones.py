"""Milestones of a run: what it had become, what happened on the way, where to go on."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, Protocol

import msgspec

from pagefile.errors import Conflict, Corrupt, Invalid, NotFound
from pagefile.runs.kinds import EPISODES, RUNS, episode_name, made_id, require_id
from pagefile.runs.ledger import body_of
from pagefile.runs.patch import diff
from pagefile.runs.schema import artifacts
from pagefile.runs.working_set import WorkingRun
from pagefile.store import codec
from pagefile.store.batch import Condition, LengthIs, Operation, Put, VersionIs
from pagefile.store.records import Document, Entry
from pagefile.store.store import Store

_ATTEMPTS = 100
LAST_EVENTS = 5
_MOST_SUMMARY = 1_200


class Plan(Protocol):
    """A memory commit that is to happen together with a milestone."""

    @property
    def operations(self) -> Sequence[Operation]: ...
    @property
    def conditions(self) -> Sequence[Condition]: ...
    @property
    def memory_ids(self) -> Sequence[str]: ...


class Memory(Protocol):
    """The part of long-term memory that a milestone needs."""

    def plan_commit(self, batch_id: str, *, run_id: str, milestone: str) -> Plan: ...


class Milestone(msgspec.Struct, frozen=True):
    """What a milestone made; `digest` is SHA-256 of the episode's content."""

    episode_id: str
    committed_memory_ids: tuple[str, ...]
    first_sequence_id: int
    last_sequence_id: int
    digest: str = ""


class Episodes:
    """The milestones of one run; none is ever changed."""

    def __init__(self, store: Store, run: WorkingRun, memory: Memory) -> None:
        self._store = store
        self._run = run
        self._memory = memory

    def create(
        self,
        reason: str = "manual",
        *,
        memory_batch_id: str | None = None,
        next_entry_point: str = "",
        writer_id: str = "api",
    ) -> Milestone:
        """Record a milestone, and commit a memory batch with it: both or neither.

        Raises:
            NotFound, Conflict, Invalid: the memory batch cannot be committed; nothing was stored.
        """
        with self._run.recording("milestone", writer_id):
            for _ in range(_ATTEMPTS):
                made = self._create(reason, memory_batch_id, next_entry_point, writer_id)
                if made is not None:
                    return made
            raise Conflict(
                f"{self._run!r} changed all the time",
                "try again when it is quieter",
                target=self._run.run_id,
                expected=0,
                current=len(self._run.ledger),
            )

    def _create(
        self, reason: str, memory_batch_id: str | None, next_entry_point: str, writer_id: str
    ) -> Milestone | None:
        """None when somebody patched, logged or decided in between: it has to tell of that too."""
        run, ledger = self._run, self._run.ledger
        length, after = len(ledger), run.load()
        last = ledger.last_of_type("MILESTONE")
        start = 0 if last is None else last.index + 1
        before = self._oldest(after) if last is None else self._before(last, after)
        entries = [entry for entry in ledger.entries(start, length) if not entry.erased]
        kinds = [(entry.kind, entry.time) for entry in entries]
        episode_id = made_id("ep")
        operations: list[Operation] = []
        conditions: list[Condition] = [LengthIs(ledger.log, length)]
        conditions.append(VersionIs(RUNS + run.run_id, after["_update_seq"] + 1))
        ids: tuple[str, ...] = ()
        if memory_batch_id is not None:
            plan = self._memory.plan_commit(
                memory_batch_id, run_id=run.run_id, milestone=episode_id
            )
            ids = tuple(plan.memory_ids)
            committed = {
                "batch_id": memory_batch_id,
                "memory_ids": list(ids),
                "milestone": episode_id,
            }
            operations += plan.operations
            operations.append(ledger.event("MEMORY_COMMIT", committed, writer_id))
            conditions += plan.conditions
        summary = summary_of(Counter(kind for kind, _ in kinds), kinds[-LAST_EVENTS:])
        body = body_of_episode(episode_id, summary, before, after, ids, next_entry_point)
        artifacts.check("episode", body | {"created_at": "1970-01-01T00:00:00Z"})
        digest = digest_of(body)
        notes = {"first": start + 1, "last": length, "digest": digest}
        name = episode_name(run.run_id, episode_id)
        operations.append(Put(name, body, run.user_id, "episode", writer_id, notes=notes))
        told = {"reason": reason, "episode_id": episode_id}
        if next_entry_point:
            told["next_entry_point"] = next_entry_point
        operations.append(ledger.event("MILESTONE", told, writer_id))
        try:
            run.commit(operations, conditions)
        except Conflict:
            return None
        return Milestone(episode_id, ids, start + 1, length, digest)

    def _before(self, last: Entry, after: dict[str, Any]) -> dict[str, Any]:
        try:
            return self._after(body_of(last)["payload"].get("episode_id", ""))
        except (NotFound, Invalid):
            # Packs of older formats tell of milestones that they do not hold.
            return self._oldest(after)

    def _oldest(self, after: dict[str, Any]) -> dict[str, Any]:
        """The first state; where it was erased, the first that is left."""
        for seq in range(after["_update_seq"]):
            with suppress(NotFound):
                return self._run.at(seq)
        return after

    def _after(self, episode_id: str) -> dict[str, Any]:
        after: dict[str, Any] = self.get(episode_id)["ws_after"]
        return after

    def get(self, episode_id: str) -> dict[str, Any]:
        """One milestone, as schema 2.1 describes it.

        Raises:
            NotFound: there is none of that id. Corrupt: it is not what was stored.
        """
        document = self._document(episode_id)
        body: dict[str, Any] = document.value
        # Written once: a later version is somebody's who has no business here.
        if document.version != 1 or digest_of(body) != document.notes["digest"]:
            raise Corrupt(f"episode {episode_id!r} fails its digest", "restore a copy")
        return body | {"created_at": created_at(document)}

    def events(self, episode_id: str) -> list[dict[str, Any]]:
        """The events between the milestone before and this one, exactly."""
        notes = self._document(episode_id).notes
        entries = self._run.ledger.entries(int(notes["first"]) - 1, int(notes["last"]))
        return [self._run.ledger.whole(entry) for entry in entries]

    def list(self) -> list[str]:
        """The ids of all milestones, oldest first."""
        entries = self._run.ledger.of_type("MILESTONE")
        named = (body_of(e)["payload"].get("episode_id") for e in entries if not e.erased)
        return [episode_id for episode_id in named if episode_id]

    def diff(self, a: str, b: str) -> dict[str, Any]:
        """What changed in the working set from one milestone to another."""
        return diff(self._after(a), self._after(b))

    def _document(self, episode_id: str) -> Document:
        name = episode_name(self._run.run_id, require_id("episode_id", episode_id))
        found = self._store.get(name)
        if found is None or found.erased:
            raise NotFound(
                f"{self._run!r} has no episode {episode_id!r}", f"list what is under {EPISODES}"
            )
        return found


def created_at(document: Document) -> str:
    """When the milestone was made; one that came with a pack notes it."""
    made = document.notes.get("created_at") or document.time.strftime("%Y-%m-%dT%H:%M:%SZ")
    return str(made)


def digest_of(body: Mapping[str, Any]) -> str:
    """SHA-256 of the canonical bytes."""
    return hashlib.sha256(codec.encode(dict(body))[1]).hexdigest()


def body_of_episode(
    episode_id: str,
    summary: str,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    memory_ids: Sequence[str],
    next_entry_point: str,
) -> dict[str, Any]:
    """What is stored of a milestone, and what its digest is of."""
    return {
        "_schema_version": artifacts.SCHEMA_VERSION,
        "episode_id": episode_id,
        "summary": summary,
        "ws_before": dict(before),
        "ws_after": dict(after),
        "memory_commits": list(memory_ids),
        "next_entry_point": next_entry_point,
    }


def summary_of(counts: Mapping[str, int], last: Sequence[tuple[str, datetime]]) -> str:
    """What happened, counted; then the last few events. The same events give the same text."""
    lines = ["Event counts"]
    lines += [f"- {kind}: {counts[kind]}" for kind in sorted(counts)]
    lines += [f"{kind} @ {time.strftime('%Y-%m-%dT%H:%M:%SZ')}" for kind, time in last]
    return "\n".join(lines)[:_MOST_SUMMARY]
