"""Items, milestones and slots of a run, on their way into a pack and out of it.

A pack has each item as the store has it: the item, and what caused its last
change. An item that the other store knows already stays as it is there.
"""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from pagefile.context.names import THREADS, usage_document
from pagefile.context.slot import ERASED, stored_text
from pagefile.errors import Invalid, NotFound, PagefileError
from pagefile.memory.documents import plain
from pagefile.memory.items.change import require_id
from pagefile.memory.items.item import OF_USERS, Cause, MemoryItem, place_of, put_item
from pagefile.memory.items.proposal import read_batch
from pagefile.memory.privacy.tombstones import forgotten_of
from pagefile.runs.kinds import BROUGHT, RUNS, episode_name
from pagefile.runs.milestones import created_at, digest_of
from pagefile.runs.packs.format import (
    ITEMS,
    MANIFEST,
    SLOTS,
    WrongContent,
    checked,
    parse_object,
    placed,
)
from pagefile.store import codec
from pagefile.store.batch import Append, Put
from pagefile.store.codec.decoder import convert, from_json
from pagefile.store.records import Document, Entry, mapping_from_bytes, mapping_to_bytes
from pagefile.store.store import Store


class PackedItem(msgspec.Struct, frozen=True):
    """One line of `memory_items.jsonl`."""

    item: MemoryItem
    cause: Cause

    @property
    def document(self) -> str:
        """Where it is stored."""
        item = self.item
        return place_of(item.scope, item.user_id, item.project_id).document(item.memory_id)

    def put(self) -> Put:
        """What stores it."""
        return put_item(self.document, self.item, self.cause)


def item_documents(store: Store, run_id: str, batch_ids: Iterable[str], at: int) -> list[str]:
    """The documents of all items that a run's batches made or changed, and of those it brought."""
    found: dict[str, None] = {}
    brought = store.get(BROUGHT + run_id, at=at)
    if brought is not None and not brought.erased:
        found.update(dict.fromkeys(brought.value))
    for batch_id in batch_ids:
        try:
            batch = read_batch(store, batch_id, 0).batch
        except (NotFound, Invalid):
            continue  # Erased, or committed in another store before this run was restored here.
        if batch.run_id != run_id:
            continue  # Another run's: an event that came from elsewhere may name any batch.
        found.update(dict.fromkeys((*batch.made, *batch.changed)))
    return sorted(found)


def item_lines(
    store: Store, documents: Iterable[str], at: int, user_id: str | None
) -> Iterator[Any]:
    """The items as they were at a position, without those that are gone.

    Nor are those that other users have for themselves in a pack of a user's run,
    whatever its events say.
    """
    for name in documents:
        document = store.get(name, at=at)
        if document is None or document.erased or document.deleted:
            continue
        if user_id is None or document.user == user_id or not name.startswith(OF_USERS):
            yield document.value


def read_item(raw: bytes, number: int) -> PackedItem:
    """The item in a line, checked.

    Raises:
        WrongContent: it is none, or would not be stored as it stands there.
    """
    value = parse_object(ITEMS, raw, number)
    at = placed(ITEMS, number)
    try:
        packed = convert(value, PackedItem)
        require_id("memory_id", packed.item.memory_id)
    except (msgspec.ValidationError, Invalid) as error:
        raise WrongContent(at, f"is no memory item ({error})") from error
    item = packed.item
    owner = {"user": item.user_id, "project": item.project_id, "global": ""}[item.scope]
    if owner is None:
        raise WrongContent(at, f"is an item of a {item.scope}, and does not say which")
    checked(ITEMS, "memory_item", item.to_v21(), number)
    if codec.encode(plain(packed)) != codec.encode(value):
        raise WrongContent(at, "is no memory item as it is stored")
    return packed


# The milestones of a run, on their way into a pack and out of it.


class PackedEpisode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One milestone: as schema 2.1 describes it, and what the store notes beside it."""

    episode: dict[str, Any]
    writer_id: str
    first: int
    last: int
    digest: str

    @property
    def episode_id(self) -> str:
        return str(self.episode["episode_id"])

    @property
    def body(self) -> dict[str, Any]:
        """What is stored: all but the time, which is noted."""
        return {name: value for name, value in self.episode.items() if name != "created_at"}

    def put(self, run_id: str, user_id: str | None) -> Put:
        """What stores it as a milestone of that run."""
        notes = {
            "first": self.first,
            "last": self.last,
            "digest": self.digest,
            "created_at": self.episode["created_at"],
        }
        name = episode_name(run_id, self.episode_id)
        return Put(name, self.body, user_id, "episode", self.writer_id, notes=notes)


def episode_of(document: Document | None) -> PackedEpisode | None:
    """A stored milestone as a pack has it; None for one that is gone."""
    if document is None or document.erased or document.deleted:
        return None
    notes = document.notes
    whole = document.value | {"created_at": created_at(document)}
    return PackedEpisode(whole, document.actor, notes["first"], notes["last"], notes["digest"])


def read_episode(member: str, episode_id: str, raw: bytes) -> PackedEpisode:
    """The milestone in a member, checked.

    Raises:
        WrongContent: it is none, or another.
    """
    try:
        packed = convert(parse_object(member, raw), PackedEpisode)
    except msgspec.ValidationError as error:
        raise WrongContent(member, f"is no episode ({error})") from error
    checked(member, "episode", packed.episode)
    if packed.episode_id != episode_id:
        raise WrongContent(member, "is another episode")
    if packed.first < 1 or packed.last < 0 or digest_of(packed.body) != packed.digest:
        raise WrongContent(member, "is not the episode that was stored")
    return packed


# The slots of a run's thread, on their way into a pack and out of it.
#
# A line has the stored bytes as text, so that what is restored is the same to
# the byte whether or not its class is known there.


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


# Whether a pack holds something of a user, for who forgets them.


def was_forgotten(path: Path, run_id: str, store: Store) -> bool:
    """Whether its run, or slots in it, were forgotten with their user."""
    try:
        held = _streams_in(str(path), path.stat().st_mtime_ns, run_id)
    except OSError:
        return False  # Somebody else removed it.
    return any(
        forgotten_of(store, user_id).among([name]) is not None for user_id, name in sorted(held)
    )


@lru_cache(maxsize=1_024)
def _streams_in(path: str, _: int, run_id: str) -> frozenset[tuple[str, str]]:
    """Users, and what of theirs a pack holds; a pack is never written again."""
    held: set[tuple[str, str]] = set()
    try:
        with zipfile.ZipFile(path) as archive:
            pointers = from_json(archive.read(MANIFEST), dict[str, Any])["pointers"]
            if pointers["user_id"] is not None:
                held.add((pointers["user_id"], RUNS + run_id))
            if SLOTS in archive.namelist():
                thread = THREADS + pointers["thread_id"]
                with archive.open(SLOTS) as lines:
                    users = {from_json(line, dict[str, Any]).get("user") for line in lines}
                held |= {(user, thread) for user in users if isinstance(user, str)}
    except (OSError, KeyError, TypeError, zipfile.BadZipFile, msgspec.DecodeError):
        return frozenset()  # It holds nothing that anybody could restore.
    return frozenset(held)


def holds_user(path: Path, user_id: str) -> bool:
    """Whether the run of the pack, one of its slots or one of its items is the user's.

    A pack that cannot be read holds nothing that anybody could restore.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
            if MANIFEST in names:
                told = from_json(archive.read(MANIFEST), dict[str, Any])
                pointers = told.get("pointers")
                if isinstance(pointers, dict) and pointers.get("user_id") == user_id:
                    return True
            return any(_speaks(archive, name, user_id) for name in (SLOTS, ITEMS) if name in names)
    except (OSError, zipfile.BadZipFile, msgspec.DecodeError):
        return False


def _speaks(archive: zipfile.ZipFile, member: str, user_id: str) -> bool:
    with archive.open(member) as lines:
        return any(_user_of(from_json(line, dict[str, Any])) == user_id for line in lines)


def _user_of(line: dict[str, Any]) -> object:
    item = line.get("item")
    return item.get("user_id") if isinstance(item, dict) else line.get("user")
