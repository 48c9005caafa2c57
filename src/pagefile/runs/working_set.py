"""The working set of one run, shared by many writers, and the ledger that tells its story."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from pagefile.errors import Conflict, Invalid, LimitExceeded, NotFound, PagefileError, shown
from pagefile.runs.config import RunConfig, redact, require_transition
from pagefile.runs.eviction import fit, sliding_line
from pagefile.runs.kinds import EVICTED, GONE, RUNS, WORKING_SET
from pagefile.runs.ledger import Identity, Ledger, body_of
from pagefile.runs.patch import PatchResult, WorkingSet, apply_patch, copy_of, diff, working_set_in
from pagefile.runs.schema import artifacts
from pagefile.store.arguments import bounded, require_callable, require_count
from pagefile.store.batch import (
    Append,
    Batch,
    Condition,
    Drop,
    Operation,
    Prune,
    Put,
    Query,
    VersionIs,
)
from pagefile.store.records import Document
from pagefile.store.store import Store

# What a run writes into its ledger: events by themselves, and refusals.


class Recorder:
    """A run that is known by its ids, and its ledger."""

    def __init__(self, store: Store, identity: Identity) -> None:
        self._store = store
        self._identity = identity
        self.ledger = Ledger(store, identity)

    def __repr__(self) -> str:
        return f"<Run {self.run_id!r}>"

    @property
    def run_id(self) -> str:
        return self._identity.run_id

    @property
    def user_id(self) -> str | None:
        return self._identity.user_id

    @property
    def ids(self) -> dict[str, str]:
        """The fields of the working set that say whose it is."""
        own = self._identity
        return {"task_id": own.task_id, "thread_id": own.thread_id, "run_id": own.run_id}

    def require(self) -> None:
        """Refuse what would be recorded for a run that was deleted or erased."""
        if not self._store.has_log(self.ledger.log):
            raise self._gone()

    def record(
        self,
        event_type: str,
        payload: Mapping[str, Any],
        writer_id: str,
        parent_event_id: str | None = None,
    ) -> int:
        """Append an event of any type by itself, secrets redacted; its `sequence_id`."""
        return self._record(
            self.ledger.event(event_type, redact(payload), writer_id, parent_event_id)
        )

    @contextmanager
    def recording(self, operation: str, writer_id: str) -> Iterator[None]:
        """Whatever is refused inside leaves its event, in a commit of its own, and is raised."""
        try:
            yield
        except PagefileError as error:
            told = {
                "error_type": error.code,
                "message": str(error)[:2_000],
                "details": {"operation": operation},
            }
            try:
                self.record("ERROR", told, writer_id)
            except PagefileError as unlogged:
                error.add_note(f"and the refusal could not be recorded: {unlogged}")
            raise

    def _record(self, event: Append) -> int:
        """Append an event by itself; a run that ended does not get a new ledger by it."""
        self.require()
        index = self._store.append(event).index
        if index == 0:  # A ledger's first event is the start: this one ended just now.
            with suppress(NotFound):
                self._store.commit(Batch([Prune(None, log=event.log), Drop(event.log)]))
            raise self._gone()
        return index + 1

    def _gone(self) -> NotFound:
        return NotFound(f"there is no run {self.run_id!r}", "boot it, or list the runs")


# Items that left a run's working set: kept in a log of their own, to be found again.


_ITEM = "item"
_PAGE = 500
Item = dict[str, Any]


class Archive:
    """What left one run's working set, in the order in which it left."""

    def __init__(self, store: Store, run_id: str, user_id: str | None) -> None:
        self._store = store
        self._user_id = user_id
        self.log = EVICTED + run_id

    def keep(self, item: Mapping[str, Any], writer_id: str) -> Append:
        """The operation that keeps an item, for the batch that makes it leave."""
        keys = {_ITEM: _key(item["id"])}
        return Append(self.log, item, self._user_id, "evicted", writer_id, (), keys)

    def length_at(self, ledger: Ledger, seq: int) -> int:
        """How many items had left when the working set was at a sequence number.

        Counted from the end: what a fork or a restored run began with has no events in it.
        """
        at = self._store.head().position
        length, stop = (self._store.length(log, at=at) for log in (self.log, ledger.log))
        for entry in ledger.of_type("WS_UPDATE_APPLIED", reverse=True):
            if entry.erased or entry.index >= stop:
                continue
            payload = body_of(entry)["payload"]
            if payload["new_seq"] <= seq:
                break
            length -= len(payload.get("evicted", ())) + len(payload.get("unpinned", ()))
        return max(0, length)

    def newest(self, limit: int) -> list[Item]:
        """The items that left last, newest first."""
        found = self._store.read(self.log, -limit) if bounded(limit) else []
        return [entry.value for entry in reversed(found) if not entry.erased]

    def search(self, text: str, limit: int) -> list[Item]:
        """Items that hold every word of the text, newest first."""
        if not isinstance(text, str):
            raise Invalid("text", f"{shown(text)} is no text", "give words to look for")
        bounded(limit)
        words = text.lower().split()
        stop = self._store.length(self.log)
        found: list[Item] = []
        while stop > 0:
            start = max(0, stop - _PAGE)
            for entry in reversed(self._store.read(self.log, start, stop)):
                if len(found) == limit:
                    return found
                if not entry.erased and _holds(entry.value, words):
                    found.append(entry.value)
            stop = start
        return found

    def get(self, item_id: str) -> Item:
        """The item of that id that left last.

        Raises:
            NotFound: none has left.
        """
        query = Query(_ITEM, value=_key(item_id), log=self.log, reverse=True)
        for entry in self._store.find(query, limit=1).items:
            if not entry.erased:
                item: Item = entry.value
                return item
        raise NotFound(f"no item {shown(item_id)} has left", "look at `evicted`")


def _holds(item: Any, words: list[str]) -> bool:
    """Whether an item has all the words; what is no item has none."""
    content = item.get("content") if isinstance(item, dict) else None
    return isinstance(content, str) and all(word in content.lower() for word in words)


def is_sliding(item: Mapping[str, Any]) -> bool:
    """Pinned items have no priority."""
    return "priority" in item


def _key(item_id: object) -> str:
    """What an item is found by: of one length, whatever its id."""
    if not isinstance(item_id, str):
        raise Invalid("item_id", f"{shown(item_id)} is no id", "give a str")
    return hashlib.sha256(item_id.encode(errors="surrogatepass")).hexdigest()


_UPDATE_ATTEMPTS = 1_000
#: What states, milestones, packs and receipts are read from: nobody else may say it.
_OWN_EVENTS = frozenset(
    [
        "RUN_START",
        "RUN_FORKED",
        "RUN_RESTORED",
        "MILESTONE",
        "WS_UPDATE_APPLIED",
        "WS_UPDATE_REJECTED",
        "WS_ROLLBACK",
        "WS_REPAIRED",
        "MEMORY_PROPOSE",
        "MEMORY_COMMIT",
        "MEMORY_TOKEN",
        "MEMORY_ABORT",
        "MEMORY_UNDO",
        "RESUME_SNAPSHOT",
        "RUN_ERASED",
    ]
)


class WorkingRun(Recorder):
    """A run, as one of its writers sees it.

    Every change is one commit: the next version of the working set, its event,
    and what had to leave. A refused change leaves its event in a commit of its
    own. What this object remembers is only the version it saw last.
    """

    def __init__(self, store: Store, identity: Identity, config: RunConfig) -> None:
        super().__init__(store, identity)
        self.config = config
        self._archive = Archive(store, identity.run_id, identity.user_id)
        self._name = RUNS + identity.run_id
        self._counter = config.counter()
        self._seen: WorkingSet | None = None

    # The working set

    def load(self) -> WorkingSet:
        """The working set as it is now: a copy of your own."""
        return copy_of(self._load())

    def apply_patch(self, patch: Mapping[str, Any], *, writer_id: str = "api") -> PatchResult:
        """Change the working set if it is still at the patch's `expected_seq`.

        Never raises for what is wrong with the patch: the result says it, and the
        ledger keeps it. Items that no longer fit leave in a stated order and are
        returned.
        """
        return self._apply(patch, writer_id)

    def _apply(
        self, patch: Mapping[str, Any], writer_id: str, staying: Mapping[str, Any] | None = None
    ) -> PatchResult:
        """See `apply_patch`; a patch that makes the item `staying` leave is refused."""
        given: Any = redact(patch)
        try:
            artifacts.check("ws_patch", given)
        except Invalid as error:
            return self._refused(error, f"patch schema: {error}", given, writer_id)
        expected = int(given["expected_seq"])
        try:
            before = self._at_expected(expected)
            after, evicted, tokens = self._next(before, given)
            if staying is not None and staying in evicted:
                raise self._no_room(staying, evicted, tokens)
            told = self._applied(after, given, evicted, tokens, writer_id)
            self._commit(_seq(before), after, told)
        except Conflict as error:
            text = f"LOCK_ERROR expected_seq={expected} current_seq={error.current}"
            return self._refused(error, text, given, writer_id, error.current)
        except LimitExceeded as error:
            return self._refused(error, f"WS_SIZE_ERROR: {error}", given, writer_id)
        except Invalid as error:
            return self._refused(error, f"patch schema: {error}", given, writer_id)
        return PatchResult(True, after, evicted)

    def update(
        self,
        change: Callable[[WorkingSet], Mapping[str, Any]],
        *,
        attempts: int = _UPDATE_ATTEMPTS,
        writer_id: str = "api",
    ) -> PatchResult:
        """Read, let `change` make the patch, apply it; again until nobody was faster.

        `change` gets the working set and returns `set` fields, or a mapping with
        `set` and `ops`. It may run several times, so it must not do anything else.
        As with `apply_patch`, a patch that is refused is told by the result, not raised.

        Raises:
            Invalid: `change` returned no mapping.
        """
        return self._update(change, attempts, writer_id)

    def _update(
        self,
        change: Callable[[WorkingSet], Mapping[str, Any]],
        attempts: int,
        writer_id: str,
        staying: Mapping[str, Any] | None = None,
    ) -> PatchResult:
        with self.recording("update", writer_id):
            require_callable("change", change)
            require_count(attempts, "attempts", least=1)
        for _ in range(attempts):
            now = self.load()
            returned = change(now)
            with self.recording("update", writer_id):
                made = _fields_in(returned)
            if not made.keys() <= {"set", "ops"}:
                made = {"set": made}
            made |= {"_schema_version": artifacts.SCHEMA_VERSION, "expected_seq": _seq(now)}
            made.setdefault("set", {})
            result = self._apply(made, writer_id, staying)
            if result.code != Conflict.code:
                return result
        return result

    def log(
        self,
        event_type: str,
        payload: Mapping[str, Any],
        *,
        writer_id: str = "api",
        parent_event_id: str | None = None,
    ) -> int:
        """Record an event of the agent's own; return its `sequence_id`.

        Raises:
            Invalid: the type or payload is wrong, or the type is one that only the run records.
            NotFound: there is no such run any more.
        """
        with self.recording("log", writer_id):
            if isinstance(event_type, str) and event_type in _OWN_EVENTS:
                own = ", ".join(sorted(_OWN_EVENTS))
                rule = f"record what it stands for; {own} follow from that"
                raise Invalid("event_type", f"{event_type} is the run's own", rule)
            return self.record(event_type, payload, writer_id, parent_event_id)

    # What left

    def evicted(self, *, limit: int = 1_000) -> list[dict[str, Any]]:
        """Items that left the working set, newest first."""
        return self._archive.newest(limit)

    def find_evicted(self, text: str, *, limit: int = 20) -> list[dict[str, Any]]:
        """Evicted items that hold every word of the text, newest first."""
        return self._archive.search(text, limit)

    def page_in(self, item_id: str, *, writer_id: str = "api") -> PatchResult:
        """Bring an evicted item back to where it was: the sliding context, or the pinned one.

        Refused with `limit_exceeded` where it would be the first to leave again.

        Raises:
            NotFound: no such item has left.
        """
        with self.recording("page_in", writer_id):
            item = self._archive.get(item_id)
        field = "sliding_context" if is_sliding(item) else "pinned_context"
        back = [{"op": "upsert", "field": field, "items": [item]}]
        return self._update(lambda _: {"ops": back}, _UPDATE_ATTEMPTS, writer_id, item)

    # History

    def now(self) -> tuple[WorkingSet, int]:
        """The working set and the ledger's length, of one moment whatever others do."""
        found, length = self.stored()
        return working_set_in(found), length

    def stored(self) -> tuple[Document, int]:
        """The newest version, readable or not, and the ledger's length, of one moment."""
        at = self._store.head().position
        found = self._store.get(self._name, at=at)
        if found is None or found.erased:
            raise self._gone()
        return found, self._store.length(self.ledger.log, at=at)

    def version_of(self, seq: int) -> Document | None:
        """The document as it was at a sequence number, readable or not."""
        return self._store.get(self._name, version=_version(seq))

    def at(self, seq: int) -> WorkingSet:
        """The working set as it was at a sequence number."""
        found = self.version_of(seq)
        self.require()  # Versions outlive the run in the store's history.
        if found is None or found.erased or found.kind == GONE:
            raise NotFound(f"{self!r} has no state {seq}", "choose one that its ledger names")
        return working_set_in(found)

    def diff(self, a: int, b: int) -> dict[str, Any]:
        """What changed between two sequence numbers."""
        return diff(self.at(a), self.at(b))

    def rollback(self, seq: int, *, writer_id: str = "api") -> PatchResult:
        """Make the state of an earlier sequence number the newest. Nothing is erased."""
        with self.recording("rollback", writer_id):
            target = self.at(seq)
            for _ in range(_UPDATE_ATTEMPTS):
                # Not what the newest says, only its number: it may be damaged.
                now = self.stored()[0].version - 1
                after = target | {"_update_seq": now + 1}
                payload = {"to_seq": seq, "new_seq": now + 1}
                try:
                    self._commit(now, after, [self.ledger.event("WS_ROLLBACK", payload, writer_id)])
                except Conflict:
                    continue
                return PatchResult(True, after)
            raise Conflict(
                f"{self!r} changed all the time",
                "try again when it is quieter",
                target=self.run_id,
                expected=seq,
                current=now,
            )

    # Inside

    def _load(self) -> WorkingSet:
        found = self._store.get(self._name)
        if found is None or found.erased:
            raise self._gone()
        self._seen = working_set_in(found)
        return self._seen

    def _at_expected(self, expected: int) -> WorkingSet:
        """The working set to change: the one seen last will do, as the commit tests it again."""
        now = self._seen
        if now is None or _seq(now) != expected:
            now = self._load()
        if _seq(now) != expected:
            raise Conflict(
                f"{self!r} is at {_seq(now)}, not {expected}",
                "load it, then patch again",
                target=self.run_id,
                expected=expected,
                current=_seq(now),
            )
        return now

    def _next(
        self, before: WorkingSet, patch: Mapping[str, Any]
    ) -> tuple[WorkingSet, Sequence[dict[str, Any]], int]:
        after = apply_patch(before, patch)
        if self.config.check_transitions:
            require_transition(before["status"], after["status"])
        fitted = fit(after, self.config.budget, self._counter)
        if patch.get("ops"):
            # Item by item the patch was checked before; what is left is how many there are,
            # and that is known only when the ones too many have left.
            artifacts.check_fields({op["field"]: fitted.ws[op["field"]] for op in patch["ops"]})
        left = [*fitted.unpinned, *fitted.evicted]
        return fitted.ws | {"_update_seq": _seq(before) + 1}, left, fitted.tokens

    def _applied(
        self,
        after: WorkingSet,
        patch: Mapping[str, Any],
        evicted: Sequence[dict[str, Any]],
        tokens: int,
        writer_id: str,
    ) -> list[Operation]:
        payload: dict[str, Any] = {"new_seq": _seq(after), "tokens": tokens}
        # Apart: a sliding item may have the id of a pinned one.
        if slid := [item["id"] for item in evicted if is_sliding(item)]:
            payload["evicted"] = slid
        if unpinned := [item["id"] for item in evicted if not is_sliding(item)]:
            payload["unpinned"] = unpinned
        told = self.ledger.event("WS_UPDATE_APPLIED", payload, writer_id, checked={"patch": patch})
        operations: list[Operation] = [told]
        operations += [self._archive.keep(item, writer_id) for item in evicted]
        return operations

    def _no_room(
        self, item: Mapping[str, Any], evicted: Sequence[Mapping[str, Any]], tokens: int
    ) -> LimitExceeded:
        """Why an item cannot come back: it ranks below all that is there, and they fill it."""
        if not is_sliding(item):
            limit, wanted = self.config.most_pinned, self.config.most_pinned + 1
            step = "raise pinned_context_max_items, or add it to the sliding context"
        else:
            limit = self.config.ws_max_tokens
            count = self._counter.count
            wanted = tokens + sum(count(sliding_line(one)) for one in evicted if is_sliding(one))
            step = "remove items that rank above it, or append it with a higher priority"
        what = f"the working set with {shown(item['id'])} in it"
        return LimitExceeded(what, limit=limit, wanted=wanted, next_step=step)

    def _commit(self, before: int, after: WorkingSet, operations: Sequence[Operation]) -> None:
        put = Put(self._name, after, self.user_id, WORKING_SET)
        self.commit([put, *operations], [VersionIs(self._name, _version(before))])
        self._seen = after

    def commit(self, operations: Sequence[Operation], when: Sequence[Condition]) -> None:
        """One commit of the run's; a conflict about its working set speaks of sequence numbers."""
        try:
            self._store.commit(Batch(list(operations), list(when)))
        except Conflict as error:
            if error.target == self._name:
                error.expected, error.current = error.expected - 1, error.current - 1
            raise

    def _refused(
        self,
        error: PagefileError,
        text: str,
        patch: Any,
        writer_id: str,
        current: int | None = None,
    ) -> PatchResult:
        payload: dict[str, Any] = {"error": text[:2_000], "code": error.code}
        expected = patch.get("expected_seq") if isinstance(patch, dict) else None
        if type(expected) is int and 0 <= expected < 2**53:
            payload["expected_seq"] = expected
        if current is not None:
            payload["current_seq"] = current
        try:
            self._record(self.ledger.event("WS_UPDATE_REJECTED", payload, writer_id))
        except NotFound:  # The run ended: that is the answer.
            raise
        except PagefileError as unlogged:
            text = f"{text} (and the refusal could not be recorded: {unlogged})"
        return PatchResult(False, error=text, code=error.code)


def events_of(ledger: Ledger, stop: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Type and payload of the first events that are still readable, oldest first."""
    for entry in ledger.entries(0, stop):
        if not entry.erased:
            yield entry.kind, body_of(entry)["payload"]


def _fields_in(returned: object) -> dict[str, Any]:
    if not isinstance(returned, Mapping):
        raise Invalid("change", f"returned {shown(returned)}", "return a dict of fields")
    return dict(returned)


def _seq(ws: Mapping[str, Any]) -> int:
    return int(ws["_update_seq"])


def _version(seq: int) -> int:
    """Versions of a document count from 1, sequence numbers from 0."""
    if type(seq) is not int or seq < 0:
        raise Invalid("seq", f"{shown(seq)} is no sequence number", "give 0 or more")
    return seq + 1
