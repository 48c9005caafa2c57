"""The memory engine: the whole contract in plain Python objects."""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar

import msgspec
from msgspec.structs import force_setattr, replace
from sortedcontainers import SortedDict, SortedList

from pagefile.errors import Forbidden, PagefileError
from pagefile.store.commit.idempotency import KeyExpiry
from pagefile.store.commit.rules import append_one, apply, batch_of
from pagefile.store.engine import (
    DOCUMENT,
    LOG,
    Hit,
    IndexKey,
    KeyRange,
    Lone,
    Prepared,
    RawCommit,
    Row,
    Scope,
    Sealed,
    Stream,
    TenantHead,
    index_keys,
)
from pagefile.store.records import Durability, Erasure, Problem, StreamKind
from pagefile.store.threads import Crowd

Owner = str | int | None

#: From so many values on, keeping them in order pays.
_MANY = 32


class Place(msgspec.Struct, frozen=True, gc=False):
    """Where a key's record is."""

    position: int
    ordinal: int
    stream: Stream
    number: int


def _order(place: Place) -> tuple[int, int]:
    """The order of commits."""
    return place.position, place.ordinal


class Bucket:
    """The records under one key value: those it finds now, and those it found once."""

    __slots__ = ("last_change", "live", "past")

    def __init__(self) -> None:
        self.live: list[Place] = []
        #: None as long as nothing left; most keys keep what comes under them.
        self.past: dict[tuple[int, int], tuple[Place, int]] | None = None
        self.last_change = 0

    def take_out(self, place: tuple[int, int]) -> Place | None:
        at = bisect_left(self.live, place, key=_order)
        if at < len(self.live) and _order(self.live[at]) == place:
            return self.live.pop(at)
        return None

    def keep_past(self, place: Place, until: int) -> None:
        """The key led to it, for reads before `until`."""
        if self.past is None:
            self.past = {}
        self.past[_order(place)] = place, until

    def forget(self, place: tuple[int, int]) -> bool:
        """It leads there no more, now or in the past; whether it leads nowhere at all."""
        self.take_out(place)
        if self.past is not None:
            self.past.pop(place, None)
        return not self.live and not self.past

    def seen_at(self, at: int | None) -> list[Place]:
        if at is None:
            return self.live
        kept = () if self.past is None else self.past.values()
        then = [place for place, until in kept if place.position <= at < until]
        then += self.live[: bisect_right(self.live, (at, 1 << 62), key=_order)]
        then.sort(key=_order)
        return then


class FewValues(dict[bytes, Bucket]):
    """Values of a log that has only a few: they are put in order when somebody asks.

    Most logs have a handful of values, and are never searched by range; making
    a sorted container for each would cost more than the append.
    """

    def irange(
        self, low: bytes, high: bytes, inclusive: tuple[bool, bool], reverse: bool
    ) -> Iterator[bytes]:
        """The values in a range, as `SortedDict.irange` gives them; `low` is always included."""
        found = [one for one in self if low <= one < high or (inclusive[1] and one == high)]
        yield from sorted(found, reverse=reverse)


class KeyIndex:
    """All secondary keys of one tenant."""

    def __init__(self) -> None:
        self._values: dict[tuple[Scope, Owner, str], FewValues | SortedDict[bytes, Bucket]] = {}
        #: The buckets of logs once more, found in one step.
        self._logs: dict[tuple[int, str, bytes], Bucket] = {}

    def add(self, stream: Stream, row: Row, keys: Sequence[IndexKey]) -> None:
        """The record stands under these keys from now on."""
        assert row.content is not None
        for key in keys:
            if key.scope == "log":
                # Most appends come under a key that others came under before.
                bucket = self._logs.get((stream.oid, key.field, key.value))
                if bucket is None:
                    bucket = self._bucket(key, stream, None)
                    self._logs[stream.oid, key.field, key.value] = bucket
            else:
                bucket = self._bucket(key, stream, row.content.user)
            bucket.live.append(Place(row.position, row.ordinal, stream, row.number))
            bucket.last_change = row.position

    def retire(self, stream: Stream, row: Row, until: int) -> None:
        """The record's keys lead to it only for reads before `until`."""
        content = row.content
        if content is None or not (content.keys or content.tenant_keys):
            return
        for key in index_keys(stream.kind, content):
            bucket = self._bucket(key, stream, content.user)
            place = bucket.take_out((row.position, row.ordinal))
            if place is not None:
                bucket.keep_past(place, until)
            bucket.last_change = until

    def remove(self, stream: Stream, row: Row) -> None:
        """The record's keys lead nowhere, now or in the past."""
        if row.content is None:
            return
        place = (row.position, row.ordinal)
        for key in index_keys(stream.kind, row.content):
            bucket = self._bucket(key, stream, row.content.user)
            if bucket.forget(place):
                place_of_values = (key.scope, _owner(key, stream, row.content.user), key.field)
                values = self._values[place_of_values]
                del values[key.value]
                self._logs.pop((stream.oid, key.field, key.value), None)
                if not values:
                    del self._values[place_of_values]

    def under(self, key: IndexKey, user: str | None) -> Bucket | None:
        """The records under one key of a user, or of the tenant."""
        owner = user if key.scope == "user" else None
        bucket: Bucket | None = self._values.get((key.scope, owner, key.field), {}).get(key.value)
        return bucket

    def dead_ends(self) -> Iterator[Place]:
        """Keys whose record is gone; there should be none."""
        for values in self._values.values():
            for bucket in values.values():
                for place in bucket.live:
                    row = place.stream.rows[place.number - place.stream.first]
                    if row.content is None or row.position != place.position:
                        yield place

    def _bucket(self, key: IndexKey, stream: Stream, user: str | None) -> Bucket:
        owner = _owner(key, stream, user)
        values = self._values.get((key.scope, owner, key.field))
        if values is None:
            values = FewValues() if key.scope == "log" else SortedDict()
            self._values[key.scope, owner, key.field] = values
        elif len(values) >= _MANY and type(values) is FewValues:
            values = self._values[key.scope, owner, key.field] = SortedDict(values)
        bucket: Bucket | None = values.get(key.value)
        if bucket is None:
            bucket = values[key.value] = Bucket()
        return bucket

    def hits(self, span: KeyRange, at: int | None) -> Iterator[Hit]:
        """Records in the order of value, position, ordinal."""
        values = self._values.get((span.scope, span.owner, span.field))
        if values is None:
            return
        low, high, includes_high = span.low, span.high, False
        if span.after is not None:
            if span.reverse:
                high, includes_high = min((high, False), (span.after[0], True))
            else:
                low = max(low, span.after[0])
        for value in values.irange(
            low, high, inclusive=(True, includes_high), reverse=span.reverse
        ):
            places = values[value].seen_at(at)
            for place in reversed(places) if span.reverse else places:
                order = (value, place.position, place.ordinal)
                if span.after is not None and (
                    order >= span.after if span.reverse else order <= span.after
                ):
                    continue
                if span.above <= place.number and (span.below is None or place.number < span.below):
                    row = place.stream.rows[place.number - place.stream.first]
                    yield Hit(value, place.stream.oid, row)


def _owner(key: IndexKey, stream: Stream, user: str | None) -> Owner:
    if key.scope == "log":
        return stream.oid
    return user if key.scope == "user" else None


#: How often, in commits, expired idempotency keys are swept out.
_SWEEP_EVERY = 256


class _Living(dict[str, Stream]):
    """Streams by name. Names are put in order when somebody asks for a listing."""

    def __init__(self) -> None:
        super().__init__()
        self._sorted: SortedList[str] = SortedList()
        self._unsorted: list[str] = []

    def add(self, stream: Stream) -> None:
        self[stream.name] = stream
        self._unsorted.append(stream.name)

    def take_out(self, stream: Stream) -> None:
        if self._unsorted and self._unsorted[-1] == stream.name:
            self._unsorted.pop()
        else:
            self._sort()
            self._sorted.remove(stream.name)
        del self[stream.name]

    def names_from(self, first: str) -> Iterator[str]:
        self._sort()
        yield from self._sorted.irange(first)

    def _sort(self) -> None:
        if self._unsorted:
            self._sorted.update(self._unsorted)
            self._unsorted.clear()


class _Tenant:
    """One tenant's state, and the transaction over it."""

    def __init__(self, name: str, key_lifetime_us: int) -> None:
        self.head = TenantHead(name)
        self.streams: list[Stream] = []
        self.living: dict[StreamKind, _Living] = {LOG: _Living(), DOCUMENT: _Living()}
        self.named: dict[tuple[StreamKind, str], list[Stream]] = {}
        self.held: dict[str | None, dict[int, Stream]] = {}
        self.children: dict[int, list[Stream]] = {}
        self.keys = KeyIndex()
        self.log: list[RawCommit] = []
        self.used: dict[str, int] = {}
        #: Commits before this one (counted from 0) have lost their idempotency keys.
        self.keys_from = 0
        self.key_lifetime_us = key_lifetime_us
        self._expiry = KeyExpiry()

    # The transaction: called with the engine's lock held.

    def earlier(self, key: str, after: int) -> RawCommit | None:
        if after >= 0:
            # By number: iterating would walk over everything before.
            places = range(after, len(self.log))
            return next((self.log[at] for at in places if self.log[at].key == key), None)
        position = self.used.get(key)
        return None if position is None else self.log[position - 1]

    def stream(self, kind: StreamKind, name: str) -> Stream | None:
        return self.living[kind].get(name)

    def stream_number(self, oid: int) -> Stream:
        return self.streams[oid - 1]

    def create(self, stream: Stream) -> None:
        self.streams.append(stream)
        self.living[stream.kind].add(stream)
        self.named.setdefault((stream.kind, stream.name), []).append(stream)
        if stream.base:
            self.children.setdefault(stream.base, []).append(stream)

    def discard(self, stream: Stream) -> None:
        self.streams.pop()
        self.living[stream.kind].take_out(stream)
        self._forget_incarnation(stream)
        if stream.base:
            self.children[stream.base].remove(stream)

    def _forget_incarnation(self, stream: Stream) -> None:
        named = self.named[stream.kind, stream.name]
        named.remove(stream)
        if not named:
            del self.named[stream.kind, stream.name]

    def add(self, stream: Stream, rows: Sequence[Row], keys: Sequence[Sequence[IndexKey]]) -> None:
        if stream.kind == DOCUMENT and stream.rows:
            self.keys.retire(stream, stream.rows[-1], rows[0].position)
        stream.rows += rows
        before: object = ...
        for at, row in enumerate(rows):
            content = row.content
            if content is None:
                continue
            # The row was made for this stream; its content, whoever appended it holds too.
            force_setattr(row, "content", replace(content))
            if content.user is not before:
                before = content.user
                held = self.held.get(content.user)
                if held is None:
                    held = self.held[content.user] = {}
                held[stream.oid] = stream
            if keys:
                self.keys.add(stream, row, keys[at])

    def add_lone(
        self, stream: Stream, row: Row, keys: Sequence[IndexKey], commit: RawCommit
    ) -> None:
        self.add(stream, (row,), (keys,) if keys else ())
        self.seal(commit)

    def drop(self, stream: Stream, *, forget_name: bool = False) -> None:
        if self.living[stream.kind].get(stream.name) is stream:
            self.living[stream.kind].take_out(stream)
        if forget_name:
            self._forget_incarnation(stream)
            stream.name = ""

    def prune(self, stream: Stream, before: int) -> None:
        stream.pruned = max(stream.pruned, before)
        shared = self._shared_up_to(stream)
        kept_from = max(stream.first, shared)
        for row in stream.rows[kept_from - stream.first : max(before, kept_from) - stream.first]:
            self.keys.remove(stream, row)
        if kept_from == stream.first:
            del stream.rows[: max(0, before - stream.first)]
            stream.first = max(stream.first, before)
        else:
            for number in range(kept_from, before):
                row = stream.rows[number - stream.first]
                stream.rows[number - stream.first] = Row(
                    number, row.position, row.ordinal, row.time_us, row.action, None
                )

    def _shared_up_to(self, stream: Stream) -> int:
        """How much of it is shared by forks that live, or have living forks."""
        most = 0
        todo = [(child, child.base_at) for child in self.children.get(stream.oid, ())]
        while todo:
            kin, reach = todo.pop()
            if not kin.dropped:
                most = max(most, reach)
            todo += [(c, min(reach, c.base_at)) for c in self.children.get(kin.oid, ())]
        return most

    def holders(self, user: str | None) -> list[Stream]:
        return [stream for _, stream in sorted(self.held.get(user, {}).items())]

    def forks(self, stream: Stream) -> list[Stream]:
        return list(self.children.get(stream.oid, ()))

    def incarnations(self, kind: StreamKind, name: str) -> list[Stream]:
        return list(self.named.get((kind, name), ()))

    def rows(self, stream: Stream, first: int = 0, last: int | None = None) -> list[Row]:
        start = max(first, stream.first) - stream.first
        stop = len(stream.rows) if last is None else max(start, last + 1 - stream.first)
        return stream.rows[start:stop]

    def wipe(self, stream: Stream, rows: Sequence[Row]) -> None:
        for row in rows:
            assert row.content is not None
            self.keys.remove(stream, row)
            stream.rows[row.number - stream.first] = Row(
                row.number, row.position, row.ordinal, row.time_us, row.action, None
            )
        for user in {row.content.user for row in rows if row.content is not None}:
            if all(row.content is None or row.content.user != user for row in stream.rows):
                del self.held[user][stream.oid]
                if not self.held[user]:
                    del self.held[user]

    def count(self, key: IndexKey, user: str | None, most: int) -> int:
        bucket = self.keys.under(key, user)
        return min(most, len(bucket.live)) if bucket is not None else 0

    def last_change(self, key: IndexKey, user: str | None) -> int:
        bucket = self.keys.under(key, user)
        return bucket.last_change if bucket is not None else 0

    def seal(self, commit: RawCommit) -> None:
        self.log.append(commit)
        if commit.key[:1] != "~":
            self.used[commit.key] = commit.position
        if not commit.position % _SWEEP_EVERY:
            self._sweep_keys(commit)

    def _sweep_keys(self, last: RawCommit) -> None:
        log = self.log
        expired_to = self._expiry.last_expired(
            self.key_lifetime_us,
            self.keys_from + 1,
            last.position,
            last.time_us,
            lambda position: log[position - 1].time_us,
        )
        while self.keys_from < expired_to:
            expired = log[self.keys_from]
            # A copied history may have used the key again.
            if self.used.get(expired.key) == expired.position:
                del self.used[expired.key]
            self.keys_from += 1


class MemoryEngine:
    """Everything in this process; gone when it ends."""

    name: ClassVar[str] = "memory"
    promises: ClassVar[frozenset[str]] = frozenset(
        {"S1", "S2", "S3", "S5", "S6", "S7", "S8", "S9", "S10"}
    )
    levels: ClassVar[tuple[Durability, ...]] = ("none",)
    erasure: ClassVar[Erasure] = "bytes"
    instant: ClassVar[bool] = True
    shared: ClassVar[bool] = False

    def __init__(self, *, clock: Callable[[], int], key_lifetime_us: int) -> None:
        self.durability: Durability = "none"
        self._clock = clock
        self._key_lifetime_us = key_lifetime_us
        self._tenants: dict[str, _Tenant] = {}
        self._lock = threading.Lock()
        self._changed = Crowd()
        self._pid = os.getpid()
        self._closed = False

    def apply(self, items: Sequence[tuple[str, Prepared]]) -> list[Sealed | PagefileError]:
        if self._closed or os.getpid() != self._pid:
            self._require_usable()
        outcomes: list[Sealed | PagefileError] = []
        with self._lock:
            for name, batch in items:
                tenant = self._tenants.get(name)
                if tenant is None:
                    tenant = self._tenants[name] = _Tenant(name, self._key_lifetime_us)
                try:
                    outcomes.append(apply(tenant, batch, self._clock()))
                except PagefileError as refused:
                    outcomes.append(refused)
            if self._changed:
                self._changed.wake()
        return outcomes

    def append_one(self, tenant: str, one: Lone) -> tuple[int, int, int]:
        if self._closed or os.getpid() != self._pid:
            self._require_usable()
        with self._lock:
            held = self._tenants.get(tenant)
            if held is None:
                held = self._tenants[tenant] = _Tenant(tenant, self._key_lifetime_us)
            now_us = self._clock()
            placed = append_one(held, one, now_us)
            if placed is None:
                sealed = apply(held, batch_of(one), now_us)
                placed = sealed.commit, sealed.indexes[0]
            if self._changed:
                self._changed.wake()
        commit, index = placed
        return commit.position, commit.time_us, index

    def _require_usable(self) -> None:
        if os.getpid() != self._pid:
            raise Forbidden(
                f"this memory: store lives in process {self._pid}, not in its child",
                "open one in the child, or use a file",
            )
        if self._closed:
            raise Forbidden("this memory: store is closed", "call pagefile.open again")

    def _tenant(self, name: str) -> _Tenant:
        self._require_usable()
        return self._tenants.get(name) or _Tenant(name, self._key_lifetime_us)

    def head(self, tenant: str) -> TenantHead:
        with self._lock:
            head, copy = self._tenant(tenant).head, TenantHead(tenant)
            for slot in TenantHead.__slots__:
                setattr(copy, slot, getattr(head, slot))
            return copy

    def stamp(self, tenant: str) -> int:
        with self._lock:
            return self._tenant(tenant).head.position

    def stream(
        self, tenant: str, kind: StreamKind, name: str, at: int | None = None
    ) -> Stream | None:
        with self._lock:
            held = self._tenant(tenant)
            if at is None:
                return _as_it_is(held.stream(kind, name))
            for stream in held.incarnations(kind, name):
                if stream.created <= at and (not stream.dropped or at < stream.dropped):
                    return _as_it_is(stream)
            return None

    def stream_number(self, tenant: str, oid: int) -> Stream | None:
        with self._lock:
            streams = self._tenant(tenant).streams
            return _as_it_is(streams[oid - 1]) if 0 < oid <= len(streams) else None

    def current(self, tenant: str, names: Sequence[str]) -> list[Row | None]:
        with self._lock:
            held = self._tenant(tenant)
            streams = [held.stream(DOCUMENT, name) for name in names]
            return [
                _copies(stream.rows[-1:])[0] if stream and stream.rows else None
                for stream in streams
            ]

    def rows(self, tenant: str, stream: Stream, first: int, last: int, limit: int) -> list[Row]:
        with self._lock:
            stream = self._tenant(tenant).stream_number(stream.oid)
            start = max(first, stream.first) - stream.first
            stop = max(start, last + 1 - stream.first)
            if limit < 0:
                stop = min(stop, len(stream.rows))
                return _copies(stream.rows[max(start, stop + limit) : stop])
            return _copies(stream.rows[start : min(stop, start + limit)])

    def find(self, tenant: str, span: KeyRange, limit: int, at: int | None) -> list[Hit]:
        with self._lock:
            hits = self._tenant(tenant).keys.hits(span, at)
            found = [hit for hit, _ in zip(hits, range(limit), strict=False)]
            rows = _copies([hit.row for hit in found])
            return [Hit(hit.value, hit.oid, row) for hit, row in zip(found, rows, strict=True)]

    def names(
        self, tenant: str, kind: StreamKind, prefix: str, after: str, limit: int
    ) -> list[str]:
        with self._lock:
            found: list[str] = []
            living = self._tenant(tenant).living[kind]
            for name in living.names_from(max(prefix, after)):
                if not name.startswith(prefix) or len(found) == limit:
                    break
                if name != after and not living[name].deleted:
                    found.append(name)
            return found

    def commits(self, tenant: str, since: int, limit: int) -> list[RawCommit]:
        with self._lock:
            return self._tenant(tenant).log[since : since + limit]

    def wait(self, tenant: str, position: int, timeout: float) -> bool:
        deadline = time.monotonic() + timeout
        while True:
            with self._lock:
                if self._tenant(tenant).head.position >= position:
                    return True
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                told = self._changed.join()
            if not told.wait(left):
                with self._lock:
                    self._changed.leave(told)

    def tenants(self) -> list[str]:
        with self._lock:
            return sorted(name for name, held in self._tenants.items() if held.log)

    def owes(self, tenant: str) -> bool:
        return False  # What is removed is gone at once.

    def scrub(self, tenant: str, timeout: float) -> tuple[str, ...]:
        return ()

    def check(self, tenant: str) -> list[Problem]:
        with self._lock:
            return list(_examine(self._tenant(tenant)))

    def size_bytes(self) -> int:
        with self._lock:
            return sum(
                len(row.content.body)
                for tenant in self._tenants.values()
                for stream in tenant.streams
                for row in stream.rows
                if row.content is not None
            )

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._tenants.clear()
            self._changed.wake()


def _copies(rows: Sequence[Row]) -> list[Row]:
    """What goes out, apart from what is kept.

    A frozen value can be changed by force: the content that a reader holds must not
    be the one that the next reader gets.
    """
    return [
        row if row.content is None else replace(row, content=replace(row.content)) for row in rows
    ]


def _as_it_is(stream: Stream | None) -> Stream | None:
    """A copy without rows: the original also shows what a batch tries that is then refused."""
    if stream is None:
        return None
    seen = Stream(stream.oid, stream.kind, stream.name, stream.created)
    seen.length, seen.first, seen.pruned = stream.length, stream.first, stream.pruned
    seen.base, seen.base_at, seen.salt = stream.base, stream.base_at, stream.salt
    seen.dropped, seen.deleted = stream.dropped, stream.deleted
    return seen


def _examine(tenant: _Tenant) -> Iterator[Problem]:
    for stream in tenant.streams:
        own = stream.length - stream.first + (stream.kind == DOCUMENT)
        if len(stream.rows) != own:
            yield Problem(
                stream.created, f"stream {stream.oid} has {len(stream.rows)} rows, not {own}"
            )
    for place in tenant.keys.dead_ends():
        yield Problem(place.position, f"a key of stream {place.stream.oid} leads nowhere")
