"""What `check` looks at in Redis: everything that leads to the records, derived afresh.

The hash chain proves the records (`verify` walks it). Here streams, names, secondary keys,
idempotency keys, users' holdings, forks and counters are derived from them once more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from pagefile.engines.redis import layout
from pagefile.engines.redis.connection import Link
from pagefile.engines.redis.layout import Keys
from pagefile.engines.redis.rows import commit_from, head_from, row_from, stream_from
from pagefile.errors import PagefileError
from pagefile.store.engine import DOCUMENT, LOG, Row, Stream, TenantHead, index_keys
from pagefile.store.records import Problem

_AT_ONCE = 500
_MOST_ROUNDS = 5


class Examination:
    """One look at everything that one tenant has."""

    def __init__(self, link: Link, tenant: str, keys: Keys) -> None:
        self._link = link
        self._tenant = tenant
        self._keys = keys

    def run(self) -> list[Problem]:
        """What is wrong. Looks again when somebody wrote meanwhile and something seems wrong."""
        problems: list[Problem] = []
        for _ in range(_MOST_ROUNDS):
            before = self._link.ask_one("GET", self._keys.head)
            self._expected: Counter[bytes] = Counter()
            problems = list(self._problems(before or b""))
            if not problems or self._link.ask_one("GET", self._keys.head) == before:
                break
        return problems

    def _problems(self, digest: bytes) -> Iterator[Problem]:
        keys, ask = self._keys, self._link.ask_one
        last = ask("XREVRANGE", keys.commits, "+", "-", "COUNT", 1)
        try:
            head = head_from(self._tenant, last[0] if last else None)
        except PagefileError as unreadable:
            yield Problem(None, str(unreadable))
            return
        if digest != (head.digest if head.position else b""):
            yield Problem(head.position, "the head is not the last commit")
        stored = ask("XLEN", keys.commits)
        if stored != head.position:
            yield Problem(None, f"{stored} commits are stored, not {head.position}")
        streams = {}
        for field, raw in self._all(keys.streams):
            try:
                streams[int(field)] = stream_from(raw)
            except PagefileError as unreadable:
                yield Problem(None, f"stream {int(field)}: {unreadable}")
        if sorted(streams) != list(range(1, head.oid + 1)):
            yield Problem(None, f"{len(streams)} streams are stored, not {head.oid}")
        yield from self._counters(head, streams.values())
        yield from self._names(streams.values())
        for oid in sorted(streams):
            yield from self._stream(streams[oid])
        yield from self._used()
        for key, what in (
            (keys.live, "secondary keys"),
            (keys.past, "past secondary keys"),
            (keys.held, "notes on which user has records where"),
            (keys.forks, "notes on forks"),
            *((shown, "listed names") for shown in keys.shown.values()),
        ):
            found = ask("ZCARD", key)
            if found != self._expected[key]:
                yield Problem(None, f"{found} {what} are stored, not {self._expected[key]}")

    def _all(self, key: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Fields and values of a hash, each once."""
        cursor, seen = b"0", set()
        while True:
            cursor, found = self._link.ask_one("HSCAN", key, cursor, "COUNT", _AT_ONCE)
            for field, value in zip(found[::2], found[1::2], strict=True):
                if field not in seen:
                    seen.add(field)
                    yield field, value
            if cursor == b"0":
                return

    def _counters(self, head: TenantHead, streams: Iterable[Stream]) -> Iterator[Problem]:
        living = [stream for stream in streams if not stream.dropped and not stream.deleted]
        for kind, noted in ((LOG, head.logs), (DOCUMENT, head.documents)):
            counted = sum(stream.kind == kind for stream in living)
            if counted != noted:
                yield Problem(None, f"{counted} {kind}s live, and {noted} are noted")

    def _names(self, streams: Iterable[Stream]) -> Iterator[Problem]:
        newest: dict[bytes, Stream] = {}
        for stream in sorted(streams, key=lambda stream: stream.oid):
            if stream.name:
                field = layout.name_field(stream.kind, stream.name)
                before = newest.get(field)
                if stream.id != (before.oid if before is not None else 0):
                    yield Problem(stream.created, f"stream {stream.oid} has lost those before it")
                newest[field] = stream
        stored = dict(self._all(self._keys.names))
        if stored != {field: b"%d" % stream.oid for field, stream in newest.items()}:
            yield Problem(None, "names do not lead to their newest streams")
        for kind, key in self._keys.shown.items():
            names = [
                stream.name.encode()
                for stream in newest.values()
                if stream.kind == kind and not stream.dropped and not stream.deleted
            ]
            yield from self._require(key, names, "a name is not listed", None)

    def _stream(self, stream: Stream) -> Iterator[Problem]:
        keys, oid = self._keys, stream.oid
        key = keys.rows(oid)
        if stream.base:
            forks = [layout.fork_of(stream.base, oid)]
            yield from self._require(keys.forks, forks, "a fork is not noted", stream.created)
        end = stream.length + (stream.kind == DOCUMENT)
        stored = self._link.ask_one("HLEN", key)
        if stored != end - stream.first:
            yield Problem(
                stream.created, f"stream {oid} has {stored} rows, not {end - stream.first}"
            )
        users: set[str | None] = set()
        before: Row | None = None
        for start in range(stream.first, end, _AT_ONCE):
            numbers = range(start, min(end, start + _AT_ONCE))
            live: list[bytes] = []
            past: list[bytes] = []
            for number, raw in zip(
                numbers, self._link.ask_one("HMGET", key, *numbers), strict=True
            ):
                try:
                    row = row_from(number, raw) if raw is not None else None
                except PagefileError as unreadable:
                    yield Problem(None, f"stream {oid}: {unreadable}")
                    row = None
                if row is None:
                    before = None
                    continue
                if row.content is not None:
                    users.add(row.content.user)
                if stream.kind == DOCUMENT and before is not None:
                    past += _members(stream, before, row.position)
                if stream.kind == LOG or number == stream.length:
                    live += _members(stream, row, None)
                before = row
            lost = f"a key of stream {oid} does not lead to its record"
            yield from self._require(keys.live, live, lost, stream.created)
            yield from self._require(keys.past, past, lost, stream.created)
        held = [layout.holding(user, oid) for user in users]
        yield from self._require(keys.held, held, f"a user of stream {oid} is not noted", None)

    def _require(
        self, key: bytes, members: list[bytes], what: str, position: int | None
    ) -> Iterator[Problem]:
        self._expected[key] += len(members)
        for start in range(0, len(members), _AT_ONCE):
            scores = self._link.ask_one("ZMSCORE", key, *members[start : start + _AT_ONCE])
            for score in scores:
                if score is None:
                    yield Problem(position, what)

    def _used(self) -> Iterator[Problem]:
        """Given keys lead to their commits; from the oldest one on, none is missing."""
        keys, ask = self._keys, self._link.ask_one
        stored: list[Any] = ask("ZRANGE", keys.used, 0, -1, "WITHSCORES")
        used = {
            key.decode(): int(float(score))
            for key, score in zip(stored[::2], stored[1::2], strict=True)
        }
        since = min(used.values(), default=0) - 1
        while since >= 0:
            found = ask("XRANGE", keys.commits, f"({since}-0", "+", "COUNT", _AT_ONCE)
            for entry in found:
                since, commit = commit_from(entry)
                if commit.key[:1] != "~" and used.pop(commit.key, None) != since:
                    yield Problem(since, "an idempotency key does not lead to its commit")
            if len(found) < _AT_ONCE:
                break
        if used:
            yield Problem(None, f"{len(used)} idempotency keys lead to no commit")


def _members(stream: Stream, row: Row, until: int | None) -> list[bytes]:
    if row.content is None or not (row.content.keys or row.content.tenant_keys):
        return []
    middle = b"" if until is None else layout.until(until)
    return [
        layout.bucket(key, stream.oid, row.content.user) + middle + layout.place(row, stream.oid)
        for key in index_keys(stream.kind, row.content)
    ]
