"""Threads and their registry, remote."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, overload

import msgspec

from pagefile.client.calls import MOST_PER_PAGE, Listing, Room, not_offered
from pagefile.client.transport import AsyncLink, Exchange, Link, Talk, answered, decoded
from pagefile.client.values import SlotShown, plain_payload, slot_of
from pagefile.context.appender import NewSlot, messages
from pagefile.context.buffer import ContextBuffer
from pagefile.context.path import parse
from pagefile.context.registry import ThreadRegistry
from pagefile.context.slot import BufferSlot
from pagefile.context.thread import ThreadContext
from pagefile.errors import Forbidden, Invalid, NotFound, shown
from pagefile.operations.answer import cursor_of
from pagefile.operations.threads import Activation, Answered, Deleted, Thread
from pagefile.store import codec
from pagefile.store.records import Receipt

_Unset = msgspec.UnsetType
#: Beyond any index that a server takes.
_MOST_INDEX = 10**15
#: What a message has when it is not said otherwise.
_USUAL = {
    "own_name": None,
    "is_self_call": False,
    "usage_instructions": "",
    "todo_nudge": "",
    "user_id": None,
}


class RemoteThread(Room):
    """A thread; it holds no slots, each look asks for what it shows."""

    library = ThreadContext
    place = "thread"
    known = ("can_write",)

    def __init__(
        self,
        link: Link | AsyncLink,
        thread_id: str,
        *,
        can_write: bool = False,
        shows_position: bool = True,
        user_id: str | _Unset | None = msgspec.UNSET,
    ) -> None:
        super().__init__(link, thread_id=thread_id)
        self.thread_id = thread_id
        self.can_write = can_write
        self._shows_position = shows_position
        self._writes_for = user_id

    def append(
        self,
        payload: Any,
        from_id: str,
        to_id: str,
        own_name: str | None = None,
        is_self_call: bool = False,
        usage_instructions: str = "",
        todo_nudge: str = "",
    ) -> Talk[BufferSlot]:
        if not self.can_write:
            raise Forbidden(
                f"this view of thread {self.thread_id!r} only reads",
                "ask the buffer for handle(thread_id, write=True)",
            )
        user_id = self._writes_for
        if isinstance(user_id, _Unset):
            newest = yield from self._tail(100)
            whose = (slot.metadata.user_id for slot in reversed(newest))
            user_id = next((user for user in whose if user is not None), None)
        slot = NewSlot(
            payload,
            from_id,
            to_id,
            own_name,
            is_self_call,
            usage_instructions,
            todo_nudge,
            self._user(user_id),
        )
        ask = self._ask("context.append", body=_sent(slot))
        shown_slot = yield Exchange(ask, SlotShown)
        return slot_of(shown_slot, shows_position=self._shows_position)

    def length(self) -> Talk[int]:
        """How many slots there have been."""
        try:
            thread = yield Exchange(self._ask("context.get_thread"), Thread)
        except NotFound:
            return 0
        return int(thread.length)

    def at(self, index: int) -> Talk[BufferSlot]:
        """The slot at an index; negative ones count from the end."""
        if type(index) is not int:
            raise Invalid(
                "index", f"{shown(index)} is not an index", "give a whole number or a slice"
            )
        if abs(index) < _MOST_INDEX:
            try:
                answer = yield Exchange(self._ask("thread.at", {"index": index}), SlotShown)
                return self._slot(answer)
            except NotFound:
                pass
        length = yield from RemoteThread.length(self)
        slots = "1 slot" if length == 1 else f"{length} slots"
        raise IndexError(f"thread {self.thread_id!r} has {slots} and none at {shown(index)}")

    def get_slice(self, start: int = 0, end: int | None = None) -> Talk[list[BufferSlot]]:
        """Slots start … end-1; negative numbers count from the end."""
        return (yield from self._sliced(slice(start, end)))

    def tail(self, count: int) -> Talk[list[BufferSlot]]:
        """The last slots, oldest first."""
        if type(count) is not int or count < 0:
            raise Invalid("count", f"{shown(count)} is not a count", "give 0 or more")
        return (yield from self._tail(count))

    def get_by_type(self, payload_type: str | type) -> Talk[list[BufferSlot]]:
        """Slots whose payload is of this class."""
        if isinstance(payload_type, type):
            typed = codec.is_typed(payload_type)
            payload_type = codec.type_name(payload_type) if typed else payload_type.__name__
        return (yield from self._filtered(payload_type=payload_type))

    def get_from(self, from_id: str) -> Talk[list[BufferSlot]]:
        """Slots from this sender."""
        return (yield from self._filtered(from_id=from_id))

    def get_to(self, to_id: str) -> Talk[list[BufferSlot]]:
        """Slots to this recipient."""
        return (yield from self._filtered(to_id=to_id))

    def follow(self, after: int | None = None, *, timeout: float | None = None) -> Any:
        """Slots behind index `after` as they come; see `ThreadContext.follow`."""
        link = self._link
        if after is None and not link.is_awaited:
            # So that what comes between here and the first look is not missed.
            after = link.run(RemoteThread.length(self)) - 1
        given = {"seconds": timeout}
        return link.follow(self._ask("context.follow", given), after, self._made)

    @overload
    def __getitem__(self, at: int) -> BufferSlot: ...
    @overload
    def __getitem__(self, at: slice) -> list[BufferSlot]: ...
    def __getitem__(self, at: int | slice) -> Any:
        talk = self._sliced(at) if isinstance(at, slice) else RemoteThread.at(self, at)
        return self._link.run(talk)

    def __len__(self) -> int:
        return int(self._link.run(RemoteThread.length(self)))

    def __iter__(self) -> Any:
        """The slots there are now; later ones are not seen."""
        return self._link.each(self._turn(len(self)))

    def __aiter__(self) -> Any:
        return self._link.each(self._turn(None))

    def __reversed__(self) -> Any:
        return reversed(self._link.run(self._sliced(slice(None))))

    def __contains__(self, slot: object) -> bool:
        return (
            isinstance(slot, BufferSlot)
            and slot.thread_id == self.thread_id
            and slot.index < len(self)
            and self[slot.index] == slot
        )

    # Inside

    def _slot(self, shown_slot: SlotShown) -> BufferSlot:
        return slot_of(shown_slot, shows_position=self._shows_position)

    def _made(self, data: bytes) -> BufferSlot:
        return self._slot(decoded(data, SlotShown))

    def _turn(self, stop: int | None) -> Callable[[Any], Talk[tuple[list[BufferSlot], Any]]]:
        """Pages of the slots up to `stop`, or that there are when the first page is read."""

        def turn(start: int) -> Talk[tuple[list[BufferSlot], Any]]:
            nonlocal stop
            if stop is None:
                stop = yield from RemoteThread.length(self)
            found = yield from self._between(start, min(start + MOST_PER_PAGE, stop))
            return found, start + MOST_PER_PAGE if start + MOST_PER_PAGE < stop else None

        return turn

    def _listed(self, given: dict[str, Any]) -> Talk[tuple[list[BufferSlot], str | None]]:
        ask = self._ask("context.get_thread_slots", given)
        try:
            page = yield Exchange(ask, Listing[SlotShown])
        except NotFound:
            return [], None
        return [self._slot(each) for each in page.items], page.cursor

    def _between(self, start: int, stop: int) -> Talk[list[BufferSlot]]:
        found: list[BufferSlot] = []
        while start < stop:
            limit = min(stop - start, MOST_PER_PAGE)
            given = {"cursor": cursor_of(start) if start else None, "limit": limit}
            page, more = yield from self._listed(given)
            found += page
            start += limit
            if more is None:
                break
        return found

    def _tail(self, count: int) -> Talk[list[BufferSlot]]:
        if count > MOST_PER_PAGE:
            length = yield from RemoteThread.length(self)
            return (yield from self._between(max(0, length - count), length))
        found, _ = yield from self._listed({"tail": count, "limit": max(1, count)})
        return found

    def _filtered(self, **given: Any) -> Talk[list[BufferSlot]]:
        found: list[BufferSlot] = []
        cursor: str | None = None
        while True:
            page, cursor = yield from self._listed(
                {**given, "limit": MOST_PER_PAGE, "cursor": cursor}
            )
            found += page
            if cursor is None:
                return found

    def _sliced(self, wanted: slice) -> Talk[list[BufferSlot]]:
        length = yield from RemoteThread.length(self)
        try:
            first, last, step = wanted.indices(length)
        except (TypeError, ValueError) as error:
            raise Invalid("slice", str(error), "give whole numbers") from error
        if step == 1:
            return (yield from self._between(first, last))
        numbers = range(first, last, step)
        if not numbers:
            return []
        low, high = min(numbers[0], numbers[-1]), max(numbers[0], numbers[-1])
        found = yield from self._between(low, high + 1)
        picked = found[:: min(abs(step), sys.maxsize)]
        return picked if step > 0 else picked[::-1]


class RemoteContext(Room):
    """The threads of the tenant."""

    library = ContextBuffer
    place = "context"

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
    ) -> Talk[BufferSlot]:
        """Record one message at the end of a thread; see `ContextBuffer.append`."""
        _no_owner(owner, "append")
        slot = NewSlot(
            payload,
            from_id,
            to_id,
            own_name,
            is_self_call,
            usage_instructions,
            todo_nudge,
            self._user(user_id),
        )
        body = _sent(slot)
        if expected_len is not None:
            body["expected_len"] = expected_len
        ask = self._ask("context.append", {"thread_id": thread_id}, body=body, key=key)
        return slot_of((yield Exchange(ask, SlotShown)))

    def append_many(
        self,
        thread_id: str,
        slots: Iterable[NewSlot],
        *,
        key: str = "",
        expected_len: int | None = None,
        owner: str | None = None,
    ) -> Talk[list[BufferSlot]]:
        """Record several messages in one commit; see `ContextBuffer.append_many`."""
        _no_owner(owner, "append_many")
        made = [
            _sent(msgspec.structs.replace(slot, user_id=self._user(slot.user_id)))
            for slot in messages(slots)
        ]
        body = {"slots": made, "expected_len": expected_len}
        ask = self._ask("context.append_many", {"thread_id": thread_id}, body=body, key=key)
        answer = yield Exchange(ask, Listing[SlotShown])
        return [slot_of(each) for each in answer.items]

    def fork(
        self,
        thread_id: str,
        at: int | None = None,
        *,
        new_id: str | None = None,
        owner: str | None = None,
    ) -> Talk[str]:
        """A new thread that shares the first `at` slots; return its id."""
        _no_owner(owner, "fork")
        given = {"thread_id": thread_id, "at": at, "new_id": new_id}
        made = yield Exchange(self._ask("context.fork", given), Thread)
        return str(made.thread_id)

    def get_thread(self, thread_id: str) -> Talk[Any]:
        """A live, read-only view of a thread; None when there is no such thread."""
        exists = yield from RemoteContext.thread_exists(self, thread_id)
        return self._thread(thread_id) if exists else None

    def get_or_create_thread(self, thread_id: str) -> Talk[Any]:
        """A live, read-only view of a thread, which comes into being with its first slot."""
        yield from ()
        return self._thread(thread_id)

    def get_thread_slots(self, thread_id: str) -> Talk[list[BufferSlot]]:
        """All slots of a thread; none when there is no such thread."""
        view = self._thread(thread_id)
        found: list[BufferSlot] = []
        cursor: str | None = None
        while True:
            page, cursor = yield from view._listed({"limit": MOST_PER_PAGE, "cursor": cursor})
            found += page
            if cursor is None:
                return found

    def thread_exists(self, thread_id: str) -> Talk[bool]:
        ask = self._ask("context.get_thread", {"thread_id": thread_id})
        try:
            yield Exchange(ask, Thread)
        except NotFound:
            return False
        return True

    def handle(
        self,
        thread_id: str,
        *,
        write: bool = False,
        user_id: str | _Unset | None = msgspec.UNSET,
    ) -> Talk[Any]:
        """Access to this one thread; it shows no positions."""
        yield from ()
        return self._thread(thread_id, can_write=write, shows_position=False, user_id=user_id)

    def follow(
        self, thread_id: str, after: int | None = None, *, timeout: float | None = None
    ) -> Any:
        """New slots as they come; see `ContextBuffer.follow`."""
        return self._thread(thread_id).follow(after, timeout=timeout)

    def pin(self, thread_id: str) -> Talk[None]:
        """Never let this thread leave, in the process that answers."""
        yield Exchange(self._ask("context.pin", {"thread_id": thread_id}), bytes)

    def unpin(self, thread_id: str) -> Talk[None]:
        """The thread may leave again, when its turn comes."""
        yield Exchange(self._ask("context.unpin", {"thread_id": thread_id}), bytes)

    def delete_thread(self, thread_id: str, *, owner: str | None = None) -> Talk[bool]:
        """End a thread; True if there was one."""
        _no_owner(owner, "delete_thread")
        ask = self._ask("context.delete_thread", {"thread_id": thread_id})
        try:
            answer = yield Exchange(ask, Deleted)
        except NotFound:
            return False
        return bool(answer.deleted)

    def erase_thread(self, thread_id: str) -> Talk[Receipt]:
        """Remove the content of all its slots for good, in forks too, and end it."""
        given = {"thread_id": thread_id, "erase": True}
        answer = yield Exchange(self._ask("context.delete_thread", given), Deleted)
        receipt: Receipt = answer.receipt
        return receipt

    def close(self) -> Talk[None]:
        """Nothing of its own to let go of: the handle has the connections."""
        yield from ()

    def _thread(self, thread_id: str, **how: Any) -> Any:
        from pagefile.context.names import log_of

        log_of(thread_id)
        return self._new(RemoteThread, thread_id=thread_id, **how)


def _sent(slot: NewSlot) -> dict[str, Any]:
    """A message as it is sent; what says nothing is left out."""
    sent: dict[str, Any] = {
        "payload": plain_payload(slot.payload),
        "from_id": slot.from_id,
        "to_id": slot.to_id,
    }
    for name, usual in _USUAL.items():
        value = getattr(slot, name)
        if value is not usual and value != "":
            sent[name] = value
    return sent


def _no_owner(owner: str | None, method: str) -> None:
    if owner is not None:
        # A server looks at this itself, for keys that are bound to one user.
        raise not_offered(RemoteContext, f"{method}(owner=…)")


class RemoteRegistry(Room):
    """Which call paths the threads of the tenant stand for."""

    library = ThreadRegistry
    place = "registry"

    def register_thread(
        self,
        thread_id: str,
        initiator: str,
        target: str,
        *,
        user_id: str | None = None,
        table: str | None = None,
    ) -> Talk[str]:
        given = {"thread_id": thread_id, "initiator": initiator, "target": target}
        return (
            yield from self._activated("register_thread", user_id=user_id, table=table, **given)
        )

    def start_chain(self, initiator: str, target: str, *, user_id: str | None = None) -> Talk[str]:
        given = {"initiator": initiator, "target": target, "user_id": user_id}
        return (yield from self._activated("register_thread", **given))

    def extend_chain(self, current_uuid: str, next_hop: str) -> Talk[str]:
        given = {"thread_id": current_uuid, "next_hop": next_hop}
        return (yield from self._activated("extend_chain", **given))

    def prune_for_response(self, thread_id: str) -> Talk[tuple[str | None, str | None]]:
        ask = self._ask("registry.prune_for_response", {"thread_id": thread_id})
        answer = yield Exchange(ask, Answered)
        return answer.name, answer.thread_id

    def get_or_create(self, chain: str | Sequence[str]) -> Talk[str]:
        names = parse(chain) if isinstance(chain, str) else chain
        return (yield from self._activated("get_or_create", names=list(names)))

    def initialize_root(self, organism_name: str = "organism") -> Talk[str]:
        return (yield from self._activated("initialize_root", organism=organism_name))

    def initialize_table_root(self, table: str, organism: str) -> Talk[str]:
        return (yield from self._activated("initialize_root", organism=organism, table=table))

    def get_table_root(self, table: str) -> Talk[str | None]:
        found = yield from self._root(table)
        return None if found is None else found.thread_id

    @property
    def root_uuid(self) -> Talk[str | None]:
        found = yield from self._root(None)
        return None if found is None else found.thread_id

    @property
    def root_chain(self) -> Talk[str]:
        found = yield from self._root(None)
        return "system" if found is None else found.text

    def lookup(self, thread_id: str) -> Talk[str | None]:
        found = yield from self._looked_up(thread_id)
        return None if found is None else found.text

    def close(self) -> Talk[None]:
        """Nothing of its own to let go of: the handle has the connections."""
        yield from ()

    def _root(self, table: str | None) -> Talk[Activation | None]:
        try:
            return (
                yield from answered(
                    self._ask("registry.get_table_root", {"table": table}), Activation
                )
            )
        except NotFound:
            return None

    def _looked_up(self, thread_id: str) -> Talk[Activation | None]:
        try:
            return (
                yield from answered(
                    self._ask("registry.path", {"thread_id": thread_id}), Activation
                )
            )
        except NotFound:
            return None

    def _activated(self, method: str, **given: Any) -> Talk[str]:
        made = yield Exchange(self._ask(f"registry.{method}", given), Activation)
        return str(made.thread_id)
