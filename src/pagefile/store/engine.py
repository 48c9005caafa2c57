"""The seam: what an engine is, and what it may have besides, each capability named and optional."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec

from pagefile.errors import Corrupt, Invalid, PagefileError
from pagefile.store.batch import Selector, Vector
from pagefile.store.codec import sort_key
from pagefile.store.records import (
    Content,
    Durability,
    Erasure,
    Problem,
    StreamKind,
    genesis,
    stored_mapping,
)

LOG: StreamKind = "log"
DOCUMENT: StreamKind = "document"
#: Begins the name of a stream whose own is erased, until its copy comes to its end.
NAMELESS = "\x7f"

#: Where a secondary key is found: inside one log, in calls for one user, in
#: calls for the whole tenant.
Scope = Literal["log", "user", "tenant"]


class Limits(msgspec.Struct, frozen=True):
    """What one commit, and one tenant, may hold. None means without limit."""

    entry_bytes: int = 16 * 1024 * 1024
    batch_operations: int = 10_000
    batch_bytes: int = 64 * 1024 * 1024
    log_entries: int = 2**32 - 2
    logs: int | None = None
    documents: int | None = None
    name_bytes: int = 512
    keys: int = 32
    key_bytes: int = 2048
    sources: int = 1024
    notes_bytes: int = 64 * 1024


class IndexKey(msgspec.Struct, frozen=True, gc=False):
    """One secondary key of a record, ready to be compared as bytes."""

    scope: Scope
    field: str
    value: bytes


class Write(msgspec.Struct, frozen=True, gc=False):
    """One prepared operation, or a run of appends to one log.

    `keys` has one item per content, or none when no content has keys; so has
    `vectors`, which only an engine that `KeepsVectors` is given. Fields that the
    action does not use keep their defaults.
    """

    action: int
    stream: StreamKind
    name: str
    contents: Sequence[Content] = ()
    digests: Sequence[bytes] = ()
    keys: Sequence[Sequence[IndexKey]] = ()
    limit: int | None = None
    base: str = ""
    number: int | None = None
    salt: bytes = b""
    selectors: Sequence[Selector] = ()
    rehearse: bool = False
    vectors: Sequence[Vector | None] = ()


class Requirement(msgspec.Struct, frozen=True, gc=False):
    """One prepared condition."""

    what: Literal["version", "absent", "length", "below", "created", "count", "unchanged"]
    name: str
    number: int
    key: IndexKey | None = None
    user: str | None = None


class Origin(msgspec.Struct, frozen=True, gc=False):
    """What the store a commit is copied from says of a stream; '' is a name that is erased."""

    kind: StreamKind
    name: str
    salt: bytes


class Copied(msgspec.Struct, frozen=True, gc=False):
    """A commit of another store, to be made again as it was there.

    `contents` has one item per record in the order of the manifest, None for what
    has been pruned or erased since; `streams` has every stream the manifest names.
    """

    commit: RawCommit
    contents: Sequence[Content | None]
    streams: Mapping[int, Origin]
    #: Streams that ended earlier and whose names are erased by now.
    forgotten: Sequence[int] = ()
    #: Where the source let go of what is missing here; before it, the copy is unfinished.
    whole_from: int = 0


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """A batch whose values are bytes and whose digests are made.

    With `copied` it is a commit of another store, and nothing else counts.
    """

    key: str
    writes: Sequence[Write]
    when: Sequence[Requirement]
    limits: Limits
    #: The position after which the commit of a made key is to be found; -1 for a given key.
    after: int = -1
    copied: Copied | None = None


class Lone(msgspec.Struct, frozen=True, gc=False):
    """A batch of one append and nothing else, under a made key: what most commits are.

    `most` is how many entries the log may have. Only an engine that `TakesLone` is given one.
    """

    log: str
    content: Content
    digest: bytes
    keys: Sequence[IndexKey]
    most: int
    limits: Limits
    key: str
    after: int


class Row(msgspec.Struct, frozen=True, gc=False):
    """One stored record. `content` is None once erased; what it did stays known."""

    number: int
    position: int
    ordinal: int
    time_us: int
    action: int
    content: Content | None


class RawCommit(msgspec.Struct, frozen=True, gc=False):
    """One row of the commit log."""

    position: int
    time_us: int
    key: str
    manifest: bytes
    digest: bytes


class Sealed(msgspec.Struct, frozen=True, gc=False):
    """What `apply` did for one batch; `repeated` when its key had committed before."""

    commit: RawCommit
    indexes: tuple[int, ...]
    versions: tuple[int, ...]
    repeated: bool = False
    erased: tuple[Wiped, ...] = ()


class Wiped(msgspec.Struct, frozen=True, gc=False):
    """A run of numbers whose content an erasure removed."""

    stream: StreamKind
    name: str
    oid: int
    first: int
    last: int
    records: int
    size_bytes: int


class Stream(msgspec.Struct, eq=False, gc=False):
    """A log or a document as an engine sees it.

    `oid` numbers the streams of a tenant in the order of their creation, the
    same on every engine; `id` is the engine's own. `length` is the next index
    of a log and the last version of a document. The rows it owns start at
    `first`: below are its base's (for a fork) or nothing (pruned).

    An engine may keep a hundred thousand of these: the search for cycles passes them by.
    """

    oid: int
    kind: StreamKind
    name: str
    created: int
    id: int = 0
    length: int = 0
    first: int = 0
    pruned: int = 0
    base: int = 0
    base_at: int = 0
    dropped: int = 0
    deleted: bool = False
    salt: bytes = b""
    #: Of engines that keep them here.
    rows: list[Row] = []

    def __post_init__(self) -> None:
        if self.kind == DOCUMENT:
            self.first = 1


class TenantHead:
    """The moving end of one tenant."""

    __slots__ = ("digest", "documents", "last_erase", "logs", "oid", "position", "time_us")

    def __init__(self, tenant: str) -> None:
        self.position = 0
        self.time_us = 0
        self.digest = genesis(tenant)
        self.oid = 0
        self.logs = 0
        self.documents = 0
        #: The last position at which content was pruned or erased. In an unfinished copy it
        #: is one that is not reached yet.
        self.last_erase = 0

    @property
    def unfinished(self) -> int:
        """The position that a copy which was cut off has still to reach; 0 for what is whole."""
        return self.last_erase if self.last_erase > self.position else 0


class KeyRange(msgspec.Struct, frozen=True):
    """A range of key values `low <= value < high` within one scope, after a cursor."""

    scope: Scope
    owner: str | int | None
    field: str
    low: bytes
    high: bytes
    after: tuple[bytes, int, int] | None = None
    reverse: bool = False
    #: Only records numbered from `above` up to, not including, `below`.
    above: int = 0
    below: int | None = None


class Hit(msgspec.Struct, frozen=True, gc=False):
    """One record found by key, with its place in the order (value, position, ordinal)."""

    value: bytes
    oid: int
    row: Row


def index_keys(kind: StreamKind, content: Content) -> list[IndexKey]:
    """The secondary keys that a stored record stands under.

    Raises:
        Corrupt: they cannot be what was stored.
    """
    scope: Scope = "log" if kind == LOG else "user"
    try:
        return [
            IndexKey(where, field, sort_key.encode(value))
            for where, raw in ((scope, content.keys), ("tenant", content.tenant_keys))
            for field, value in stored_mapping(raw).items()
        ]
    except Invalid as error:
        # Whoever gave them was told so then: these are others.
        raise Corrupt(
            f"a stored key is damaged: {error.fact}", "stop writing and restore a copy"
        ) from error


class Transaction(Protocol):
    """One tenant's state inside the engine's write lock."""

    head: TenantHead

    def earlier(self, key: str, after: int) -> RawCommit | None:
        """The commit that already used this idempotency key; see `Prepared.after`."""

    def stream(self, kind: StreamKind, name: str) -> Stream | None:
        """The living stream of that name."""

    def stream_number(self, oid: int) -> Stream:
        """The stream with that number, living or dropped."""

    def create(self, stream: Stream) -> None:
        """Make the stream known under its name."""

    def discard(self, stream: Stream) -> None:
        """Undo `create`; nothing was written to the stream yet."""

    def add(self, stream: Stream, rows: Sequence[Row], keys: Sequence[Sequence[IndexKey]]) -> None:
        """Store records; the keys of a document's previous version become its past.

        `keys` has one item per row, or none when no row has keys. A row that is
        copied from another store may have lost its content there.
        """

    def drop(self, stream: Stream, *, forget_name: bool = False) -> None:
        """Free the name of a stream whose `dropped` is set; `forget_name` erases it too."""

    def prune(self, stream: Stream, before: int) -> None:
        """Remove what is numbered below `before`, save what living forks share."""

    def holders(self, user: str | None) -> list[Stream]:
        """Streams, living or dropped, that hold records of this user."""

    def forks(self, stream: Stream) -> list[Stream]:
        """Streams, living or dropped, that fork this one directly."""

    def incarnations(self, kind: StreamKind, name: str) -> list[Stream]:
        """Every stream that has had this name."""

    def rows(self, stream: Stream, first: int = 0, last: int | None = None) -> list[Row]:
        """The rows the stream itself owns, all or those numbered first … last."""

    def wipe(self, stream: Stream, rows: Sequence[Row]) -> None:
        """Remove content and keys of these rows; their numbers stay."""

    def count(self, key: IndexKey, user: str | None, most: int) -> int:
        """How many live records stand under the key, counted up to `most`."""

    def last_change(self, key: IndexKey, user: str | None) -> int:
        """The last position at which a record came under the key or left it."""

    def seal(self, commit: RawCommit) -> None:
        """Store the commit itself; `head` already shows it."""


class Engine(Protocol):
    """Durable, ordered bytes for many tenants.

    `apply` is the only way in. Every read takes one tenant's name and can see
    no other. Reads without a position see everything acknowledged so far.
    """

    name: ClassVar[str]
    #: The promises (S1 … S11) this engine keeps; the contract suite runs those.
    promises: ClassVar[frozenset[str]]
    #: The levels of durability that a store on it can have, the highest first.
    levels: ClassVar[tuple[Durability, ...]]
    #: How far `erase` reaches when nothing hinders it: the store's own bytes, or what can be read.
    erasure: ClassVar[Erasure]
    #: True when `apply` returns in microseconds, so that callers need not queue.
    instant: ClassVar[bool]
    #: True when other processes can open the same store.
    shared: ClassVar[bool]
    durability: Durability

    def apply(self, items: Sequence[tuple[str, Prepared]]) -> list[Sealed | PagefileError]:
        """Commit batches together, each isolated from the others' refusal.

        Raises:
            Unavailable: the disk or server failed; `outcome` says what that means.
        """

    def head(self, tenant: str) -> TenantHead: ...

    def stream(
        self, tenant: str, kind: StreamKind, name: str, at: int | None = None
    ) -> Stream | None:
        """The stream living now, or at position `at`."""

    def stream_number(self, tenant: str, oid: int) -> Stream | None:
        """The stream with that number, living or dropped."""

    def rows(self, tenant: str, stream: Stream, first: int, last: int, limit: int) -> list[Row]:
        """The stream's own rows numbered first … last, in order; from the end if limit < 0."""

    def find(self, tenant: str, span: KeyRange, limit: int, at: int | None) -> list[Hit]: ...

    def names(
        self, tenant: str, kind: StreamKind, prefix: str, after: str, limit: int
    ) -> list[str]:
        """Names of living streams in order, after `after`."""

    def commits(self, tenant: str, since: int, limit: int) -> list[RawCommit]:
        """Commits after position `since`, in order."""

    def wait(self, tenant: str, position: int, timeout: float) -> bool:
        """Block until the tenant is at `position`; False when the time is over."""

    def owes(self, tenant: str) -> bool:
        """Whether bytes of what the tenant removed may be left for `scrub`.

        An engine notes it in the commit that removes: a crash or a scrub that fails loses no note.
        """

    def scrub(self, tenant: str, timeout: float) -> tuple[str, ...]:
        """Remove leftovers of erased content from files and journals; what could not be done yet.

        When nothing is left to do, the tenant owes nothing.
        """

    def tenants(self) -> list[str]:
        """Names of all tenants; for the admin handle only."""

    def check(self, tenant: str) -> list[Problem]:
        """Examine the engine's own structures."""

    def size_bytes(self) -> int: ...

    def close(self) -> None: ...


class AddsLone(Transaction, Protocol):
    """What a transaction has besides when its engine `TakesLone` or is `instant`."""

    def add_lone(
        self, stream: Stream, row: Row, keys: Sequence[IndexKey], commit: RawCommit
    ) -> None:
        """`add` of one entry, then `seal`."""


@runtime_checkable
class ReadsAhead(Protocol):
    """What a transaction has besides when each question is a journey: many asked at once."""

    def expect_names(self, names: Sequence[tuple[StreamKind, str]]) -> None:
        """`incarnations` of these names comes next, before anything is written."""

    def expect_rows(self, streams: Sequence[Stream]) -> None:
        """`rows` of these comes next, in this order, before anything is written."""


@runtime_checkable
class TakesVectors(Protocol):
    """What a transaction has besides when its engine `KeepsVectors`."""

    def add_vectors(self, stream: Stream, first: int, vectors: Sequence[Vector | None]) -> None:
        """Store the vectors of the entries numbered from `first` on, None for one without."""


class Near(NamedTuple):
    """Entries of a log by their numbers, with their cosines: the nearest, and those asked for."""

    nearest: list[tuple[int, float]]
    named: dict[int, float]


@runtime_checkable
class KeepsVectors(Protocol):
    """What an engine has besides when it can store vectors in the commit of their entries.

    A vector is its entry's: it goes in the commit that erases or prunes the entry
    or drops the log, whoever makes that.
    """

    @property
    def vectors(self) -> str:
        """What keeps them, by name; "" while nothing does."""

    @property
    def no_vectors(self) -> str:
        """Why nothing does, and what would change that; "" while something does."""

    def keep_vectors(self) -> None:
        """Keep vectors from now on, of every tenant.

        Raises:
            Unsupported, Forbidden: this cannot be done here, or not by this user.
        """

    def nearest(
        self, tenant: str, log: str, query: bytes, count: int, numbers: Sequence[int]
    ) -> Near:
        """The `count` nearest of all vectors of a log, best first, and those of `numbers`."""

    def vector_numbers(self, tenant: str, log: str, first: int) -> list[int]:
        """Which entries of a log, from `first` on, have a vector."""

    def fill_vectors(self, tenant: str, log: str, vectors: Mapping[int, Vector]) -> None:
        """Store vectors of entries that came without, if these are still there."""

    def remove_vectors(self, tenant: str, log: str, numbers: Sequence[int]) -> None:
        """Let vectors go that no entry needs any more."""


@runtime_checkable
class TakesLone(Protocol):
    """What an engine has besides when it stores a single append with less than a batch needs."""

    def apply_lone(self, tenant: str, one: Lone) -> Sealed:
        """Commit a single append: `apply` of a batch with nothing else in it.

        Raises:
            PagefileError: it was refused, or the disk failed; as with `apply`.
        """


@runtime_checkable
class Instant(Protocol):
    """What an engine has besides when it is `instant`."""

    def append_one(self, tenant: str, one: Lone) -> tuple[int, int, int]:
        """Commit a single append: position, time and index."""


@runtime_checkable
class Finds(Protocol):
    """What an engine has besides when it finds a document and its row in one step."""

    def current(self, tenant: str, names: Sequence[str]) -> list[Row | None]:
        """The last row of each living document, None where there is none."""


@runtime_checkable
class Stamps(Protocol):
    """What an engine has besides when it can tell in microseconds that nothing has changed."""

    def stamp(self, tenant: str) -> int:
        """A number that is another one after every commit that a read would show.

        What was read after it was taken is still so while it is the same.
        """


@runtime_checkable
class Joinable(Protocol):
    """What an engine has besides when others reach it by another URL than it was opened with."""

    url: str


@runtime_checkable
class Gathers(Protocol):
    """What an engine has besides when each question is a journey: many asked at once."""

    def gather(self, tenant: str, places: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Row]:
        """The rows at these pairs of a stream's number and a row's, where there are any."""

    def streams(self, tenant: str, oids: Sequence[int]) -> dict[int, Stream]:
        """The streams with these numbers, living or dropped, where there are any."""
