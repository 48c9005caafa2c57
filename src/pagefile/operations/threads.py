"""Threads and the registry: slots, forks, following, and which call path an id stands for."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec

from pagefile.context.appender import NewSlot as StoredSlot
from pagefile.context.appender import no_thread
from pagefile.context.buffer import ContextBuffer
from pagefile.context.names import THREADS, log_of
from pagefile.context.registry import ThreadRegistry
from pagefile.context.slot import BufferSlot
from pagefile.context.thread import ThreadContext, user_of
from pagefile.errors import NotFound
from pagefile.operations.answer import (
    EVENTS,
    Answer,
    Events,
    Page,
    behind,
    cursor_of,
    encoded,
    iso_of,
    number_in,
    place_in,
)
from pagefile.operations.binder import Number
from pagefile.operations.caller import Caller
from pagefile.operations.operation import delete, get, operation, post, put
from pagefile.store.records import Entry, Receipt

#: Values of these types are stored as the JSON they are, unless something in them has a tag.
_PLAIN = frozenset({"dict", "list", "str", "int", "float", "bool", "NoneType"})
_SECONDS = Annotated[
    float, msgspec.Meta(ge=0, le=86_400, description="End after so long without a slot.")
]
_TAIL = Annotated[int, msgspec.Meta(ge=0, le=1_000, description="The last so many.")]


class Slot(msgspec.Struct, kw_only=True):
    """One message of a thread. `payload` is null when `erased`."""

    thread_id: str
    index: int
    from_id: str
    to_id: str
    payload_type: str
    payload: Any
    timestamp: str
    own_name: str | None
    is_self_call: bool
    usage_instructions: str
    todo_nudge: str
    user_id: str | None
    position: int | None
    erased: bool


class NewSlot(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A message to be appended. `expected_len` refuses unless the thread has so many slots."""

    payload: Any
    from_id: str
    to_id: str
    own_name: str | None = None
    is_self_call: bool = False
    usage_instructions: str = ""
    todo_nudge: str = ""
    user_id: str | None = None
    expected_len: int | None = None


class NewSlots(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Messages to be appended next to each other, all or none."""

    slots: Annotated[list[NewSlot], msgspec.Meta(min_length=1, max_length=1_000)]
    expected_len: int | None = None


class SlotList(msgspec.Struct, kw_only=True):
    """The slots as they are stored."""

    items: list[Slot]


class Thread(msgspec.Struct, kw_only=True):
    """A thread and how many slots it has had."""

    thread_id: str
    length: int


class Pinned(msgspec.Struct, kw_only=True):
    """Whether a thread is kept from leaving."""

    ok: bool
    pinned: bool


class Deleted(msgspec.Struct, kw_only=True):
    """What became of it; `receipt` when its content was erased."""

    ok: bool
    deleted: bool
    receipt: Receipt | None = None


@operation(http=get("/v1/threads", "threads"), whole_tenant=True, says="Ids of threads, in order.")
async def list_threads(caller: Caller, *, limit: int = 100, cursor: str | None = None) -> Page:
    """Ids of threads, in order."""
    place = place_in(cursor)
    names = await caller.pf.store.names(
        "log", prefix=THREADS, after=THREADS + place if place else "", limit=limit
    )
    found = [name.removeprefix(THREADS) for name in names]
    return Page(items=found, cursor=behind(found, limit, ""))


@operation(
    ContextBuffer.get_thread,
    http=get("/v1/threads/{thread_id}", "threads"),
    says="The thread.",
)
async def get_thread(caller: Caller, thread_id: str) -> Answer[Thread]:
    """One thread; `ETag` is its length."""
    length = await _length(caller, thread_id)
    return Answer(Thread(thread_id=thread_id, length=length), version=length)


@operation(
    ContextBuffer.get_thread_slots,
    http=get("/v1/threads/{thread_id}/slots", "threads"),
    says="Slots, oldest first.",
)
async def list_slots(
    caller: Caller,
    thread_id: str,
    *,
    limit: int = 100,
    cursor: str | None = None,
    tail: _TAIL | None = None,
    from_id: str | None = None,
    to_id: str | None = None,
    payload_type: str | None = None,
    at: Number | None = None,
) -> Answer[Page]:
    """Slots of a thread. `tail` gives the last ones; `at` what there was at a position."""
    length = await _length(caller, thread_id)
    view = await caller.pf.context.get_or_create_thread(thread_id)
    if at is not None:
        length = min(length, await caller.pf.store.length(log_of(thread_id), at=at))
    after: str | None = None
    if from_id is not None or to_id is not None or payload_type is not None:
        start = number_in(cursor)
        found = await _matching(view, from_id, to_id, payload_type)
        found = [slot for slot in found if start <= slot.index < length]
        after = cursor_of(found[limit].index) if len(found) > limit else None
        found = found[:limit]
    elif tail is not None:
        found = await view.get_slice(max(0, length - tail), length)
    else:
        start = number_in(cursor)
        stop = min(length, start + limit)
        found = await view.get_slice(start, stop) if start < stop else []
        after = cursor_of(stop) if stop < length else None
    items = [shown(slot) for slot in found if caller.may_see(slot)]
    return Answer(Page(items=items, cursor=after), version=length)


@operation(
    ThreadContext.at,
    http=get("/v1/threads/{thread_id}/slots/{index}", "threads"),
    says="The slot.",
)
async def get_slot(caller: Caller, thread_id: str, index: int) -> Slot:
    """One slot; negative numbers count from the end."""
    await _length(caller, thread_id)
    view = await caller.pf.context.get_or_create_thread(thread_id)
    try:
        slot = await view.at(index)
    except IndexError as error:
        raise NotFound(str(error), "look at the thread's length") from error
    if not caller.may_see(slot):
        raise NotFound("there is no such slot", "look at the thread's length")
    return shown(slot)


@operation(
    ContextBuffer.append,
    http=post("/v1/threads/{thread_id}/slots", "threads", 201),
    says="The slot as it is stored.",
    guard="expected_len",
    is_exact=True,
)
async def append_slot(
    caller: Caller, thread_id: str, body: NewSlot, expected_len: int | None
) -> Answer[Slot]:
    """Append a slot; it is durable when this answers."""
    user_id = caller.user(body.user_id)
    message = (body.payload, body.from_id, body.to_id, body.own_name)
    more = (body.is_self_call, body.usage_instructions, body.todo_nudge)
    own, key = caller.identity.user_id, caller.key

    def append() -> BufferSlot:
        return caller.pf.sync.context.append(
            thread_id,
            *message,
            *more,
            user_id=user_id,
            key=key,
            expected_len=expected_len,
            owner=own,
        )

    if caller.is_large:
        slot = await asyncio.to_thread(append)
    else:
        slot = await caller.pf.context.append(
            thread_id,
            *message,
            *more,
            user_id=user_id,
            key=key,
            expected_len=expected_len,
            owner=own,
        )
    stored = shown_as_given(thread_id, slot.entry, body, user_id)
    return Answer(stored, version=slot.entry.index + 1)


@operation(
    ContextBuffer.append_many,
    http=post("/v1/threads/{thread_id}/slots/batch", "threads", 201),
    says="The slots.",
    guard="expected_len",
    is_exact=True,
)
async def append_slots(
    caller: Caller, thread_id: str, body: NewSlots, expected_len: int | None
) -> Answer[SlotList]:
    """Append several slots in one commit: all of them, next to each other, or none."""
    made = [
        StoredSlot(
            each.payload,
            each.from_id,
            each.to_id,
            each.own_name,
            each.is_self_call,
            each.usage_instructions,
            each.todo_nudge,
            caller.user(each.user_id),
        )
        for each in body.slots
    ]
    stored = await asyncio.to_thread(
        caller.pf.sync.context.append_many,
        thread_id,
        made,
        key=caller.key,
        expected_len=expected_len,
        owner=caller.identity.user_id,
    )
    return Answer(SlotList(items=[shown(slot) for slot in stored]), version=stored[-1].index + 1)


@operation(
    ContextBuffer.fork,
    http=post("/v1/threads/{thread_id}/fork", "threads", 201),
    takes="ForkRequest: Where to fork, and what to call it.",
    may_be_empty=True,
    says="The new thread.",
)
async def fork_thread(
    caller: Caller, thread_id: str, *, at: int | None = None, new_id: str | None = None
) -> Thread:
    """A new thread that shares the first `at` slots, or all; nothing is copied."""
    await _length(caller, thread_id)
    child = await caller.pf.context.fork(
        thread_id, at, new_id=new_id, owner=caller.identity.user_id
    )
    log = log_of(child)
    length = await caller.pf.store.length(log)
    # What is kept of the request names the fork: it goes with whose slots that shows.
    caller.touches(await asyncio.to_thread(user_of, caller.pf.sync.store, log))
    return Thread(thread_id=child, length=length)


@operation(
    ContextBuffer.follow,
    http=get("/v1/threads/{thread_id}/follow", "threads"),
    gives_file=EVENTS,
    says="Events named `slot`, their ids are indexes.",
    resumes=True,
)
async def follow_thread(
    caller: Caller,
    thread_id: str,
    *,
    after: Annotated[int, msgspec.Meta(ge=-1, le=10**15)] | None = None,
    seconds: _SECONDS | None = None,
) -> Events:
    """New slots as server-sent events: behind `after`, or what comes from now on."""
    await caller.require_own_thread(thread_id)
    followed = caller.pf.context.follow(thread_id, after, timeout=seconds)

    def event(slot: BufferSlot) -> tuple[int, bytes] | None:
        return (slot.index, encoded(shown(slot))) if caller.may_see(slot) else None

    return Events(followed, "slot", event)


@operation(ContextBuffer.pin, http=put("/v1/threads/{thread_id}/pin", "threads"), says="It stays.")
async def pin_thread(caller: Caller, thread_id: str) -> Pinned:
    """Never let a thread leave for others; in the process that answers, until that ends."""
    await _length(caller, thread_id)
    await caller.pf.context.pin(thread_id)
    return Pinned(ok=True, pinned=True)


@operation(
    ContextBuffer.unpin,
    http=delete("/v1/threads/{thread_id}/pin", "threads"),
    says="It may leave.",
)
async def unpin_thread(caller: Caller, thread_id: str) -> Pinned:
    """The thread may leave again, when its turn comes."""
    await _length(caller, thread_id)
    await caller.pf.context.unpin(thread_id)
    return Pinned(ok=True, pinned=False)


@operation(
    ContextBuffer.delete_thread,
    http=delete("/v1/threads/{thread_id}", "threads"),
    says="It is gone.",
)
async def delete_thread(
    caller: Caller,
    thread_id: str,
    *,
    erase: Annotated[
        bool, msgspec.Meta(description="Remove the content for good, in forks too.")
    ] = False,
) -> Deleted:
    """End a thread. With `erase` its content is removed for good, which needs `admin`."""
    await _length(caller, thread_id)
    if not erase:
        own = caller.identity.user_id
        deleted = await caller.pf.context.delete_thread(thread_id, owner=own)
        return Deleted(ok=True, deleted=deleted)
    caller.require("admin")
    caller.require_whole_tenant()
    receipt = await caller.pf.context.erase_thread(thread_id)
    nameless = msgspec.structs.replace(receipt, removed=())
    caller.leaves_nothing(Deleted(ok=True, deleted=True, receipt=nameless))
    return Deleted(ok=True, deleted=True, receipt=receipt)


async def _length(caller: Caller, thread_id: str) -> int:
    """How many slots a thread has, if the caller may see it."""
    log = log_of(thread_id)
    await caller.require_own_thread(thread_id)
    length = await caller.pf.store.length(log)
    if length == 0 and not await caller.pf.store.has_log(log):
        raise no_thread(thread_id)
    return length


async def _matching(
    view: Any, from_id: str | None, to_id: str | None, payload_type: str | None
) -> list[BufferSlot]:
    found: list[BufferSlot] | None = None
    for asked, look in (
        (from_id, view.get_from),
        (to_id, view.get_to),
        (payload_type, view.get_by_type),
    ):
        if asked is None:
            continue
        some = await look(asked)
        indexes = {slot.index for slot in some}
        found = some if found is None else [slot for slot in found if slot.index in indexes]
    return found or []


def shown_as_given(thread_id: str, entry: Entry, given: NewSlot, user_id: str | None) -> Slot:
    """A slot that was stored just now: what is known need not be read out of it again."""
    payload_type = type(given.payload).__name__
    return Slot(
        thread_id=thread_id,
        index=entry.index,
        from_id=given.from_id,
        to_id=given.to_id,
        payload_type=payload_type,
        payload=_payload(entry, payload_type),
        timestamp=iso_of(entry.time_us),
        own_name=given.own_name,
        is_self_call=given.is_self_call,
        usage_instructions=given.usage_instructions,
        todo_nudge=given.todo_nudge,
        user_id=user_id,
        position=entry.position,
        erased=False,
    )


def shown(slot: BufferSlot) -> Slot:
    """A slot as it is answered with."""
    known = slot.metadata
    return Slot(
        thread_id=slot.thread_id,
        index=slot.index,
        from_id=known.from_id,
        to_id=known.to_id,
        payload_type=known.payload_type,
        payload=None if slot.erased else _payload(slot.entry, known.payload_type),
        timestamp=known.timestamp,
        own_name=known.own_name,
        is_self_call=known.is_self_call,
        usage_instructions=known.usage_instructions,
        todo_nudge=known.todo_nudge,
        user_id=known.user_id,
        position=slot.position,
        erased=slot.erased,
    )


def _payload(entry: Entry, payload_type: str) -> Any:
    body = entry.body
    if payload_type in _PLAIN and b'"$' not in body:
        # The bytes are the JSON: nothing is decoded only to be encoded again.
        return msgspec.Raw(body)
    return entry.value


# The registry


class Activation(msgspec.Struct, kw_only=True):
    """A thread id and the path it stands for."""

    thread_id: str
    path: list[str]
    text: str
    conversation: str | None


class Answered(msgspec.Struct, kw_only=True):
    """Whom to answer; both null when no caller waits."""

    name: str | None
    thread_id: str | None


class Done(msgspec.Struct, kw_only=True):
    """It is so."""

    ok: bool


@operation(
    ThreadRegistry.register_thread,
    http=post("/v1/registry/threads", "registry", 201),
    whole_tenant=True,
    takes=(
        "Registration: A conversation to be started; without `thread_id` its id is made, "
        "under no root."
    ),
    refuses=(404,),
)
async def register(
    caller: Caller,
    *,
    initiator: str,
    target: str,
    thread_id: str | None = None,
    user_id: str | None = None,
    table: str | None = None,
) -> Activation:
    """Start a conversation."""
    registry = caller.pf.registry
    if thread_id is None:
        made = await registry.start_chain(initiator, target, user_id=user_id)
    else:
        made = await registry.register_thread(
            thread_id, initiator, target, user_id=user_id, table=table
        )
    return await _activation(caller, made)


@operation(
    ThreadRegistry.path,
    http=get("/v1/registry/threads/{thread_id}", "registry"),
    whole_tenant=True,
)
async def look_up(caller: Caller, thread_id: str) -> Activation:
    """The path of a thread id."""
    return await _activation(caller, thread_id)


@operation(
    ThreadRegistry.extend_chain,
    http=post("/v1/registry/threads/{thread_id}/call", "registry", 201),
    whole_tenant=True,
    takes="NextHop: Whom to call.",
)
async def call(caller: Caller, thread_id: str, *, next_hop: str) -> Activation:
    """One call from a thread: a new activation with a new id, each time."""
    made = await caller.pf.registry.extend_chain(thread_id, next_hop)
    return await _activation(caller, made)


@operation(
    ThreadRegistry.prune_for_response,
    http=post("/v1/registry/threads/{thread_id}/respond", "registry"),
    whole_tenant=True,
)
async def respond(caller: Caller, thread_id: str) -> Answered:
    """End an activation, and learn whom to answer. Of all who ask, one gets the answer."""
    name, back = await caller.pf.registry.prune_for_response(thread_id)
    return Answered(name=name, thread_id=back)


release = operation(
    ThreadRegistry.cleanup,
    http=delete("/v1/registry/threads/{thread_id}", "registry"),
    whole_tenant=True,
    gives=Done,
)


@operation(
    ThreadRegistry.get_or_create,
    http=post("/v1/registry/paths", "registry"),
    whole_tenant=True,
    takes="Chain: A path by its names alone.",
)
async def path(caller: Caller, *, names: list[str]) -> Activation:
    """The one id of a path given by its names alone."""
    return await _activation(caller, await caller.pf.registry.get_or_create(tuple(names)))


@operation(
    ThreadRegistry.initialize_root,
    http=put("/v1/registry/root", "registry"),
    whole_tenant=True,
    takes="Root: The root of the system, or of a table.",
    may_be_empty=True,
)
async def make_root(
    caller: Caller, *, organism: str = "organism", table: str | None = None
) -> Activation:
    """Make the root of the system or of a table; the same name gives the same id."""
    registry = caller.pf.registry
    if table is None:
        made = await registry.initialize_root(organism)
    else:
        made = await registry.initialize_table_root(table, organism)
    return await _activation(caller, made)


@operation(
    ThreadRegistry.get_table_root,
    http=get("/v1/registry/root", "registry"),
    whole_tenant=True,
    refuses=(404,),
)
async def get_root(caller: Caller, *, table: str | None = None) -> Activation:
    """The root of the system, or of a table."""
    registry = caller.pf.registry
    found = await (registry.root_uuid() if table is None else registry.get_table_root(table))
    if found is None:
        raise NotFound("there is no such root", "make it first")
    return await _activation(caller, found)


async def _activation(caller: Caller, thread_id: str) -> Activation:
    path = await caller.pf.registry.path(thread_id)
    if path is None:
        raise NotFound("no such thread is registered", "register it first")
    return Activation(
        thread_id=thread_id,
        path=list(path.names),
        text=path.text,
        conversation=path.conversation,
    )
