"""The Redis engine: a Redis 7 or Valkey server or cluster, many processes on many machines."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from pagefile.engines.common import parts_of
from pagefile.engines.redis import layout
from pagefile.engines.redis.check import Examination
from pagefile.engines.redis.cluster import ask_each, shards_of
from pagefile.engines.redis.connection import Address, Command, Link
from pagefile.engines.redis.durability import scrub
from pagefile.engines.redis.layout import Found, Keys, name_field, tenants_key
from pagefile.engines.redis.rows import commit_from, head_from, row_from, stream_from
from pagefile.engines.redis.tenant_cache import Known
from pagefile.engines.redis.writer import Attempt, Sender
from pagefile.errors import Corrupt, PagefileError
from pagefile.store.engine import (
    DOCUMENT,
    Hit,
    KeyRange,
    Prepared,
    RawCommit,
    Row,
    Sealed,
    Stream,
    TenantHead,
)
from pagefile.store.records import Durability, Erasure, Problem, StreamKind

_ATTEMPTS = 100


def current(link: Link, keys: Keys, names: Sequence[str]) -> list[Row | None]:
    """The last row of each living document, None where there is none."""
    rows: dict[str, Row] = {}
    left = list(dict.fromkeys(names))
    for _ in range(_ATTEMPTS):
        if not left:
            return [rows.get(name) for name in names]
        living = _living(link, keys, left)
        asked: list[Command] = [
            ("HGET", keys.rows(stream.oid), stream.length) for stream in living.values()
        ]
        answers = link.ask(*asked) if asked else []
        left = []
        for (name, stream), raw in zip(living.items(), answers, strict=True):
            if raw is None:
                # Put anew and pruned between the two questions: once more.
                left.append(name)
            else:
                rows[name] = row_from(stream.length, raw)
    raise Corrupt(
        f"the last version of document {left[0]!r} is gone from Redis",
        "run `verify` to see how far it goes, then restore a copy",
    )


def _living(link: Link, keys: Keys, names: Sequence[str]) -> dict[str, Stream]:
    fields = [name_field(DOCUMENT, name) for name in names]
    places = (keys.head, keys.commits, keys.names, keys.streams)
    found = link.run("look", places, (b"", 0, 0, *fields))[2]
    read = [(name, stream_from(raw)) for name, raw in zip(names, found, strict=False) if raw]
    return {name: stream for name, stream in read if not stream.dropped}


def gather(link: Link, keys: Keys, places: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Row]:
    """The rows at these pairs of a stream's number and a row's, where there are any."""
    numbers: dict[int, list[int]] = {}
    for oid, number in places:
        numbers.setdefault(oid, []).append(number)
    asked: list[Command] = [("HMGET", keys.rows(oid), *of) for oid, of in numbers.items()]
    found: dict[tuple[int, int], Row] = {}
    answers = link.ask(*asked) if asked else []
    for (oid, of), stored in zip(numbers.items(), answers, strict=True):
        for number, raw in zip(of, stored, strict=True):
            if raw is not None:
                found[oid, number] = row_from(number, raw)
    return found


def streams(link: Link, keys: Keys, oids: Sequence[int]) -> dict[int, Stream]:
    """The streams with these numbers, where there are any."""
    if not oids:
        return {}
    stored = link.ask_one("HMGET", keys.streams, *oids)
    read = zip(oids, stored, strict=True)
    return {oid: stream_from(raw) for oid, raw in read if raw is not None}


_AT_ONCE = 256


def find(link: Link, keys: Keys, span: KeyRange, limit: int, at: int | None) -> list[Hit]:
    """See `Engine.find`."""
    if limit < 1:
        return []
    search = _Search(link, keys, span, min(limit, _AT_ONCE))
    found = search.live() if at is None else search.then(at)
    within = (
        place
        for place in found
        if span.above <= place.number and (span.below is None or place.number < span.below)
    )
    return _hits(link, keys, list(itertools.islice(within, limit)))


def _hits(link: Link, keys: Keys, chosen: list[Found]) -> list[Hit]:
    """The records at these places, with one question for each stream.

    Those that were let go since their keys were read come without content: whoever asked
    for them asks again.
    """
    numbers: dict[int, list[int]] = {}
    for place in chosen:
        numbers.setdefault(place.oid, []).append(place.number)
    asked: list[Command] = [("HMGET", keys.rows(oid), *some) for oid, some in numbers.items()]
    answers = link.ask(*asked) if asked else []
    rows: dict[tuple[int, int], Row] = {
        (place.oid, place.number): Row(place.number, place.position, place.ordinal, 0, 0, None)
        for place in chosen
    }
    for (oid, some), answer in zip(numbers.items(), answers, strict=True):
        for number, raw in zip(some, answer, strict=True):
            if raw is not None:
                rows[oid, number] = row_from(number, raw)
    return [Hit(place.value, place.oid, rows[place.oid, place.number]) for place in chosen]


class _Search:
    """One range of one field's keys."""

    def __init__(self, link: Link, keys: Keys, span: KeyRange, at_once: int) -> None:
        self._link = link
        self._keys = keys
        self._span = span
        self._at_once = at_once
        self._space = layout.space(span.scope, span.owner, span.field)

    def live(self) -> Iterator[Found]:
        """What the keys lead to now, from the cursor on."""
        span, space = self._span, self._space
        low = b"[" + space + layout.ordered(span.low)
        high = b"(" + space + layout.ordered(span.high)
        if span.after is not None:
            value, position, ordinal = span.after
            mark = space + layout.ordered(value) + layout.order(position, ordinal)
            if span.reverse:
                high = b"(" + min(mark, high[1:])
            elif mark >= low[1:]:
                # All that begins like the mark is the record that the cursor stands on.
                low = b"(" + mark + layout.BEHIND * layout.PLACE_BYTES
        return self._scan(self._keys.live, low, high, past=False)

    def then(self, at: int) -> Iterator[Found]:
        """What the keys led to at a position: what is left of it, and what has gone since."""
        reverse = self._span.reverse
        live = (place for place in self.live() if place.position <= at)
        yield from heapq.merge(live, self._past(at), reverse=reverse)

    def _past(self, at: int) -> Iterator[Found]:
        span, space = self._span, self._space
        low, high = span.low, span.high
        if span.after is not None:
            if span.reverse:
                # The value of the cursor itself belongs to it.
                high = min(high, span.after[0] + b"\x00")
            else:
                low = max(low, span.after[0])
        bounds = b"[" + space + layout.ordered(low), b"(" + space + layout.ordered(high)
        group: list[Found] = []
        for place in self._scan(self._keys.past, *bounds, past=True):
            # Within a value they come in the order in which they went.
            if group and group[0].value != place.value:
                yield from self._sorted(group)
                group = []
            if place.position <= at < place.until:
                group.append(place)
        yield from self._sorted(group)

    def _sorted(self, group: list[Found]) -> list[Found]:
        after, reverse = self._span.after, self._span.reverse
        return sorted(
            (
                place
                for place in group
                if after is None or (place[:3] < after if reverse else place[:3] > after)
            ),
            reverse=reverse,
        )

    def _scan(self, key: bytes, low: bytes, high: bytes, *, past: bool) -> Iterator[Found]:
        reverse = self._span.reverse
        while low[1:] < high[1:]:
            bounds = (high, low) if reverse else (low, high)
            order = ("REV",) if reverse else ()
            members = self._link.ask_one(
                "ZRANGE", key, *bounds, "BYLEX", *order, "LIMIT", 0, self._at_once
            )
            for member in members:
                yield layout.found_in(member, len(self._space), past=past)
            if len(members) < self._at_once:
                return
            if reverse:
                high = b"(" + members[-1]
            else:
                low = b"(" + members[-1]


_MOST_CACHED_TENANTS = 1_000
_ROWS_AT_ONCE = 512
#: How long one blocking read lasts, so that a dead connection is noticed.
_BLOCK_SECONDS = 5.0
_LEAST_ANSWER_SECONDS, _MOST_ANSWER_SECONDS = 10.0, 60.0
_KEYS_AT_ONCE = 500
#: How many bytes of content go into one request, unless a single batch has more: a server takes
#: a gigabyte at most.
_MOST_BYTES = 64 * 1024 * 1024


class RedisEngine:
    """All tenants under one prefix of one server or cluster."""

    name: ClassVar[str] = "redis"
    promises: ClassVar[frozenset[str]] = frozenset(f"S{n}" for n in range(1, 12))
    levels: ClassVar[tuple[Durability, ...]] = ("power", "process", "none")
    erasure: ClassVar[Erasure] = "bytes"
    instant: ClassVar[bool] = False
    shared: ClassVar[bool] = True

    def __init__(
        self,
        address: Address,
        *,
        clock: Callable[[], int],
        key_lifetime_us: int,
        durability: Durability | None = None,
        lock_seconds: float = 30.0,
    ) -> None:
        self._address = address
        self._clock = clock
        self._key_lifetime_us = key_lifetime_us
        self._lock_seconds = lock_seconds
        answer_seconds = min(max(lock_seconds, _LEAST_ANSWER_SECONDS), _MOST_ANSWER_SECONDS)
        self._known: dict[str, Known] = {}
        self._keys: dict[str, Keys] = {}
        self._applying = threading.Lock()
        self._shards = shards_of(address, answer_seconds, lock_seconds)
        try:
            self._sender = Sender(self._shards, address, answer_seconds, lock_seconds)
            self.durability: Durability = self._sender.require_level(durability)
        except PagefileError:
            self._shards.close()
            raise

    @property
    def url(self) -> str:
        """With the password, if it has one: never shown."""
        return self._address.given

    # Writing

    def apply(self, items: Sequence[tuple[str, Prepared]]) -> list[Sealed | PagefileError]:
        # Before any lock: in a forked child nobody would let it go.
        self._shards.require_usable()
        now_us = self._clock()
        calls = parts_of(items, _MOST_BYTES)
        if len(calls) == 1:
            return self._apply(items, now_us)
        return [outcome for some in calls for outcome in self._apply(some, now_us)]

    def _apply(
        self, items: Sequence[tuple[str, Prepared]], now_us: int
    ) -> list[Sealed | PagefileError]:
        places: dict[str, list[int]] = {}
        for at, (tenant, _) in enumerate(items):
            places.setdefault(tenant, []).append(at)
        with self._applying:
            if len(self._known) > _MOST_CACHED_TENANTS:
                self._known.clear()
            attempts = [
                Attempt(
                    self._known_of(tenant),
                    [items[at][1] for at in mine],
                    now_us=now_us,
                    key_lifetime_us=self._key_lifetime_us,
                    seconds=self._lock_seconds,
                )
                for tenant, mine in places.items()
            ]
            self._sender.commit(attempts)
        if len(attempts) == 1:
            return attempts[0].outcomes
        outcomes: list[Any] = [None] * len(items)
        for mine, attempt in zip(places.values(), attempts, strict=True):
            for at, outcome in zip(mine, attempt.outcomes, strict=True):
                outcomes[at] = outcome
        return outcomes

    def _known_of(self, tenant: str) -> Known:
        known = self._known.get(tenant)
        if known is None:
            known = self._known[tenant] = Known(
                tenant, self._keys_of(tenant), self._link_of(tenant)
            )
        return known

    def _keys_of(self, tenant: str) -> Keys:
        keys = self._keys.get(tenant)
        if keys is None:
            if len(self._keys) > _MOST_CACHED_TENANTS:
                self._keys.clear()
            keys = self._keys[tenant] = Keys(self._address.prefix, tenant)
        return keys

    def _link_of(self, tenant: str) -> Link:
        return self._shards.of(self._keys_of(tenant).head)

    # Reading

    def head(self, tenant: str) -> TenantHead:
        last = self._link_of(tenant).ask_one(
            "XREVRANGE", self._keys_of(tenant).commits, "+", "-", "COUNT", 1
        )
        return head_from(tenant, last[0] if last else None)

    def stream(
        self, tenant: str, kind: StreamKind, name: str, at: int | None = None
    ) -> Stream | None:
        keys = self._keys_of(tenant)
        found = self._link_of(tenant).run(
            "look",
            (keys.head, keys.commits, keys.names, keys.streams),
            (b"", 0, 0, name_field(kind, name)),
        )[2]
        # A missing last item is left out of the answer.
        stream = stream_from(found[0]) if found and found[0] is not None else None
        if at is None:
            return None if stream is None or stream.dropped else stream
        while stream is not None and stream.created > at:
            stream = self.stream_number(tenant, stream.id) if stream.id else None
        return None if stream is None or 0 < stream.dropped <= at else stream

    def stream_number(self, tenant: str, oid: int) -> Stream | None:
        raw = self._link_of(tenant).ask_one("HGET", self._keys_of(tenant).streams, oid)
        return None if raw is None else stream_from(raw)

    def rows(self, tenant: str, stream: Stream, first: int, last: int, limit: int) -> list[Row]:
        first = max(first, stream.first)
        if last < first or not limit:
            return []
        found: list[Row] = []
        link, key = self._link_of(tenant), self._keys_of(tenant).rows(stream.oid)
        if limit < 0:
            last = min(last, stream.length)
            while last >= first and len(found) < -limit:
                start = max(first, last + 1 - min(_ROWS_AT_ONCE, -limit - len(found)))
                found[:0] = self._rows(link, key, range(start, last + 1))
                last = start - 1
            return found
        while first <= last and len(found) < limit:
            numbers = range(first, min(last + 1, first + min(_ROWS_AT_ONCE, limit - len(found))))
            some = self._rows(link, key, numbers)
            if not some and first > stream.length:
                break
            found += some
            first = numbers.stop
        return found

    def _rows(self, link: Link, key: bytes, numbers: range) -> list[Row]:
        stored = link.ask_one("HMGET", key, *numbers)
        return [
            row_from(number, raw)
            for number, raw in zip(numbers, stored, strict=True)
            if raw is not None
        ]

    def current(self, tenant: str, names: Sequence[str]) -> list[Row | None]:
        return current(self._link_of(tenant), self._keys_of(tenant), names)

    def gather(self, tenant: str, places: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Row]:
        return gather(self._link_of(tenant), self._keys_of(tenant), places)

    def streams(self, tenant: str, oids: Sequence[int]) -> dict[int, Stream]:
        return streams(self._link_of(tenant), self._keys_of(tenant), oids)

    def find(self, tenant: str, span: KeyRange, limit: int, at: int | None) -> list[Hit]:
        return find(self._link_of(tenant), self._keys_of(tenant), span, limit, at)

    def names(
        self, tenant: str, kind: StreamKind, prefix: str, after: str, limit: int
    ) -> list[str]:
        low = b"(" + after.encode() if after and after >= prefix else b"[" + prefix.encode()
        # No text holds the byte 255, so it sorts behind all that begin alike.
        high = b"(" + prefix.encode() + b"\xff"
        shown = self._keys_of(tenant).shown[kind]
        found = self._link_of(tenant).ask_one(
            "ZRANGE", shown, low, high, "BYLEX", "LIMIT", 0, limit
        )
        return [name.decode() for name in found]

    def commits(self, tenant: str, since: int, limit: int) -> list[RawCommit]:
        if limit < 1:
            return []
        found = self._link_of(tenant).ask_one(
            "XRANGE", self._keys_of(tenant).commits, f"({since}-0", "+", "COUNT", limit
        )
        return [_commit(entry) for entry in found]

    def wait(self, tenant: str, position: int, timeout: float) -> bool:
        if position < 1:
            return True
        commits, deadline = self._keys_of(tenant).commits, time.monotonic() + timeout
        link = self._link_of(tenant)
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return self.head(tenant).position >= position
            most_ms = max(1, int(min(left, _BLOCK_SECONDS) * 1_000))
            if link.block(
                "XREAD", "COUNT", 1, "BLOCK", most_ms, "STREAMS", commits, f"{position - 1}-0"
            ):
                return True

    # Keeping

    def owes(self, tenant: str) -> bool:
        return self._traces(tenant) > 0

    def scrub(self, tenant: str, timeout: float) -> tuple[str, ...]:
        deadline = time.monotonic() + timeout
        found: list[str] = []
        try:
            # Before: what is removed while files are being written again is for the next time.
            owed = self._traces(tenant)
            for server in self._shards.servers():
                found += scrub(server, max(0.0, deadline - time.monotonic()))
            if not found:
                key = self._keys_of(tenant).traces
                self._link_of(tenant).run("paid", (key,), (owed,))
        except PagefileError as failure:
            # The erasure itself is committed; only its last step is still to do.
            found.append(f"old bytes may be in the server's files ({failure.fact}): erase again")
        return tuple(found)

    def _traces(self, tenant: str) -> int:
        """The last position that removed something since files were last written again, or 0."""
        noted = self._link_of(tenant).ask_one("GET", self._keys_of(tenant).traces)
        # Of a tenant of an earlier version nothing is noted yet.
        return self.head(tenant).last_erase if noted is None else int(noted)

    def tenants(self) -> list[str]:
        listed = tenants_key(self._address.prefix)
        names = sorted(raw.decode() for raw in self._shards.of(listed).ask_one("SMEMBERS", listed))
        asked = [(self._link_of(name), ("EXISTS", self._keys_of(name).head)) for name in names]
        return [name for name, found in zip(names, ask_each(asked), strict=True) if found]

    def check(self, tenant: str) -> list[Problem]:
        return Examination(self._link_of(tenant), tenant, self._keys_of(tenant)).run()

    def size_bytes(self) -> int:
        total = 0
        for tenant in self.tenants():
            keys, link = self._keys_of(tenant), self._link_of(tenant)
            places = keys.fixed()
            places += [keys.rows(oid) for oid in range(1, self.head(tenant).oid + 1)]
            for start in range(0, len(places), _KEYS_AT_ONCE):
                asked = [("MEMORY", "USAGE", key) for key in places[start : start + _KEYS_AT_ONCE]]
                total += sum(answer or 0 for answer in link.ask(*asked))
        return total

    def close(self) -> None:
        self._sender.close()
        self._shards.close()


def _commit(entry: Any) -> RawCommit:
    try:
        position, counted = commit_from(entry)
    except Corrupt:
        # Shown as it is: `verify` says which one it was.
        return RawCommit(int(entry[0].partition(b"-")[0]), 0, "", b"", b"")
    return counted.raw(position)
