"""A slot: one immutable message of a thread, and what is known about it."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import FrozenInstanceError, dataclass
from hashlib import sha256
from typing import Any, NamedTuple, NoReturn

import msgspec

from pagefile.context.names import require_text, usage_document
from pagefile.errors import Conflict, NotFound
from pagefile.store import codec
from pagefile.store.batch import Batch, Put, VersionIs
from pagefile.store.records import Entry
from pagefile.store.store import Store

#: The secondary key every slot has: what it is, from whom, to whom.
LANE = "lane"
#: The kind of a slot that stands for one whose content is gone, where a run was restored.
ERASED = "erased"


class Lane(NamedTuple):
    """Slots of one type from one sender to one recipient."""

    payload_type: str
    from_id: str
    to_id: str


@dataclass(frozen=True, slots=True)
class SlotMetadata:
    """What is known about a slot. `timestamp` is the store's time, which never runs backwards."""

    thread_id: str
    from_id: str
    to_id: str
    slot_index: int
    timestamp: str
    payload_type: str
    own_name: str | None = None
    is_self_call: bool = False
    usage_instructions: str = ""
    todo_nudge: str = ""
    user_id: str | None = None


@dataclass(frozen=True, slots=True)
class HandlerMetadata:
    """The part of a slot's metadata that a handler gets."""

    thread_id: str
    from_id: str
    own_name: str | None = None
    is_self_call: bool = False
    usage_instructions: str = ""
    todo_nudge: str = ""


# Not `frozen=True`: msgspec would then refuse in its own words, not in those of a dataclass.
class BufferSlot(msgspec.Struct, eq=False, weakref=True):
    """One message of a thread, as it is stored. Nothing done to it changes the past.

    `payload` is decoded from the stored bytes: afresh each time, unless its
    class is frozen all the way down. `position` orders the slots of a whole
    tenant; it is None in what a capability handle shows.
    """

    entry: Entry
    thread_id: str
    #: The text behind `usage`, when there is one.
    usage_text: str = ""

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise FrozenInstanceError(f"cannot assign to {name!r}: a slot never changes")

    def __delattr__(self, name: str) -> NoReturn:
        raise FrozenInstanceError(f"cannot delete {name!r}: a slot never changes")

    @property
    def payload(self) -> Any:
        if self.erased:
            raise NotFound(
                f"the content of slot {self.index} of thread {self.thread_id!r} was erased",
                "look at `erased` before reading the payload",
            )
        return self.entry.value

    @property
    def metadata(self) -> SlotMetadata:
        lane, notes, entry = self._lane, self._notes, self.entry
        return SlotMetadata(
            self.thread_id,
            lane.from_id,
            lane.to_id,
            entry.index,
            entry.time.isoformat(),
            lane.payload_type,
            notes.get("own_name"),
            notes.get("is_self_call", False),
            self.usage_text,
            notes.get("todo_nudge", ""),
            None if self.erased else entry.user,
        )

    @property
    def index(self) -> int:
        return self.entry.index

    @property
    def from_id(self) -> str:
        return self._lane.from_id

    @property
    def to_id(self) -> str:
        return self._lane.to_id

    @property
    def payload_type(self) -> str:
        return self._lane.payload_type

    @property
    def erased(self) -> bool:
        """True when the content is gone; `payload` then raises `NotFound`."""
        content = self.entry.content
        return content is None or content.kind == ERASED

    @property
    def position(self) -> int | None:
        return self.entry.position or None

    @property
    def _lane(self) -> Lane:
        if self.erased:
            return Lane(ERASED, "", "")
        lane = self.entry.keys.get(LANE)
        if not isinstance(lane, tuple):
            # Not put there by a buffer: the store alone knows who wrote it.
            return Lane(self.entry.type_name, self.entry.actor, "")
        return Lane(*lane)  # type: ignore[arg-type]

    @property
    def _notes(self) -> Mapping[str, Any]:
        return {} if self.erased else self.entry.notes

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BufferSlot):
            return NotImplemented
        mine, theirs = self.entry, other.entry
        return (self.thread_id, mine.index, mine.time_us, mine.content) == (
            other.thread_id,
            theirs.index,
            theirs.time_us,
            theirs.content,
        )

    def __hash__(self) -> int:
        return hash((self.thread_id, self.entry.index))

    def __repr__(self) -> str:
        lane = self._lane
        return (
            f"<BufferSlot {self.thread_id!r}[{self.index}] "
            f"{lane.from_id} → {lane.to_id}: {lane.payload_type}>"
        )


def is_anothers(entry: Entry, user_id: str | None) -> bool:
    """Whether another user said it than the one that is named; what nobody said is nobody's."""
    return user_id is not None and not entry.erased and entry.user not in (None, user_id)


def without_position(entry: Entry) -> Entry:
    """The entry for those who must not see how many commits there were of others."""
    return msgspec.structs.replace(entry, position=0)


def payload_type_of(payload: object) -> str:
    """The qualified name of the payload's class; a plain value's own: dict, list, str, …"""
    cls = type(payload)
    return codec.type_name(cls) if codec.is_typed(cls) else cls.__name__


def slot_to_handler_metadata(slot: BufferSlot) -> HandlerMetadata:
    """What a handler is told about the message it gets."""
    known = slot.metadata
    return HandlerMetadata(
        known.thread_id,
        known.from_id,
        known.own_name,
        known.is_self_call,
        known.usage_instructions,
        known.todo_nudge,
    )


_TEXTS_KEPT = 1_024
#: A text may have been erased: after so many seconds the store is asked again.
_TRUSTED_SECONDS = 1.0


class UsageShelf:
    """The usage texts of one store, with those met lately at hand."""

    def __init__(self, store: Store) -> None:
        self._store = store
        #: By their documents, with when they were read.
        self._texts: OrderedDict[str, tuple[str, float]] = OrderedDict()
        #: The digests of the texts.
        self._digests: dict[str, str] = {}

    def digest(self, text: str) -> str:
        """What slots note in place of the text."""
        require_text("usage_instructions", text)
        return self._digests.get(text) or sha256(text.encode()).hexdigest()

    def put(self, text: str, user_id: str | None) -> None:
        """Make sure that the store has the text, for this user.

        In a commit of its own: a repeated append must not differ from its first
        attempt in whether the text was new.
        """
        name = usage_document(self.digest(text), user_id)
        found = self._store.get(name)
        if found is None or found.erased:
            version = 0 if found is None else found.version
            put = Put(name, text, user=user_id, kind="usage")
            # Whoever loses the race finds the same text there.
            with suppress(Conflict):
                self._store.commit(Batch([put], [VersionIs(name, version)]))
        self._keep(name, text)

    def knows(self, text: str, user_id: str | None) -> bool:
        """Whether `put` needs no look into the store."""
        if type(text) is not str:
            return False
        if not text:
            return True
        digest = self._digests.get(text)
        if user_id is not None and type(user_id) is not str:
            return False  # Refused by who makes the slot.
        return digest is not None and self._trusted(usage_document(digest, user_id)) is not None

    def text(self, digest: str, user_id: str | None) -> str:
        """The text behind a digest of a user's slot; empty when it was erased."""
        name = usage_document(digest, user_id)
        trusted = self._trusted(name)
        if trusted is not None:
            return trusted
        text = stored_text(self._store, digest, user_id)
        if text is None:
            self._forget(name)
            return ""
        self._keep(name, text)
        return text

    def _trusted(self, name: str) -> str | None:
        known = self._texts.get(name)
        if known is None or time.monotonic() - known[1] > _TRUSTED_SECONDS:
            return None
        return known[0]

    def _keep(self, name: str, text: str) -> None:
        self._texts[name] = (text, time.monotonic())
        self._digests[text] = name.rpartition("/")[2]
        if len(self._texts) > _TEXTS_KEPT:
            self._forget(next(iter(self._texts)))

    def _forget(self, name: str) -> None:
        known = self._texts.pop(name, None)
        if known is not None:
            self._digests.pop(known[0], None)


def stored_text(
    store: Store, digest: str, user_id: str | None, at: int | None = None
) -> str | None:
    """The text that is stored behind a digest of a user's slot; None when there is none."""
    # Stores of before had one document for all users.
    for whose in (user_id, None):
        found = store.get(usage_document(digest, whose), at=at)
        if found is not None and not found.erased:
            return str(found.value)
        if user_id is None:
            break
    return None
