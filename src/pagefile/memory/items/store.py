"""Long-term memory items: proposed in batches, reviewed, committed whole, undone whole."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from pagefile.context.backend import Backend, ClosesItsStore, store_behind
from pagefile.errors import Conflict, Forbidden, Invalid, PagefileError, shown
from pagefile.memory.items import proposal as approval
from pagefile.memory.items.change import (
    Change,
    changes_of,
    require_name,
    require_name_or_none,
)
from pagefile.memory.items.item import RunEvent, run_event
from pagefile.memory.items.plan import Plan, Preview, plan_of, preview_of, undo_of
from pagefile.memory.items.proposal import (
    BatchPage,
    ItemBatch,
    Pass,
    ReadBatch,
    batches_query,
    binding_of,
    document_of,
    page_of,
    put_batch,
    read_batch,
)
from pagefile.memory.items.reader import ItemReader
from pagefile.store import clock
from pagefile.store.arguments import require_callable, require_count, require_flag
from pagefile.store.batch import Absent, Batch, Operation
from pagefile.store.codec import sort_key

#: How often a change is tried again after somebody else was faster.
_ATTEMPTS = 100
_WEEK_SECONDS = 7 * 86_400
_MOST_TTL_SECONDS = 366 * 86_400
_MOST_TOKEN_SECONDS = 86_400
_SECOND = 1_000_000
#: What a run's ledger calls what became of a batch, and who wrote it there.
_EVENTS = {"committed": "MEMORY_COMMIT", "aborted": "MEMORY_ABORT", "undone": "MEMORY_UNDO"}
_WRITER = "items"


def made_id() -> str:
    """What a new batch's id ends in."""
    return clock.uuid4().hex


def machine_clock() -> int:
    """Microseconds since 1970 UTC."""
    return clock.now_us()


#: From a batch's id and the items it makes true to what else belongs in that commit.
Beside = Callable[[str, Sequence[str]], Sequence[Operation]]


class Proposal(msgspec.Struct, frozen=True):
    """A batch that waits to be committed, until it expires."""

    batch_id: str
    count: int
    expires: datetime


class Committed(msgspec.Struct, frozen=True):
    """What a commit, or an undo, changed, and where it landed."""

    batch_id: str
    memory_ids: tuple[str, ...]
    position: int


class LongTermItems(ItemReader, ClosesItsStore):
    """What an agent knows for the long term, in a store.

    Nothing becomes true at once: changes are proposed as a batch, which can be
    previewed, and hold when the batch is committed; all of them in one commit of
    the store, or none. A commit passes a gate: a reviewer's name, or a token of
    the batch's run that works once. Committing again answers the same.

    Items of a user are seen only with that `user_id`, items of a project only with
    that `project_id`, global ones always. Everything that names a user, batches
    too, lies in that user's partition and goes when the user is erased.

    `backend` is a store, a handle or a URL; None is a private `memory:`.
    `allow_ungated=True` lets batches pass without reviewer and token. `new_id` and
    `clock` may be replaced by a script's. Nothing is kept in this object.
    """

    def __init__(
        self,
        backend: Backend | None = None,
        *,
        allow_ungated: bool = False,
        new_id: Callable[[], str] = made_id,
        clock: Callable[[], int] = machine_clock,
    ) -> None:
        require_flag("allow_ungated", allow_ungated)
        require_callable("new_id", new_id)
        require_callable("clock", clock)
        store, self._close = store_behind(backend)
        super().__init__(store)
        self._allow_ungated = allow_ungated
        self._new_id = new_id
        self._clock = clock

    # Proposing

    def propose(
        self,
        mcrs: Sequence[Mapping[str, Any]],
        *,
        scope_filters: Mapping[str, Any] | None = None,
        run_id: str | None = None,
        user_id: str | None = None,
        project_id: str | None = None,
        ttl_seconds: int = _WEEK_SECONDS,
        beside: Beside | None = None,
    ) -> Proposal:
        """Stage change requests as one batch; nothing of it holds yet.

        A batch is about one user and one project at most: those given here, or
        those its requests name. Requests without `memory_id` get one now.
        `beside` gives operations of the caller's own for the same commit.

        Raises:
            Invalid: a request breaks a rule, or is about another user, project,
                scope or type than the batch. LimitExceeded: there are too many.
        """
        _require_beside(beside)
        changes = changes_of(mcrs)
        binding = binding_of(changes, scope_filters, user_id, project_id)
        require_name_or_none("run_id", run_id)
        require_count(ttl_seconds, "ttl_seconds", least=1, most=_MOST_TTL_SECONDS)
        batch_id = f"batch_{self._new_id()}"
        now_us = self._clock()
        batch = ItemBatch(
            batch_id=batch_id,
            status="staged",
            changes=tuple(_named(change, batch_id, i) for i, change in enumerate(changes)),
            created_us=now_us,
            expires_us=now_us + ttl_seconds * _SECOND,
            run_id=run_id,
            **msgspec.structs.asdict(binding),
        )
        operations = (put_batch(batch), *(() if beside is None else beside(batch_id, ())))
        self._store.commit(Batch(operations, [Absent(document_of(batch_id))]))
        return Proposal(batch_id, len(changes), batch.expires)

    def batch(self, batch_id: str) -> ItemBatch:
        """A batch, with its requests and what became of it.

        Raises:
            NotFound: there is none of that id.
        """
        return self._read(batch_id).batch

    def list_batches(
        self,
        status: str | None = None,
        run_id: str | None = None,
        *,
        limit: int = 100,
        cursor: str | None = None,
    ) -> BatchPage:
        """Batches of the whole tenant, page by page, for those who review them.

        In the order of creation; of one status, in the order of expiry.
        """
        now_us = self._clock()
        page = self._store.find(batches_query(status, run_id, cursor, now_us), limit=limit)
        return page_of(page.items, page.cursor, now_us)

    def preview(self, batch_id: str) -> Preview:
        """What committing the batch would change now, and why it would be refused."""
        read = self._read(batch_id)
        return preview_of(self._store, read, sort_key.moment(self._clock()))

    # Deciding

    def issue_token(
        self,
        run_id: str,
        *,
        ttl_seconds: int = 300,
        user_id: str | None = None,
        beside: Beside | None = None,
    ) -> str:
        """A token that lets one batch of this run pass, once. It cannot be read again.

        `user_id` says in whose partition the token's digest lies. `beside` gives
        operations of the caller's own for the same commit.
        """
        _require_beside(beside)
        require_name("run_id", run_id)
        require_name_or_none("user_id", user_id)
        require_count(ttl_seconds, "ttl_seconds", least=1, most=_MOST_TOKEN_SECONDS)
        token, put = approval.issue(run_id, user_id, self._clock() + ttl_seconds * _SECOND)
        operations = (put, *(() if beside is None else beside("", ())))
        self._store.commit(Batch(operations, [Absent(put.document)]))
        return token

    def commit(
        self,
        batch_id: str,
        *,
        token: str | None = None,
        reviewer: str | None = None,
        key: str = "",
        beside: Beside | None = None,
    ) -> Committed:
        """Make all of a batch true, in one commit; a committed one answers the same again.

        `key` is the idempotency key of the store's commit. The batch's run, if there is
        one, has the decision in its ledger; with `beside` that is the caller's to record.

        Raises:
            Forbidden: neither reviewer nor token, or the token does not fit.
            Conflict: an item to be added exists, or the batch was aborted, undone
                or has expired. NotFound: a target, or the batch, is not there.
        """
        require_name_or_none("reviewer", reviewer)

        def plan(read: ReadBatch) -> Plan:
            if read.batch.status != "staged":
                raise read.refusal("committed", "propose its changes again")
            now_us = self._clock()
            passed = self._pass(read.batch, token, reviewer, now_us)
            return plan_of(self._store, read, passed, sort_key.moment(now_us))

        return self._settle(batch_id, "committed", plan, key, beside)

    def plan_commit(
        self, batch_id: str, *, run_id: str, milestone: str, token: str | None = None
    ) -> Plan:
        """What commits a batch of this run, to go into a larger `Batch` of one's own.

        The milestone is the gate; a token, when given, is used up as well. For a
        batch that this milestone committed already there is nothing to do.

        Raises:
            Forbidden: the batch is another run's. Otherwise as `commit`.
        """
        require_name("run_id", run_id)
        require_name("milestone", milestone)

        def plan(read: ReadBatch) -> Plan:
            batch, now_us = read.batch, self._clock()
            if batch.run_id != run_id:
                raise Forbidden(
                    f"batch {shown(batch_id)} is not of run {shown(run_id)}",
                    "propose it with that run_id",
                )
            if (batch.status, batch.gate, batch.by) == ("committed", "milestone", milestone):
                return Plan((), (), batch.memory_ids)
            if batch.status != "staged":
                raise read.refusal("committed", "propose its changes again")
            spent = Pass("") if token is None else approval.spend(self._store, token, batch, now_us)
            passed = msgspec.structs.replace(spent, gate="milestone", by=milestone)
            return plan_of(self._store, read, passed, sort_key.moment(now_us))

        while (planned := self._planned(self._read(batch_id), plan)) is None:
            continue  # A batch has few versions, so this comes to an end.
        return planned

    def abort(self, batch_id: str, *, beside: Beside | None = None) -> ItemBatch:
        """Withdraw a batch that was not committed; one that was withdrawn stays so.

        Raises:
            Conflict: it was committed. NotFound: there is none of that id.
        """

        def plan(read: ReadBatch) -> Plan:
            if read.batch.status not in ("staged", "expired"):
                raise read.refusal("aborted", "undo() it instead")
            aborted = msgspec.structs.replace(read.batch, status="aborted")
            return Plan((put_batch(aborted),), (read.unchanged,), ())

        self._settle(batch_id, "aborted", plan, beside=beside)
        return self.batch(batch_id)

    def undo(
        self, batch_id: str, *, reviewer: str | None = None, beside: Beside | None = None
    ) -> Committed:
        """Restore every item that the batch changed, in a new commit.

        Items that it made become rejected: their ids are free, their history stays.

        Raises:
            Conflict: something changed one of the items since; it is named. Or the
                batch is not committed.
        """
        require_name_or_none("reviewer", reviewer)
        passed = Pass("none") if reviewer is None else Pass("reviewer", reviewer)

        def plan(read: ReadBatch) -> Plan:
            if read.batch.status != "committed":
                raise read.refusal("undone", "undo only what is committed")
            return undo_of(self._store, read, passed, sort_key.moment(self._clock()))

        return self._settle(batch_id, "undone", plan, beside=beside)

    # Inside: each attempt reads, decides, and commits on condition that what it read holds

    def _read(self, batch_id: str) -> ReadBatch:
        return read_batch(self._store, batch_id, self._clock())

    def _settle(
        self,
        batch_id: str,
        status: str,
        plan: Callable[[ReadBatch], Plan],
        key: str = "",
        beside: Beside | None = None,
    ) -> Committed:
        _require_beside(beside)
        for _ in range(_ATTEMPTS):
            read = self._read(batch_id)
            if read.batch.status == status:
                told = read.batch.touched if status == "undone" else read.batch.memory_ids
                return Committed(batch_id, told, read.position)
            if (planned := self._planned(read, plan)) is None:
                continue
            try:
                operations, when = list(planned.operations), list(planned.conditions)
                if beside is not None:
                    operations += beside(batch_id, planned.memory_ids)
                elif (event := self._told(read.batch, status, planned)) is not None:
                    operations.append(event.operation)
                    when.append(event.condition)
                commit = self._store.commit(Batch(operations, when, key))
            except Conflict:
                continue
            except Invalid as error:
                # Of two who commit with the same key, one comes second with another time in it.
                if error.field == "key" and self.batch(batch_id).status == status:
                    continue
                raise
            return Committed(batch_id, planned.memory_ids, commit.position)
        raise read.refusal(f"{status} after {_ATTEMPTS} attempts", "try again when it is calmer")

    def _told(self, batch: ItemBatch, status: str, plan: Plan) -> RunEvent | None:
        """What the ledger of the batch's run says of a decision, where there is such a run."""
        if batch.run_id is None:
            return None
        payload: dict[str, Any] = {"batch_id": batch.batch_id}
        if status == "committed":
            payload["memory_ids"] = list(plan.memory_ids)
        return run_event(self._store, batch.run_id, _EVENTS[status], payload, _WRITER)

    def _planned(self, read: ReadBatch, plan: Callable[[ReadBatch], Plan]) -> Plan | None:
        """The plan; None when the batch was decided about while it was made."""
        try:
            return plan(read)
        except PagefileError:
            # What the batch's own commit did, seen halfway, looks like a reason to refuse it.
            if self._read(read.batch.batch_id).version != read.version:
                return None
            raise

    def _pass(self, batch: ItemBatch, token: str | None, reviewer: str | None, now_us: int) -> Pass:
        if token is not None:
            spent = approval.spend(self._store, token, batch, now_us)
            return msgspec.structs.replace(spent, by=reviewer or "")
        if reviewer is not None:
            return Pass("reviewer", reviewer)
        if self._allow_ungated:
            return Pass("none")
        raise Forbidden(
            "a commit needs a reviewer or a token",
            "give reviewer=…, or token=issue_token(run_id); allow_ungated=True switches this off",
        )


def _require_beside(beside: object) -> None:
    if beside is not None:
        require_callable("beside", beside)


def _named(change: Change, batch_id: str, index: int) -> Change:
    if not change.makes_item or change.memory_id:
        return change
    digest = hashlib.sha256(f"{batch_id}/{index}".encode()).hexdigest()
    return msgspec.structs.replace(change, memory_id=f"mem_{digest[:32]}")
