"""One tenant's side of a commit: what it reads, and a buffer of what it is to write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from pagefile.engines.redis import layout as layout
from pagefile.engines.redis.connection import Link
from pagefile.engines.redis.rows import commit_from, copy_head, pack_commit, row_from, stream_from
from pagefile.engines.redis.tenant_cache import MOST_TOLD, Changes, Commands, Known, Moved, Streams
from pagefile.store.engine import (
    DOCUMENT,
    LOG,
    IndexKey,
    Prepared,
    RawCommit,
    Row,
    Stream,
    index_keys,
)
from pagefile.store.records import StreamKind


class KeyIndex:
    """The sorted sets `k` and `p` of one tenant, seen through one transaction."""

    def __init__(self, known: Known, changes: Changes, ask: Callable[..., Any]) -> None:
        self._known = known
        self._keys = known.keys
        self._changes = changes
        self._ask = ask
        self._counted: dict[bytes, int] = {}
        self._changed: dict[bytes, int] = {}
        #: The members that lead to the current versions of documents touched here.
        self.current: dict[int, list[bytes]] = {}

    def count(self, key: IndexKey, user: str | None, most: int) -> int:
        """How many live records stand under the key, counted up to `most`."""
        start = layout.bucket(key, 0, user)
        stored = self._ask("ZLEXCOUNT", self._keys.live, b"[" + start, b"(" + start + layout.BEHIND)
        return min(most, int(stored) + self._counted.get(start, 0))

    def last_change(self, key: IndexKey, user: str | None) -> int:
        """The last position that changed what the key finds."""
        start = layout.bucket(key, 0, user)
        if start in self._changed:
            return self._changed[start]
        bounds = (b"(" + start + layout.BEHIND, b"[" + start, "BYLEX", "REV", "LIMIT", 0, 1)
        last = 0
        for index, is_past in ((self._keys.live, False), (self._keys.past, True)):
            for member in self._ask("ZRANGE", index, *bounds):
                place = layout.found_in(member, 0, past=is_past)
                last = max(last, place.until or place.position)
        return last

    def add(self, stream: Stream, row: Row, keys: Sequence[IndexKey]) -> None:
        """The record stands under these keys from now on."""
        assert row.content is not None
        place = layout.place(row, stream.oid)
        members = []
        for key in keys:
            start = layout.bucket(key, stream.oid, row.content.user)
            self._note(start, start + place, row.position, comes=True)
            members.append(start + place)
        if stream.kind == DOCUMENT:
            self.current[stream.oid] = members

    def retire(self, oid: int, row_before: Callable[[], Row | None], until: int) -> None:
        """The keys of a document's version before lead to it only in the past."""
        members = self.current.get(oid, self._known.current.get(oid))
        if members is None:
            row = row_before()
            members = [] if row is None else [m for _, m in _members_of(DOCUMENT, oid, row)]
        for member in members:
            start = member[: -layout.PLACE_BYTES]
            self._note(start, member, until, comes=False)
            self._changes.note(self._keys.past, _past(start, member, until), comes=True)
        self.current[oid] = []

    def remove(
        self, stream: Stream, doomed: Sequence[Row], rows: Sequence[Row], position: int
    ) -> None:
        """The keys of these records lead nowhere any more, in the present and in the past."""
        next_position = {row.number - 1: row.position for row in rows}
        for row in doomed:
            until = next_position.get(row.number) if stream.kind == DOCUMENT else None
            for start, member in _members_of(stream.kind, stream.oid, row):
                if until is None:
                    self._note(start, member, position, comes=False)
                else:
                    past = _past(start, member, until)
                    self._changes.note(self._keys.past, past, comes=False)
        if any(row.number == stream.length for row in doomed):
            self.current[stream.oid] = []

    def _note(self, start: bytes, member: bytes, position: int, *, comes: bool) -> None:
        self._changes.note(self._keys.live, member, comes=comes)
        self._counted[start] = self._counted.get(start, 0) + (1 if comes else -1)
        self._changed[start] = position


def _members_of(kind: StreamKind, oid: int, row: Row) -> list[tuple[bytes, bytes]]:
    """Where a record stands in the index: the beginnings, and the members whole."""
    content = row.content
    if content is None or not (content.keys or content.tenant_keys):
        return []
    place = layout.place(row, oid)
    starts = [layout.bucket(key, oid, content.user) for key in index_keys(kind, content)]
    return [(start, start + place) for start in starts]


def _past(start: bytes, member: bytes, until: int) -> bytes:
    return start + layout.until(until) + member[len(start) :]


#: How often, in commits, expired idempotency keys are swept out, and how many at a time.
SWEEP_EVERY, _SWEEP_AT_ONCE = 256, 256
_ROWS_AT_ONCE = 1_000


class RedisTransaction:
    """See `pagefile.store.engine.Transaction`. Made for one attempt, and thrown away with it."""

    def __init__(self, link: Link, known: Known, key_lifetime_us: int) -> None:
        self._link = link
        self._known = known
        self._keys = known.keys
        self._key_lifetime_us = key_lifetime_us
        self.head = copy_head(known.head)
        #: Whether all that was read was there at one moment, the last look.
        self.is_sure = False
        #: Whether content is let go, which must be possible on a full server too.
        self.lets_go = False
        self._streams = Streams(known, self.look, self._ask)
        self._rows: dict[int, dict[int, Row | None]] = {}
        self._changes = Changes()
        self._index = KeyIndex(known, self._changes, self._ask)
        self._used: dict[str, int] = {}
        self._swept: list[bytes] = []
        self._commits: list[tuple[RawCommit, bytes]] = []
        self._by_key: dict[str, RawCommit] = {}

    # Looking things up

    def look(self, names: Iterable[tuple[StreamKind, str]] = ()) -> None:
        """Read the newest streams of these names, if the tenant is where it is believed to be.

        Raises:
            Moved: it is not; what is known shows the newer commits now.
        """
        wanted = list(names)
        known, keys = self._known, self._keys
        head, since, streams = self._link.run(
            "look",
            (keys.head, keys.commits, keys.names, keys.streams),
            (
                known.digest,
                known.head.position,
                MOST_TOLD,
                *(layout.name_field(kind, name) for kind, name in wanted),
            ),
        )
        if head != known.digest:
            if not known.catch_up(head, since):
                last = self._link.ask_one("XREVRANGE", keys.commits, "+", "-", "COUNT", 1)
                known.start_at(last[0] if last else None)
            raise Moved
        known.is_fresh = self.is_sure = True
        for place, raw in zip(wanted, streams, strict=True):
            if raw is not None:
                stream = stream_from(raw)
                known.streams.setdefault(stream.oid, stream)
                known.named[place] = known.streams[stream.oid]
            else:
                self._streams.miss(place)

    def prefetch(self, batches: Sequence[Prepared]) -> None:
        """Read in one go what the batches will ask for first."""
        wanted: dict[tuple[StreamKind, str], None] = {}
        for batch in batches:
            for write in batch.writes:
                wanted[write.stream, write.name] = None
                if write.base:
                    wanted[LOG, write.base] = None
            if batch.copied is not None:
                for origin in batch.copied.streams.values():
                    wanted[origin.kind, origin.name] = None
            for need in batch.when:
                if need.what in ("version", "absent"):
                    wanted[DOCUMENT, need.name] = None
                elif need.what in ("length", "below", "created"):
                    wanted[LOG, need.name] = None
        missing = [place for place in wanted if place[1] and place not in self._known.named]
        if missing or not self._known.is_fresh:
            self.look(missing)

    def _ask(self, *command: Any) -> Any:
        self.is_sure = False
        return self._link.ask_one(*command)

    # What a commit asks

    def stream(self, kind: StreamKind, name: str) -> Stream | None:
        return self._streams.living(kind, name)

    def stream_number(self, oid: int) -> Stream:
        return self._streams.numbered(oid)

    def incarnations(self, kind: StreamKind, name: str) -> list[Stream]:
        return self._streams.incarnations(kind, name)

    def earlier(self, key: str, after: int) -> RawCommit | None:
        if key in self._by_key:
            return self._by_key[key]
        known, commits = self._known, self._keys.commits
        if after >= known.recent_from and known.is_fresh:
            position = known.recent.get(key)
        elif after >= 0:
            return self._committed_after(key, after)
        else:
            answer = self._ask("ZSCORE", self._keys.used, key)
            position = None if answer is None else int(float(answer))
            if position is not None and key.encode() in self._swept:
                return None
        if position is None:
            return None
        found = self._ask("XRANGE", commits, f"{position}-0", f"{position}-0")
        return commit_from(found[0])[1].raw(position) if found else None

    def _committed_after(self, key: str, after: int) -> RawCommit | None:
        while True:
            found = self._ask("XRANGE", self._keys.commits, f"({after}-0", "+", "COUNT", MOST_TOLD)
            for entry in found:
                after, commit = commit_from(entry)
                if commit.key == key:
                    return commit.raw(after)
            if len(found) < MOST_TOLD:
                return None

    def holders(self, user: str | None) -> list[Stream]:
        start = layout.of_user(user)
        return [self.stream_number(oid) for oid in self._numbers(self._keys.held, start)]

    def _numbers(self, key: bytes, start: bytes) -> list[int]:
        """The numbers behind a beginning, stored and to be stored, in order."""
        stored = self._ask("ZRANGE", key, b"[" + start, b"(" + start + layout.BEHIND * 9, "BYLEX")
        members = dict.fromkeys(stored, True)
        for member, comes in self._changes.of(key).items():
            if member.startswith(start):
                members[member] = comes
        return sorted(layout.last_number(member) for member, comes in members.items() if comes)

    def rows(self, stream: Stream, first: int = 0, last: int | None = None) -> list[Row]:
        pending = self._rows.get(stream.oid, {})
        end = stream.length + (stream.kind == DOCUMENT)
        if last is not None:
            end = min(end, last + 1)
        found: list[Row] = []
        for start in range(max(first, stream.first), end, _ROWS_AT_ONCE):
            numbers = range(start, min(end, start + _ROWS_AT_ONCE))
            stored = self._ask("HMGET", self._keys.rows(stream.oid), *numbers)
            for number, raw in zip(numbers, stored, strict=True):
                if number in pending:
                    row = pending[number]
                else:
                    row = None if raw is None else row_from(number, raw)
                if row is not None:
                    found.append(row)
        return found

    def count(self, key: IndexKey, user: str | None, most: int) -> int:
        return self._index.count(key, user, most)

    def last_change(self, key: IndexKey, user: str | None) -> int:
        return self._index.last_change(key, user)

    # What a commit does

    def create(self, stream: Stream) -> None:
        self._streams.create(stream)
        if stream.base:
            fork = layout.fork_of(stream.base, stream.oid)
            self._changes.note(self._keys.forks, fork, comes=True)

    def discard(self, stream: Stream) -> None:
        self._streams.discard(stream)
        if stream.base:
            self._changes.forget(self._keys.forks, layout.fork_of(stream.base, stream.oid))

    def drop(self, stream: Stream, *, forget_name: bool = False) -> None:
        self.lets_go = True
        self._streams.drop(stream, forget_name=forget_name)

    def add(self, stream: Stream, rows: Sequence[Row], keys: Sequence[Sequence[IndexKey]]) -> None:
        oid = stream.oid
        self._streams.written.add(oid)
        if stream.kind == DOCUMENT:
            before_it = partial(self._row, stream, rows[0].number - 1)
            self._index.retire(oid, before_it, rows[0].position)
        pending = self._rows.setdefault(oid, {})
        before: object = ...
        for at, row in enumerate(rows):
            content = row.content
            pending[row.number] = row
            if content is None:
                continue
            if content.user is not before:
                before = content.user
                # What was released in this very group is held again.
                if self.lets_go or (content.user, oid) not in self._known.held:
                    self._changes.note(
                        self._keys.held, layout.holding(content.user, oid), comes=True
                    )
            if keys:
                self._index.add(stream, row, keys[at])

    def _row(self, stream: Stream, number: int) -> Row | None:
        pending = self._rows.get(stream.oid, {})
        if number in pending:
            return pending[number]
        raw = self._ask("HGET", self._keys.rows(stream.oid), number) if number > 0 else None
        return None if raw is None else row_from(number, raw)

    def prune(self, stream: Stream, before: int) -> None:
        self.lets_go = True
        self._streams.written.add(stream.oid)
        stream.pruned = max(stream.pruned, before)
        rows = self.rows(stream)
        kept_from = max(stream.first, self._shared_up_to(stream))
        doomed = [row for row in rows if kept_from <= row.number < before]
        self._index.remove(stream, doomed, rows, self.head.position + 1)
        pending = self._rows.setdefault(stream.oid, {})
        whole = kept_from == stream.first
        for row in doomed:
            pending[row.number] = None if whole else _emptied(row)
        if whole:
            stream.first = max(stream.first, before)
        self._release(stream, doomed)

    def forks(self, stream: Stream) -> list[Stream]:
        start = layout.fork_of(stream.oid, 0)[:8]
        return [self.stream_number(oid) for oid in self._numbers(self._keys.forks, start)]

    def _shared_up_to(self, stream: Stream) -> int:
        """How much of it is shared by forks that live, or have living forks."""
        most = 0
        todo = [(stream, stream.length)]
        while todo:
            base, limit = todo.pop()
            for child in self.forks(base):
                reach = min(limit, child.base_at)
                # One that the same batch drops later on still lives, as the manifest tells it.
                if not self._streams.has_ended(child):
                    most = max(most, reach)
                todo.append((child, reach))
        return most

    def wipe(self, stream: Stream, rows: Sequence[Row]) -> None:
        self.lets_go = True
        self._index.remove(stream, rows, self.rows(stream), self.head.position + 1)
        pending = self._rows.setdefault(stream.oid, {})
        for row in rows:
            pending[row.number] = _emptied(row)
        self._release(stream, rows)

    def _release(self, stream: Stream, gone: Sequence[Row]) -> None:
        """Users without a record left in the stream hold it no longer."""
        users = {row.content.user for row in gone if row.content is not None}
        if users:
            users -= {row.content.user for row in self.rows(stream) if row.content is not None}
        for user in users:
            self._changes.note(self._keys.held, layout.holding(user, stream.oid), comes=False)

    def seal(self, commit: RawCommit) -> None:
        self._commits.append((commit, pack_commit(commit, self.head)))
        self._by_key[commit.key] = commit
        if commit.key[:1] != "~":
            self._used[commit.key] = commit.position
        if not commit.position % SWEEP_EVERY:
            self._sweep_keys(commit)

    def _sweep_keys(self, last: RawCommit) -> None:
        oldest = self._ask("ZRANGE", self._keys.used, 0, _SWEEP_AT_ONCE - 1, "WITHSCORES")
        places = [int(float(score)) for score in oldest[1::2]]
        if not places:
            return

        def time_at(position: int) -> int:
            found = self._ask("XRANGE", self._keys.commits, f"{position}-0", f"{position}-0")
            # One of this group is not stored yet, and about as new as the last.
            return commit_from(found[0])[1].time_us if found else last.time_us

        expired_to = self._known.expiry.last_expired(
            self._key_lifetime_us, places[0], last.position, last.time_us, time_at
        )
        for key, position in zip(oldest[::2], places, strict=True):
            if position <= expired_to:
                self._swept.append(key)

    # Writing out

    @property
    def last(self) -> RawCommit | None:
        """The last commit of the group; None when all of it was refused."""
        return self._commits[-1][0] if self._commits else None

    def commands(self) -> Commands:
        """Everything to be written, for the script that does it."""
        keys = self._keys
        out = Commands(keys)
        for commit, packed in self._commits:
            out.add("XADD", keys.commits, (f"{commit.position}-0", "d", packed))
        for oid, rows in self._rows.items():
            out.rows(keys.rows(oid), rows)
        self._streams.write(out)
        self._changes.write(out)
        if self.lets_go and self._commits:
            # The server's files may keep copies until they are written again.
            out.add("SET", keys.traces, (self._commits[-1][0].position,))
        used: list[Any] = []
        for name, position in self._used.items():
            used += (position, name)
        # In this order: a key may expire and be used anew in one group.
        out.add("ZREM", keys.used, self._swept)
        out.add("ZADD", keys.used, used, 2)
        return out

    def settle(self) -> None:
        """The script has written it: what was buffered is known from now on."""
        known = self._known
        known.head = self.head
        for commit, _ in self._commits:
            known.note_key(commit.key, commit.position)
        if self.lets_go:
            recent, known.recent = known.recent, {}
            position = known.recent_from
            known.clear()
            known.head, known.recent, known.recent_from = self.head, recent, position
            known.is_fresh = True
            return
        self._streams.settle()
        for oid, rows in self._rows.items():
            for row in rows.values():
                if row is not None and row.content is not None:
                    known.held.add((row.content.user, oid))
        known.current.update(self._index.current)
        if known.is_large:
            head, known.recent = self.head, {}
            known.clear()
            known.head, known.recent_from, known.is_fresh = head, head.position, True


def _emptied(row: Row) -> Row:
    return Row(row.number, row.position, row.ordinal, row.time_us, row.action, None)
