"""Slots as JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from pagefile.context.slot import BufferSlot
from pagefile.store.records import Entry
from pagefile.surfaces.http.timestamps import iso_of

#: Values of these types are stored as the JSON they are, unless something in them has a tag.
_PLAIN = frozenset({"dict", "list", "str", "int", "float", "bool", "NoneType"})


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
