"""One tenant's side of a PostgreSQL write transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from pagefile.engines.postgres.connection import whole
from pagefile.engines.postgres.rows import (
    MOST_RECORDS,
    TENANT_SPACE,
    Embedding,
    fill_head,
    row_from,
    space_for,
    space_of_user,
    stream_from,
)
from pagefile.store.batch import Vector
from pagefile.store.commit.idempotency import KeyExpiry
from pagefile.store.engine import (
    DOCUMENT,
    LOG,
    IndexKey,
    Prepared,
    RawCommit,
    Row,
    Stream,
    TenantHead,
    index_keys,
)
from pagefile.store.records import StreamKind

#: A named query and its parameters.
Statement = tuple[str, Any]


class Door(Protocol):
    """The writing connection, as a tenant's transaction sees it."""

    def fetch(self, tenant: str, name: str, bindings: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Ask; outside the tenant's turn the answer counts only if the commit succeeds."""

    def write(self, tenant: str, statements: list[Statement]) -> None:
        """Write inside the tenant's turn, which is taken if it was not yet."""


class Pending:
    """Statements of one tenant. The tenant's number is put before their parameters."""

    def __init__(self, door: Door, tenant: str, number: int) -> None:
        self._door = door
        self.tenant = tenant
        #: The tenant's number, or 0 before its first commit.
        self.number = number
        self.statements: list[Statement] = []

    def add(self, name: str, *parameters: Any) -> None:
        """Collect a statement."""
        self.statements.append((name, (self.number, *parameters)))

    def read(self, name: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Ask what does not depend on anything collected."""
        if not self.number:
            return []
        return self._door.fetch(self.tenant, name, (self.number, *parameters))

    def read_after(self, name: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Ask after everything collected is written."""
        self.write_out()
        return self.read(name, *parameters)

    def write_out(self) -> None:
        """Send what was collected."""
        if self.statements:
            statements, self.statements = self.statements, []
            self._door.write(self.tenant, statements)

    def create_tenant(self) -> None:
        """Give the tenant its number."""
        self._door.write(self.tenant, [])  # Takes the turn: two may have the same idea.
        self.number = int(self._door.fetch(self.tenant, "add_tenant", (self.tenant,))[0][0])


class Users:
    """What a write transaction knows of a tenant's users; None stands for nobody."""

    def __init__(self, pending: Pending, last: int) -> None:
        self._pending = pending
        #: Numbers given out so far.
        self.last = last
        #: Numbers looked up so far.
        self.known: dict[str | None, int] = {}
        #: (user's number, oid) of which the server already knows, or will.
        self.held: set[tuple[int, int]] = set()
        #: Numbers of users who may be forgotten by what is collected: the server will say.
        self._released: dict[str | None, int] = {}

    def __len__(self) -> int:
        return len(self.known) + len(self.held) + len(self._released)

    def find(self, user: str | None) -> int | None:
        """The user's number, if there is one."""
        number = self.known.get(user)
        if number is None:
            read = self._pending.read
            if self._released.pop(user, None) is not None:
                read = self._pending.read_after
            found = read("user_number", user or "")
            if not found:
                return None
            number = self.known[user] = int(found[0][0])
        return number

    def number(self, user: str | None) -> int:
        """The user's number, given out if need be."""
        number = self.find(user)
        if number is None:
            self.last += 1
            number = self.known[user] = self.last
            self._pending.add("add_user", number, user or "")
        return number

    def holder(self, user: str | None) -> int:
        """The number of a user who still has a record, and so was not forgotten."""
        return self.known.get(user) or self._released.get(user) or self.number(user)

    def hold(self, number: int, oid: int) -> None:
        """Note that the user has a record in the stream."""
        self._pending.add("add_holding", number, oid)
        self.held.add((number, oid))

    def release(self, oid: int, users: Iterable[str | None]) -> None:
        """Forget those of the users who have no record left in the stream, or anywhere."""
        for user in users:
            number = self.holder(user)
            self._pending.add("remove_holding", number, oid, user or "")
            self._pending.add("forget_user", number)
            self.held.discard((number, oid))
            self.known.pop(user, None)
            self._released[user] = number


class _Top(NamedTuple):
    """The keys that a document's newest version stands under."""

    number: int
    position: int
    ordinal: int
    user: int
    keys: Sequence[IndexKey]


class KeyIndex:
    """Adds, counts, retires and removes keys."""

    def __init__(self, pending: Pending, users: Users) -> None:
        self._pending = pending
        self._users = users
        #: By oid; what is here need not be read to be retired.
        self._tops: dict[int, _Top] = {}

    def __len__(self) -> int:
        return len(self._tops)

    def count(self, key: IndexKey, user: str | None, most: int) -> int:
        """How many records the key finds now, at most `most`."""
        space = self._space(key, user)
        if space is None:
            return 0
        found = self._pending.read_after("count_key", space, key.field, key.value, most)
        return int(found[0][0]) if found else 0

    def last_change(self, key: IndexKey, user: str | None) -> int:
        """The last position that changed what the key finds."""
        space = self._space(key, user)
        if space is None:
            return 0
        found = self._pending.read_after("last_key_change", space, key.field, key.value)
        return int(found[0][0]) if found else 0

    def _space(self, key: IndexKey, user: str | None) -> int | None:
        if key.scope == "tenant":
            return TENANT_SPACE
        number = self._users.find(user)
        return None if number is None else space_of_user(number)

    def add(self, oid: int, row: Row, user: int, keys: Sequence[IndexKey]) -> None:
        """The record stands under these keys from now on."""
        for key in keys:
            self._pending.add(
                "add_key",
                space_for(key, oid, user),
                key.field,
                key.value,
                row.position,
                row.ordinal,
                oid,
                row.number,
            )

    def set_top(self, oid: int, row: Row, user: int, keys: Sequence[IndexKey]) -> None:
        """This is a document's newest version now."""
        self._tops[oid] = _Top(row.number, row.position, row.ordinal, user, keys)

    def retire(self, stream: Stream, version: int, until: int) -> None:
        """The keys of the version that `until` replaces lead to it only in the past."""
        top = self._tops.get(stream.oid) or self._read_top(stream, version)
        if top is None:
            return
        for key in top.keys:
            place = (space_for(key, stream.oid, top.user), key.field, key.value)
            self._pending.add("remove_key", *place, top.position, top.ordinal)
            self._pending.add(
                "add_past_key", *place, top.position, top.ordinal, stream.oid, top.number, until
            )

    def _read_top(self, stream: Stream, version: int) -> _Top | None:
        found = self._pending.read_after("rows", stream.oid, version, version, 1)
        row = row_from(found[0]) if found else None
        if row is None or row.content is None:
            return None
        keys = index_keys(stream.kind, row.content)
        user = self._users.number(row.content.user) if keys else 0
        return _Top(version, row.position, row.ordinal, user, keys)

    def remove(self, stream: Stream, rows: Sequence[Row]) -> None:
        """The rows' keys lead nowhere any more, in the present and in the past."""
        self._tops.pop(stream.oid, None)
        for row in rows:
            if row.content is None or not (row.content.keys or row.content.tenant_keys):
                continue
            user = self._users.holder(row.content.user)
            for key in index_keys(stream.kind, row.content):
                place = (space_for(key, stream.oid, user), key.field, key.value)
                for name in ("remove_key", "remove_past_key"):
                    self._pending.add(name, *place, row.position, row.ordinal)


#: How many rows are held at once, as far as the lengths of their streams tell.
_ROWS_AT_ONCE = 1_000
_NAMES_AT_ONCE = 1_000

Name = tuple[StreamKind, str]


class Ahead:
    """What was announced and not asked for yet. Any write makes it void."""

    def __init__(self, pending: Pending) -> None:
        self._pending = pending
        self._streams: dict[Name, list[tuple[Any, ...]]] = {}
        self._expected: dict[int, Stream] = {}
        self._rows: dict[int, list[Row]] = {}

    def forget(self) -> None:
        """Something was written: what was read may no longer be so."""
        if self._streams or self._expected or self._rows:
            self._streams, self._expected, self._rows = {}, {}, {}

    def expect_names(self, names: Sequence[Name]) -> None:
        """Read every stream of these names."""
        self._streams = {name: [] for name in names}
        for kind in {kind for kind, _ in names}:
            wanted = [name for of, name in self._streams if of == kind]
            for start in range(0, len(wanted), _NAMES_AT_ONCE):
                some = wanted[start : start + _NAMES_AT_ONCE]
                for columns in self._pending.read_after("streams_of_names", kind, some):
                    self._streams[kind, columns[2]].append(columns)

    def named(self, kind: StreamKind, name: str) -> list[tuple[Any, ...]] | None:
        """The columns of every stream that had the name; None when that was not announced."""
        return self._streams.pop((kind, name), None)

    def expect_rows(self, streams: Sequence[Stream]) -> None:
        """The rows of these will be asked for, in this order."""
        self._expected = {stream.oid: stream for stream in streams}

    def rows(self, stream: Stream) -> list[Row] | None:
        """All rows of a stream; None when it was not announced."""
        if stream.oid in self._expected:
            self._fetch(stream)
        return self._rows.pop(stream.oid, None)

    def _fetch(self, stream: Stream) -> None:
        count, oids = stream.length, [stream.oid]
        del self._expected[stream.oid]
        for oid, other in self._expected.items():
            count += other.length
            if count > _ROWS_AT_ONCE:
                break
            oids.append(oid)
        self._rows = {oid: [] for oid in oids}
        for oid in oids[1:]:
            del self._expected[oid]
        for columns in self._pending.read_after("rows_of_streams", whole(oids)):
            self._rows[columns[15]].append(row_from(columns))


_MOST_CACHED = 100_000
#: Conditions on streams, and on which kind.
_KINDS: dict[str, StreamKind] = {
    "version": DOCUMENT,
    "absent": DOCUMENT,
    "length": LOG,
    "below": LOG,
    "created": LOG,
}
#: How often, in commits, expired idempotency keys are swept out.
_SWEEP_EVERY = 256
#: How many made keys are remembered, so that looking for one needs no query.
_RECENT_KEYS = 4_096


class PostgresTransaction:
    """See `pagefile.store.engine.Transaction`. `columns` are those of the query `head`."""

    def __init__(
        self, door: Door, tenant: str, columns: tuple[Any, ...] | None, key_lifetime_us: int
    ) -> None:
        self.tenant = tenant
        self._key_lifetime_us = key_lifetime_us
        self.head = TenantHead(tenant)
        self._keys_from, last_user = 1, 0
        self._expiry = KeyExpiry()
        if columns is not None:
            fill_head(self.head, columns)
            self._keys_from, last_user = columns[4:6]
        self._pending = Pending(door, tenant, columns[0] if columns is not None else 0)
        self._users = Users(self._pending, last_user)
        self._index = KeyIndex(self._pending, self._users)
        self._ahead = Ahead(self._pending)
        self._living: dict[tuple[StreamKind, str], Stream] = {}
        self._absent: set[tuple[StreamKind, str]] = set()
        #: Everything known, dropped ones too: objects say more than rows not yet written.
        self._by_oid: dict[int, Stream] = {}
        self._drafts: list[Stream] = []
        #: Rows of the commit under way; the first will carry the commit itself.
        self._open: list[list[Any]] = []
        #: Commits of this group, by key, until they are stored.
        self._fresh: dict[str, RawCommit] = {}
        #: Where the made keys of all commits after a position are.
        self._recent: dict[str, int] = {}
        self._recent_from = self.head.position
        self._saved = self._counters()

    def _counters(self) -> tuple[int, int, int, int, int]:
        head = self.head
        return head.logs, head.documents, head.last_erase, self._keys_from, self._users.last

    @property
    def number(self) -> int:
        """The tenant's number."""
        return self._pending.number

    @property
    def is_large(self) -> bool:
        """Whether what is kept should be let go and read again when needed."""
        kept = len(self._by_oid) + len(self._absent) + len(self._users) + len(self._index)
        return kept > _MOST_CACHED

    # What a commit asks

    def expect(self, batch: Prepared) -> None:
        """Look up the streams of a batch that has several, all in one question."""
        if len(batch.writes) + len(batch.when) < 2:
            return
        names = {(write.stream, write.name) for write in batch.writes if write.name}
        names |= {(LOG, write.base) for write in batch.writes if write.base}
        names |= {(_KINDS[need.what], need.name) for need in batch.when if need.what in _KINDS}
        unknown = [name for name in names if name not in self._living and name not in self._absent]
        if len(unknown) < 2:
            return
        for kind in (LOG, DOCUMENT):
            wanted = [name for of, name in unknown if of == kind]
            if wanted:
                for columns in self._pending.read("streams_living", kind, wanted):
                    self._remember(stream_from(columns))
        self._absent.update(name for name in unknown if name not in self._living)

    def earlier(self, key: str, after: int) -> RawCommit | None:
        if key in self._fresh:
            return self._fresh[key]
        if after < 0:
            found = self._pending.read("used_key", key)
        elif self._know_keys(after):
            if key not in self._recent:
                return None
            found = self._pending.read("commits", self._recent[key] - 1, 1)
        else:
            found = self._pending.read("commit_with_key", after, key)
        return RawCommit(*found[0]) if found else None

    def _know_keys(self, after: int) -> bool:
        """Have the keys of all commits after a position at hand, unless they are many."""
        if after >= self._recent_from:
            return True
        if self._recent_from - after > _RECENT_KEYS:
            return False
        # One question for the whole group: its other keys were made at about the same time.
        self._recent.update(self._pending.read("made_keys", after, self._recent_from))
        self._recent_from = after
        return True

    def stream(self, kind: StreamKind, name: str) -> Stream | None:
        stream = self._living.get((kind, name))
        if stream is None and (kind, name) not in self._absent:
            found = self._pending.read("stream_by_name", kind, name)
            if found:
                return self._remember(stream_from(found[0]))
            self._absent.add((kind, name))
        return stream

    def _remember(self, stream: Stream) -> Stream:
        """The object that stands for this stream: one that is known already, or this one."""
        known = self._by_oid.setdefault(stream.oid, stream)
        if known is stream and not stream.dropped:
            self._living[stream.kind, stream.name] = stream
        return known

    def stream_number(self, oid: int) -> Stream:
        stream = self._by_oid.get(oid)
        if stream is None:
            stream = self._remember(stream_from(self._pending.read("stream_by_oid", oid)[0]))
        return stream

    def create(self, stream: Stream) -> None:
        self._living[stream.kind, stream.name] = self._by_oid[stream.oid] = stream
        self._absent.discard((stream.kind, stream.name))
        self._drafts.append(stream)

    def discard(self, stream: Stream) -> None:
        self._drafts.remove(stream)
        del self._by_oid[stream.oid]
        del self._living[stream.kind, stream.name]
        self._absent.add((stream.kind, stream.name))

    def holders(self, user: str | None) -> list[Stream]:
        self._pending.write_out()
        number = self._users.find(user)
        if number is None:
            return []
        found = self._pending.read("streams_held", number)
        return [self._remember(stream_from(columns)) for columns in found]

    def forks(self, stream: Stream) -> list[Stream]:
        self._write_streams()
        found = self._pending.read_after("forks_of", stream.oid)
        return [self._remember(stream_from(columns)) for columns in found]

    def incarnations(self, kind: StreamKind, name: str) -> list[Stream]:
        found = self._ahead.named(kind, name)
        if found is None:
            found = self._pending.read_after("streams_named", kind, name)
        return [self._remember(stream_from(columns)) for columns in found]

    def expect_names(self, names: Sequence[Name]) -> None:
        self._ahead.expect_names(names)

    def expect_rows(self, streams: Sequence[Stream]) -> None:
        self._ahead.expect_rows(streams)

    def rows(self, stream: Stream, first: int = 0, last: int | None = None) -> list[Row]:
        if first == 0 and last is None:
            ahead = self._ahead.rows(stream)
            if ahead is not None:
                return ahead
        return self._stored(stream, first, MOST_RECORDS if last is None else last)

    def _stored(self, stream: Stream, first: int, last: int) -> list[Row]:
        found = self._pending.read_after("rows", stream.oid, first, last, MOST_RECORDS)
        return [row_from(columns) for columns in found]

    def count(self, key: IndexKey, user: str | None, most: int) -> int:
        return self._index.count(key, user, most)

    def last_change(self, key: IndexKey, user: str | None) -> int:
        return self._index.last_change(key, user)

    # What a commit does

    def add(self, stream: Stream, rows: Sequence[Row], keys: Sequence[Sequence[IndexKey]]) -> None:
        self._ahead.forget()
        if self._drafts or not self._pending.number:
            self._write_streams()
        oid, users = stream.oid, self._users
        is_document = stream.kind == DOCUMENT
        if is_document and rows[0].number > 1:
            self._index.retire(stream, rows[0].number - 1, rows[0].position)
        for at, row in enumerate(rows):
            content = row.content
            if content is None:
                self._open.append(self._emptied(row, oid))
                user = 0
                continue
            user = users.known.get(content.user) or users.number(content.user)
            self._open.append(
                [
                    self._pending.number,
                    row.position,
                    len(self._open),
                    row.ordinal,
                    oid,
                    row.number,
                    row.time_us,
                    content.action,
                    "",
                    b"",
                    b"",
                    content.user or "",
                    content.kind,
                    content.actor,
                    msgspec.json.encode(content.sources).decode() if content.sources else "",
                    content.keys,
                    content.tenant_keys,
                    content.notes,
                    content.type_name,
                    content.salt,
                    content.body,
                ]
            )
            if (user, oid) not in users.held:
                users.hold(user, oid)
            if keys:
                self._index.add(oid, row, user, keys[at])
        if is_document:
            self._index.set_top(oid, row, user, keys[-1] if keys else ())

    def add_vectors(self, stream: Stream, first: int, vectors: Sequence[Vector | None]) -> None:
        # Of several in one slot the last counts.
        last = {one.slot: (at, one) for at, one in enumerate(vectors, first) if one is not None}
        if last:
            self._pending.add("remove_slots", stream.oid, list(last))
        for at, one in last.values():
            if one.numbers:
                given = (at, one.slot, Embedding(one.numbers))
                self._pending.add("add_vector", stream.oid, *given)

    def _emptied(self, row: Row, oid: int) -> list[Any]:
        """The columns of a record whose content is gone."""
        place = [self._pending.number, row.position, len(self._open), row.ordinal, oid]
        return [*place, row.number, row.time_us, row.action, "", b"", b"", *[None] * 10]

    def drop(self, stream: Stream, *, forget_name: bool = False) -> None:
        self._ahead.forget()
        self._write_streams()
        if self._living.get((stream.kind, stream.name)) is stream:
            del self._living[stream.kind, stream.name]
            self._absent.add((stream.kind, stream.name))
        if forget_name:
            stream.name = ""
        self._pending.add("end_stream", stream.oid, stream.dropped, stream.name)

    def prune(self, stream: Stream, before: int) -> None:
        self._ahead.forget()
        self._write_streams()
        stream.pruned = max(stream.pruned, before)
        self._pending.add("set_pruned", stream.oid, stream.pruned)
        shared = int(self._pending.read_after("shared_up_to", stream.oid)[0][0])
        doomed = self._stored(stream, shared, before - 1)
        self._index.remove(stream, doomed)
        for name in ("remove_records", "empty_commits"):
            self._pending.add(name, stream.oid, shared, before)
        # What the same commit wrote to the stream is not sent yet; '' is nobody's name.
        written = {row[11] or None for row in self._open if row[4] == stream.oid and row[19]}
        users = {row.content.user for row in doomed if row.content}
        self._users.release(stream.oid, users - written)

    def wipe(self, stream: Stream, rows: Sequence[Row]) -> None:
        self._ahead.forget()
        self._index.remove(stream, rows)
        for row in rows:
            self._pending.add("wipe_record", stream.oid, row.number)
        self._users.release(stream.oid, {row.content.user for row in rows if row.content})

    def seal(self, commit: RawCommit) -> None:
        if self._drafts or not self._pending.number:
            self._write_streams()
        if self._open:
            self._open[0][8:11] = commit.key, commit.manifest, commit.digest
            self._pending.statements += [("add_record", row) for row in self._open]
            self._open = []
        else:
            told = (commit.time_us, commit.key, commit.manifest, commit.digest)
            self._pending.add("add_commit", commit.position, *told)
        self._fresh[commit.key] = commit
        if commit.key[:1] != "~":
            self._pending.add("add_used_key", commit.key, commit.position)
        else:
            self._recent[commit.key] = commit.position
            if len(self._recent) > 2 * _RECENT_KEYS:
                self._recent.clear()
                self._recent_from = commit.position
        if not commit.position % _SWEEP_EVERY:
            self._sweep_keys(commit)

    def _sweep_keys(self, last: RawCommit) -> None:
        def time_at(position: int) -> int:
            found = self._pending.read("commit_time", position)
            # One of this group is not in the table yet, and about as new as the last.
            return int(found[0][0]) if found else last.time_us

        expired_to = self._expiry.last_expired(
            self._key_lifetime_us, self._keys_from, last.position, last.time_us, time_at
        )
        if expired_to < self._keys_from:
            return
        expired = self._pending.read("expired_keys", self._keys_from, expired_to)
        for position, key in expired:
            self._pending.add("forget_key", key, position)
            self._keys_from = position + 1

    def take_statements(self) -> list[Statement]:
        """Everything still to be written, counters that changed included."""
        statements, self._pending.statements = self._pending.statements, []
        self._fresh.clear()
        counters = self._counters()
        if counters != self._saved:
            self._saved = counters
            statements.append(("save_tenant", (self._pending.number, *counters)))
        return statements

    def _write_streams(self) -> None:
        """Store the streams of this batch, now certain to commit."""
        if not self._pending.number:
            self._pending.create_tenant()
        for stream in self._drafts:
            self._pending.add(
                "add_stream",
                stream.oid,
                stream.kind,
                stream.name,
                stream.base,
                stream.base_at,
                stream.created,
                stream.dropped,
                stream.pruned,
                stream.salt,
            )
        self._drafts.clear()
