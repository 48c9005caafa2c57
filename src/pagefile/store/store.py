"""Vectors that a store keeps in the commit of their entries, where its engine can."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

from pagefile.errors import (
    Conflict,
    Corrupt,
    Invalid,
    PagefileError,
    Unavailable,
    Unsupported,
    shown,
)
from pagefile.store.arguments import (
    Naming,
    require_callable,
    require_count,
    require_flag,
    require_seconds,
    require_type,
)
from pagefile.store.batch import Append, Batch, Put, Selector, Vector, VersionIs
from pagefile.store.codec.vector import no_vectors, require_numbers, require_vector
from pagefile.store.commit.committer import Committer
from pagefile.store.commit.erasure import Rehearsed, receipt_of
from pagefile.store.commit.idempotency import require_same_content
from pagefile.store.commit.preparation import Preparer
from pagefile.store.commit.rules import batched, unfinished_copy
from pagefile.store.engine import (
    DOCUMENT,
    Engine,
    Instant,
    KeepsVectors,
    Lone,
    Near,
    Prepared,
    Sealed,
    TakesLone,
)
from pagefile.store.log.audit import verify
from pagefile.store.reads import Reading
from pagefile.store.records import (
    Action,
    Commit,
    Document,
    Entry,
    Head,
    Problem,
    Receipt,
    Report,
    Stats,
)

_MOST_ASKED = 1_000_000


class VectorKeeping:
    """The part of `Store` that is about vectors; what they are of is not its business."""

    _engine: Engine
    _tenant: str
    _naming: Naming

    @property
    def vectors(self) -> str:
        """What keeps vectors in the commit of their entries, by name; "" where nothing does."""
        return kept_by(self._engine)

    @property
    def no_vectors(self) -> str:
        """Why none are kept, and what would change that; "" where they are, or never can be."""
        keeper = _keeper_of(self._engine)
        return "" if keeper is None else keeper.no_vectors

    def keep_vectors(self) -> None:
        """Keep vectors with their entries from now on, for every tenant of this store.

        Handles that are opened later do so by themselves.

        Raises:
            Unsupported: the engine or its server cannot.
            Forbidden: this user may not make it so.
        """
        keeper = _keeper_of(self._engine)
        if keeper is None:
            raise Unsupported(
                f"the engine {self._engine.name} keeps no vectors with the data",
                "use a store on PostgreSQL, or PgvectorArm('postgresql://…') beside this one",
            )
        keeper.keep_vectors()

    def nearest(self, log: str, query: bytes, count: int, numbers: Sequence[int] = ()) -> Near:
        """The `count` nearest of a log's vectors, best first, and the cosines of some entries.

        All vectors of the log are compared, and those of no other. `query` is as
        `Vector.numbers`. Entries without a vector are left out.
        """
        self._naming.check_text("log", log)
        if type(query) is not bytes:
            raise Invalid("query", shown(query), "give bytes of float32, little endian")
        require_numbers(query)
        require_count(count, "count", 0, _MOST_ASKED)
        return self._kept().nearest(self._tenant, log, query, count, numbers)

    def vector_numbers(self, log: str, first: int = 0) -> list[int]:
        """Which entries of a log, from `first` on, have a vector; in no order."""
        self._naming.check_text("log", log)
        require_count(first, "first")
        return self._kept().vector_numbers(self._tenant, log, first)

    def fill_vectors(self, log: str, vectors: Mapping[int, Vector]) -> None:
        """Give vectors to entries that came without: by their number, if they are still there.

        For what was stored before the store kept vectors, or copied into it. A slot
        that has a vector keeps it.
        """
        self._naming.check_text("log", log)
        for number, vector in vectors.items():
            require_count(number, "number")
            require_numbers(require_vector(vector).numbers)
        if vectors:
            self._kept().fill_vectors(self._tenant, log, vectors)

    def remove_vectors(self, log: str, numbers: Sequence[int]) -> None:
        """Let vectors go whose entries were replaced by somebody who knew of no vectors."""
        self._naming.check_text("log", log)
        for number in numbers:
            require_count(number, "number")
        if numbers:
            self._kept().remove_vectors(self._tenant, log, numbers)

    def _kept(self) -> KeepsVectors:
        keeper = _keeper_of(self._engine)
        if keeper is None or not keeper.vectors:
            raise no_vectors()
        return keeper


def kept_by(engine: Engine) -> str:
    """What keeps vectors behind an engine, by name; "" where nothing does."""
    keeper = _keeper_of(engine)
    return "" if keeper is None else keeper.vectors


#: Whether engines of a kind can: asking a protocol takes longer than preparing an entry.
_KINDS: dict[type[Engine], bool] = {}


def _keeper_of(engine: Engine) -> KeepsVectors | None:
    kind = type(engine)
    if kind not in _KINDS:
        _KINDS[kind] = isinstance(engine, KeepsVectors)
    return cast("KeepsVectors", engine) if _KINDS[kind] else None


_T = TypeVar("_T")
_UPDATE_ATTEMPTS = 1_000
_DRY_RUN = "nothing was erased: this was a dry run"
_SCRUB_LATER = "old pages are not overwritten yet, as asked: the next erase with scrub does it"


class Store(Reading, VectorKeeping):
    """Logs and documents of one tenant.

    Every engine keeps these promises, or declares by name which it does not;
    `pagefile.testing` has tests for each, found by its number.

    S1  Atomic: a reader or a crash never shows part of a batch.
    S2  Ordered: log indexes and tenant positions are gapless, assigned by the
        store, the same for every reader, under any number of writers. Commits
        of one tenant are serial, batching amortises them; tenants are parallel,
        save that those of one file share its writer and its syncs.
    S3  Conditional: of two batches expecting the same version or length, exactly
        one commits; the other gets `Conflict` with the current number and
        nothing of it is stored. Appends without a condition never conflict.
    S4  Durable: once `commit` returns, `kill -9` cannot lose it; at level
        `power`, the default for files, neither can a power cut. The engine
        states the level it has; nothing weakens it silently.
    S5  Isolated: no data, count, name, limit, order or ranking statistic of
        another tenant is observable through this handle, nor of another user in
        a call for one user; waiting for the engine's lock is bounded and fair.
    S6  Read-your-writes, and consistent reads at a past position.
    S7  Idempotent: every batch has a key (made if not given), kept for a stated
        time that one wrong clock does not shorten, and commits once; a repeat
        returns the first `Commit`; the same key with other content is an error.
    S8  Bounded: limits (entries of a log, bytes of an entry, documents, size of
        a batch) are enforced inside the commit, never passed by a race.
    S9  Erasable: `erase` removes content, its secondary keys and vectors, and of
        a user also the search index; what stays is a salted digest whose salt is
        gone, so the hash chain still verifies. The receipt lists what was
        removed and how far: `bytes`, free pages and journals too, or `logical`,
        nothing that can be read, with the steps that finish it. The engine
        states the level it has.
    S10 Verifiable: each commit carries a digest over its content digests and
        the commit before; `verify` finds any change, deletion or reordering and
        says where; against a head kept elsewhere also a cut-off tail or a
        rewritten chain. Content digests are made by who commits, before it
        reaches the engine, and cover no number that the store assigns.
    S11 Recoverable: after any crash the store opens by itself, drops at most
        what was never acknowledged, and `check` is clean.

    Not promised: an order between tenants, or that a handle opened before a
    fork of the process works in the child (it is refused there).
    """

    def __init__(
        self, engine: Engine, committer: Committer, preparer: Preparer, tenant: str
    ) -> None:
        super().__init__(engine, preparer, tenant)
        self._committer = committer
        self._preparer = preparer
        preparer.takes_vectors = lambda: bool(kept_by(engine))
        self._instant: Instant | None = None
        if engine.instant:
            assert isinstance(engine, Instant)
            self._instant = engine
        self._takes_lone = isinstance(engine, TakesLone)
        #: A position this tenant is known to have reached; made keys carry it.
        self._reached = 0
        # A damaged store opens, so that `verify` and `check` can say what is damaged.
        with suppress(Corrupt):
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
        return self._committed(batch, self._answer)

    def validate(self, batch: Batch) -> None:
        """Refuse a batch that no commit takes, whatever is stored; stores nothing.

        Raises:
            Invalid: something in it breaks a rule. LimitExceeded: it is too large.
        """
        self._preparer.prepare(Batch(batch.operations, batch.when, batch.key), self._reached)

    async def commit_async(self, batch: Batch) -> Commit:
        """`commit` for a running event loop, which it never blocks."""
        return await self._committed_async(batch, self._answer)

    def append(self, operation: Append) -> Entry:
        """Commit one append and nothing else; return the entry as it is stored.

        The same as `commit_entries` of a batch with this operation, and cheaper
        where commits take microseconds.
        """
        instant = self._instant
        if instant is None:
            return self.commit_entries(Batch([operation]))[0]
        one = self._preparer.prepare_one(operation, self._reached)
        position, time_us, index = instant.append_one(self._tenant, one)
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
        return self._committed(batch, self._appended)

    async def commit_entries_async(self, batch: Batch) -> list[Entry]:
        """`commit_entries` for a running event loop, which it never blocks."""
        return await self._committed_async(batch, self._appended)

    def update(
        self, document: str, change: Callable[[Any], Any], *, attempts: int = _UPDATE_ATTEMPTS
    ) -> Commit:
        """Read, change and put a document, again and again until nobody was faster.

        `change` gets the current value (None when there is none) and returns the
        next. It may run several times, so it must not do anything else. User,
        kind, actor, sources, keys and notes stay as they were.
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

    # Keeping

    def erase(
        self,
        selector: Selector | Sequence[Selector],
        *,
        beside: Batch | None = None,
        dry_run: bool = False,
        scrub: bool = True,
        timeout: float = 5.0,
    ) -> Receipt:
        """Remove content for good, in one commit; say what went, and how far.

        Several selectors take together what each takes, and an empty list nothing.
        `beside` holds operations and conditions of the same commit; what it writes
        is not erased.

        On a file, the last traces go when it is written again, which takes time
        in proportion to its size; to erase many users, pass scrub=False for all
        but the last. `timeout` bounds the wait for others who hold old pages;
        if they outlast it, the receipt says `logical` and what remains to do.
        The store remembers that, and the next erase does it, even one that
        finds nothing to remove.

        Raises:
            Conflict: a condition of `beside` does not hold; nothing was erased.
        """
        selectors = [selector] if isinstance(selector, Selector) else selector
        if not isinstance(selectors, (list, tuple)):
            raise Invalid("selector", shown(selector), "give a pagefile.Selector, or a list")
        if beside is not None:
            require_type("beside", beside, Batch)
            if beside.key:
                raise Invalid("beside.key", shown(beside.key), "leave it out: erase() makes one")
        require_flag("dry_run", dry_run)
        require_flag("scrub", scrub)
        require_seconds(timeout)
        prepared = self._preparer.prepare_erasure(
            selectors, beside, self._reached, rehearse=dry_run
        )
        try:
            sealed = self._committer.commit(self._tenant, prepared)
        except Rehearsed as rehearsed:
            if dry_run:
                return receipt_of(None, rehearsed.wiped, (_DRY_RUN,))
            # Nothing matched; what an earlier removal left is still to be done.
            return receipt_of(None, (), self._scrubbed(timeout, now=scrub))
        return receipt_of(sealed.commit.position, sealed.erased, self._scrubbed(timeout, now=scrub))

    def _scrubbed(self, timeout: float, *, now: bool) -> tuple[str, ...]:
        """What is left of all that was removed so far, after another attempt if it is to be now."""
        try:
            if not self._engine.owes(self._tenant):
                return ()
        except PagefileError as failure:
            # The erasure itself is committed: no reason to raise.
            return (f"whether old pages are left is not known ({failure.fact}): erase again",)
        return self._committer.scrub(self._tenant, timeout) if now else (_SCRUB_LATER,)

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
        try:
            found = self._engine.head(self._tenant)
        except Corrupt as damage:
            return Report(0, 0, (*problems, Problem(None, damage.fact)), Head(0, b""))
        position, unfinished = found.position, found.unfinished
        if unfinished:
            problems += (Problem(position, str(unfinished_copy(position, unfinished))),)
        return Report(position, 0, problems, Head(position, found.digest), unfinished)

    def stats(self) -> Stats:
        """Counts of this tenant, and what holds it."""
        head = self._engine.head(self._tenant)
        return Stats(
            self._engine.name,
            self._engine.durability,
            head.position,
            head.logs,
            head.documents,
            self.vectors,
            head.unfinished,
        )

    # Inside

    def _committed(self, batch: Batch, tell: Callable[[Batch, Prepared | Lone, Sealed], _T]) -> _T:
        prepared: Prepared | Lone | None = None
        if self._takes_lone:
            prepared = self._preparer.prepare_lone(batch, self._reached)
        if prepared is None:
            prepared = self._preparer.prepare(batch, self._reached)
        try:
            sealed = self._committer.commit(self._tenant, prepared)
        except Unavailable as failure:
            failure.key = batch.key
            raise
        return tell(batch, prepared, sealed)

    async def _committed_async(
        self, batch: Batch, tell: Callable[[Batch, Prepared | Lone, Sealed], _T]
    ) -> _T:
        prepared = self._preparer.prepare(batch, self._reached)
        try:
            sealed = await self._committer.submit(self._tenant, prepared)
        except Unavailable as failure:
            failure.key = batch.key
            raise
        if sealed.repeated:
            import asyncio

            # What a repeat is held against has to be read.
            return await asyncio.to_thread(tell, batch, prepared, sealed)
        return tell(batch, prepared, sealed)

    def _appended(self, batch: Batch, prepared: Prepared | Lone, sealed: Sealed) -> list[Entry]:
        commit = sealed.commit
        if sealed.repeated:
            self._answer(batch, prepared, sealed)
        elif commit.position > self._reached:
            self._reached = commit.position
        if type(prepared) is Lone and not sealed.repeated:
            log, index = prepared.log, sealed.indexes[0]
            return [Entry(commit.position, commit.time_us, prepared.content, log, index, log)]
        made: list[Entry] = []
        # Forks have an index too, and no entry.
        indexes = iter(sealed.indexes)
        for write in batched(prepared).writes:
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

    def _answer(self, batch: Batch, prepared: Prepared | Lone, sealed: Sealed) -> Commit:
        if sealed.repeated:
            require_same_content(self._engine, self._tenant, batched(prepared), sealed.commit)
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
        notes=current.notes,
    )
