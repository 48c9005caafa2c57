"""The context buffer: what agents saw, thread by thread, for ever."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec

from pagefile.context.appender import (
    MOST_ATTEMPTS,
    Appender,
    NewSlot,
    in_words_of_one_thread,
    in_words_of_threads,
    messages,
    refused_fork,
    slot_append,
)
from pagefile.context.backend import Backend, store_behind
from pagefile.context.names import THREADS, log_of, require_name
from pagefile.context.residency import Eviction, Leaver, Policy, ending, residency_of
from pagefile.context.slot import BufferSlot, UsageShelf, without_position
from pagefile.context.thread import (
    AsyncSlotFollower,
    Reader,
    SlotFollower,
    ThreadContext,
    Writer,
    reader_of,
    user_of,
)
from pagefile.errors import Conflict, LimitExceeded, NotFound, PagefileError
from pagefile.store import clock
from pagefile.store.arguments import require_count, require_flag
from pagefile.store.batch import Batch, Drop, Fork, Operation, Prune, Selector
from pagefile.store.records import Receipt

_NAMES_AT_ONCE = 1_000


class ContextBuffer:
    """Threads of immutable slots in a store.

    `backend` is a `Store`, an open handle or a URL; None is a store in memory.
    `max_slots_per_thread` refuses an append inside its commit, never passed by
    a race. `max_threads` and `idle_seconds` bound what stays resident: the
    least recently used threads leave first, pinned ones never, each with an
    `Eviction` for `on_evict` and an entry in the store. On a durable store
    leaving frees memory only; on `memory:` the thread is deleted.
    """

    def __init__(
        self,
        backend: Backend | None = None,
        *,
        max_slots_per_thread: int = 10_000,
        max_threads: int = 1_000,
        idle_seconds: float | None = None,
        on_evict: Callable[[Eviction], None] | None = None,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        self._policy = Policy(max_slots_per_thread, max_threads, idle_seconds, on_evict)
        self._store, self._close = store_behind(backend)
        self._new_id = new_id or (lambda: str(clock.uuid4()))
        self._shelf = UsageShelf(self._store)
        self._residents = residency_of(self._store)
        self._residents.listeners.add(self._policy)
        self._appender = Appender(self._store, self._shelf, self._residents, self._policy)
        self._guard: AbstractContextManager[Any] = nullcontext()
        self._deletes = self._appender.deletes
        if self._deletes:
            # No slot may be acknowledged in a thread that is just being deleted.
            self._guard = self._residents.lock
            self._residents.fill(self._ids, time.monotonic())

    # What it is

    @property
    def is_shared(self) -> bool:
        """Whether other processes can open the same store."""
        return self._store.is_shared

    @property
    def max_slots_per_thread(self) -> int:
        return self._policy.max_slots_per_thread

    @max_slots_per_thread.setter
    def max_slots_per_thread(self, limit: int) -> None:
        self._policy.change("max_slots_per_thread", limit)

    @property
    def max_threads(self) -> int:
        return self._policy.max_threads

    @max_threads.setter
    def max_threads(self, limit: int) -> None:
        self._policy.change("max_threads", limit)

    @property
    def idle_seconds(self) -> float | None:
        return self._policy.idle_seconds

    @idle_seconds.setter
    def idle_seconds(self, seconds: float | None) -> None:
        self._policy.change("idle_seconds", seconds)

    # Writing

    def append(
        self,
        thread_id: str,
        payload: Any,
        from_id: str,
        to_id: str,
        own_name: str | None = None,
        is_self_call: bool = False,
        usage_instructions: str = "",
        todo_nudge: str = "",
        *,
        user_id: str | None = None,
        key: str = "",
        expected_len: int | None = None,
        owner: str | None = None,
    ) -> BufferSlot:
        """Record one message at the end of a thread; return the slot as it is stored.

        The thread comes into being with its first slot. `key` makes a repeat
        harmless. `expected_len` refuses unless the thread has exactly that many.
        `owner` refuses unless the thread is this user's in the commit: its first
        slot is, or it has none.

        Raises:
            NotFound: the thread is not `owner`'s.
            LimitExceeded: the thread is full; also a `MemoryError`.
            Conflict: the thread does not have `expected_len` slots.
            Invalid: the input breaks a rule. Nothing was stored in any of these.
        """
        slot = NewSlot(
            payload,
            from_id,
            to_id,
            own_name,
            is_self_call,
            usage_instructions,
            todo_nudge,
            user_id,
        )
        unusual = usage_instructions != "" or key != "" or expected_len is not None
        if unusual or owner is not None:
            return self.append_many(
                thread_id, (slot,), key=key, expected_len=expected_len, owner=owner
            )[0]
        # The usual message to a thread that is at hand: no draft is needed.
        appender, log = self._appender, log_of(thread_id)
        operation = slot_append(log, slot, "", self._policy.max_slots_per_thread)
        with self._guard:
            if appender.is_settled(thread_id):
                try:
                    entry = self._store.append(operation)
                except PagefileError as error:
                    raise in_words_of_threads(thread_id, error) from error
                return BufferSlot(entry, thread_id)
        return self.append_many(thread_id, (slot,))[0]

    async def append_async(
        self,
        thread_id: str,
        payload: Any,
        from_id: str,
        to_id: str,
        own_name: str | None = None,
        is_self_call: bool = False,
        usage_instructions: str = "",
        todo_nudge: str = "",
        *,
        user_id: str | None = None,
        key: str = "",
        expected_len: int | None = None,
        owner: str | None = None,
    ) -> BufferSlot:
        """`append` for a running event loop, which it never blocks."""
        handed = (own_name, is_self_call, usage_instructions, todo_nudge, user_id)
        slot = NewSlot(payload, from_id, to_id, *handed)
        log = log_of(thread_id)
        usual = usage_instructions == "" and key == "" and expected_len is None and owner is None
        if usual and not self._deletes and self._appender.is_settled(thread_id):
            operation = slot_append(log, slot, "", self.max_slots_per_thread)
            try:
                entry = await self._store.append_async(operation)
            except PagefileError as error:
                raise in_words_of_threads(thread_id, error) from error
            return BufferSlot(entry, thread_id)
        slots = (slot,)
        made = await self.append_many_async(
            thread_id, slots, key=key, expected_len=expected_len, owner=owner
        )
        return made[0]

    def append_many(
        self,
        thread_id: str,
        slots: Iterable[NewSlot],
        *,
        key: str = "",
        expected_len: int | None = None,
        owner: str | None = None,
    ) -> list[BufferSlot]:
        """Record several messages in one commit: all of them, next to each other, or none."""
        appender = self._appender
        with self._guard:
            draft = appender.draft(thread_id, slots, key, expected_len, owner)
            while True:
                try:
                    entries = self._store.commit_entries(draft.batch)
                    break
                except PagefileError as error:
                    draft = appender.after(draft, error)
            made = appender.made(draft, entries)
            if draft.leaves_later:
                draft.leaving = self._send_off(draft.leaving)
        appender.tell(draft.leaving)
        return made

    async def append_many_async(
        self,
        thread_id: str,
        slots: Iterable[NewSlot],
        *,
        key: str = "",
        expected_len: int | None = None,
        owner: str | None = None,
    ) -> list[BufferSlot]:
        """`append_many` for a running event loop, which it never blocks."""
        if self._store.is_instant:
            return self.append_many(
                thread_id, slots, key=key, expected_len=expected_len, owner=owner
            )
        # Imported here: whoever never awaits does not pay for loading it.
        import asyncio

        appender = self._appender
        slots = messages(slots)
        log_of(thread_id)
        known = all(self._shelf.knows(slot.usage_instructions, slot.user_id) for slot in slots)
        given = (thread_id, slots, key, expected_len, owner)
        if known and owner is None and not appender.may_wait(thread_id):
            draft = appender.draft(*given)
        else:
            draft = await asyncio.to_thread(appender.draft, *given)
        while True:
            try:
                entries = await self._store.commit_entries_async(draft.batch)
                break
            except PagefileError as error:
                draft = await asyncio.to_thread(appender.after, draft, error)
        made = appender.made(draft, entries)
        if draft.leaves_later:
            draft.leaving = await asyncio.to_thread(self._send_off, draft.leaving)
        appender.tell(draft.leaving)
        return made

    def fork(
        self,
        thread_id: str,
        at: int | None = None,
        *,
        new_id: str | None = None,
        owner: str | None = None,
    ) -> str:
        """A new thread that shares the first `at` slots (all, when None); return its id.

        Nothing is copied: it takes the same time whatever the length. Shared
        slots keep their indexes; what either thread appends is its own. It is a
        use of the thread, which does not leave to make room. `owner` refuses
        unless the thread, and the one that has `new_id`, is this user's.

        Raises:
            NotFound: there is no such thread, or not of `owner`. Conflict: `new_id` is taken.
            Invalid: `at` is beyond its end. LimitExceeded: nobody else could leave.
        """
        child = self._new_id() if new_id is None else new_id
        operation = Fork(log_of(child), log_of(thread_id), at)
        if at is not None:
            require_count(at, "at")
        appender = self._appender
        with self._guard:
            is_new = child not in self._residents
            for left in reversed(range(MOST_ATTEMPTS)):
                when = () if owner is None else appender.owned(thread_id, owner)
                if owner is not None:
                    appender.owned(child, owner)
                leaving = appender.make_room(child, beside=thread_id)
                try:
                    self._store.commit(Batch([operation, *appender.farewell(leaving)], when))
                    break
                except PagefileError as error:
                    stay = appender.stay(child if is_new else "", leaving)
                    may_help = isinstance(error, NotFound) and stay < len(leaving)
                    if isinstance(error, Conflict) and owner is not None:
                        appender.owned(child, owner)
                        may_help = appender.owned(thread_id, owner) != when
                    if not may_help or not left:
                        raise refused_fork(thread_id, child, at, error) from error
        appender.tell(leaving)
        return child

    # Reading

    def get_thread(self, thread_id: str) -> ThreadContext | None:
        """A live, read-only view of a thread; None when there is no such thread."""
        if not self.thread_exists(thread_id):
            return None
        self._residents.touch(thread_id, time.monotonic())
        return ThreadContext(thread_id, reader=self._reader(thread_id))

    def get_or_create_thread(self, thread_id: str) -> ThreadContext:
        """A live, read-only view of a thread, which comes into being with its first slot."""
        reader = self._reader(thread_id)
        self._residents.touch(thread_id, time.monotonic())
        return ThreadContext(thread_id, reader=reader)

    def get_thread_slots(self, thread_id: str) -> list[BufferSlot]:
        """All slots of a thread; none when there is no such thread."""
        return list(self.get_or_create_thread(thread_id))

    def thread_exists(self, thread_id: str) -> bool:
        return self._store.has_log(log_of(thread_id))

    def handle(
        self,
        thread_id: str,
        *,
        write: bool = False,
        user_id: str | msgspec.UnsetType | None = msgspec.UNSET,
    ) -> ThreadContext:
        """Access to this one thread, to hand to code that must not reach any other.

        It offers no other thread, position or count. It is no sandbox: code that
        looks into private attributes finds what the handle is made of. What is
        written through it belongs to `user_id`; if not given, to the user of the
        thread's newest slots, so that it is forgotten with what it answers.
        """
        require_flag("write", write)
        if not (user_id is None or isinstance(user_id, msgspec.UnsetType)):
            require_name("user_id", user_id)
        reader = self._reader(thread_id, shows_position=False)
        return ThreadContext(
            thread_id, reader=reader, writer=self._writer(thread_id, user_id) if write else None
        )

    def _reader(self, thread_id: str, *, shows_position: bool = True) -> Reader:
        return reader_of(
            self._store, self._shelf, thread_id, self._residents, shows_position=shows_position
        )

    def _writer(self, thread_id: str, user_id: str | msgspec.UnsetType | None) -> Writer:
        log = log_of(thread_id)

        def whose() -> str | None:
            if not isinstance(user_id, msgspec.UnsetType):
                return user_id
            return user_of(self._store, log)

        def shown(slot: BufferSlot) -> BufferSlot:
            return BufferSlot(without_position(slot.entry), thread_id, slot.usage_text)

        def write(*slot: Any) -> BufferSlot:
            try:
                return shown(self.append(thread_id, *slot, user_id=whose()))
            except LimitExceeded as error:
                refused = in_words_of_one_thread(error)
            # Out here, or it would carry the other along as its context.
            raise refused

        async def write_async(*slot: Any) -> BufferSlot:
            try:
                user = await asyncio.to_thread(whose)
                return shown(await self.append_async(thread_id, *slot, user_id=user))
            except LimitExceeded as error:
                refused = in_words_of_one_thread(error)
            raise refused

        return Writer(write, write_async)

    def follow(
        self, thread_id: str, after: int | None = None, *, timeout: float | None = None
    ) -> SlotFollower:
        """See `ThreadContext.follow`; a thread that is not there yet is waited for."""
        return self.get_or_create_thread(thread_id).follow(after, timeout=timeout)

    def follow_async(
        self, thread_id: str, after: int | None = None, *, timeout: float | None = None
    ) -> AsyncSlotFollower:
        """`follow` for an event loop, which it never blocks."""
        return self.get_or_create_thread(thread_id).follow_async(after, timeout=timeout)

    def get_stats(self) -> dict[str, Any]:
        """How many threads and slots there are, what bounds them, and the ids."""
        ids = list(self._ids())
        return {
            "thread_count": len(ids),
            "total_slots": sum(self._store.length(THREADS + thread_id) for thread_id in ids),
            "max_threads": self.max_threads,
            "max_slots_per_thread": self.max_slots_per_thread,
            "resident_threads": len(self._residents),
            "threads": ids,
            "backend": "shared" if self.is_shared else "local",
        }

    # Keeping and letting go

    def pin(self, thread_id: str) -> None:
        """Never evict this thread."""
        log_of(thread_id)
        self._residents.pin(thread_id)

    def unpin(self, thread_id: str) -> None:
        """The thread may leave again, when its turn comes."""
        log_of(thread_id)
        self._residents.unpin(thread_id, time.monotonic())

    def sweep(self) -> list[Eviction]:
        """Let the idle, and whoever is over the limit, leave now instead of at the next append."""
        gone: list[Leaver] = []
        with self._guard:
            while leaving := self._appender.overdue():
                gone += self._send_off(leaving)
        return self._appender.tell(gone)

    def _send_off(self, leaving: list[Leaver]) -> list[Leaver]:
        """Let them leave in a commit of their own; those who did, others may have been faster."""
        while leaving := self._appender.living(leaving):
            try:
                self._store.commit(Batch(self._appender.farewell(leaving)))
                break
            except PagefileError as error:
                if not isinstance(error, NotFound):
                    self._residents.take_back(leaving)
                    raise
        return leaving

    def delete_thread(self, thread_id: str, *, owner: str | None = None) -> bool:
        """End a thread; True if there was one. What forks share of it stays theirs.

        `owner` refuses unless all that is said in it is this user's.

        Raises:
            NotFound: the thread is not `owner`'s. Forbidden: others speak in it too.
            Conflict: others kept writing to it.
        """
        log = log_of(thread_id)
        operations: list[Operation] = [Prune(None, log=log), Drop(log)]
        with self._guard:
            for left in reversed(range(1 if owner is None else MOST_ATTEMPTS)):
                when = () if owner is None else self._appender.owned(thread_id, owner, whole=True)
                try:
                    with ending(self._store, operations):
                        self._store.commit(Batch(operations, when))
                    return True
                except NotFound:
                    break
                except Conflict as error:
                    if not left:
                        raise in_words_of_threads(thread_id, error) from error
            self._residents.remove(thread_id)
        return False

    def erase_thread(self, thread_id: str) -> Receipt:
        """Remove the content of all its slots for good, in forks too, and end it."""
        log = log_of(thread_id)
        with self._guard:
            receipt = self._store.erase(Selector(log=log))
            self._residents.remove(thread_id)
        return receipt

    def clear(self) -> None:
        """Delete every thread of this tenant, for all processes; limits stay."""
        for thread_id in self._ids():
            self.delete_thread(thread_id)

    def close(self) -> None:
        """Close the store, if this buffer opened it from a URL."""
        self._close()

    def _ids(self) -> Iterator[str]:
        after = ""
        while True:
            names = self._store.names("log", prefix=THREADS, after=after, limit=_NAMES_AT_ONCE)
            yield from (name.removeprefix(THREADS) for name in names)
            if len(names) < _NAMES_AT_ONCE:
                return
            after = names[-1]
