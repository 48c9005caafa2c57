"""The slots of a run's thread, on their way into a pack and out of it.

A line has the stored bytes as text, so that what is restored is the same to
the byte whether or not its class is known there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec

from pagefile.context.names import usage_document
from pagefile.context.slot import ERASED, stored_text
from pagefile.errors import PagefileError
from pagefile.runs.packs.errors import WrongContent
from pagefile.runs.packs.format import SLOTS, parse_object, placed
from pagefile.store import codec
from pagefile.store.batch import Append, Put
from pagefile.store.codec.decoder import convert
from pagefile.store.records import Entry, mapping_from_bytes, mapping_to_bytes
from pagefile.store.store import Store


class PackedSlot(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One line of `thread_slots.jsonl`.

    `usage_text` stands with the first slot that refers to it.
    """

    index: int
    time_us: int = 0
    erased: bool = False
    user: str | None = None
    kind: str = ""
    actor: str = ""
    sources: tuple[str, ...] = ()
    keys: str = ""
    notes: str = ""
    type: str = ""
    body: str = "null"
    usage_text: str = ""

    def append(self, log: str) -> Append:
        """What stores it. Of an erased slot only its place is kept."""
        if self.erased:
            return Append(log, None, kind=ERASED)
        return Append(
            log,
            codec.decode(self.type, self.body.encode()),
            self.user,
            self.kind,
            self.actor,
            self.sources,
            mapping_from_bytes(self.keys.encode()),
            None,
            mapping_from_bytes(self.notes.encode()),
        )

    @property
    def usage(self) -> str:
        """The digest of the usage text that it refers to, if it does."""
        return str(mapping_from_bytes(self.notes.encode()).get("usage", "")) if self.notes else ""

    def put_usage(self, text: str) -> Put:
        """What stores the usage text that it refers to."""
        return Put(usage_document(self.usage, self.user), text, user=self.user, kind="usage")


class UsageTexts:
    """Which usage texts the slots so far have brought with them."""

    def __init__(self, store: Store, at: int) -> None:
        self._store = store
        self._at = at
        self._told: set[str] = set()

    def first(self, entry: Entry) -> str:
        """The text that the slot refers to, the first time that one does."""
        digest = str(entry.notes.get("usage", ""))
        if not digest or digest in self._told:
            return ""
        self._told.add(digest)
        return stored_text(self._store, digest, entry.user, self._at) or ""


def erased_slot(entry: Entry) -> PackedSlot:
    """The place of a slot, without what it said."""
    return PackedSlot(entry.index, entry.time_us, erased=True)


def slot_of(entry: Entry, usage_text: str) -> PackedSlot:
    """A stored slot as a pack has it."""
    content = entry.content
    if content is None or content.kind == ERASED:
        return erased_slot(entry)
    return PackedSlot(
        entry.index,
        entry.time_us,
        False,
        content.user,
        content.kind,
        content.actor,
        tuple(content.sources),
        content.keys.decode(),
        content.notes.decode(),
        content.type_name,
        content.body.decode(),
        usage_text,
    )


def read_slots(lines: Iterator[tuple[int, bytes]]) -> Iterator[PackedSlot]:
    """The slots in lines, each checked.

    Raises:
        WrongContent: one is none, or would not be stored as it stands there.
    """
    for number, raw in lines:
        at = placed(SLOTS, number)
        try:
            slot = convert(parse_object(SLOTS, raw, number), PackedSlot)
        except msgspec.ValidationError as error:
            raise WrongContent(at, f"is no slot ({error})") from error
        _require_same_bytes(slot, at)
        yield slot


def _require_same_bytes(slot: PackedSlot, at: str) -> None:
    try:
        value = codec.decode(slot.type, slot.body.encode())
        keys, notes = _mapping(slot.keys, at), _mapping(slot.notes, at)
        same = (
            codec.encode(value) == (slot.type, slot.body.encode())
            and mapping_to_bytes(keys) == slot.keys.encode()
            and mapping_to_bytes(notes) == slot.notes.encode()
        )
    except (PagefileError, UnicodeEncodeError) as error:
        raise WrongContent(at, f"has a body, keys or notes that are none ({error})") from error
    if not same:
        raise WrongContent(at, "is not canonical")
    text = slot.usage_text
    if text and hashlib.sha256(text.encode()).hexdigest() != notes.get("usage"):
        raise WrongContent(at, "has a usage text that is not the one it refers to")


def _mapping(text: str, at: str) -> dict[str, Any]:
    value = mapping_from_bytes(text.encode())
    if type(value) is not dict:
        raise WrongContent(at, "has keys or notes that are no object")
    return value
