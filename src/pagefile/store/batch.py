"""What a caller asks for: a batch of changes, the conditions it depends on, and queries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from pagefile.store.codec.sort_key import KeyValue

NO_KEYS: Mapping[str, KeyValue] = {}
NO_NOTES: Mapping[str, Any] = {}


class Vector(msgspec.Struct, frozen=True, gc=False):
    """What an entry is compared by, where the engine keeps vectors with the data.

    `numbers` are float32, little endian, of unit length. `slot` is 16 bytes for what
    the entry is about: a log has one vector in each, the last one given, and
    empty `numbers` take it out.
    """

    slot: bytes
    numbers: bytes = b""


class Append(msgspec.Struct, frozen=True, gc=False):
    """Add one entry at the end of a log; the log comes into being with its first entry.

    `keys` are found again with `find(..., log=…)`. `limit` refuses the entry
    with `LimitExceeded` when the log already has that many. `notes` are kept
    with the entry and covered by its digest, and not searched. `vector` is stored
    in the same commit by a store that keeps vectors, and refused by any other.
    """

    log: str
    value: Any
    user: str | None = None
    kind: str = ""
    actor: str = ""
    sources: tuple[str, ...] = ()
    keys: Mapping[str, KeyValue] = NO_KEYS
    limit: int | None = None
    notes: Mapping[str, Any] = NO_NOTES
    vector: Vector | None = None


class Put(msgspec.Struct, frozen=True, gc=False):
    """Write the next version of a document.

    `keys` are found in calls for this `user`; `tenant_keys` are found in calls
    that ask for every user of the tenant (queues, listings for operators).
    """

    document: str
    value: Any
    user: str | None = None
    kind: str = ""
    actor: str = ""
    sources: tuple[str, ...] = ()
    keys: Mapping[str, KeyValue] = NO_KEYS
    tenant_keys: Mapping[str, KeyValue] = NO_KEYS
    notes: Mapping[str, Any] = NO_NOTES


class Delete(msgspec.Struct, frozen=True):
    """Write a version that says the document is gone; older versions stay readable."""

    document: str
    actor: str = ""


class Fork(msgspec.Struct, frozen=True):
    """Make `log` a child that shares the first `at` entries of `base` (all, when None)."""

    log: str
    base: str
    at: int | None = None


class Drop(msgspec.Struct, frozen=True):
    """End a log. Its name is free again; what forks share of it stays.

    What was pruned and kept only for this log, because it is a fork, goes.
    """

    log: str


class Prune(msgspec.Struct, frozen=True):
    """Let go of a log's entries, or a document's versions, numbered below `before`.

    None means all, save a document's current version. Numbers never shift.
    Exactly one of `log` and `document` is given. Entries that a living fork
    shares are kept for it.
    """

    before: int | None
    log: str | None = None
    document: str | None = None


Operation = Append | Put | Delete | Fork | Drop | Prune


class VersionIs(msgspec.Struct, frozen=True, gc=False):
    """The document is at this version; 0 means that it was never written."""

    document: str
    version: int


class Absent(msgspec.Struct, frozen=True, gc=False):
    """There is no such document: never written, or deleted."""

    document: str


class LengthIs(msgspec.Struct, frozen=True, gc=False):
    """The log has exactly this many entries."""

    log: str
    length: int


class LengthBelow(msgspec.Struct, frozen=True):
    """The log has fewer entries than `limit`; otherwise `LimitExceeded`."""

    log: str
    limit: int


class CreatedAt(msgspec.Struct, frozen=True, gc=False):
    """The log is the one that `Store.created` gave this position for; 0: there is none."""

    log: str
    position: int


class CountBelow(msgspec.Struct, frozen=True):
    """Fewer than `limit` live records stand under this key; otherwise `LimitExceeded`."""

    field: str
    value: KeyValue
    limit: int
    user: str | None = None
    everyone: bool = False


class Unchanged(msgspec.Struct, frozen=True):
    """No record came under this key, or left it, after position `since`."""

    field: str
    value: KeyValue
    since: int
    user: str | None = None
    everyone: bool = False


Condition = VersionIs | Absent | LengthIs | LengthBelow | CreatedAt | CountBelow | Unchanged


class Batch(msgspec.Struct, gc=False):
    """Changes that commit together, once.

    `key` makes a repeat harmless: the store answers a second commit of the
    same key with the first `Commit`. Without one the store makes a key at the
    first commit and leaves it here, so committing this object again is a repeat.
    """

    operations: Sequence[Operation]
    when: Sequence[Condition] = ()
    key: str = ""


class Selector(msgspec.Struct, frozen=True):
    """What `erase` removes: everything that matches all the given parts.

    `user` takes one user's records wherever they are; `anonymous` takes those
    of no user. `log` and `document` name one stream; `first` and `last` bound
    its numbers, both included; `numbers` lists them. `before_us` keeps what is
    newer. `sparing` names streams that are left alone. At least one of user,
    anonymous, log, document must be given.
    """

    user: str | None = None
    anonymous: bool = False
    log: str | None = None
    document: str | None = None
    first: int | None = None
    last: int | None = None
    before_us: int | None = None
    numbers: frozenset[int] | None = None
    sparing: frozenset[str] = frozenset()


class Query(msgspec.Struct, frozen=True):
    """What `find` looks for: one `value`, or a range `low <= value < high`.

    With `prefix`, a tuple `value` also finds the tuples that begin with it.
    `log` looks inside one log, its shared entries included; otherwise the
    query is for one `user` (None: nobody's), or with `everyone` for the whole
    tenant, where it finds documents that declared `tenant_keys`.
    """

    field: str
    value: KeyValue | None = None
    low: KeyValue | None = None
    high: KeyValue | None = None
    prefix: bool = False
    user: str | None = None
    everyone: bool = False
    log: str | None = None
    cursor: str | None = None
    reverse: bool = False
