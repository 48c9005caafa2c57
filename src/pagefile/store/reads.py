"""The reading side of a store: logs, documents, keys and changes, now and at a past position."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator, Sequence
from typing import Literal, TypeVar

import msgspec

from pagefile.errors import Corrupt, Invalid, NotFound, shown
from pagefile.store.arguments import (
    MOST_PER_READ,
    bounded,
    require_count,
    require_flag,
    require_index,
    require_position,
    require_seconds,
    require_type,
)
from pagefile.store.batch import Query
from pagefile.store.codec.sort_key import AFTER_EVERYTHING
from pagefile.store.commit.preparation import Preparer
from pagefile.store.engine import (
    DOCUMENT,
    LOG,
    Engine,
    Finds,
    Gathers,
    Hit,
    KeyRange,
    Row,
    Stamps,
    Stream,
)
from pagefile.store.records import (
    Action,
    Change,
    Document,
    Durability,
    Entry,
    Head,
    Page,
    StreamKind,
    Touched,
    read_manifest,
)

_ACTIONS: dict[int, Literal["append", "put", "delete", "fork", "drop", "prune", "erase"]] = {
    Action.APPEND: "append",
    Action.PUT: "put",
    Action.DELETE: "delete",
    Action.FORK: "fork",
    Action.DROP: "drop",
    Action.PRUNE: "prune",
    Action.ERASE: "erase",
}


class RowGone(LookupError):
    """A row is missing that the stream had a moment ago: it was pruned meanwhile."""


def length_at(engine: Engine, tenant: str, stream: Stream, at: int) -> int:
    """The log's length, or the document's version, at a position.

    Numbers and positions grow together, so it is found by halving, with steps
    that grow from the end: what just happened takes one read, whatever the
    length, and anywhere in a million entries forty are enough.

    Raises:
        RowGone: ask for the stream again, then for this.
    """
    # A version counts itself; an index does not.
    own = 0 if stream.kind == DOCUMENT else 1
    low, high = max(stream.first, stream.pruned) - 1 + own, stream.length
    step = 1
    while low < high:
        middle = max(high - step, low)
        number = middle + 1 - own
        if _position(engine, tenant, stream, number) <= at:
            low = middle + 1
            break
        high, step = middle, 2 * step
    while low < high:
        middle = (low + high) // 2
        number = middle + 1 - own
        before = _position(engine, tenant, stream, number) <= at
        low, high = (middle + 1, high) if before else (low, middle)
    return low


def _position(engine: Engine, tenant: str, stream: Stream, number: int) -> int:
    rows = engine.rows(tenant, stream, number, number, 1)
    if not rows:
        raise RowGone(f"number {number} of {stream.kind} {stream.name!r}")
    return rows[0].position


def actions_of(entry: tuple[int | bytes, ...], stream: Stream | None) -> Touched:
    """One manifest entry, in words."""
    action, numbers = int(entry[0]), [int(part) for part in entry[2:] if isinstance(part, int)]
    first = numbers[0] if numbers else 0
    last = first
    if action == Action.ERASE:
        last = numbers[1]
    elif action == Action.PRUNE:
        first, last = 0, numbers[0] - 1
    name = stream.name if stream is not None and stream.name else None
    return Touched(_ACTIONS[action], stream.kind if stream is not None else LOG, name, first, last)


class Finder:
    """Turns a query into the key ranges that answer it."""

    def __init__(self, engine: Engine, preparer: Preparer, tenant: str) -> None:
        self._engine = engine
        self._preparer = preparer
        self._naming = preparer.naming
        self._tenant = tenant

    def spans(self, query: Query, at: int | None) -> Iterator[KeyRange]:
        """One range, or for a fork one for each log it shares entries of."""
        for flag in ("prefix", "everyone", "reverse"):
            require_flag(f"query.{flag}", getattr(query, flag))
        low, high = self._bounds(query)
        after = _cursor_place(query.cursor) if query.cursor is not None else None
        if query.log is None:
            if not query.everyone:
                self._naming.check_user(query.user)
            owner = None if query.everyone else query.user
            yield KeyRange(
                "tenant" if query.everyone else "user",
                owner,
                query.field,
                low,
                high,
                after,
                query.reverse,
            )
            return
        self._naming.check_text("log", query.log)
        stream = self._engine.stream(self._tenant, LOG, query.log, at)
        below: int | None = None
        above = stream.pruned if stream is not None else 0
        while stream is not None:
            yield KeyRange(
                "log", stream.oid, query.field, low, high, after, query.reverse, above, below
            )
            below = stream.base_at if below is None else min(below, stream.base_at)
            stream = self._engine.stream_number(self._tenant, stream.base) if stream.base else None

    def _bounds(self, query: Query) -> tuple[bytes, bytes]:
        if query.value is not None and (query.low is not None or query.high is not None):
            raise Invalid("query", "asks for a value and for a range", "give one of the two")
        if query.everyone and (query.user is not None or query.log is not None):
            raise Invalid("query", "asks for everyone and for one", "give one of the two")
        key = self._preparer.envelopes.index_key
        if query.value is not None:
            exact = key("user", query.field, query.value).value
            return exact, exact + (AFTER_EVERYTHING if query.prefix else b"\x00")
        self._naming.check_text("field", query.field)
        low = b"" if query.low is None else key("user", query.field, query.low).value
        high = (
            AFTER_EVERYTHING if query.high is None else key("user", query.field, query.high).value
        )
        return low, high


def place_of(hit: Hit) -> tuple[bytes, int, int]:
    """Where a hit stands in the order of answers."""
    return hit.value, hit.row.position, hit.row.ordinal


def cursor_text(hit: Hit) -> str:
    """A cursor that continues after this hit."""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(place_of(hit))).decode()


def _cursor_place(cursor: str) -> tuple[bytes, int, int]:
    try:
        raw = base64.urlsafe_b64decode(cursor.encode())
        return msgspec.msgpack.decode(raw, type=tuple[bytes, int, int])
    except (AttributeError, binascii.Error, msgspec.DecodeError, ValueError):
        raise Invalid("cursor", "was not made by find", "pass a page's cursor unchanged") from None


_T = TypeVar("_T")


class Reading:
    """What one tenant's store shows; `Store` adds writing and keeping."""

    def __init__(self, engine: Engine, preparer: Preparer, tenant: str) -> None:
        self._engine = engine
        self._naming = preparer.naming
        self._tenant = tenant
        self._finder = Finder(engine, preparer, tenant)
        self._finds: Finds | None = engine if isinstance(engine, Finds) else None
        self._gathers: Gathers | None = engine if isinstance(engine, Gathers) else None
        self._stamps: Stamps | None = engine if isinstance(engine, Stamps) else None
        #: The last position known to have let content go; see `_settled`.
        self._last_erase = -1

    @property
    def tenant(self) -> str:
        """Whose store this is."""
        return self._tenant

    @property
    def url(self) -> str | None:
        """Where its server is, for what is kept beside it; None where there is none."""
        return getattr(self._engine, "url", None)

    @property
    def is_shared(self) -> bool:
        """Whether other processes can open the same store."""
        return self._engine.shared

    @property
    def is_instant(self) -> bool:
        """Whether a commit takes microseconds, so that nobody needs to wait for it."""
        return self._engine.instant

    @property
    def durability(self) -> Durability:
        """What an acknowledged commit survives here."""
        return self._engine.durability

    def head(self) -> Head:
        """The last position and the digest of everything up to it."""
        head = self._engine.head(self._tenant)
        return Head(head.position, head.digest)

    def length(self, log: str, *, at: int | None = None) -> int:
        """How many entries the log has had, pruned and erased ones included; 0 if unknown."""
        self._naming.check_text("log", log)
        at = require_position(at)

        def ask() -> tuple[int, bool]:
            stream = self._engine.stream(self._tenant, LOG, log, at)
            if stream is None:
                return 0, True
            return (stream.length if at is None else self._length_at(stream, at)), True

        return self._settled(ask)

    def has_log(self, log: str) -> bool:
        """Whether the log lives; one that was forked at 0 does without having entries."""
        self._naming.check_text("log", log)
        return self._engine.stream(self._tenant, LOG, log) is not None

    def created(self, log: str) -> int:
        """The position at which the living log of this name came into being; 0 if there is none."""
        self._naming.check_text("log", log)
        stream = self._engine.stream(self._tenant, LOG, log)
        return 0 if stream is None else stream.created

    def read(
        self,
        log: str,
        start: int = 0,
        stop: int | None = None,
        *,
        limit: int = MOST_PER_READ,
        at: int | None = None,
    ) -> list[Entry]:
        """Entries start … stop-1; negative numbers count from the end, as in a slice.

        At most `limit` of them, counted from `start`. Pruned entries are left
        out; erased ones show as such. An unknown log has no entries.
        """
        self._naming.check_text("log", log)
        require_index(start, "start")
        require_index(stop, "stop")
        limit = bounded(limit)
        at = require_position(at)

        def ask() -> tuple[list[Entry], bool]:
            stream = self._engine.stream(self._tenant, LOG, log, at)
            if stream is None:
                return [], True
            length = stream.length if at is None else self._length_at(stream, at)
            first, end, _ = slice(start, stop).indices(length)
            return self._entries(log, stream, first, end, limit)

        return self._settled(ask)

    def get(
        self, document: str, *, version: int | None = None, at: int | None = None
    ) -> Document | None:
        """The document now, at a version, or at a position; None when it is not there."""
        self._naming.check_text("document", document)
        if version is not None and (type(version) is not int or not 0 <= version < 2**32):
            raise Invalid(
                "version", f"{shown(version)} is no version", "give a whole number from 1 up"
            )
        at = require_position(at)
        row = self._settled(lambda: self._version_row(document, version, at))
        return None if row is None or row.action == Action.DELETE else _document(document, row)

    def _version_row(
        self, document: str, version: int | None, at: int | None
    ) -> tuple[Row | None, bool]:
        if self._finds is not None and version is None and at is None:
            row = self._finds.current(self._tenant, (document,))[0]
            return row, row is None or row.content is not None
        stream = self._engine.stream(self._tenant, DOCUMENT, document, at)
        if stream is None:
            return None, True
        number = stream.length if version is None else version
        if at is not None:
            number = min(number, self._length_at(stream, at))
        if not max(stream.pruned, 1) <= number <= stream.length:
            return None, True
        rows = self._engine.rows(self._tenant, stream, number, number, 1)
        return (rows[0], rows[0].content is not None) if rows else (None, False)

    def get_many(self, documents: Sequence[str]) -> list[Document | None]:
        """Each document as it is now, None where there is none; fewer steps than one by one."""
        if not isinstance(documents, (list, tuple)) or len(documents) > MOST_PER_READ:
            raise Invalid("documents", shown(documents), f"give at most {MOST_PER_READ} names")
        known = self._naming.known_good
        for name in documents:
            if type(name) is not str or name not in known:
                self._naming.check_text("documents", name)
        finds = self._finds

        def ask() -> tuple[list[Row | None], bool]:
            if finds is None:
                return [self._version_row(name, None, None)[0] for name in documents], False
            rows = finds.current(self._tenant, documents)
            return rows, all(row is None or row.content is not None for row in rows)

        rows = self._settled(ask)
        return [
            None if row is None or row.action == Action.DELETE else _document(name, row)
            for name, row in zip(documents, rows, strict=True)
        ]

    def history(self, document: str, *, after: int = 0, limit: int = 100) -> list[Document]:
        """Versions after `after`, oldest first; pruned ones are left out."""
        self._naming.check_text("document", document)
        require_count(after, "after")
        limit = bounded(limit)

        def ask() -> tuple[list[Row], bool]:
            stream = self._engine.stream(self._tenant, DOCUMENT, document)
            if stream is None:
                return [], True
            first = max(after + 1, stream.pruned)
            rows = self._engine.rows(self._tenant, stream, first, stream.length, limit)
            return rows, _is_whole(rows, stream.length + 1 - first, limit)

        return [_document(document, row) for row in self._settled(ask)]

    def find(self, query: Query, *, limit: int = 100, at: int | None = None) -> Page:
        """Records under a secondary key, in the order of value, then of commit."""
        require_type("query", query, Query)
        limit = bounded(limit)
        at = require_position(at)
        hits, owners = self._settled(lambda: self._hits(query, limit, at))
        items = tuple(
            self._found(query, hit, owners)
            for hit in hits[:limit]
            if hit.row.content is not None  # A key that leads nowhere: `check` tells of it.
        )
        more = len(hits) > limit and limit > 0
        return Page(items, cursor_text(hits[limit - 1]) if more else None)

    def _hits(
        self, query: Query, limit: int, at: int | None
    ) -> tuple[tuple[list[Hit], dict[int, Stream]], bool]:
        """What is found, one more than asked for, and the streams that have it."""
        hits: list[Hit] = []
        spans = 0
        for span in self._finder.spans(query, at):
            hits += self._engine.find(self._tenant, span, limit + 1, at)
            spans += 1
        if query.log is not None:
            hits.sort(key=place_of, reverse=query.reverse)
        owners = self._streams({hit.oid for hit in hits[:limit]})
        is_whole = spans < 2 and all(
            hit.row.content is not None and (owner := owners.get(hit.oid)) and owner.name
            for hit in hits[:limit]
        )
        return (hits, owners), is_whole

    def names(
        self, kind: StreamKind, *, prefix: str = "", after: str = "", limit: int = 100
    ) -> list[str]:
        """Names of living logs or documents, in order."""
        if kind not in (LOG, DOCUMENT):
            raise Invalid("kind", f"{shown(kind)} is no kind of stream", "use 'log' or 'document'")
        self._naming.check_text("prefix", prefix, may_be_empty=True)
        self._naming.check_text("after", after, may_be_empty=True)
        return self._engine.names(self._tenant, kind, prefix, after, bounded(limit))

    def changes(self, since: int = 0, *, limit: int = 1_000) -> list[Change]:
        """What happened after position `since`, commit by commit, erasures included."""
        require_count(since, "since")
        require_position(since, "since")
        commits = self._engine.commits(self._tenant, since, bounded(limit))
        told = [(commit, read_manifest(commit.position, commit.manifest)) for commit in commits]
        streams = self._streams({int(entry[1]) for _, entries in told for entry in entries})
        return [
            Change(
                commit.position,
                commit.time_us,
                tuple(actions_of(entry, streams.get(int(entry[1]))) for entry in entries),
            )
            for commit, entries in told
        ]

    def wait(self, position: int, timeout: float) -> bool:
        """Block until the tenant reaches `position`, or the seconds are over."""
        require_count(position, "position")
        require_seconds(timeout)
        return self._engine.wait(self._tenant, position, timeout)

    # Inside

    def _stamp(self) -> int | None:
        """For who keeps what it has read: still so while this is the same; None is unknown."""
        return None if self._stamps is None else self._stamps.stamp(self._tenant)

    def _settled(self, ask: Callable[[], tuple[_T, bool]]) -> _T:
        """What `ask` finds with several questions, all of it as it was at one moment.

        What is stored changes in one way only: it is let go. So answers fit together unless
        something is missing from them, which `ask` tells; or they come from
        several places, which it tells alike. Then they count if nothing was let go since
        before the first of them.
        """
        before = self._last_erase
        while True:
            gone: RowGone | None = None
            try:
                found, is_whole = ask()
            except RowGone as error:
                gone, is_whole = error, False
            if is_whole:
                return found
            after = self._last_erase = self._engine.head(self._tenant).last_erase
            if after == before:
                if gone is None:
                    return found
                raise Corrupt(
                    f"{gone} is missing and was never pruned",
                    "run `verify` to see how far the damage goes, then restore a copy",
                ) from None
            before = after

    def _streams(self, oids: set[int]) -> dict[int, Stream]:
        """The streams of these numbers, in one question where the engine has it."""
        if self._gathers is not None and len(oids) > 1:
            return self._gathers.streams(self._tenant, sorted(oids))
        found = {oid: self._engine.stream_number(self._tenant, oid) for oid in oids}
        return {oid: stream for oid, stream in found.items() if stream is not None}

    def _length_at(self, stream: Stream, at: int) -> int:
        return length_at(self._engine, self._tenant, stream, at)

    def _tail(
        self, log: str, oid: int | None, start: int, limit: int
    ) -> tuple[Stream | None, list[Entry]]:
        """What a follower reads: the living log, or the one numbered `oid` even once dropped."""

        def ask() -> tuple[tuple[Stream | None, list[Entry]], bool]:
            if oid is None:
                stream = self._engine.stream(self._tenant, LOG, log)
            else:
                stream = self._engine.stream_number(self._tenant, oid)
            if stream is None:
                return (None, []), True
            entries, is_whole = self._entries(log, stream, start, stream.length, limit)
            return (stream, entries), is_whole

        return self._settled(ask)

    def _entries(
        self, log: str, stream: Stream, first: int, end: int, limit: int
    ) -> tuple[list[Entry], bool]:
        """The entries first … end-1, and whether none of them is missing or erased."""
        first = max(first, stream.pruned)
        if first >= end:
            return [], True
        found: list[Row] = []
        entries: list[Entry] = []
        for owner, low, high in self._segments(stream, first, end - 1):
            rows = self._engine.rows(self._tenant, owner, low, high, limit - len(found))
            found += rows
            entries += [_entry(log, owner.name, row) for row in rows]
            if len(found) == limit:
                break
        return entries, _is_whole(found, end - first, limit)

    def _segments(self, stream: Stream, first: int, last: int) -> list[tuple[Stream, int, int]]:
        """Which streams own the entries first … last of a fork, oldest first."""
        segments: list[tuple[Stream, int, int]] = []
        owner: Stream | None = stream
        while owner is not None and last >= first:
            low = max(first, owner.base_at)
            if low <= last:
                segments.append((owner, low, last))
            last = min(last, owner.base_at - 1)
            owner = self._engine.stream_number(self._tenant, owner.base) if owner.base else None
        segments.reverse()
        return segments

    def _found(self, query: Query, hit: Hit, owners: dict[int, Stream]) -> Entry | Document:
        owner = owners.get(hit.oid)
        if owner is None:
            raise NotFound(f"stream {hit.oid} is gone", "search again")
        if owner.kind == DOCUMENT:
            return _document(owner.name, hit.row)
        return _entry(query.log or owner.name, owner.name, hit.row)


def _entry(log: str, origin: str, row: Row) -> Entry:
    return Entry(row.position, row.time_us, row.content, log, row.number, origin)


def _document(name: str, row: Row) -> Document:
    return Document(row.position, row.time_us, row.content, name, row.number)


def _is_whole(rows: Sequence[Row], count: int, limit: int) -> bool:
    """Whether so many rows are there, or as many as were asked for, each with its content."""
    return len(rows) >= min(count, limit) and all(row.content is not None for row in rows)
