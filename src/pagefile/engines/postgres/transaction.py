"""One tenant's side of a PostgreSQL write transaction.

Keeps what it has read, and collects what it is to write. Everything it keeps is
true as long as the tenant is at the position it knows: the next commit takes the
position after it, and fails if another process was faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from pagefile.engines.postgres.rows import MOST_RECORDS, Embedding, fill_head, row_from, stream_from
from pagefile.engines.postgres.transaction import (
    Ahead,
    Door,
    KeyIndex,
    Name,
    Pending,
    Statement,
    Users,
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
)
from pagefile.store.records import StreamKind

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
