"""One tenant's side of an SQLite write transaction.

Keeps what it has read, and collects what it is to insert. Everything it keeps is
true as long as no other process writes; when one did, it catches up or is dropped.

What other processes have committed to one tenant of an SQLite file since we last looked.
Beginning anew after each of their commits would mean to read again every stream, user and key
that our own commits need. Their manifests say what they did, and most only add records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import apsw
import msgspec

from pagefile.engines.common import SWEEP_EVERY, MadeKeys, TenantCache
from pagefile.engines.sqlite.rows import (
    LOG_SPACE,
    MOST_RECORDS,
    POSITION_BITS,
    SPACES,
    TENANT_SPACE,
    USER_SPACE,
    UserGone,
    broken,
    commit_from,
    commit_ids,
    fetch,
    further_ids,
    last_from,
    news_of,
    require_numbers,
    row_from,
    space_of_tenant,
    space_of_user,
    stream_from,
    user_from,
)
from pagefile.store.engine import (
    DOCUMENT,
    IndexKey,
    Prepared,
    RawCommit,
    Row,
    Scope,
    Stream,
    TenantHead,
    index_keys,
)
from pagefile.store.records import Content, StreamKind

#: Beyond, reading the commits takes longer than beginning anew.
MOST_COMMITS = 512


def columns_of(content: Content) -> tuple[Any, ...]:
    """The last columns of a record, from `kind` on."""
    return (
        content.kind,
        content.actor,
        msgspec.json.encode(content.sources).decode() if content.sources else None,
        content.keys or None,
        content.tenant_keys or None,
        content.notes or None,
        content.type_name,
        content.salt,
        content.body,
    )


def emptied(record: int, stream_id: int, row: Row) -> list[Any]:
    """The columns of a record whose content is gone."""
    place = [record, stream_id, row.number, row.position, row.ordinal, row.time_us, row.action]
    return place + [None] * 13


class Users:
    """What a write transaction knows of a tenant's users; None stands for nobody."""

    def __init__(self, writer: apsw.Connection, sql: dict[str, str]) -> None:
        self._writer = writer
        self._sql = sql
        #: The tenant's number, or 0 before its first commit.
        self.tenant = 0
        #: Partition numbers looked up so far.
        self.known: dict[str | None, int] = {}
        #: (partition, stream id) of which the file knows, or will with `new_holdings`.
        self.held: set[tuple[int, int]] = set()
        self.new_holdings: list[tuple[int, int]] = []
        self._names: dict[int, str | None] = {}

    def __len__(self) -> int:
        return len(self.known) + len(self.held) + len(self._names)

    def _all(self, query: str, *bindings: Any) -> list[Any]:
        return fetch(self._writer, self._sql[query], *bindings)

    def find(self, user: str | None) -> int | None:
        """The user's partition, if there is one."""
        partition = self.known.get(user)
        if partition is None:
            found = self._all("partition", self.tenant, user)
            if not found:
                return None
            partition = self.known[user] = found[0][0]
        return partition

    def number(self, user: str | None) -> int:
        """The user's partition, made if need be."""
        partition = self.find(user)
        if partition is None:
            partition = self.known[user] = self._all("add_partition", self.tenant, user)[0][0]
        return partition

    def name(self, partition: int) -> str | None:
        """The user behind a partition."""
        if partition not in self._names:
            found = self._all("partition_user", partition)
            if not found:
                raise UserGone
            self._names[partition] = user_from(found[0][0])
        return self._names[partition]

    def hold(self, partition: int, stream_id: int) -> None:
        """Note that the user has a record in the stream."""
        self.new_holdings.append((partition, stream_id))
        self.held.add((partition, stream_id))

    def release(self, stream_id: int, users: Iterable[str | None]) -> None:
        """Forget those of the users who have no record left in the stream, or anywhere.

        The file must know of all holdings.
        """
        assert not self.new_holdings
        for user in users:
            partition = self.number(user)
            if not self._all("still_holds", stream_id, partition)[0][0]:
                self._all("remove_holding", partition, stream_id)
                self.held.discard((partition, stream_id))
                self._all("forget_partition", partition)
                del self.known[user]


class KeyIndex:
    """Counts, retires and removes keys. Reads the file, so what was collected goes in first."""

    def __init__(self, writer: apsw.Connection, sql: dict[str, str], users: Users) -> None:
        self._writer = writer
        self._sql = sql
        self._users = users
        #: Documents' versions of the commit under way: stream id to row, partition, record id.
        self.open_versions: dict[int, tuple[Row, int, int]] = {}

    def _all(self, query: str, *bindings: Any) -> list[Any]:
        return fetch(self._writer, self._sql[query], *bindings)

    def count(self, key: IndexKey, user: str | None, most: int) -> int:
        """How many records the key finds now, at most `most`."""
        space = self._space(key, user)
        if space is None:
            return 0
        return int(self._all("count_key", space, key.field, key.value, most)[0][0])

    def last_change(self, key: IndexKey, user: str | None) -> int:
        """The last position that changed what the key finds."""
        space = self._space(key, user)
        if space is None:
            return 0
        return int(self._all("last_key_change", space, key.field, key.value)[0][0])

    def _space(self, key: IndexKey, user: str | None) -> int | None:
        if key.scope == "tenant":
            return space_of_tenant(self._users.tenant)
        partition = self._users.find(user)
        return None if partition is None else space_of_user(partition)

    def spaces(self, stream_id: int, partition: int) -> dict[Scope, int]:
        """Where keys of a record in the stream belong, by their scope."""
        return {
            "log": stream_id * SPACES + LOG_SPACE,
            "user": partition * SPACES + USER_SPACE,
            "tenant": self._users.tenant * SPACES + TENANT_SPACE,
        }

    def retire(self, stream: Stream, version: int, until: int) -> None:
        """The keys of the version that `until` replaces lead to it only in the past."""
        if stream.id in self.open_versions:
            row, partition, record = self.open_versions[stream.id]
        else:
            found = self._all("rows", stream.id, version, version, 1)
            if not found:
                return
            row = row_from(found[0], self._users.name)
            partition, record = found[0][5], found[0][15]
        if row.content is None:
            return
        spaces = self.spaces(stream.id, partition)
        for key in index_keys(stream.kind, row.content):
            place = (spaces[key.scope], key.field, key.value)
            self._all("remove_key", *place, row.position, row.ordinal)
            self._all("add_past_key", *place, until, row.position, row.ordinal, record)

    def remove(self, stream: Stream, rows: Sequence[Row]) -> None:
        """The rows' keys lead nowhere any more, in the present and in the past."""
        for row in rows:
            if row.content is None or not (row.content.keys or row.content.tenant_keys):
                continue
            partition = self._users.number(row.content.user)
            until = 0
            if stream.kind == DOCUMENT and row.number < stream.length:
                until = self._all("next_position", stream.id, row.number + 1)[0][0]
            spaces = self.spaces(stream.id, partition)
            for key in index_keys(stream.kind, row.content):
                place = (spaces[key.scope], key.field, key.value)
                self._all("remove_key", *place, row.position, row.ordinal)
                if until:
                    self._all("remove_past_key", *place, until, row.position, row.ordinal)


_MOST_CACHED = 100_000


class SqliteTransaction:
    """See `pagefile.store.engine.Transaction`."""

    def __init__(
        self, writer: apsw.Connection, sql: dict[str, str], tenant: str, key_lifetime_us: int
    ) -> None:
        self._writer = writer
        # One cursor for all inserts: making one costs as much as a small insert.
        self._cursor = writer.cursor()
        self._add_record = sql["add_record"]
        self._add_key = sql["add_key"]
        self._sql = sql
        self.tenant = tenant
        self._number = 0
        #: The engine's count of other processes' commits, when this one was last up to date.
        self.seen = 0
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
        self.head = TenantHead(tenant)
        self._cache = TenantCache(self.head, key_lifetime_us)
        self._load_head()
        self._cache.keys = MadeKeys(self.head.position)
        self._saved = self._counters()

    def _all(self, query: str, *bindings: Any) -> list[Any]:
        return fetch(self._writer, self._sql[query], *bindings)

    def _load_head(self) -> None:
        head = self.head
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
            self._number, head.logs, head.documents, head.last_erase, keys_from = found[0]
            self._cache.keys_from = keys_from
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
            self._cache.take_in(news.lengths, news.changed)
            self._load_counters()
            self._saved = self._counters()
            self._last_further = 0
            head, last = self.head, commits[-1]
            head.position, head.time_us, head.digest = last.position, last.time_us, last.digest
            if news.newest > head.oid:
                head.oid = self._all("last_oid", self._number)[0][0]
            for commit in commits:
                if commit.key[:1] == "~":
                    self._cache.keys.note(commit.key, commit.position)
        return True

    def _counters(self) -> tuple[int, int, int, int]:
        head = self.head
        return head.logs, head.documents, head.last_erase, self._cache.keys_from

    def _own_number(self) -> int:
        if not self._number:
            self._number = self._all("add_tenant", self.tenant)[0][0]
            self._users.tenant = self._number
        return self._number

    @property
    def is_large(self) -> bool:
        """Whether what is kept should be let go and read again when needed."""
        return len(self._cache) + len(self._users) > _MOST_CACHED

    # What a commit asks

    def earlier(self, key: str, after: int) -> RawCommit | None:
        low, high = commit_ids(self._number)
        if self._cache.keys.knows_of(key, after):
            place = low + self._cache.keys.place(key)
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
        old = self._cache.keys.old_ones(batches)
        if len(old) > 1 and self._number:
            low, _ = commit_ids(self._number)
            first = low + min(batch.after for batch in old)
            keys = [batch.key for batch in old]
            asked = msgspec.json.encode(keys).decode()
            found = self._all("commits_of_keys", first, low + self.head.position, asked)
            self._cache.keys.were_looked_for(keys, found)

    def look_ahead(self, batch: Prepared) -> None:
        """Look at once for all documents that must not be there yet."""
        cache = self._cache
        names = [
            need.name
            for need in batch.when
            if need.what == "absent"
            and cache.living(DOCUMENT, need.name) is None
            and not cache.is_absent(DOCUMENT, need.name)
        ]
        if len(names) > 1 and self._number:
            asked = msgspec.json.encode(names).decode()
            for columns in self._all("documents_named", self._number, asked):
                self._known(columns)
            for name in names:
                if cache.living(DOCUMENT, name) is None:
                    cache.miss(DOCUMENT, name)

    def stream(self, kind: StreamKind, name: str) -> Stream | None:
        stream = self._cache.living(kind, name)
        if stream is None and self._number and not self._cache.is_absent(kind, name):
            found = self._all("stream_by_name", self._number, kind, name)
            if found:
                return self._known(found[0])
            self._cache.miss(kind, name)
        return stream

    def _known(self, columns: tuple[Any, ...]) -> Stream:
        return self._cache.remember(stream_from(columns))

    def stream_number(self, oid: int) -> Stream:
        known = self._cache.numbered(oid)
        if known is not None:
            return known
        found = self._all("stream_by_oid", self._number, oid)
        if not found:
            raise broken(f"stream {oid}", "it is missing")
        return self._known(found[0])

    def create(self, stream: Stream) -> None:
        self._cache.create(stream)
        self._drafts.append(stream)

    def discard(self, stream: Stream) -> None:
        self._drafts.remove(stream)
        self._cache.discard(stream)

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
        stream_id, position = stream.id, row.position
        partition = users.known.get(content.user)
        if partition is None or (partition, stream_id) not in users.held or self._records:
            self.add(stream, (row,), (keys,) if keys else ())
            self.seal(commit)
            return
        # Nothing else goes with it, so it need not be collected first.
        record = (self._number << POSITION_BITS) + position
        self._cursor.execute(
            self._add_record,
            (
                record,
                stream_id,
                row.number,
                position,
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
        if keys:
            spaces = self._index.spaces(stream_id, partition)
            for key in keys:
                place = (spaces[key.scope], key.field, key.value, position, row.ordinal, record)
                self._cursor.execute(self._add_key, place)
        self._cache.keys.note(commit.key, position)
        if not position % SWEEP_EVERY:
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
        self._cache.end(stream)
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
            self._cache.keys.note(commit.key, commit.position)
        if not commit.position % SWEEP_EVERY:
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

        expired = self._cache.expired_to(last, time_at)
        if expired:
            for position, key in self._all(
                "expired_keys", low + self._cache.keys_from, low + expired
            ):
                self._all("forget_key", self._number, key, position)
                self._cache.keys_from = position + 1

    # Writing out

    def flush(self) -> None:
        """Insert everything collected, and counters that changed."""
        self._cache.keys.forget_group()
        alone = len(self._records) == 1 and not self._users.new_holdings
        if alone and not self._keys and not self._used:
            # The commonest commit by far, without the detours.
            self._cursor.execute(self._add_record, self._records.pop())
        else:
            self._write_out()
        head, saved = self.head, self._saved
        if (head.logs, head.documents, head.last_erase, self._cache.keys_from) != saved:
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
