"""Runs, remote: working set, ledger, milestones, memory batches, packs."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import IO, Any

import msgspec

from pagefile.client.calls import MOST_PER_PAGE, Listing, Room, not_offered
from pagefile.client.request import Wait
from pagefile.client.transport import AsyncLink, Exchange, Link, Talk, Value, answered, decoded
from pagefile.errors import Conflict, Invalid, LimitExceeded, NotFound, PagefileError, shown
from pagefile.memory.items.item import LEDGERS
from pagefile.memory.items.plan import Preview
from pagefile.memory.items.proposal import BatchPage, ItemBatch
from pagefile.memory.items.store import Committed
from pagefile.operations.answer import cursor_of
from pagefile.operations.items import Token
from pagefile.operations.packs import PackInfo, Restored
from pagefile.operations.runs import Booted, Brief, Deleted, Patched, Rebuilt, Recorded
from pagefile.runs import rebuild
from pagefile.runs.config import RunConfig, config_from
from pagefile.runs.kinds import require_id
from pagefile.runs.ledger import Ledger
from pagefile.runs.milestones import Episodes, Milestone
from pagefile.runs.packs.format import PackLimits, PackReport
from pagefile.runs.patch import PatchResult, WorkingSet
from pagefile.runs.run import Knowledge, Run
from pagefile.runs.runs import Runs
from pagefile.runs.schema import artifacts
from pagefile.store import clock
from pagefile.store.arguments import require_callable, require_count

_UPDATE_ATTEMPTS = 1_000
_FIRST_PAUSE, _LONGEST_PAUSE = 0.005, 0.5
_Path = str | os.PathLike[str]


class RemoteLedger(Room):
    """The events of one run."""

    library = Ledger
    place = "run.ledger"

    def __init__(self, link: Link | AsyncLink, run_id: str) -> None:
        super().__init__(link, run_id=run_id)
        self.log = LEDGERS + run_id

    def read(
        self, after: int = 0, *, limit: int = 1_000, event_type: str | None = None
    ) -> Talk[list[dict[str, Any]]]:
        """Events with a `sequence_id` above `after`, oldest first."""
        require_count(after, "after")
        given = {"cursor": cursor_of(after) if after else None, "event_type": event_type}
        return (yield from self._pages("run.ledger.read", given, dict[str, Any], limit))

    def tail(self, count: int) -> Talk[list[dict[str, Any]]]:
        """The last events, oldest first."""
        require_count(count, "count")
        if count <= MOST_PER_PAGE:
            ask = self._ask("run.ledger.read", {"tail": count})
            answer = yield Exchange(ask, Listing[dict[str, Any]])
            return list(answer.items)
        newest = yield from RemoteLedger.tail(self, 1)
        after = max(0, newest[0]["sequence_id"] - count) if newest else 0
        return (yield from RemoteLedger.read(self, after, limit=count))

    def export_jsonl(self, file: IO[str]) -> Talk[int]:
        """Write every event as one line of JSON; return how many."""
        if not callable(getattr(file, "write", None)):
            raise Invalid("file", f"{shown(file)} is not a file", "open one for writing text")
        count, place = 0, 0
        while True:
            events, place = yield from self._turn(place)
            for event in events:
                file.write(json.dumps(event, ensure_ascii=False, sort_keys=True) + "\n")
            count += len(events)
            if place is None:
                return count

    def follow(self, after: int | None = None, *, timeout: float | None = None) -> Any:
        """Events behind sequence number `after` as they are recorded, or from now on."""
        link = self._link
        if after is None and not link.is_awaited:
            newest = link.run(RemoteLedger.tail(self, 1))
            after = newest[0]["sequence_id"] if newest else 0
        ask = self._ask("follow_ledger", {"seconds": timeout})
        return link.follow(ask, after, lambda data: decoded(data, dict[str, Any]))

    def __len__(self) -> int:
        newest = self._link.run(RemoteLedger.tail(self, 1))
        return int(newest[0]["sequence_id"]) if newest else 0

    def __iter__(self) -> Any:
        return self._link.each(self._turn)

    def __aiter__(self) -> Any:
        return self._link.each(self._turn)

    def _turn(self, after: Any) -> Talk[tuple[list[Any], Any]]:
        found = yield from RemoteLedger.read(self, after, limit=MOST_PER_PAGE)
        more = found[-1]["sequence_id"] if len(found) == MOST_PER_PAGE else None
        return found, more


class RemoteEpisodes(Room):
    """The milestones of one run."""

    library = Episodes
    place = "run.episodes"

    def create(
        self,
        reason: str = "manual",
        *,
        memory_batch_id: str | None = None,
        next_entry_point: str = "",
        writer_id: str = "api",
    ) -> Talk[Milestone]:
        """Record a milestone, and commit a memory batch with it: both or neither."""
        given = {
            "reason": reason,
            "memory_batch_id": memory_batch_id,
            "next_entry_point": next_entry_point,
        }
        return (yield from answered(self._ask("run.milestone", given), Milestone))

    def list(self) -> Talk[list[str]]:
        """Ids of milestones, oldest first."""
        return (yield from self._pages("run.episodes.list", {}, str, 10**9))


class RemoteKnowledge(Room):
    """The memory batches of one run."""

    library = Knowledge
    place = "run.memory"

    def issue_token(self, *, ttl_seconds: int = 300, writer_id: str = "api") -> Talk[str]:
        """A token that lets one batch of this run pass, once."""
        ask = self._ask("run.memory.issue_token", {"ttl_seconds": ttl_seconds})
        return str((yield Exchange(ask, Token)).token)

    def commit(
        self,
        batch_id: str,
        *,
        token: str | None = None,
        reviewer: str | None = None,
        writer_id: str = "api",
    ) -> Talk[Committed]:
        """Make a batch true, all or none."""
        given = {"token": token, "reviewer": reviewer}
        return (yield from self._of_batch("commit", batch_id, Committed, **given))

    def abort(self, batch_id: str, *, writer_id: str = "api") -> Talk[ItemBatch]:
        """Withdraw a batch that is staged or expired."""
        return (yield from self._of_batch("abort", batch_id, ItemBatch))

    def undo(
        self, batch_id: str, *, reviewer: str | None = None, writer_id: str = "api"
    ) -> Talk[Committed]:
        """Restore every item that the batch changed."""
        return (yield from self._of_batch("undo", batch_id, Committed))

    def preview(self, batch_id: str) -> Talk[Preview]:
        """What committing would do now; changes nothing."""
        return (yield from self._of_batch("preview", batch_id, Preview))

    def list_batches(self, status: str | None = None, *, limit: int = 100) -> Talk[list[ItemBatch]]:
        """The batches of this run."""
        given = {"status": status, "run_id": self._ids["run_id"], "limit": limit}
        page = yield Exchange(Room(self._link)._ask("items.list_batches", given), BatchPage)
        return list(page.items)

    def _of_batch(
        self, method: str, batch_id: str, shape: type[Value], **given: Any
    ) -> Talk[Value]:
        room = Room(self._link)
        return (
            yield from answered(
                room._ask(f"items.{method}", {"batch_id": batch_id, **given}), shape
            )
        )


class RemoteRun(Room):
    """One task of an agent, from boot to resume pack."""

    library = Run
    place = "run"
    known = ("run_id",)

    def __init__(
        self,
        link: Link | AsyncLink,
        run_id: str,
        *,
        config: RunConfig,
        user_id: str | msgspec.UnsetType | None = msgspec.UNSET,
    ) -> None:
        super().__init__(link, run_id=run_id)
        self.run_id = run_id
        self.config = config
        self._user_id = user_id
        self.ledger: Any = self._new(RemoteLedger, run_id=run_id)
        self.episodes: Any = self._new(RemoteEpisodes, run_id=run_id)
        self.memory: Any = self._new(RemoteKnowledge, run_id=run_id)

    @property
    def user_id(self) -> str | None:
        """Whose it is, of a run that was booted here; the server does not say it of others."""
        if isinstance(self._user_id, msgspec.UnsetType):
            raise not_offered(RemoteRun, "user_id of a run that was opened")
        return self._user_id

    def load(self) -> Talk[WorkingSet]:
        """The working set as it is now."""
        return (yield from answered(self._ask("run.load"), dict[str, Any]))

    def at(self, seq: int) -> Talk[WorkingSet]:
        """The working set as it was at a sequence number."""
        if type(seq) is not int or seq < 0:
            raise Invalid("seq", f"{shown(seq)} is not a sequence number", "give 0 or more")
        return (yield from answered(self._ask("run.load", {"seq": seq}), dict[str, Any]))

    def apply_patch(self, patch: Mapping[str, Any], *, writer_id: str = "api") -> Talk[PatchResult]:
        """Change the working set if it is still at the patch's `expected_seq`.

        What is wrong with the patch is in the result, and not raised.
        """
        given: Any = patch
        try:
            artifacts.check("ws_patch", given)
        except Invalid as error:
            return PatchResult(False, error=f"patch schema: {error}", code=error.code)
        ask = self._ask("run.apply_patch", body=dict(given))
        return (yield from _patched(ask))

    def update(
        self,
        change: Callable[[WorkingSet], Mapping[str, Any]],
        *,
        attempts: int = _UPDATE_ATTEMPTS,
        writer_id: str = "api",
    ) -> Talk[PatchResult]:
        """Read, let `change` make the patch, apply it; again until nobody was faster."""
        require_callable("change", change)
        require_count(attempts, "attempts", least=1)
        for attempt in range(attempts):
            if attempt:
                share = int.from_bytes(clock.random_bytes(2)) / 65_535
                yield Wait(share * min(_FIRST_PAUSE * 2 ** min(attempt, 10), _LONGEST_PAUSE))
            now = yield from RemoteRun.load(self)
            returned = change(now)
            if not isinstance(returned, Mapping):
                raise Invalid("change", f"returned {shown(returned)}", "return a dict of fields")
            fields = returned if returned.keys() <= {"set", "ops"} else {"set": returned}
            patch = {"set": {}, **fields, "expected_seq": now["_update_seq"]}
            patch["_schema_version"] = artifacts.SCHEMA_VERSION
            result = yield from RemoteRun.apply_patch(self, patch)
            if result.code != Conflict.code:
                return result
        return result

    def rollback(self, seq: int, *, writer_id: str = "api") -> Talk[PatchResult]:
        """Make the state of an earlier sequence number the newest. Nothing is erased."""
        done = yield Exchange(self._ask("run.rollback", {"seq": seq}), Patched)
        return PatchResult(True, done.ws)

    def rebuild(self) -> Talk[rebuild.Rebuilt]:
        """Fold the ledger, and compare with what is stored."""
        found = yield Exchange(self._ask("run.rebuild"), Rebuilt)
        difference = {} if found.ok else {"working_set": "the stored one differs"}
        return rebuild.Rebuilt(found.ws, difference)

    def evicted(self, *, limit: int = 1_000) -> Talk[list[dict[str, Any]]]:
        """What left the working set, newest first."""
        ask = self._ask("run.evicted", {"limit": limit})
        return list((yield Exchange(ask, Listing[dict[str, Any]])).items)

    def find_evicted(self, text: str, *, limit: int = 20) -> Talk[list[dict[str, Any]]]:
        """What left the working set and holds every word of the text."""
        ask = self._ask("run.evicted", {"q": text, "limit": limit})
        return list((yield Exchange(ask, Listing[dict[str, Any]])).items)

    def page_in(self, item_id: str, *, writer_id: str = "api") -> Talk[PatchResult]:
        """Bring an evicted item back to where it was."""
        return (yield from _patched(self._ask("run.page_in", {"item_id": item_id})))

    def brief(
        self,
        *,
        ltm_results: Sequence[Mapping[str, Any]] | None = None,
        min_confidence: float = 0.8,
        max_tokens: int | None = None,
    ) -> Talk[str]:
        """The working set as Markdown for a prompt."""
        if ltm_results is not None:
            raise not_offered(RemoteRun, "brief(ltm_results=…)")
        given = {"min_confidence": min_confidence, "max_tokens": max_tokens, "top_k": 0}
        return str((yield Exchange(self._ask("run.brief", given), Brief)).context_brief)

    def log(
        self,
        event_type: str,
        payload: Mapping[str, Any],
        *,
        writer_id: str = "api",
        parent_event_id: str | None = None,
    ) -> Talk[int]:
        """Record an event of the agent's own; its sequence number."""
        given = {"event_type": event_type, "payload": payload, "parent_event_id": parent_event_id}
        return int((yield Exchange(self._ask("run.log", given), Recorded)).sequence_id)

    def create_resume_pack(
        self,
        directory: _Path,
        *,
        pointers: Mapping[str, Any] | None = None,
        progress: Any = None,
        writer_id: str = "api",
    ) -> Talk[pathlib.Path]:
        """Write the whole run, as it is at one moment, into one file here; return its path."""
        if progress is not None:
            raise not_offered(RemoteRun, "create_resume_pack(progress=…)")
        ask = self._ask("run.create_resume_pack", {"pointers": pointers})
        made = yield Exchange(ask, PackInfo)
        room, named = Room(self._link), {"pack_id": made.pack_id}
        path = pathlib.Path(directory) / f"{made.run_id}_{made.pack_id}.zip"
        path.parent.mkdir(parents=True, exist_ok=True)
        yield Exchange(room._ask("download", named), target=path)
        # The server need not keep what is here.
        yield Exchange(room._ask("remove", named), bytes)
        return path


class RemoteRuns(Room):
    """The runs of the tenant."""

    library = Runs
    place = "runs"

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
    ) -> Talk[Any]:
        """Start a run; an id that is taken is a conflict. Of `settings` only `gate` travels."""
        chosen = RunConfig() if config is None else config
        if not isinstance(chosen, RunConfig):
            raise Invalid("config", f"{shown(config)} is not a RunConfig", "give RunConfig(…)")
        if settings is not None and not isinstance(settings, Mapping):
            raise Invalid("settings", f"{shown(settings)} is not a mapping", "give a dict")
        said = dict(settings or {})
        gate = said.pop("gate", None)
        if said:
            raise not_offered(RemoteRuns, f"boot(settings={{{', '.join(map(repr, said))}}})")
        given = {
            "objective": objective,
            "acceptance_criteria": list(acceptance_criteria),
            "constraints": list(constraints),
            "run_id": run_id,
            "task_id": task_id,
            "thread_id": thread_id,
            "user_id": user_id,
            "current_stage": current_stage,
            "config": config,
            "gate": gate,
        }
        made = yield Exchange(self._ask("runs.boot", given), Booted)
        return self._run(made.run_id, chosen, self._user(user_id))

    def open(self, run_id: str) -> Talk[Any]:
        """A run that was booted before.

        Raises:
            NotFound: there is no such run.
        """
        require_id("run_id", run_id)
        given = {"run_id": run_id, "limit": 1}
        page = yield Exchange(self._ask("run.ledger.read", given), Listing[dict[str, Any]])
        first = page.items[0] if page.items else {}
        recorded = (first.get("payload") or {}).get("config") or {}
        return self._run(run_id, config_from(recorded))

    def exists(self, run_id: str) -> Talk[bool]:
        require_id("run_id", run_id)
        try:
            yield Exchange(self._ask("run.load", {"run_id": run_id}), bytes)
        except NotFound:
            return False
        return True

    def list(self, *, after: str = "", limit: int = 100) -> Talk[list[str]]:
        """Ids of runs, in order."""
        if type(after) is not str:
            raise Invalid("after", f"{shown(after)} is not a run id", "give the last id of a page")
        given = {"cursor": cursor_of(after) if after else None}
        return (yield from self._pages("runs.list", given, str, limit))

    def delete(self, run_id: str) -> Talk[bool]:
        """End a run; True if there was one."""
        try:
            done = yield Exchange(self._ask("runs.delete", {"run_id": run_id}), Deleted)
        except NotFound:
            return False
        return bool(done.deleted)

    def fork(
        self,
        run_id: str,
        at: int | None = None,
        *,
        new_run_id: str | None = None,
        writer_id: str = "api",
    ) -> Talk[Any]:
        """A new run that begins where another stands, or stood at sequence `at`."""
        given = {"run_id": run_id, "at": at, "new_run_id": new_run_id}
        made = yield Exchange(self._ask("runs.fork", given), Booted)
        return (yield from RemoteRuns.open(self, made.run_id))

    def restore_from_pack(
        self,
        path: _Path,
        new_run_id: str | None = None,
        *,
        limits: PackLimits | None = None,
        progress: Any = None,
        with_items: bool = True,
    ) -> Talk[Any]:
        """Make a run of a pack; everything is checked before anything is stored."""
        self._unsaid("restore_from_pack", limits=limits, progress=progress)
        if not with_items:
            raise not_offered(RemoteRuns, "restore_from_pack(with_items=False)")
        ask = self._ask("runs.restore_from_pack", {"new_run_id": new_run_id})
        made = yield Exchange(ask, Restored, content=path)
        return (yield from RemoteRuns.open(self, made.run_id))

    def verify_pack(
        self, path: _Path, *, limits: PackLimits | None = None, progress: Any = None
    ) -> Talk[PackReport]:
        """Read all of a pack and check it; stores nothing."""
        self._unsaid("verify_pack", limits=limits, progress=progress)
        return (yield from answered(self._ask("runs.verify_pack"), PackReport, content=path))

    def import_jsonl(
        self, path: _Path, *, new_run_id: str | None = None, user_id: str | None = None
    ) -> Talk[Any]:
        """Make a run of an exported ledger."""
        self._unsaid("import_jsonl", user_id=user_id)
        ask = self._ask("runs.import_jsonl", {"new_run_id": new_run_id})
        made = yield Exchange(ask, Restored, content=path)
        return (yield from RemoteRuns.open(self, made.run_id))

    def _run(self, run_id: str, config: RunConfig, user_id: Any = msgspec.UNSET) -> Any:
        return self._new(RemoteRun, run_id=run_id, config=config, user_id=user_id)

    @staticmethod
    def _unsaid(method: str, **options: Any) -> None:
        for name, value in options.items():
            if value is not None:
                raise not_offered(RemoteRuns, f"{method}({name}=…)")


def _patched(ask: Any) -> Talk[PatchResult]:
    try:
        done = yield Exchange(ask, Patched)
    except (Conflict, Invalid, LimitExceeded) as error:
        return _refused(error)
    return PatchResult(True, done.ws, done.evicted)


def _refused(error: PagefileError) -> PatchResult:
    return PatchResult(False, error=str(error), code=error.code)
