"""The Redis engine: one Redis 7 or Valkey server, many processes on many machines.

A commit is computed here, by the rules that all engines share, and stored by one
script that first compares the tenant's head with the one it was computed on. A
writer alone knows the head and needs one round trip; when others were faster, the
script says what they did, and the batch is computed again.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from pagefile.engine import (
    Hit,
    KeyRange,
    Prepared,
    RawCommit,
    Row,
    Sealed,
    Stream,
    TenantHead,
)
from pagefile.engines.redis_attempt import Attempt, calls_of
from pagefile.engines.redis_check import Examination
from pagefile.engines.redis_find import find
from pagefile.engines.redis_gather import current, gather, streams
from pagefile.engines.redis_known import Known
from pagefile.engines.redis_layout import Keys, name_field, tenants_key
from pagefile.engines.redis_level import read_settings, require_level
from pagefile.engines.redis_rows import commit_from, head_from, row_from, stream_from
from pagefile.engines.redis_scrub import scrub
from pagefile.engines.redis_server import Address, Command, Server
from pagefile.errors import Corrupt, PagefileError, Unavailable
from pagefile.records import Durability, Erasure, Problem, StreamKind

_MOST_CACHED_TENANTS = 1_000
_ROWS_AT_ONCE = 512
#: How long one blocking read lasts, so that a dead connection is noticed.
_BLOCK_SECONDS = 5.0
_LEAST_ANSWER_SECONDS, _MOST_ANSWER_SECONDS = 10.0, 60.0
_KEYS_AT_ONCE = 500


class RedisEngine:
    """All tenants under one prefix of one server."""

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
        self._answer_seconds = min(max(lock_seconds, _LEAST_ANSWER_SECONDS), _MOST_ANSWER_SECONDS)
        self._server = Server(address, self._answer_seconds)
        self._known: dict[str, Known] = {}
        self._keys: dict[str, Keys] = {}
        self._applying = threading.Lock()
        try:
            self.durability: Durability = require_level(
                read_settings(self._server), address, durability
            )
        except PagefileError:
            self._server.close()
            raise
        self._breaks = self._server.breaks

    # Writing

    def apply(self, items: Sequence[tuple[str, Prepared]]) -> list[Sealed | PagefileError]:
        self._server.require_usable()
        now_us = self._clock()
        calls = (items,) if len(items) == 1 else calls_of(items)
        if len(calls) == 1:
            return self._apply(items, now_us)
        outcomes: list[Sealed | PagefileError] = []
        for some in calls:
            try:
                outcomes += self._apply(some, now_us)
            except PagefileError as failure:
                # Those before it are stored: it is only their own answer.
                outcomes += [copy.copy(failure) for _ in some]
        return outcomes

    def _apply(
        self, items: Sequence[tuple[str, Prepared]], now_us: int
    ) -> list[Sealed | PagefileError]:
        places: dict[str, list[int]] = {}
        for at, (tenant, _) in enumerate(items):
            places.setdefault(tenant, []).append(at)
        with self._applying:
            self._require_level_again()
            if len(self._known) > _MOST_CACHED_TENANTS:
                self._known.clear()
            attempts = [
                Attempt(
                    self._server,
                    self._known_of(tenant),
                    [items[at][1] for at in mine],
                    now_us=now_us,
                    key_lifetime_us=self._key_lifetime_us,
                    seconds=self._lock_seconds,
                )
                for tenant, mine in places.items()
            ]
            finished = False
            try:
                self._commit(attempts)
                finished = True
            finally:
                if not finished:
                    for attempt in attempts:
                        # What the cache believes may not be what is stored.
                        attempt.known.clear()
        if len(attempts) == 1:
            return attempts[0].outcomes
        outcomes: list[Any] = [None] * len(items)
        for mine, attempt in zip(places.values(), attempts, strict=True):
            for at, outcome in zip(mine, attempt.outcomes, strict=True):
                outcomes[at] = outcome
        return outcomes

    def _commit(self, attempts: list[Attempt]) -> None:
        may_resend = True
        waiting = attempts
        while waiting:
            sent = [(a, command) for a in waiting if (command := a.compute()) is not None]
            try:
                self._send(sent)
            except Unavailable as failure:
                # Connections break; the keys of the batches make it safe to try once more.
                if failure.__cause__ is None or failure.outcome != "unknown" or not may_resend:
                    raise
                may_resend = False
                for attempt, _ in sent:
                    attempt.lose()
                if not self._answers():
                    raise
                self._require_level_again()
            waiting = [attempt for attempt in waiting if not attempt.is_done]
        if self._is_waited_for and any(attempt.found_stored for attempt in attempts):
            # It was committed, but perhaps not waited for; a later write stands for it.
            turns = attempts[0].known.keys.turns
            self._send_and_wait([("XADD", turns, "MAXLEN", 1, "*", "n", "")])

    def _send(self, sent: list[tuple[Attempt, Command]]) -> None:
        if not sent:
            return
        if len(sent) == 1 and sent[0][0].known.head.position:
            attempt, command = sent[0]
            attempt.settle(self._send_and_wait([command])[0])
            return
        first = [a.known.tenant for a, _ in sent if not a.known.head.position]
        commands: list[Command] = [command for _, command in sent]
        if first:
            # Before its first commit, so that no tenant is missing from the list.
            commands.insert(0, ("SADD", tenants_key(self._address.prefix), *first))
        answers = self._send_and_wait(commands)
        for (attempt, _), answer in zip(sent, answers[len(commands) - len(sent) :], strict=True):
            attempt.settle(answer)

    @property
    def _is_waited_for(self) -> bool:
        return self._address.waitaof or self._address.replicas > 0

    def _send_and_wait(self, commands: list[Command]) -> list[Any]:
        """Answers to commits, after as many copies have them as the URL asks for."""
        if not self._is_waited_for:
            return self._server.send(commands)
        copies = self._address.replicas
        most_ms = max(1, int(min(self._lock_seconds, self._answer_seconds / 2) * 1_000))
        wait: Command = ("WAIT", copies, most_ms)
        if self._address.waitaof:
            wait = ("WAITAOF", 1, copies, most_ms)
        *answers, reached = self._server.send(commands, (wait,))
        if self._address.waitaof:
            enough = isinstance(reached, list) and reached[0] >= 1 and reached[1] >= copies
        else:
            enough = isinstance(reached, int) and reached >= copies
        if not enough:
            raise Unavailable(
                f"{self._server.where} has the commit, but not on disk or on {copies} replicas yet",
                "look at its disk and replicas, then commit again with the same key",
                outcome="unknown",
            )
        return answers

    def _answers(self) -> bool:
        try:
            self._server.ask_one("PING")
        except Unavailable:
            return False
        return True

    def _require_level_again(self) -> None:
        """After a connection broke, the server may have come back with other settings."""
        if self._breaks != self._server.breaks:
            breaks = self._server.breaks
            require_level(read_settings(self._server), self._address, self.durability)
            self._breaks = breaks

    def _known_of(self, tenant: str) -> Known:
        known = self._known.get(tenant)
        if known is None:
            known = self._known[tenant] = Known(tenant, self._keys_of(tenant))
        return known

    def _keys_of(self, tenant: str) -> Keys:
        keys = self._keys.get(tenant)
        if keys is None:
            if len(self._keys) > _MOST_CACHED_TENANTS:
                self._keys.clear()
            keys = self._keys[tenant] = Keys(self._address.prefix, tenant)
        return keys

    # Reading

    def head(self, tenant: str) -> TenantHead:
        last = self._server.ask_one(
            "XREVRANGE", self._keys_of(tenant).commits, "+", "-", "COUNT", 1
        )
        return head_from(tenant, last[0] if last else None)

    def stream(
        self, tenant: str, kind: StreamKind, name: str, at: int | None = None
    ) -> Stream | None:
        keys = self._keys_of(tenant)
        found = self._server.run(
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
        raw = self._server.ask_one("HGET", self._keys_of(tenant).streams, oid)
        return None if raw is None else stream_from(raw)

    def rows(self, tenant: str, stream: Stream, first: int, last: int, limit: int) -> list[Row]:
        first = max(first, stream.first)
        if last < first or not limit:
            return []
        found: list[Row] = []
        key = self._keys_of(tenant).rows(stream.oid)
        if limit < 0:
            last = min(last, stream.length)
            while last >= first and len(found) < -limit:
                start = max(first, last + 1 - min(_ROWS_AT_ONCE, -limit - len(found)))
                found[:0] = self._rows(key, range(start, last + 1))
                last = start - 1
            return found
        while first <= last and len(found) < limit:
            numbers = range(first, min(last + 1, first + min(_ROWS_AT_ONCE, limit - len(found))))
            some = self._rows(key, numbers)
            if not some and first > stream.length:
                break
            found += some
            first = numbers.stop
        return found

    def _rows(self, key: bytes, numbers: range) -> list[Row]:
        stored = self._server.ask_one("HMGET", key, *numbers)
        return [
            row_from(number, raw)
            for number, raw in zip(numbers, stored, strict=True)
            if raw is not None
        ]

    def current(self, tenant: str, names: Sequence[str]) -> list[Row | None]:
        return current(self._server, self._keys_of(tenant), names)

    def gather(self, tenant: str, places: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Row]:
        return gather(self._server, self._keys_of(tenant), places)

    def streams(self, tenant: str, oids: Sequence[int]) -> dict[int, Stream]:
        return streams(self._server, self._keys_of(tenant), oids)

    def find(self, tenant: str, span: KeyRange, limit: int, at: int | None) -> list[Hit]:
        return find(self._server, self._keys_of(tenant), span, limit, at)

    def names(
        self, tenant: str, kind: StreamKind, prefix: str, after: str, limit: int
    ) -> list[str]:
        low = b"(" + after.encode() if after and after >= prefix else b"[" + prefix.encode()
        # No text holds the byte 255, so it sorts behind all that begin alike.
        high = b"(" + prefix.encode() + b"\xff"
        shown = self._keys_of(tenant).shown[kind]
        found = self._server.ask_one("ZRANGE", shown, low, high, "BYLEX", "LIMIT", 0, limit)
        return [name.decode() for name in found]

    def commits(self, tenant: str, since: int, limit: int) -> list[RawCommit]:
        if limit < 1:
            return []
        found = self._server.ask_one(
            "XRANGE", self._keys_of(tenant).commits, f"({since}-0", "+", "COUNT", limit
        )
        return [_commit(entry) for entry in found]

    def wait(self, tenant: str, position: int, timeout: float) -> bool:
        if position < 1:
            return True
        commits, deadline = self._keys_of(tenant).commits, time.monotonic() + timeout
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                return self.head(tenant).position >= position
            most_ms = max(1, int(min(left, _BLOCK_SECONDS) * 1_000))
            if self._server.block(
                "XREAD", "COUNT", 1, "BLOCK", most_ms, "STREAMS", commits, f"{position - 1}-0"
            ):
                return True

    # Keeping

    def scrub(self, timeout: float) -> tuple[str, ...]:
        return scrub(self._server, timeout)

    def tenants(self) -> list[str]:
        names = [
            raw.decode()
            for raw in self._server.ask_one("SMEMBERS", tenants_key(self._address.prefix))
        ]
        names.sort()
        asked: list[Command] = [("EXISTS", self._keys_of(name).head) for name in names]
        answers = self._server.ask(*asked) if asked else []
        return [name for name, answer in zip(names, answers, strict=True) if answer]

    def check(self, tenant: str) -> list[Problem]:
        return Examination(self._server, tenant, self._keys_of(tenant)).run()

    def size_bytes(self) -> int:
        total = 0
        for tenant in self.tenants():
            keys = self._keys_of(tenant)
            places = keys.fixed()
            places += [keys.rows(oid) for oid in range(1, self.head(tenant).oid + 1)]
            for start in range(0, len(places), _KEYS_AT_ONCE):
                asked = [("MEMORY", "USAGE", key) for key in places[start : start + _KEYS_AT_ONCE]]
                total += sum(answer or 0 for answer in self._server.ask(*asked))
        return total

    def close(self) -> None:
        self._server.close()


def _commit(entry: Any) -> RawCommit:
    try:
        position, counted = commit_from(entry)
    except Corrupt:
        # Shown as it is: `verify` says which one it was.
        return RawCommit(int(entry[0].partition(b"-")[0]), 0, "", b"", b"")
    return counted.raw(position)
