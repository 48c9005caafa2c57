"""One tenant's side of an SQLite write transaction."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import apsw
import msgspec

from pagefile.engines.sqlite.rows import (
    MOST_RECORDS,
    POSITION_BITS,
    KeyIndex,
    Users,
    broken,
    columns_of,
    commit_from,
    commit_ids,
    emptied,
    fetch,
    further_ids,
    last_from,
    require_numbers,
    row_from,
    stream_from,
)
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
from pagefile.store.records import NO_MANIFEST, Action, StreamKind, unpack

#: Beyond, reading the commits takes longer than beginning anew.
MOST_COMMITS = 512


class News(NamedTuple):
    """What some commits did, where all they did was to add records."""

    #: The new length of each log that was appended to.
    lengths: dict[int, int]
    #: Documents with a new version, to be looked at again.
    changed: set[int]
    #: The newest stream that was written to.
    newest: int


def news_of(commits: Sequence[RawCommit]) -> News | None:
    """What they did; None when more than adding, or when it cannot be read."""
    lengths: dict[int, int] = {}
    changed: set[int] = set()
    try:
        for commit in commits:
            for entry in unpack(commit.manifest):
                action, oid, number = int(entry[0]), int(entry[1]), int(entry[2])
                if action == Action.APPEND:
                    lengths[oid] = number + 1
                elif action == Action.PUT:
                    changed.add(oid)
                else:
                    return None
    except (*NO_MANIFEST, IndexError, ValueError):
        return None
    return News(lengths, changed, max((*lengths, *changed), default=0))


_MOST_RECENT = 4_096


class MadeKeys:
    """Where the commits of one tenant with made keys are: the last ones, and the group's."""

    def __init__(self, position: int) -> None:
        #: All commits after a position.
        self._recent: dict[str, int] = {}
        self._from = position
        #: Older ones that the group under way asked for, 0 for one that is not there.
        self._looked_for: dict[str, int] = {}

    def note(self, key: str, position: int) -> None:
        """A commit with this key is there now."""
        self._recent[key] = position
        if len(self._recent) > _MOST_RECENT:
            self._recent.clear()
            self._from = position
            self.forget_group()  # They may be among what is not known any more.

    def knows_of(self, key: str, after: int) -> bool:
        """Whether `place` tells what there is to tell of a key that was made after a position."""
        return after >= self._from or key in self._looked_for

    def place(self, key: str) -> int:
        """The position of the commit with this key; 0 when there is none."""
        return self._recent.get(key) or self._looked_for.get(key, 0)

    def old_ones(self, batches: Sequence[Prepared]) -> list[Prepared]:
        """Those whose keys have to be looked for."""
        return [batch for batch in batches if 0 <= batch.after < self._from]

    def were_looked_for(self, keys: Iterable[str], found: Iterable[tuple[str, int]]) -> None:
        """What was found of the group's keys."""
        self._looked_for = dict.fromkeys(keys, 0) | dict(found)

    def forget_group(self) -> None:
        """It is over: what was looked for is known no longer."""
        if self._looked_for:
            self._looked_for.clear()


_MOST_MISSING = 4_096


class KnownStreams:
    """Living streams, by name and by number; and names that were looked for in vain."""

    def __init__(self) -> None:
        self._logs: dict[str, Stream] = {}
        self._documents: dict[str, Stream] = {}
        self._by_number: dict[int, Stream] = {}
        #: A new name is asked about twice, and some are in every commit.
        self._missing: dict[StreamKind, set[str]] = {LOG: set(), DOCUMENT: set()}

    def __len__(self) -> int:
        return len(self._logs) + len(self._documents)

    def _of(self, kind: StreamKind) -> dict[str, Stream]:
        return self._documents if kind == DOCUMENT else self._logs

    def get(self, kind: StreamKind, name: str) -> Stream | None:
        """The living stream of that name, if it was looked at."""
        return (self._documents if kind == DOCUMENT else self._logs).get(name)

    def remember(self, stream: Stream) -> Stream:
        """Keep a living stream, or find the object that already stands for it."""
        if stream.dropped:
            return stream
        known = self._of(stream.kind).setdefault(stream.name, stream)
        self._by_number[known.oid] = known
        return known

    def create(self, stream: Stream) -> None:
        """Keep one that did not exist before."""
        self._of(stream.kind)[stream.name] = self._by_number[stream.oid] = stream
        self._missing[stream.kind].discard(stream.name)

    def let_go(self, stream: Stream) -> None:
        """It is gone, or to be read again."""
        self._of(stream.kind).pop(stream.name, None)
        self._by_number.pop(stream.oid, None)

    def miss(self, kind: StreamKind, name: str) -> None:
        """There is none of that name."""
        missing = self._missing[kind]
        if len(missing) >= _MOST_MISSING:
            missing.clear()
        missing.add(name)

    def is_missing(self, kind: StreamKind, name: str) -> bool:
        return name in self._missing[kind]

    def take_in(self, news: News) -> None:
        """Be as others' commits have left the streams."""
        for oid, length in news.lengths.items():
            if (stream := self._by_number.get(oid)) is not None:
                stream.length = length
        for oid in news.changed:
            if (stream := self._by_number.get(oid)) is not None:
                self.let_go(stream)
        for missing in self._missing.values():
            missing.clear()


_MOST_CACHED = 100_000
#: How often, in commits, expired idempotency keys are swept out.
_SWEEP_EVERY = 256


class SqliteTransaction:
    """See `pagefile.store.engine.Transaction`."""

    def __init__(
        self, writer: apsw.Connection, sql: dict[str, str], tenant: str, key_lifetime_us: int
    ) -> None:
        self._writer = writer
        # One cursor for all inserts: making one costs as much as a small insert.
        self._cursor = writer.cursor()
        self._add_record = sql["add_record"]
        self._sql = sql
        self.tenant = tenant
        self._key_lifetime_us = key_lifetime_us
        self._number = 0
        self._keys_from = 1
        self._expiry = KeyExpiry()
        #: The engine's count of other processes' commits, when this one was last up to date.
        self.seen = 0
        self._streams = KnownStreams()
        self._users = Users(writer, sql)
        self._index = KeyIndex(writer, sql, self._users)
        self._drafts: list[Stream] = []
        #: Rows of the commit under way; the first will carry the commit itself.
        self._open: list[list[Any]] = []
        self._last_further = 0
        #: Whether the commit under way removes something, of which the file may keep copies.
        self._removes = False
        self._records: list[list[Any]] = []
        self._keys: list[tuple[Any, ...]] = []
        self._used: list[tuple[Any, ...]] = []
        self._load_head()
        self._made = MadeKeys(self.head.position)
        self._saved = self._counters()

    def _all(self, query: str, *bindings: Any) -> list[Any]:
        return fetch(self._writer, self._sql[query], *bindings)

    def _load_head(self) -> None:
        self.head = head = TenantHead(self.tenant)
        if not self._load_counters():
            return
        self._users.tenant = self._number
        low, high = commit_ids(self._number)
        last = self._all("last_commit", low, high)
        if last:
            head.position, head.time_us, head.digest = last_from(last[0])
        head.oid = self._all("last_oid", self._number)[0][0] or 0

    def _load_counters(self) -> bool:
        found = self._all("tenant_by_name", self.tenant)
        if found:
            head = self.head
            require_numbers(f"tenant {self.tenant!r}", *found[0])
            self._number, head.logs, head.documents, head.last_erase, self._keys_from = found[0]
        return bool(found)

    def catch_up(self) -> bool:
        """Take in what others have committed; False when it is to begin anew instead."""
        if not self._number:
            return False
        low, high = commit_ids(self._number)
        found = self._all("commits", low + self.head.position + 1, high, MOST_COMMITS + 1)
        commits = [commit_from(columns) for columns in found]
        news = news_of(commits) if len(commits) <= MOST_COMMITS else None
        if news is None:
            return False
        if commits:
            self._streams.take_in(news)
            self._load_counters()
            self._saved = self._counters()
            self._last_further = 0
            head, last = self.head, commits[-1]
            head.position, head.time_us, head.digest = last.position, last.time_us, last.digest
            if news.newest > head.oid:
                head.oid = self._all("last_oid", self._number)[0][0]
            for commit in commits:
                if commit.key[:1] == "~":
                    self._made.note(commit.key, commit.position)
        return True

    def _counters(self) -> tuple[int, int, int, int]:
        head = self.head
        return head.logs, head.documents, head.last_erase, self._keys_from

    def _own_number(self) -> int:
        if not self._number:
            self._number = self._all("add_tenant", self.tenant)[0][0]
            self._users.tenant = self._number
        return self._number

    @property
    def is_large(self) -> bool:
        """Whether what is kept should be let go and read again when needed."""
        return len(self._streams) + len(self._users) > _MOST_CACHED

    # What a commit asks

    def earlier(self, key: str, after: int) -> RawCommit | None:
        low, high = commit_ids(self._number)
        if self._made.knows_of(key, after):
            place = low + self._made.place(key)
            if place == low:
                return None
            self._write_out()
            found = self._all("commits", place, place, 1)
        elif after >= 0:
            self._write_out()
            found = self._all("commit_with_key", low + after, high, key)
        else:
            self._write_out()
            used = self._all("used_key", self._number, key)
            place = low + (used[0][0] if used else 0)
            found = self._all("commits", place, place, 1)
        return commit_from(found[0]) if found else None

    def look_for_keys(self, batches: Sequence[Prepared]) -> None:
        """Look at once for the keys of those who have not heard of the last commits.

        Each look goes through all commits that others made meanwhile.
        """
        old = self._made.old_ones(batches)
        if len(old) > 1 and self._number:
            low, _ = commit_ids(self._number)
            first = low + min(batch.after for batch in old)
            keys = [batch.key for batch in old]
            asked = msgspec.json.encode(keys).decode()
            found = self._all("commits_of_keys", first, low + self.head.position, asked)
            self._made.were_looked_for(keys, found)

    def look_ahead(self, batch: Prepared) -> None:
        """Look at once for all documents that must not be there yet."""
        streams = self._streams
        names = [
            need.name
            for need in batch.when
            if need.what == "absent"
            and streams.get(DOCUMENT, need.name) is None
            and not streams.is_missing(DOCUMENT, need.name)
        ]
        if len(names) > 1 and self._number:
            asked = msgspec.json.encode(names).decode()
            for columns in self._all("documents_named", self._number, asked):
                self._known(columns)
            for name in names:
                if streams.get(DOCUMENT, name) is None:
                    streams.miss(DOCUMENT, name)

    def stream(self, kind: StreamKind, name: str) -> Stream | None:
        stream = self._streams.get(kind, name)
        if stream is None and self._number and not self._streams.is_missing(kind, name):
            found = self._all("stream_by_name", self._number, kind, name)
            if found:
                return self._known(found[0])
            self._streams.miss(kind, name)
        return stream

    def _known(self, columns: tuple[Any, ...]) -> Stream:
        return self._streams.remember(stream_from(columns, self._writer, self._sql))

    def stream_number(self, oid: int) -> Stream:
        for draft in self._drafts:
            if draft.oid == oid:
                return draft
        found = self._all("stream_by_oid", self._number, oid)
        if not found:
            raise broken(f"stream {oid}", "it is missing")
        return self._known(found[0])

    def create(self, stream: Stream) -> None:
        self._streams.create(stream)
        self._drafts.append(stream)

    def discard(self, stream: Stream) -> None:
        self._drafts.remove(stream)
        self._streams.let_go(stream)

    def holders(self, user: str | None) -> list[Stream]:
        self._write_out()
        partition = self._users.find(user)
        if partition is None:
            return []
        found = self._all("streams_held", partition)
        return [self._known(columns) for columns in found]

    def forks(self, stream: Stream) -> list[Stream]:
        self._write_streams()
        found = self._all("forks_of", self._number, stream.oid)
        return [self._known(columns) for columns in found]

    def incarnations(self, kind: StreamKind, name: str) -> list[Stream]:
        self._write_out()
        found = self._all("streams_named", self._number, kind, name)
        return [self._known(columns) for columns in found]

    def rows(self, stream: Stream, first: int = 0, last: int | None = None) -> list[Row]:
        self._write_out()
        found = self._all("rows", stream.id, first, MOST_RECORDS if last is None else last, -1)
        return [self._row(columns) for columns in found]

    def _row(self, columns: tuple[Any, ...]) -> Row:
        return row_from(columns, self._users.name)

    def count(self, key: IndexKey, user: str | None, most: int) -> int:
        self._write_out()
        return self._index.count(key, user, most)

    def last_change(self, key: IndexKey, user: str | None) -> int:
        self._write_out()
        return self._index.last_change(key, user)

    # What a commit does

    def add(self, stream: Stream, rows: Sequence[Row], keys: Sequence[Sequence[IndexKey]]) -> None:
        if not stream.id:
            self._write_streams()
        if stream.kind == DOCUMENT and rows[0].number > 1:
            self._write_out()
            self._index.retire(stream, rows[0].number - 1, rows[0].position)
        # No call per row: this is where most of an append's own time goes.
        stream_id, opened, users = stream.id, self._open, self._users
        for at, row in enumerate(rows):
            content = row.content
            if opened:
                record = self._further_id()
            else:
                number = self._number or self._own_number()
                record = (number << POSITION_BITS) + row.position
            if content is None:
                opened.append(emptied(record, stream_id, row))
                partition = 0
                continue
            partition = users.known.get(content.user) or users.number(content.user)
            opened.append(
                [
                    record,
                    stream_id,
                    row.number,
                    row.position,
                    row.ordinal,
                    row.time_us,
                    content.action,
                    None,
                    None,
                    None,
                    partition,
                    *columns_of(content),
                ]
            )
            if (partition, stream_id) not in users.held:
                users.hold(partition, stream_id)
            if keys:
                spaces = self._index.spaces(stream_id, partition)
                position, ordinal = row.position, row.ordinal
                self._keys += [
                    (spaces[key.scope], key.field, key.value, position, ordinal, record)
                    for key in keys[at]
                ]
        if stream.kind == DOCUMENT:
            self._index.open_versions[stream_id] = (row, partition, record)

    def add_lone(
        self, stream: Stream, row: Row, keys: Sequence[IndexKey], commit: RawCommit
    ) -> None:
        content, users = row.content, self._users
        assert content is not None
        partition = users.known.get(content.user)
        if keys or partition is None or (partition, stream.id) not in users.held or self._records:
            self.add(stream, (row,), (keys,) if keys else ())
            self.seal(commit)
            return
        # Nothing else goes with it, so it need not be collected first.
        self._cursor.execute(
            self._add_record,
            (
                (self._number << POSITION_BITS) + row.position,
                stream.id,
                row.number,
                row.position,
                row.ordinal,
                row.time_us,
                content.action,
                commit.key,
                commit.manifest,
                commit.digest,
                partition,
                *columns_of(content),
            ),
        )
        self._made.note(commit.key, commit.position)
        if not commit.position % _SWEEP_EVERY:
            self._sweep_keys(commit)

    def _further_id(self) -> int:
        """The id of a record that does not begin its commit."""
        if not self._last_further:
            low, high = further_ids(self._number)
            self._last_further = self._all("last_further_id", low, high)[0][0] or low
        self._last_further += 1
        return self._last_further

    def drop(self, stream: Stream, *, forget_name: bool = False) -> None:
        self._write_streams()
        self._streams.let_go(stream)
        if forget_name:
            self._removes = True
            stream.name = ""
        self._all("end_stream", stream.dropped, stream.name, stream.id)

    def prune(self, stream: Stream, before: int) -> None:
        self._removes = True
        self._write_streams()
        self._write_out()
        stream.pruned = max(stream.pruned, before)
        self._all("set_pruned", stream.pruned, stream.id)
        shared = self._all("shared_up_to", self._number, stream.oid)[0][0] or 0
        doomed = [
            self._row(columns) for columns in self._all("rows", stream.id, shared, before - 1, -1)
        ]
        self._index.remove(stream, doomed)
        for query in ("remove_records", "empty_commits"):
            self._all(query, stream.id, shared, before)
        # What the same commit wrote to the stream is not in the table yet.
        written = {
            self._users.name(row[10]) for row in self._open if row[1] == stream.id and row[10]
        }
        users = {row.content.user for row in doomed if row.content}
        self._users.release(stream.id, users - written)

    def wipe(self, stream: Stream, rows: Sequence[Row]) -> None:
        self._removes = True
        self._write_out()
        self._index.remove(stream, rows)
        self._writer.executemany(
            self._sql["wipe_record"], ((stream.id, row.number) for row in rows)
        ).fetchall()
        self._users.release(stream.id, {row.content.user for row in rows if row.content})

    def seal(self, commit: RawCommit) -> None:
        if self._drafts:
            self._write_streams()
        if self._removes:
            self._removes = False
            self._all("note_traces", commit.position, self._own_number())
        rows = self._open
        if not rows:
            rows = [self._bare_commit(commit)]
        rows[0][7:10] = commit.key, commit.manifest, commit.digest
        if self._records:
            self._records += rows
        else:
            self._records = rows
        self._open = []
        self._index.open_versions.clear()
        if commit.key[:1] != "~":
            self._used.append((self._number, commit.key, commit.position))
        else:
            self._made.note(commit.key, commit.position)
        if not commit.position % _SWEEP_EVERY:
            self._sweep_keys(commit)

    def _bare_commit(self, commit: RawCommit) -> list[Any]:
        """The row of a commit that stores no record."""
        row: list[Any] = [None] * 20
        row[0] = (self._own_number() << POSITION_BITS) + commit.position
        row[3:7] = commit.position, 0, commit.time_us, 0
        return row

    def _sweep_keys(self, last: RawCommit) -> None:
        low, _ = commit_ids(self._number)

        def time_at(position: int) -> int:
            found = self._all("commit_time", low + position)
            # One of this group is not in the table yet, and about as new as the last.
            return int(found[0][0]) if found else last.time_us

        expired_to = self._expiry.last_expired(
            self._key_lifetime_us, self._keys_from, last.position, last.time_us, time_at
        )
        if expired_to < self._keys_from:
            return
        expired = self._all("expired_keys", low + self._keys_from, low + expired_to)
        for position, key in expired:
            self._all("forget_key", self._number, key, position)
            self._keys_from = position + 1

    # Writing out

    def flush(self) -> None:
        """Insert everything collected, and counters that changed."""
        self._made.forget_group()
        alone = len(self._records) == 1 and not self._users.new_holdings
        if alone and not self._keys and not self._used:
            # The commonest commit by far, without the detours.
            self._cursor.execute(self._add_record, self._records.pop())
        else:
            self._write_out()
        head, saved = self.head, self._saved
        if (head.logs, head.documents, head.last_erase, self._keys_from) != saved:
            self._saved = self._counters()
            self._all("save_tenant", *self._saved, self._own_number())

    def _write_out(self) -> None:
        if self._records:
            self._insert("add_record", self._records)
        if self._used:
            self._insert("add_used_key", self._used)
        if self._keys:
            self._insert("add_key", self._keys)
        if self._users.new_holdings:
            self._insert("add_holding", self._users.new_holdings)

    def _insert(self, query: str, rows: list[Any]) -> None:
        if len(rows) == 1:
            self._cursor.execute(self._sql[query], rows[0])
        else:
            self._cursor.executemany(self._sql[query], rows).fetchall()
        rows.clear()

    def _write_streams(self) -> None:
        """Give the streams of this batch, now certain to commit, their rows and ids."""
        if not self._drafts:
            return
        newest, number = self._all("last_stream_id")[0][0] or 0, self._own_number()
        rows: list[tuple[Any, ...]] = []
        for stream in self._drafts:
            newest += 1
            stream.id = newest
            rows.append(
                (
                    stream.id,
                    number,
                    stream.oid,
                    stream.kind,
                    stream.name,
                    stream.base,
                    stream.base_at,
                    stream.created,
                    stream.dropped,
                    stream.pruned,
                    stream.salt or None,
                )
            )
        self._insert("add_stream", rows)
        self._drafts.clear()
