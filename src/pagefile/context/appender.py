"""How a message becomes a slot: one batch, with whatever must happen beside it.

The batch holds the slots, usage texts the store does not have yet, and the
threads that leave residency to make room. All of it commits or none.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from pagefile.batch import Append, Batch, Drop, LengthIs, Operation, Prune
from pagefile.context.names import EVICTIONS, THREADS, log_of
from pagefile.context.policy import Policy
from pagefile.context.residency import Eviction, Reason, Residency
from pagefile.context.slot import LANE, BufferSlot, payload_type_of
from pagefile.context.usage import UsageShelf
from pagefile.errors import Conflict, Invalid, LimitExceeded, NotFound, PagefileError, shown
from pagefile.records import Entry
from pagefile.store import Store

_NO_NOTES: dict[str, Any] = {}
_PLAIN_TYPES: dict[type, str] = {cls: cls.__name__ for cls in (dict, list, str, int, float, bool)}
#: Others may end a thread between our look and our commit.
_MOST_ATTEMPTS = 20


class NewSlot(msgspec.Struct, frozen=True):
    """One message on its way into a thread."""

    payload: Any
    from_id: str
    to_id: str
    own_name: str | None = None
    is_self_call: bool = False
    usage_instructions: str = ""
    todo_nudge: str = ""
    user_id: str | None = None


class Draft(msgspec.Struct, gc=False):
    """One append on its way, and what it takes along."""

    thread_id: str
    slots: Sequence[NewSlot]
    batch: Batch
    leaving: list[tuple[str, Reason]]
    #: What leaves in a commit of its own, after the append.
    later: Batch | None = None
    attempts: int = 1


class Appender:
    """Makes batches from messages, and slots from what was committed."""

    def __init__(
        self, store: Store, shelf: UsageShelf, residents: Residency, policy: Policy
    ) -> None:
        self._store = store
        self._shelf = shelf
        self._residents = residents
        self._policy = policy
        #: Where nothing outlives the process, leaving residency means the end.
        self.deletes = store.durability == "none"

    def draft(
        self, thread_id: str, slots: Iterable[NewSlot], key: str, expected_len: int | None
    ) -> Draft:
        """The batch for these messages.

        Raises:
            Invalid, LimitExceeded: nothing was stored.
        """
        log = log_of(thread_id)
        slots = tuple(slots)
        if not slots:
            raise Invalid("slots", "there are none", "give at least one message")
        operations: list[Operation] = []
        limit, shelf = self._policy.max_slots_per_thread, self._shelf
        for slot in slots:
            text = slot.usage_instructions
            operations.append(slot_append(log, slot, shelf.put(text) if text else "", limit))
        batch = Batch(
            operations, () if expected_len is None else [LengthIs(log, expected_len)], key
        )
        leaving = self.make_room(thread_id)
        if not leaving:
            return Draft(thread_id, slots, batch, leaving)
        farewell = self.farewell(leaving)
        if key:
            # A repeat of the key must bring the same batch, whoever leaves by then.
            return Draft(thread_id, slots, batch, leaving, Batch(farewell))
        operations += farewell
        return Draft(thread_id, slots, batch, leaving)

    def is_settled(self, thread_id: str) -> bool:
        """Note the thread's use; True when nobody has to leave for it."""
        policy, residents = self._policy, self._residents
        return (
            residents.touch(thread_id, time.monotonic())
            and policy.idle_seconds is None
            and len(residents) <= policy.max_threads
        )

    def make_room(self, thread_id: str) -> list[tuple[str, Reason]]:
        """Note the thread's use; take out of residency whoever must leave for it."""
        if self.is_settled(thread_id):
            return []
        now, policy = time.monotonic(), self._policy
        is_here = thread_id in self._residents
        idle_before = None if policy.idle_seconds is None else now - policy.idle_seconds
        room_for = 0 if is_here else 1
        return self._residents.leaving(room_for, policy.max_threads, idle_before, keep=thread_id)

    def overdue(self) -> list[tuple[str, Reason]]:
        """Take out of residency whoever is over a limit by now."""
        policy = self._policy
        idle_before = None
        if policy.idle_seconds is not None:
            idle_before = time.monotonic() - policy.idle_seconds
        return self._residents.leaving(0, policy.max_threads, idle_before)

    def farewell(self, leaving: list[tuple[str, Reason]]) -> list[Operation]:
        """What a batch must do for those who leave."""
        operations: list[Operation] = []
        for thread_id, reason in leaving:
            if self.deletes:
                log = THREADS + thread_id
                operations += [Prune(None, log=log), Drop(log)]
            event = {"thread_id": thread_id, "reason": reason, "deleted": self.deletes}
            operations.append(Append(EVICTIONS, event, kind="eviction"))
        return operations

    def after(self, draft: Draft, error: PagefileError) -> Draft:
        """Another draft, where trying again can help; raises where it cannot.

        Raises:
            PagefileError: the error itself, in the words of threads.
        """
        self._residents.take_back(draft.leaving, 0.0)
        may_help = isinstance(error, NotFound) and draft.leaving
        if not may_help or draft.attempts >= _MOST_ATTEMPTS:
            raise in_words_of_threads(draft.thread_id, error) from error
        self.drop_the_gone(draft.leaving)
        expected = next((c.length for c in draft.batch.when if isinstance(c, LengthIs)), None)
        again = self.draft(draft.thread_id, draft.slots, "", expected)
        again.attempts = draft.attempts + 1
        return again

    def drop_the_gone(self, leaving: list[tuple[str, Reason]]) -> None:
        """Somebody else ended threads that were to leave."""
        for thread_id, _ in leaving:
            if not self._store.has_log(THREADS + thread_id):
                self._residents.remove(thread_id)

    def done(self, draft: Draft, entries: list[Entry]) -> list[BufferSlot]:
        """The slots that were made, as they are stored."""
        thread_id, log = draft.thread_id, THREADS + draft.thread_id
        if draft.leaving or thread_id not in self._residents:
            self.admitted(thread_id, draft.leaving)
        made = zip((e for e in entries if e.log == log), draft.slots, strict=True)
        return [BufferSlot(entry, thread_id, slot.usage_instructions) for entry, slot in made]

    def admitted(self, thread_id: str, leaving: list[tuple[str, Reason]]) -> list[Eviction]:
        """The commit is through: note who came, tell who left."""
        if thread_id:
            self._residents.admit(thread_id, time.monotonic())
        gone = [Eviction(name, reason, self.deletes) for name, reason in leaving]
        self._policy.announce(gone)
        return gone


def slot_append(log: str, slot: NewSlot, usage: str, limit: int) -> Append:
    """The operation that makes a slot."""
    notes = _NO_NOTES
    if slot.own_name is not None or slot.is_self_call or usage or slot.todo_nudge:
        notes = _notes(slot, usage)
    payload, from_id, to_id = slot.payload, slot.from_id, slot.to_id
    if type(from_id) is not str or type(to_id) is not str:
        _text("from_id", from_id)
        _text("to_id", to_id)
    payload_type = _PLAIN_TYPES.get(type(payload)) or payload_type_of(payload)
    keys = {LANE: (payload_type, from_id, to_id)}
    return Append(log, payload, slot.user_id, "slot", from_id, (), keys, limit, notes)


def _notes(slot: NewSlot, usage: str) -> dict[str, Any]:
    notes: dict[str, Any] = {}
    if slot.own_name is not None:
        notes["own_name"] = _text("own_name", slot.own_name)
    if slot.is_self_call:
        notes["is_self_call"] = True
    if usage:
        notes["usage"] = usage
    if slot.todo_nudge:
        notes["todo_nudge"] = _text("todo_nudge", slot.todo_nudge)
    return notes


def _text(field: str, value: object) -> str:
    if type(value) is not str:
        raise Invalid(field, f"{shown(value)} is no text", "give a str")
    return value


def in_words_of_threads(thread_id: str, error: PagefileError) -> PagefileError:
    """The store's refusal as the caller of a thread understands it."""
    log = THREADS + thread_id
    if isinstance(error, LimitExceeded) and log in error.what:
        return _full(thread_id, error)
    if isinstance(error, Conflict) and error.target == log:
        return _other_length(thread_id, error)
    return error


def _full(thread_id: str, error: LimitExceeded) -> LimitExceeded:
    full = LimitExceeded(
        f"thread {thread_id!r}",
        limit=error.limit,
        wanted=error.wanted,
        next_step="fork it, start another, or raise max_slots_per_thread",
    )
    full.fact = f"Thread {thread_id} exceeded max slots ({error.limit})"
    full.args = (f"{full.fact}: {full.next_step}",)
    return full


def _other_length(thread_id: str, error: Conflict) -> Conflict:
    return Conflict(
        f"thread {thread_id!r} has {error.current} slots, not {error.expected}",
        "read what was added, then append again",
        target=thread_id,
        expected=error.expected,
        current=error.current,
    )
