"""Threads: slots, forks, and following them as they grow."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request, Response

from pagefile.context.appender import NewSlot as StoredSlot
from pagefile.context.appender import no_thread
from pagefile.context.names import THREADS, log_of
from pagefile.context.reader import user_of
from pagefile.context.slot import BufferSlot
from pagefile.errors import Conflict, NotFound
from pagefile.store.records import Receipt
from pagefile.surfaces.access.identity import Identity
from pagefile.surfaces.http import etag, slots
from pagefile.surfaces.http.bodies import LARGE_BYTES, body_of, encoded, reply
from pagefile.surfaces.http.call import Caller, caller_of
from pagefile.surfaces.http.idempotency import key_in
from pagefile.surfaces.http.openapi import GUARDS, RESUMES, told
from pagefile.surfaces.http.ownership import may_see, require_own_thread
from pagefile.surfaces.http.pagination import (
    Cursor,
    Limit,
    Page,
    cursor_of,
    number_in,
    page_by_name,
    place_in,
)
from pagefile.surfaces.http.sse import MEDIA_TYPE, after_of, event_stream

router = APIRouter(prefix="/v1/threads", tags=["threads"])

_MOST_NUMBER = 10**15
Position = Annotated[int | None, Query(ge=0, le=_MOST_NUMBER, description="As of a position.")]


class Thread(msgspec.Struct, kw_only=True):
    """A thread and how many slots it has had."""

    thread_id: str
    length: int


class NewSlots(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Messages to be appended next to each other, all or none."""

    slots: Annotated[list[slots.NewSlot], msgspec.Meta(min_length=1, max_length=1_000)]
    expected_len: int | None = None


class SlotList(msgspec.Struct, kw_only=True):
    """The slots as they are stored."""

    items: list[slots.Slot]


class ForkRequest(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Where to fork, and what to call it."""

    at: int | None = None
    new_id: str | None = None


class Pinned(msgspec.Struct, kw_only=True):
    """Whether a thread is kept from leaving."""

    ok: bool
    pinned: bool


class Deleted(msgspec.Struct, kw_only=True):
    """What became of it; `receipt` when its content was erased."""

    ok: bool
    deleted: bool
    receipt: Receipt | None = None


@router.get("", **told(gives=Page, says="Ids of threads, in order."))
async def list_threads(request: Request, limit: Limit = 100, cursor: Cursor = None) -> Response:
    """Ids of threads, in order."""
    caller = caller_of(request)
    caller.require_whole_tenant()
    place = place_in(cursor)
    names = await caller.pf.store.names(
        "log", prefix=THREADS, after=THREADS + place if place else "", limit=limit
    )
    return reply(page_by_name([name.removeprefix(THREADS) for name in names], limit))


@router.get("/{thread_id}", **told(gives=Thread, says="The thread."))
async def get_thread(request: Request, thread_id: str) -> Response:
    """One thread; `ETag` is its length."""
    caller = caller_of(request)
    length = await _length(caller, thread_id)
    return reply(Thread(thread_id=thread_id, length=length), headers=etag.tag(length))


@router.get("/{thread_id}/slots", **told(gives=Page, says="Slots, oldest first."))
async def list_slots(
    request: Request,
    thread_id: str,
    limit: Limit = 100,
    cursor: Cursor = None,
    tail: Annotated[int | None, Query(ge=0, le=1_000, description="The last so many.")] = None,
    from_id: Annotated[str | None, Query(max_length=512)] = None,
    to_id: Annotated[str | None, Query(max_length=512)] = None,
    payload_type: Annotated[str | None, Query(max_length=512)] = None,
    at: Position = None,
) -> Response:
    """Slots of a thread. `tail` gives the last ones; `at` what there was at a position."""
    caller = caller_of(request)
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
    shown = [slots.shown(slot) for slot in found if may_see(caller, slot)]
    return reply(Page(items=shown, cursor=after), headers=etag.tag(length))


@router.get("/{thread_id}/slots/{index}", **told(gives=slots.Slot, says="The slot."))
async def get_slot(request: Request, thread_id: str, index: int) -> Response:
    """One slot; negative numbers count from the end."""
    caller = caller_of(request)
    await _length(caller, thread_id)
    view = await caller.pf.context.get_or_create_thread(thread_id)
    try:
        slot = await view.at(index)
    except IndexError as error:
        raise NotFound(str(error), "look at the thread's length") from error
    if not may_see(caller, slot):
        raise NotFound("there is no such slot", "look at the thread's length")
    return reply(slots.shown(slot))


@router.post(
    "/{thread_id}/slots",
    summary="Append a slot",
    **told(
        takes=slots.NewSlot,
        gives=slots.Slot,
        status=201,
        says="The slot as it is stored.",
        headers=GUARDS,
    ),
)
async def append_slot(request: Request, thread_id: str) -> Response:
    """Append a slot; it is durable when this answers."""
    caller = caller_of(request)
    given = await body_of(request, slots.NewSlot)
    user_id = caller.user(given.user_id)
    context, key = caller.pf.sync.context, store_key(caller.identity, key_in(request.scope))
    expected, own = etag.expected(request, given.expected_len), caller.identity.user_id
    handed = (
        *(thread_id, given.payload, given.from_id, given.to_id, given.own_name),
        *(given.is_self_call, given.usage_instructions, given.todo_nudge),
    )

    def append() -> BufferSlot:
        return context.append(*handed, user_id=user_id, key=key, expected_len=expected, owner=own)

    try:
        if len(await request.body()) > LARGE_BYTES:
            stored = await asyncio.to_thread(append)
        else:
            stored = await context.append_async(
                *handed, user_id=user_id, key=key, expected_len=expected, owner=own
            )
    except Conflict as error:
        raise etag.refusal(request, error) from error
    shown = slots.shown_as_given(thread_id, stored.entry, given, user_id)
    return reply(shown, 201, etag.tag(stored.index + 1))


@router.post(
    "/{thread_id}/slots/batch",
    **told(takes=NewSlots, gives=SlotList, status=201, says="The slots.", headers=GUARDS),
)
async def append_slots(request: Request, thread_id: str) -> Response:
    """Append several slots in one commit: all of them, next to each other, or none."""
    caller = caller_of(request)
    given = await body_of(request, NewSlots)
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
        for each in given.slots
    ]
    context, key = caller.pf.sync.context, store_key(caller.identity, key_in(request.scope))
    expected, own = etag.expected(request, given.expected_len), caller.identity.user_id

    def append() -> Response:
        stored = context.append_many(thread_id, made, key=key, expected_len=expected, owner=own)
        items = [slots.shown(slot) for slot in stored]
        return reply(SlotList(items=items), 201, etag.tag(stored[-1].index + 1))

    try:
        return await asyncio.to_thread(append)
    except Conflict as error:
        raise etag.refusal(request, error) from error


@router.post(
    "/{thread_id}/fork",
    **told(takes=ForkRequest, gives=Thread, status=201, optional=True, says="The new thread."),
)
async def fork_thread(request: Request, thread_id: str) -> Response:
    """A new thread that shares the first `at` slots, or all; nothing is copied."""
    caller = caller_of(request)
    given = await body_of(request, ForkRequest, may_be_empty=True)
    await _length(caller, thread_id)
    child = await caller.pf.context.fork(
        thread_id, given.at, new_id=given.new_id, owner=caller.identity.user_id
    )
    log = log_of(child)
    length = await caller.pf.store.length(log)
    # What is kept of the request names the fork: it goes with whose slots that shows.
    caller.touches(await asyncio.to_thread(user_of, caller.pf.sync.store, log))
    return reply(Thread(thread_id=child, length=length), 201)


@router.get(
    "/{thread_id}/follow",
    **told(binary=MEDIA_TYPE, says="Events named `slot`, their ids are indexes.", headers=RESUMES),
)
async def follow_thread(
    request: Request,
    thread_id: str,
    after: Annotated[int | None, Query(ge=-1, le=_MOST_NUMBER)] = None,
    seconds: Annotated[
        float | None, Query(ge=0, le=86_400, description="End after so long without a slot.")
    ] = None,
) -> Response:
    """New slots as server-sent events: behind `after`, or what comes from now on."""
    caller = caller_of(request)
    await require_own_thread(caller, thread_id)
    followed = caller.pf.context.follow(thread_id, after_of(request, after), timeout=seconds)

    def event(slot: BufferSlot) -> tuple[int, bytes] | None:
        return (slot.index, encoded(slots.shown(slot))) if may_see(caller, slot) else None

    return event_stream(followed, event, "slot", request.app.state.server.streams)


@router.put("/{thread_id}/pin", **told(gives=Pinned, says="It stays."))
async def pin_thread(request: Request, thread_id: str) -> Response:
    """Never let a thread leave for others; in the process that answers, until that ends."""
    caller = caller_of(request)
    await _length(caller, thread_id)
    await caller.pf.context.pin(thread_id)
    return reply(Pinned(ok=True, pinned=True))


@router.delete("/{thread_id}/pin", **told(gives=Pinned, says="It may leave."))
async def unpin_thread(request: Request, thread_id: str) -> Response:
    """The thread may leave again, when its turn comes."""
    caller = caller_of(request)
    await _length(caller, thread_id)
    await caller.pf.context.unpin(thread_id)
    return reply(Pinned(ok=True, pinned=False))


@router.delete("/{thread_id}", **told(gives=Deleted, says="It is gone."))
async def delete_thread(
    request: Request,
    thread_id: str,
    erase: Annotated[bool, Query(description="Remove the content for good, in forks too.")] = False,
) -> Response:
    """End a thread. With `erase` its content is removed for good, which needs `admin`."""
    caller = caller_of(request)
    await _length(caller, thread_id)
    if erase:
        caller.require("admin")
        caller.require_whole_tenant()
        receipt = await caller.pf.context.erase_thread(thread_id)
        nameless = msgspec.structs.replace(receipt, removed=())
        kept = reply(Deleted(ok=True, deleted=True, receipt=nameless))
        caller.leaves_nothing(bytes(kept.body))
        return reply(Deleted(ok=True, deleted=True, receipt=receipt))
    own = caller.identity.user_id
    deleted = await caller.pf.context.delete_thread(thread_id, owner=own)
    return reply(Deleted(ok=True, deleted=deleted))


def store_key(identity: Identity, key: str | None) -> str:
    """A caller's key as the store's: two callers who choose the same never meet."""
    return "" if key is None else f"http:{identity.principal}:{key}"


async def _length(caller: Caller, thread_id: str) -> int:
    """How many slots a thread has, if the caller may see it."""
    log = log_of(thread_id)
    await require_own_thread(caller, thread_id)
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
