"""Values of the library as they travel, where JSON alone does not say what they were."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

import msgspec

from pagefile.context.slot import LANE, BufferSlot
from pagefile.errors import Unsupported, shown
from pagefile.memory.episodes.episode import Episode
from pagefile.memory.facts.fact import Fact
from pagefile.memory.items.item import MemoryItem
from pagefile.memory.recaller import MemoryMatch
from pagefile.recall.hit import Hit
from pagefile.store import codec
from pagefile.store.codec import sort_key
from pagefile.store.codec.canonical_json import decode_json, encode_json
from pagefile.store.codec.decoder import convert
from pagefile.store.records import Action, Content, Document, Entry, keys_to_bytes, mapping_to_bytes

_PLAIN = frozenset({dict, list, str, int, float, bool, type(None)})
_MATCHED: dict[str, type] = {"episode": Episode, "fact": Fact, "item": MemoryItem}


class SlotShown(msgspec.Struct, kw_only=True):
    """A slot as it travels."""

    thread_id: str
    index: int
    from_id: str
    to_id: str
    payload_type: str
    payload: msgspec.Raw
    timestamp: datetime
    own_name: str | None
    is_self_call: bool
    usage_instructions: str
    todo_nudge: str
    user_id: str | None
    position: int | None
    erased: bool


class StoredShown(msgspec.Struct, kw_only=True):
    """An entry of a log or a version of a document as it travels."""

    name: str
    number: int
    position: int
    time: datetime
    user: str | None
    kind: str
    actor: str
    sources: tuple[str, ...]
    erased: bool
    deleted: bool
    value: msgspec.Raw


class MatchShown(msgspec.Struct, kw_only=True):
    """Something that was found as it travels; `kind` says what `value` is."""

    kind: Literal["episode", "fact", "item"]
    id: str
    text: str
    score: float
    at: datetime
    value: Any
    hit: Hit | None

    def match(self) -> MemoryMatch:
        value: Any = convert(self.value, _MATCHED[self.kind])
        return MemoryMatch(
            kind=self.kind,
            id=self.id,
            text=self.text,
            score=self.score,
            at=self.at,
            value=value,
            hit=self.hit,
        )


def plain_payload(value: Any) -> msgspec.Raw:
    """A payload as it is sent: JSON has to have a word for all of it.

    Raises:
        Unsupported: it would come back as something else. Invalid: no store takes it.
    """
    if type(value) in _PLAIN:
        try:
            body = encode_json(value)
            if decode_json(body) == value:
                return msgspec.Raw(body)
        except (TypeError, ValueError, RecursionError):
            pass
    codec.encode(value)
    raise Unsupported(
        f"{shown(value)} cannot be sent as a payload: JSON has no word for all of it",
        "send dicts, lists, texts and numbers, or open the store itself",
    )


def slot_of(shown_slot: SlotShown, *, shows_position: bool = True) -> BufferSlot:
    """The slot that was shown."""
    each = shown_slot
    content: Content | None = None
    if not each.erased:
        notes: dict[str, Any] = {
            name: value
            for name, value in (
                ("own_name", each.own_name),
                ("is_self_call", each.is_self_call or None),
                ("todo_nudge", each.todo_nudge or None),
            )
            if value is not None
        }
        type_name = each.payload_type if ":" in each.payload_type else ""
        body = bytes(each.payload)
        if not type_name and b'"$' in body:
            # What looks like a tag of stored JSON is a key of the caller's here.
            body = codec.encode(decode_json(body))[1]
        content = Content(
            action=Action.APPEND,
            user=each.user_id,
            kind="",
            actor=each.from_id,
            sources=(),
            keys=keys_to_bytes({LANE: (each.payload_type, each.from_id, each.to_id)}),
            tenant_keys=b"",
            notes=mapping_to_bytes(notes),
            type_name=type_name,
            body=body,
            salt=b"",
        )
    position = each.position if shows_position else None
    entry = Entry(
        position or 0,
        sort_key.microseconds(each.timestamp),
        content,
        each.thread_id,
        each.index,
        each.thread_id,
    )
    return BufferSlot(entry, each.thread_id, each.usage_instructions)


def entry_of(stored: StoredShown) -> Entry:
    """The entry of a log that was shown."""
    time_us = sort_key.microseconds(stored.time)
    content = _content_of(stored, Action.APPEND)
    return Entry(stored.position, time_us, content, stored.name, stored.number, stored.name)


def document_of(stored: StoredShown) -> Document:
    """The version of a document that was shown."""
    time_us = sort_key.microseconds(stored.time)
    content = _content_of(stored, Action.DELETE if stored.deleted else Action.PUT)
    return Document(stored.position, time_us, content, stored.name, stored.number)


def _content_of(stored: StoredShown, action: int) -> Content | None:
    if stored.erased:
        return None
    return Content(
        action=action,
        user=stored.user,
        kind=stored.kind,
        actor=stored.actor,
        sources=stored.sources,
        keys=b"",
        tenant_keys=b"",
        notes=b"",
        type_name="",
        body=bytes(stored.value),
        salt=b"",
    )
