"""How a message becomes a slot: one batch, with whatever must happen beside it.

The batch holds the slots, usage texts the store does not have yet, and the
threads that leave residency to make room. All of it commits or none.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from pagefile.context.names import EVICTIONS, THREADS, log_of, require_name, require_text
from pagefile.context.residency import NUMBER_OF_THREADS, Eviction, Leaver, Policy, Residency
from pagefile.context.slot import LANE, BufferSlot, UsageShelf, payload_type_of
from pagefile.errors import (
    Conflict,
    Forbidden,
    Invalid,
    LimitExceeded,
    NotFound,
    PagefileError,
    shown,
)
from pagefile.store import codec
from pagefile.store.arguments import require_count, require_flag
from pagefile.store.batch import (
    Append,
    Batch,
    Condition,
    CreatedAt,
    Drop,
    LengthIs,
    Operation,
    Prune,
)
from pagefile.store.records import Entry
from pagefile.store.store import Store

_NO_NOTES: dict[str, Any] = {}
_PLAIN_TYPES: dict[type, str] = {cls: cls.__name__ for cls in (dict, list, str, int, float, bool)}
#: What refusals call that which depends on other threads too.
_NUMBERS_OF_ALL = (NUMBER_OF_THREADS, "the number of logs", "the number of documents")
_READ_AT_ONCE = 1_000
#: Others may end a thread between our look and our commit.
MOST_ATTEMPTS = 20


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
    leaving: list[Leaver]
    #: The thread was not resident before.
    is_new: bool = False
    #: Whoever leaves does so in a commit of its own, after the append.
    leaves_later: bool = False
    #: The caller gave one; a made key was used by nobody before.
    has_key: bool = False
    #: Whose the thread must be, and what has to hold for it to be theirs still.
    owner: str | None = None
    owned: Sequence[Condition] = ()
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
        self.deletes = not store.is_shared

    def draft(
        self,
        thread_id: str,
        slots: Iterable[NewSlot],
        key: str,
        expected_len: int | None,
        owner: str | None = None,
    ) -> Draft:
        """The batch for these messages.

        Raises:
            Invalid, LimitExceeded: nothing was stored. NotFound: the thread is not `owner`'s.
        """
        log = log_of(thread_id)
        slots = messages(slots)
        if key != "":
            require_name("key", key)
        if expected_len is not None:
            require_count(expected_len, "expected_len")
        owned = () if owner is None else self.owned(thread_id, owner)
        limit, shelf = self._policy.max_slots_per_thread, self._shelf
        operations: list[Operation] = []
        for slot in slots:
            text = slot.usage_instructions
            operations.append(slot_append(log, slot, shelf.digest(text) if text else "", limit))
        unknown = {
            (slot.usage_instructions, slot.user_id)
            for slot in slots
            if not shelf.knows(slot.usage_instructions, slot.user_id)
        }
        if unknown:
            for slot in slots:
                # The texts are stored first, and not for a message that will be refused.
                codec.encode(slot.payload)
            for text, user_id in unknown:
                shelf.put(text, user_id)
        when = owned if expected_len is None else [*owned, LengthIs(log, expected_len)]
        is_new = thread_id not in self._residents
        leaving = self.make_room(thread_id)
        # A repeat of the key must bring the same batch, whoever leaves by then.
        leaves_later = bool(leaving and key)
        if leaving and not leaves_later:
            operations += self.farewell(leaving)
        batch = Batch(operations, when, key)
        had = key != ""
        return Draft(thread_id, slots, batch, leaving, is_new, leaves_later, had, owner, owned)

    def owned(self, thread_id: str, owner: str, *, whole: bool = False) -> list[Condition]:
        """What has to hold in a commit for a thread to be this user's then, as it is now.

        A thread is the user's whose slot is its first; one without slots is anybody's.
        With `whole`, everything that is said in it has to be theirs.

        Raises:
            NotFound: it is another user's. Forbidden: with `whole`, others speak in it too.
        """
        store, log = self._store, log_of(thread_id)
        require_name("owner", owner)
        # First of all: what is read after it may be of a later thread of the same name, and then
        # the condition fails.
        when: list[Condition] = [CreatedAt(log, store.created(log))]
        length = store.length(log)
        entries = store.read(log, 0, length, limit=_READ_AT_ONCE if whole else 1)
        if entries and (entries[0].erased or entries[0].user != owner):
            raise no_thread(thread_id)
        if not entries or whole:
            when.append(LengthIs(log, length))
        while entries and whole:
            if any(not entry.erased and entry.user != owner for entry in entries):
                raise Forbidden(
                    f"others speak in thread {shown(thread_id)} too",
                    "use a key or a handle for the whole tenant",
                )
            entries = store.read(log, entries[-1].index + 1, length, limit=_READ_AT_ONCE)
        return when

    def is_settled(self, thread_id: str) -> bool:
        """Note the thread's use; True when nobody has to leave for it."""
        policy, residents = self._policy, self._residents
        return (
            residents.touch(thread_id, time.monotonic())
            and policy.idle_seconds is None
            and len(residents) <= policy.max_threads
        )

    def may_wait(self, thread_id: str) -> bool:
        """Whether room for the thread must be made, which asks the store."""
        policy, now = self._policy, time.monotonic()
        return self._residents.is_crowded(
            policy.max_threads, now, policy.idle_seconds, newcomer=thread_id
        )

    def make_room(self, thread_id: str, *, beside: str = "") -> list[Leaver]:
        """Note the thread's use; take out of residency whoever must leave for it.

        `beside` is used together with it, and is not among them.
        """
        if not beside and self.is_settled(thread_id):
            return []
        now, policy = time.monotonic(), self._policy
        return self.living(
            self._residents.leaving(
                policy.max_threads, now, policy.idle_seconds, newcomer=thread_id, beside=beside
            )
        )

    def overdue(self) -> list[Leaver]:
        """Take out of residency whoever is over a limit by now."""
        policy = self._policy
        return self._residents.leaving(policy.max_threads, time.monotonic(), policy.idle_seconds)

    def living(self, leaving: Sequence[Leaver]) -> list[Leaver]:
        """Those whom nobody ended meanwhile, from another process or on the store itself."""
        return [one for one in leaving if self._store.has_log(THREADS + one.thread_id)]

    def farewell(self, leaving: Sequence[Leaver]) -> list[Operation]:
        """What a batch must do for those who leave."""
        operations: list[Operation] = []
        for thread_id, reason, _ in leaving:
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
        thread_id, owner = draft.thread_id, draft.owner
        stay = self.stay(thread_id if draft.is_new else "", draft.leaving)
        gone = stay < len(draft.leaving)
        may_help = isinstance(error, NotFound) and gone and not draft.has_key
        if isinstance(error, Conflict) and owner is not None:
            may_help = self.owned(thread_id, owner) != draft.owned
        if not may_help or draft.attempts >= MOST_ATTEMPTS:
            raise in_words_of_threads(thread_id, error) from error
        given = draft.batch.when[len(draft.owned) :]
        expected = next((c.length for c in given if isinstance(c, LengthIs)), None)
        key = draft.batch.key if draft.has_key else ""
        again = self.draft(thread_id, draft.slots, key, expected, owner)
        again.attempts = draft.attempts + 1
        return again

    def stay(self, newcomer: str, leaving: Sequence[Leaver]) -> int:
        """The commit did not happen: who was to leave stays, save those whom others ended.

        How many stay.
        """
        if newcomer:
            self._residents.turn_away(newcomer)
        living = self.living(leaving) if self.deletes else leaving
        self._residents.take_back(living)
        return len(living)

    def made(self, draft: Draft, entries: list[Entry]) -> list[BufferSlot]:
        """The slots that were made, as they are stored.

        Raises:
            NotFound: the key was used in a thread that is gone. Who was to leave stays.
        """
        thread_id, log = draft.thread_id, THREADS + draft.thread_id
        made = [entry for entry in entries if entry.log == log]
        if draft.has_key:
            try:
                _require_there(draft, made)
            except NotFound:
                self.stay(thread_id if draft.is_new else "", draft.leaving)
                raise
        return [
            BufferSlot(entry, thread_id, slot.usage_instructions)
            for entry, slot in zip(made, draft.slots, strict=True)
        ]

    def tell(self, leaving: Sequence[Leaver]) -> list[Eviction]:
        """The commit is through: say who left.

        Not under the guard: whoever listens may wait for others who use threads.
        """
        gone = [Eviction(one.thread_id, one.reason, self.deletes) for one in leaving]
        self._residents.tell(gone)
        return gone


def messages(slots: Iterable[NewSlot]) -> tuple[NewSlot, ...]:
    """The messages, if that is what they are."""
    try:
        found = tuple(slots)
    except TypeError:
        raise Invalid("slots", f"{shown(slots)} is no list", "give a list of NewSlot(…)") from None
    if not found:
        raise Invalid("slots", "there are none", "give at least one message")
    for at, slot in enumerate(found):
        if not isinstance(slot, NewSlot):
            raise Invalid(f"slots[{at}]", f"{shown(slot)} is no message", "give a NewSlot(…)")
    return found


def _require_there(draft: Draft, made: list[Entry]) -> None:
    """A key that was used before leads to its slots, which may be gone by now."""
    bodies = [codec.encode(slot.payload)[1] for slot in draft.slots]
    found = [
        body if entry.erased else entry.body for entry, body in zip(made, bodies, strict=False)
    ]
    if found != bodies:
        raise NotFound(
            f"key {draft.batch.key!r} was used in a thread {draft.thread_id!r} that is gone",
            "append with another key",
        )


def slot_append(log: str, slot: NewSlot, usage: str, limit: int) -> Append:
    """The operation that makes a slot."""
    notes = _NO_NOTES
    if (
        slot.own_name is not None
        or slot.is_self_call is not False
        or slot.usage_instructions != ""
        or slot.todo_nudge != ""
    ):
        notes = _notes(slot, usage)
    payload, from_id, to_id = slot.payload, slot.from_id, slot.to_id
    require_name("from_id", from_id)
    require_name("to_id", to_id)
    if slot.user_id is not None:
        require_name("user_id", slot.user_id)
    payload_type = _PLAIN_TYPES.get(type(payload)) or payload_type_of(payload)
    keys = {LANE: (payload_type, from_id, to_id)}
    return Append(log, payload, slot.user_id, "slot", from_id, (), keys, limit, notes)


def _notes(slot: NewSlot, usage: str) -> dict[str, Any]:
    notes: dict[str, Any] = {}
    if slot.own_name is not None:
        require_name("own_name", slot.own_name)
        notes["own_name"] = slot.own_name
    require_flag("is_self_call", slot.is_self_call)
    if slot.is_self_call:
        notes["is_self_call"] = True
    require_text("usage_instructions", slot.usage_instructions)
    if usage:
        notes["usage"] = usage
    require_text("todo_nudge", slot.todo_nudge)
    if slot.todo_nudge:
        notes["todo_nudge"] = slot.todo_nudge
    return notes


def no_thread(thread_id: str) -> NotFound:
    """The refusal of a thread that is not there, or not the caller's: they look the same."""
    return NotFound(f"there is no thread {shown(thread_id)}", "check the id, or use another one")


def in_words_of_threads(thread_id: str, error: PagefileError) -> PagefileError:
    """The store's refusal as the caller of a thread understands it."""
    log = THREADS + thread_id
    if isinstance(error, LimitExceeded) and log in error.what:
        return _full(thread_id, error)
    if isinstance(error, Conflict) and error.target == log:
        return _other_length(thread_id, error)
    return error


def in_words_of_one_thread(error: PagefileError) -> PagefileError:
    """A refusal for the holder of one thread: without how much there is of others."""
    if not isinstance(error, LimitExceeded) or error.what not in _NUMBERS_OF_ALL:
        return error
    full = LimitExceeded(
        "what the store takes",
        limit=error.limit,
        wanted=error.limit + 1,
        next_step="ask whoever gave you this handle to make room",
    )
    full.fact = "there is no room for more in the store"
    full.args = (f"{full.fact}: {full.next_step}",)
    return full


def _full(thread_id: str, error: LimitExceeded) -> LimitExceeded:
    full = LimitExceeded(
        f"thread {thread_id!r}",
        limit=error.limit,
        wanted=error.wanted,
        next_step="start another, fork it at an earlier slot, or raise max_slots_per_thread",
    )
    full.fact = f"Thread {thread_id} exceeded max slots ({error.limit})"
    full.args = (f"{full.fact}: {full.next_step}",)
    return full


def _other_length(thread_id: str, error: Conflict) -> Conflict:
    return Conflict(
        f"thread {thread_id!r} has {_slots(error.current)}, not {error.expected}",
        "read what was added, then append again",
        target=thread_id,
        expected=error.expected,
        current=error.current,
    )


def refused_fork(thread_id: str, child: str, at: int | None, error: PagefileError) -> PagefileError:
    """The store's refusal of a fork as the caller of a thread understands it."""
    if isinstance(error, NotFound):
        return NotFound(f"there is no thread {thread_id!r} to fork", "append to it first")
    if isinstance(error, Conflict) and error.target == THREADS + child:
        return Conflict(
            f"thread {child!r} exists with {_slots(error.current)}",
            "choose another id for the fork",
            target=child,
            expected=error.expected,
            current=error.current,
        )
    if isinstance(error, Invalid) and error.field == "fork.at":
        # Beyond its end, or below what it has let go.
        fact = f"{at} is not within what thread {thread_id!r} has"
        return Invalid("at", fact, "fork at an index it still has, or leave it out for all")
    return error


def _slots(number: int) -> str:
    return "1 slot" if number == 1 else f"{number} slots"
