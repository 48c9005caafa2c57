"""The store: one atomic, durable, verifiable write path for one tenant.

Everything durable is one of two shapes. A *log* is named and append-only; its
entries have indexes 0, 1, 2, … A *document* is named and has versions 1, 2, 3,
…, each readable until pruned. Every write is a batch of operations that commit
together under one *position*, which grows by one with each commit of the tenant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pagefile.audit import verify
from pagefile.batch import Append, Batch, Put, Selector, VersionIs
from pagefile.bounds import (
    MOST_PER_READ,
    bounded,
    require_count,
    require_index,
    require_position,
    require_seconds,
)
from pagefile.committer import Committer
from pagefile.content import Action, unpack
from pagefile.engine import (
    DOCUMENT,
    LOG,
    Engine,
    Hit,
    Instant,
    Prepared,
    Row,
    Sealed,
    Stream,
)
from pagefile.errors import Conflict, Invalid, NotFound, Unavailable, shown
from pagefile.history import actions_of, length_at
from pagefile.naming import require_callable, require_flag, require_type
from pagefile.preparation import Preparer
from pagefile.query import Finder, Query, cursor_text, place_of
from pagefile.records import (
    Change,
    Commit,
    Document,
    Durability,
    Entry,
    Head,
    Page,
    Receipt,
    Report,
    Stats,
    StreamKind,
)
from pagefile.repeats import require_same_content
from pagefile.selection import Rehearsed, receipt_of

_UPDATE_ATTEMPTS = 1_000
_DRY_RUN = "nothing was erased: this was a dry run"
_SCRUB_LATER = "old pages are not overwritten yet, as asked: the next erase with scrub does it"


class Store:
    """Logs and documents of one tenant.

    Every engine keeps these promises, or declares by name which it does not;
    `pagefile.testing` has tests for each, found by its number.

    S1  Atomic: a reader or a crash never shows part of a batch.
    S2  Ordered: log indexes and tenant positions are gapless, assigned by the
        store, the same for every reader, under any number of writers. Commits
        of one tenant are serial; batching amortises them.
    S3  Conditional: of two batches expecting the same version or length, exactly
        one commits; the other gets `Conflict` with the current number and
        nothing of it is stored. Appends without a condition never conflict.
    S4  Durable: once `commit` returns, `kill -9` cannot lose it; at level
        `power`, neither can a power cut. The engine states the level it has.
    S5  Isolated: no data, count, name, limit or order of another tenant is
        observable through this handle, nor of another user in a call for one
        user; waiting for the engine's lock is bounded and fair.
    S6  Read-your-writes, and consistent reads at a past position.
    S7  Idempotent: every batch has a key (made if not given), kept for a stated
        time, and commits once; a repeat returns the first `Commit`; the same
        key with other content is an error.
    S8  Bounded: limits are enforced inside the commit, never passed by a race.
    S9  Erasable: `erase` removes content, secondary keys, free pages and
        journals; what stays is a salted digest whose salt is gone, so the hash
        chain still verifies. The receipt lists what was removed and how far.
    S10 Verifiable: each commit carries a digest over its content digests and
        the commit before; `verify` finds any change, deletion or reordering and
        says where; against a head kept elsewhere also a cut-off tail.
    S11 Recoverable: after any crash the store opens by itself, drops at most
        what was never acknowledged, and `check` is clean.

    Not promised: an order between tenants, or that a handle opened before a
    fork of the process works in the child (it is refused there).
    """

    def __init__(
        self, engine: Engine, committer: Committer, preparer: Preparer, tenant: str
    ) -> None:
        self._engine = engine
        self._committer = committer
        self._preparer = preparer
        self._naming = preparer.naming
        self._tenant = tenant
        self._instant: Instant | None = None
        if engine.instant:
            assert isinstance(engine, Instant)
            self._instant = engine
        self._finder = Finder(engine, preparer, tenant)
        #: A position this tenant is known to have reached; made keys carry it.
        self._reached = engine.head(tenant).position

    # Writing

    def commit(self, batch: Batch) -> Commit:
        """Apply all of the batch or nothing, durably; return where it landed.

        Raises:
            Conflict: a condition about a version, length or key does not hold.
            LimitExceeded: a limit would be passed. Invalid: the input breaks a rule.
            NotFound: it deletes, forks, drops or prunes what is not there.
            Unavailable: see its `outcome`; committing the same batch again is safe.
        """
        prepared = self._preparer.prepare(batch, self._reached)
        try:
            sealed = self._committer.commit(self._tenant, prepared)
        except Unavailable as failure:
            failure.key = batch.key
            raise
        return self._answer(batch, prepared, sealed)

    async def commit_async(self, batch: Batch) -> Commit:
        """`commit` for a running event loop, which it never blocks."""
        prepared = self._preparer.prepare(batch, self._reached)
        try:
            sealed = await self._committer.submit(self._tenant, prepared)
        except Unavailable as failure:
            failure.key = batch.key
            raise
        if sealed.repeated:
            import asyncio

            return await asyncio.to_thread(self._answer, batch, prepared, sealed)
        return self._answer(batch, prepared, sealed)

    def append(self, operation: Append) -> Entry:
        """Commit one append and nothing else; return the entry as it is stored.

        The same as `commit_entries` of a batch with this operation, and cheaper
        where commits take microseconds.
        """
        instant = self._instant
        if instant is None:
            return self.commit_entries(Batch([operation]))[0]
        one = self._preparer.prepare_one(operation)
        key = self._preparer.fresh_key(self._reached)
        position, time_us, index = instant.append_one(self._tenant, one, key)
        if position > self._reached:
            self._reached = position
        return Entry(position, time_us, one.content, one.log, index, one.log)

    async def append_async(self, operation: Append) -> Entry:
        """`append` for a running event loop, which it never blocks."""
        if self._instant is not None:
            return self.append(operation)
        return (await self.commit_entries_async(Batch([operation])))[0]

    def commit_entries(self, batch: Batch) -> list[Entry]:
        """`commit`, and the entries that the batch's appends became, as they are stored."""
        prepared = self._preparer.prepare(batch, self._reached)
        try:
            sealed = self._committer.commit(self._tenant, prepared)
        except Unavailable as failure:
            failure.key = batch.key
            raise
        return self._appended(batch, prepared, sealed)

    async def commit_entries_async(self, batch: Batch) -> list[Entry]:
        """`commit_entries` for a running event loop, which it never blocks."""
        prepared = self._preparer.prepare(batch, self._reached)
        try:
            sealed = await self._committer.submit(self._tenant, prepared)
        except Unavailable as failure:
            failure.key = batch.key
            raise
        if sealed.repeated:
            import asyncio

            return await asyncio.to_thread(self._appended, batch, prepared, sealed)
        return self._appended(batch, prepared, sealed)

    def update(
        self, document: str, change: Callable[[Any], Any], *, attempts: int = _UPDATE_ATTEMPTS
    ) -> Commit:
        """Read, change and put a document, again and again until nobody was faster.

        `change` gets the current value (None when there is none) and returns the
        next. It may run several times, so it must not do anything else. User,
        kind and keys stay as they were.
        """
        self._naming.check_text("document", document)
        require_callable("change", change)
        require_count(attempts, "attempts", least=1)
        while True:
            # The version first: what is read after it is this version or none at all.
            version = self._version(document)
            current = self.get(document, version=version) if version else None
            value = change(None if current is None else current.value)
            batch = Batch([_successor(document, value, current)], [VersionIs(document, version)])
            try:
                return self.commit(batch)
            except Conflict:
                attempts -= 1
                if not attempts:
                    raise

    # Reading

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
        stream = self._engine.stream(self._tenant, LOG, log, require_position(at))
        if stream is None:
            return 0
        return stream.length if at is None else self._length_at(stream, at)

    def has_log(self, log: str) -> bool:
        """Whether the log lives; one that was forked at 0 does without having entries."""
        self._naming.check_text("log", log)
        return self._engine.stream(self._tenant, LOG, log) is not None

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
        stream = self._engine.stream(self._tenant, LOG, log, require_position(at))
        if stream is None:
            return []
        length = stream.length if at is None else self._length_at(stream, at)
        first, end, _ = slice(start, stop).indices(length)
        return self._entries(log, stream, first, end, limit)

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
        while True:
            stream = self._engine.stream(self._tenant, DOCUMENT, document, at)
            if stream is None:
                return None
            number = stream.length if version is None else version
            if at is not None:
                number = min(number, self._length_at(stream, at))
            rows = self._engine.rows(self._tenant, stream, number, number, 1)
            # A living document always has its last version: if it is not there,
            # a newer one was put and this one pruned between the two reads.
            if rows or version is not None or at is not None:
                break
        if not rows or rows[0].action == Action.DELETE:
            return None
        return _document(document, rows[0])

    def history(self, document: str, *, after: int = 0, limit: int = 100) -> list[Document]:
        """Versions after `after`, oldest first; pruned ones are left out."""
        self._naming.check_text("document", document)
        require_count(after, "after")
        limit = bounded(limit)
        stream = self._engine.stream(self._tenant, DOCUMENT, document)
        if stream is None:
            return []
        rows = self._engine.rows(self._tenant, stream, after + 1, stream.length, limit)
        return [_document(document, row) for row in rows]

    def find(self, query: Query, *, limit: int = 100, at: int | None = None) -> Page:
        """Records under a secondary key, in the order of value, then of commit."""
        require_type("query", query, Query)
        limit = bounded(limit)
        at = require_position(at)
        hits: list[Hit] = []
        for span in self._finder.spans(query, at):
            hits += self._engine.find(self._tenant, span, limit + 1, at)
        if query.log is not None:
            hits.sort(key=place_of, reverse=query.reverse)
        owners: dict[int, Stream] = {}
        items = tuple(self._found(query, hit, owners) for hit in hits[:limit])
        more = len(hits) > limit and limit > 0
        return Page(items, cursor_text(hits[limit - 1]) if more else None)

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
        names: dict[int, Stream | None] = {}
        found = []
        for commit in self._engine.commits(self._tenant, since, bounded(limit)):
            touched = []
            for entry in unpack(commit.manifest):
                oid = int(entry[1])
                if oid not in names:
                    names[oid] = self._engine.stream_number(self._tenant, oid)
                touched.append(actions_of(entry, names[oid]))
            found.append(Change(commit.position, commit.time_us, tuple(touched)))
        return found

    def wait(self, position: int, timeout: float) -> bool:
        """Block until the tenant reaches `position`, or the seconds are over."""
        require_count(position, "position")
        require_seconds(timeout)
        return self._engine.wait(self._tenant, position, timeout)

    # Keeping

    def erase(
        self,
        selector: Selector,
        *,
        dry_run: bool = False,
        scrub: bool = True,
        timeout: float = 5.0,
    ) -> Receipt:
        """Remove content for good, in one commit; say what went, and how far.

        On a file, the last traces go when it is written anew, which takes time
        in proportion to its size; to erase many users, pass scrub=False for all
        but the last. `timeout` bounds the wait for others who hold old pages;
        if they outlast it, the receipt says `logical` and what remains to do.
        """
        require_type("selector", selector, Selector)
        require_flag("dry_run", dry_run)
        require_flag("scrub", scrub)
        require_seconds(timeout)
        prepared = self._preparer.prepare_erasure(selector, self._reached, rehearse=dry_run)
        try:
            sealed = self._committer.commit(self._tenant, prepared)
        except Rehearsed as rehearsed:
            return receipt_of(None, rehearsed.wiped, (_DRY_RUN,) if dry_run else ())
        remaining = self._committer.scrub(timeout) if scrub else (_SCRUB_LATER,)
        return receipt_of(sealed.commit.position, sealed.erased, remaining)

    def verify(
        self, *, head: Head | None = None, progress: Callable[[int, int], None] | None = None
    ) -> Report:
        """Walk the hash chain from the first commit, recomputing every digest.

        With a `head` kept elsewhere it also proves that nothing after it was
        cut off or rewritten. `progress` is called with (position, last position).
        """
        if head is not None:
            require_type("head", head, Head)
            require_count(head.position, "head.position")
            if type(head.digest) is not bytes:
                raise Invalid("head.digest", shown(head.digest), "give a head's digest unchanged")
        if progress is not None:
            require_callable("progress", progress)
        return verify(self._engine, self._tenant, head, progress)

    def check(self) -> Report:
        """Examine the engine's structures: files, indexes, counters."""
        problems = tuple(self._engine.check(self._tenant))
        head = self._engine.head(self._tenant)
        return Report(head.position, 0, problems, Head(head.position, head.digest))

    def stats(self) -> Stats:
        """Counts of this tenant, and what holds it."""
        head = self._engine.head(self._tenant)
        return Stats(
            self._engine.name,
            self._engine.durability,
            head.position,
            head.logs,
            head.documents,
        )

    # Inside

    def _appended(self, batch: Batch, prepared: Prepared, sealed: Sealed) -> list[Entry]:
        commit = sealed.commit
        if sealed.repeated:
            self._answer(batch, prepared, sealed)
        elif commit.position > self._reached:
            self._reached = commit.position
        made: list[Entry] = []
        # Forks have an index too, and no entry.
        indexes = iter(sealed.indexes)
        for write in prepared.writes:
            if write.action == Action.FORK:
                next(indexes)
            elif write.action == Action.APPEND:
                name = write.name
                for content in write.contents:
                    index = next(indexes)
                    if sealed.repeated:  # Stored before, under other salts, or erased since.
                        made += self.read(name, index, index + 1)
                        continue
                    made.append(Entry(commit.position, commit.time_us, content, name, index, name))
        return made

    def _answer(self, batch: Batch, prepared: Prepared, sealed: Sealed) -> Commit:
        if sealed.repeated:
            require_same_content(self._engine, self._tenant, prepared, sealed.commit)
        raw = sealed.commit
        # Never back: another thread may have committed later and been faster here.
        if raw.position > self._reached:
            self._reached = raw.position
        return Commit(
            raw.position,
            raw.time_us,
            sealed.indexes,
            sealed.versions,
            batch.key,
            raw.digest,
            sealed.repeated,
        )

    def _version(self, document: str) -> int:
        stream = self._engine.stream(self._tenant, DOCUMENT, document)
        return 0 if stream is None else stream.length

    def _length_at(self, stream: Stream, at: int) -> int:
        return length_at(self._engine, self._tenant, stream, at)

    def _tail(
        self, log: str, oid: int | None, start: int, limit: int
    ) -> tuple[Stream | None, list[Entry]]:
        """What a follower reads: the living log, or the one numbered `oid` even once dropped."""
        if oid is None:
            stream = self._engine.stream(self._tenant, LOG, log)
        else:
            stream = self._engine.stream_number(self._tenant, oid)
        if stream is None:
            return None, []
        return stream, self._entries(log, stream, start, stream.length, limit)

    def _entries(self, log: str, stream: Stream, first: int, end: int, limit: int) -> list[Entry]:
        first = max(first, stream.pruned)
        if first >= end:
            return []
        found: list[Entry] = []
        for owner, low, high in self._segments(stream, first, end - 1):
            rows = self._engine.rows(self._tenant, owner, low, high, limit - len(found))
            found += [_entry(log, owner.name, row) for row in rows]
            if len(found) == limit:
                break
        return found

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
            owner = self._engine.stream_number(self._tenant, hit.oid)
            if owner is None:
                raise NotFound(f"stream {hit.oid} is gone", "search again")
            owners[hit.oid] = owner
        if owner.kind == DOCUMENT:
            return _document(owner.name, hit.row)
        return _entry(query.log or owner.name, owner.name, hit.row)


def _successor(document: str, value: Any, current: Document | None) -> Put:
    if current is None or current.erased:
        return Put(document, value)
    return Put(
        document,
        value,
        current.user,
        current.kind,
        current.actor,
        current.sources,
        current.keys,
        current.tenant_keys,
    )


def _entry(log: str, origin: str, row: Row) -> Entry:
    return Entry(row.position, row.time_us, row.content, log, row.number, origin)


def _document(name: str, row: Row) -> Document:
    return Document(row.position, row.time_us, row.content, name, row.number)
