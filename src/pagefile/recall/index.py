"""The search index of one tenant: what is added to it, what is asked of it, how it is made anew."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import NamedTuple, Protocol

import msgspec

from pagefile.errors import Conflict, Corrupt, NotFound, PagefileError, Unavailable
from pagefile.recall.arms.store_arm import vectors_beside
from pagefile.recall.arms.synchronizer import VectorStatus, keeper_of
from pagefile.recall.embed.embedder import Embedder, Guarded, embed_texts, packed, packed_units
from pagefile.recall.hit import Hit, Weights
from pagefile.recall.partition import PartitionIndex, TimeRange
from pagefile.recall.partition_cache import Shelf
from pagefile.recall.records import (
    DOCUMENT,
    NO_MODEL,
    REREAD,
    Catalogue,
    IndexEntry,
    Model,
    append_entry,
    before,
    decoded,
    entries_of,
    entry_of,
    generation_of,
    log_of,
    logs_of_index,
    mark_of,
    marks_of,
    mended_catalogue,
    read_catalogue,
    require_model,
    require_whole,
    settle_catalogue,
    told,
    write_catalogue,
)
from pagefile.recall.text.analysis import ANALYSIS_VERSION
from pagefile.store.batch import (
    Batch,
    Condition,
    Drop,
    LengthIs,
    Operation,
    Prune,
    Selector,
    VersionIs,
)
from pagefile.store.snapshot import Snapshot
from pagefile.store.store import Store

_DEFAULT = Weights()


class Findable(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Something that can be found: the name of its document, and what to find it by."""

    key: str
    kind: str
    text: str
    speaker: str = ""
    #: Read from the text, which still holds it.
    guessed: bool = False
    session: str = ""
    time_us: int = 0
    status: str = ""
    scope: str = ""
    #: As it was given; or as it is kept, when it was given before.
    vector: Sequence[float] | bytes | None = None


class Place(NamedTuple):
    """Where a thing stands in a log, and the vector that was given with it, fit for this model."""

    at: int
    vector: bytes | None


class Source(msgspec.Struct, frozen=True):
    """A thing to be indexed anew: whose it is, and the version it was read at."""

    user: str | None
    whose: str
    version: int
    thing: Findable


class SearchIndex:
    """What a tenant's memories are found by, derived from them and rebuilt from them.

    Without an embedder the lexical arm stands alone. An index that another model
    made is refused, for writing and for searching, until it is rebuilt (`Rebuilding`).
    """

    def __init__(self, store: Store, embedder: Embedder | None, shelf: Shelf) -> None:
        self._store = store
        self._shelf = shelf
        self.embedder = embedder
        #: Sees to vectors that are compared elsewhere than in this process.
        self.keeper = keeper_of(store, shelf)
        self._lock = threading.Lock()
        self._held: Catalogue | None = None
        #: The catalogue as it was last read, and the store's stamp before that.
        self._read: tuple[int | None, Catalogue | None] = (None, None)

    @property
    def model(self) -> Model:
        """What entries are made with here."""
        if self.embedder is None:
            return Model(NO_MODEL, 0, ANALYSIS_VERSION)
        return Model(self.embedder.name, self.embedder.dimensions, ANALYSIS_VERSION)

    @property
    def is_settled(self) -> bool:
        """Whether something can be added without reading first what the index is made with."""
        return self._held is not None

    # Writing

    def require_ready(self) -> None:
        """Refuse while nothing could be added; for who pays for what is to be added.

        Raises:
            Unsupported: another model made the index. Unavailable: the embedder fails.
        """
        self._catalogue()
        if self.embedder is not None:
            embed_texts(Guarded(self.embedder), ["ready"])

    def analysed(self, things: Sequence[Findable]) -> list[IndexEntry]:
        """What the index will keep of these; the only slow step, so it comes before a commit."""
        vectors = self._vectors(things)
        return [
            entry_of(
                key=thing.key,
                kind=thing.kind,
                text=thing.text,
                speaker=thing.speaker,
                guessed=thing.guessed,
                session=thing.session,
                time_us=thing.time_us,
                status=thing.status,
                scope=thing.scope,
                vector=vector,
                brought=thing.vector is not None and bool(vector),
            )
            for thing, vector in zip(things, vectors, strict=True)
        ]

    def operations(
        self, user: str | None, whose: str, entries: Sequence[IndexEntry]
    ) -> tuple[list[Operation], list[Condition]]:
        """What makes these findable, for the commit that stores them, and its condition.

        When that commit meets a `Conflict` about `recall-model`, call `refresh`
        and ask again.
        """
        catalogue = self._catalogue()
        log = log_of(catalogue.generation, whose)
        operations = self.appends(catalogue, log, [user] * len(entries), entries)
        if catalogue.making and operations:
            operations.append(mark_of(catalogue.making))
        return operations, [catalogue.unchanged]

    def appends(
        self,
        catalogue: Catalogue,
        log: str,
        users: Sequence[str | None],
        entries: Sequence[IndexEntry],
    ) -> list[Operation]:
        """The entries, with their vectors where the store keeps those in the same commit."""
        vectors = vectors_beside(self._store, entries, catalogue.model.dimensions)
        return [
            append_entry(log, entry, user, vector)
            for entry, user, vector in zip(entries, users, vectors, strict=True)
        ]

    def erasure(
        self, user: str | None, whose: str, keys: Collection[str] | None
    ) -> tuple[list[Selector], list[Operation], list[Condition]]:
        """What erases these from the index: the entries to erase, what goes beside, and when.

        None is the whole partition. Whoever has it in memory reads it again.
        """
        catalogue = self._any()
        if catalogue is None:
            return [], [], []
        selectors: list[Selector] = []
        again: list[Operation] = []
        when: list[Condition] = [catalogue.unchanged]
        for log in self._logs(catalogue, whose):
            # Who makes the index anew adds to it, or begins it, without anything else changing.
            length = self._store.length(log)
            when.append(LengthIs(log, length))
            if not length:
                continue
            if keys is None:
                selectors.append(Selector(log=log))
            elif numbers := self._shelf.numbers(log, frozenset(keys)):
                selectors.append(Selector(log=log, numbers=numbers))
                again.append(append_entry(log, IndexEntry(key="", kind=REREAD), user))
        return selectors, again, when

    def _logs(self, catalogue: Catalogue, whose: str) -> list[str]:
        """The logs that a partition may have; others stay until a rebuilding is done."""
        oldest = catalogue.generation if catalogue.is_alone else 1
        newest = max(catalogue.generation, catalogue.making)
        return [log_of(number, whose) for number in range(oldest, newest + 1)]

    def refresh(self, conflict: Conflict) -> bool:
        """Whether the conflict was about the index; the next call reads it anew."""
        if conflict.target != DOCUMENT:
            return False
        self._held = None
        return True

    def _vectors(self, things: Sequence[Findable]) -> list[bytes]:
        embedder = self.embedder
        if embedder is None:
            return [b""] * len(things)
        missing = [
            told(thing.text, "" if thing.guessed else thing.speaker)
            for thing in things
            if thing.vector is None and thing.text.strip()
        ]
        made = iter(embed_texts(Guarded(embedder), missing) if missing else ())
        vectors: list[bytes] = []
        brought = [thing.vector for thing in things if thing.vector is not None]
        given = iter(_kept_or_packed(brought, embedder.dimensions))
        for thing in things:
            if thing.vector is not None:
                vectors.append(next(given))
            else:
                vectors.append(packed(next(made)) if thing.text.strip() else b"")
        return vectors

    # Asking

    def search(
        self,
        whose: str,
        query: str,
        *,
        limit: int,
        kinds: Sequence[str] | None = None,
        session: str | None = None,
        exclude_session: str | None = None,
        statuses: Sequence[str] | None = None,
        scope: str | None = None,
        time_range: TimeRange | None = None,
        now_us: int | None = None,
        also: str = "",
        weights: Weights | None = None,
        explain: bool = True,
        stamp: int | None = None,
    ) -> list[Hit]:
        """What is found, best first; nothing where nothing was ever indexed.

        `stamp` is the store's, of who has taken it for reading more than this.
        """

        def ask(partition: PartitionIndex) -> list[Hit]:
            return partition.search(
                query,
                vector=None if self.embedder is None else Guarded(self.embedder),
                limit=limit,
                kinds=kinds,
                session=session,
                exclude_session=exclude_session,
                statuses=statuses,
                scope=scope,
                time_range=time_range,
                now_us=now_us,
                also=also,
                weights=_DEFAULT if weights is None else weights,
                explain=explain,
            )

        return self._answer(whose, ask, stamp)

    def _answer(
        self, whose: str, ask: Callable[[PartitionIndex], list[Hit]], stamp: int | None
    ) -> list[Hit]:
        partition = self._partition(whose, stamp=stamp)
        return [] if partition is None else ask(partition)

    def counts(self, whose: str) -> dict[str, int]:
        """How many of each kind can be found in a partition."""
        partition = self._partition(whose, any_model=True)
        return {} if partition is None else partition.counts()

    def vector_status(self, whose: str) -> VectorStatus:
        """Where a partition's vectors are; in this process where no arm is beside the store."""
        if self.keeper is not None:
            return self.keeper.status(whose)
        partition = self._partition(whose, any_model=True)
        count = 0
        if partition is not None:
            with partition.vectors() as vectors:
                count = len(vectors)
        return VectorStatus(arm="memory", indexed=count, waiting=0)

    def recent_sessions(self, whose: str, kind: str, limit: int) -> list[str]:
        """The sessions of a kind with the newest entries, newest first."""
        partition = self._partition(whose, any_model=True)
        return [] if partition is None else partition.recent_sessions(kind, limit)

    def texts(self, whose: str, kind: str) -> dict[str, list[str]]:
        """The terms of everything of a kind in a partition, by its time; reads its log."""
        catalogue = self._any()
        while catalogue is not None:
            found = self._last_entries(log_of(catalogue.generation, whose), kind)
            # Its log was read page by page: it may have been dropped in between.
            read, catalogue = catalogue, self._any()
            if catalogue is not None and catalogue.generation == read.generation:
                by_time = sorted(found, key=lambda entry: entry.time_us)
                return {entry.key: entry.text.split() for entry in by_time}
        return {}

    def _last_entries(self, log: str, kind: str) -> list[IndexEntry]:
        """The last entry of each thing of a kind."""
        found: dict[str, IndexEntry] = {}
        for stored in entries_of(self._store, log):
            if stored.erased:
                continue
            entry = decoded(stored)
            if entry.gone or entry.kind != kind:
                found.pop(entry.key, None)
            else:  # Stored anew it keeps its place among those of the same time.
                found[entry.key] = entry
        return list(found.values())

    def places(self, catalogue: Catalogue, whose: str, since: int = 0) -> dict[str, Place]:
        """Where in its log of a generation each thing was last named after a position, at least."""
        found: dict[str, Place] = {}
        held, own = catalogue.model, self.model
        is_same = (held.name, held.dimensions) == (own.name, own.dimensions)
        log = log_of(catalogue.generation, whose)
        for stored in entries_of(self._store, log, before(self._store, log, since)):
            # What cannot be read is in no order; it is about to be made anew.
            with suppress(Corrupt):
                if not stored.erased:
                    entry = decoded(stored)
                    vector = entry.vector if is_same and entry.brought else None
                    found[entry.key] = Place(stored.index, vector)
        return found

    def _partition(
        self, whose: str, *, any_model: bool = False, stamp: int | None = None
    ) -> PartitionIndex | None:
        if stamp is None:
            # Before anything is read: whatever comes after it is found out by the next call.
            stamp = self._store._stamp()
        while (catalogue := self._any(stamp) if any_model else self._known(stamp)) is not None:
            partition = self._shelf.partition(catalogue, whose, stamp)
            if partition is not None:
                return partition
            stamp = self._store._stamp()
        return None

    # Keeping

    def in_force(self, catalogue: Catalogue) -> Catalogue:
        """Take it for what holds, as whoever stored it knows."""
        self._held = catalogue
        return catalogue

    def _any(self, stamp: int | None = None) -> Catalogue | None:
        """The catalogue whatever made the index: for counting and erasing, which must not fail."""
        read, held = self._read
        if stamp is None or stamp != read:
            held = read_catalogue(self._store)
            self._read = stamp, held
        return held

    def _known(self, stamp: int | None = None) -> Catalogue | None:
        """The catalogue, if there is an index; another model's, or half of one, is refused."""
        held = self._held = self._any(stamp)
        if held is not None:
            require_model(held, self.model)
            require_whole(held)
        return held

    def _catalogue(self) -> Catalogue:
        with self._lock:
            if self._held is None:
                self._held = settle_catalogue(self._store, self.model)
            else:
                require_model(self._held, self.model)
            return self._held


def _kept_or_packed(vectors: Sequence[Sequence[float] | bytes], dimensions: int) -> Sequence[bytes]:
    """Vectors as they are kept; those that were kept before stay as they are."""
    if bytes not in map(type, vectors):
        return packed_units(vectors, dimensions)
    return [
        vector if isinstance(vector, bytes) else packed_units([vector], dimensions)[0]
        for vector in vectors
    ]


# The search index as it was at a position: the same question finds the same again.


class PastIndex(SearchIndex):
    """Answers from what was indexed up to a position, and from nothing later.

    At the newest position that is the index in memory. For an older one the
    user's log is folded anew, which takes time in proportion to what is kept of
    the user. An index that was rebuilt since is gone, and finds nothing.
    """

    def __init__(self, past: Snapshot, embedder: Embedder | None, shelf: Shelf) -> None:
        super().__init__(past, embedder, shelf)
        self._past = past

    @property
    def is_kept(self) -> bool:
        """Whether the index of that time can be asked here: with this model, not made anew."""
        then, now = self._any(), read_catalogue(self._past.live)
        if then is None:
            return True
        return now is not None and now.generation == then.generation and then.model == self.model

    def _answer(
        self, whose: str, ask: Callable[[PartitionIndex], list[Hit]], stamp: int | None
    ) -> list[Hit]:
        catalogue = self._known()
        if catalogue is None:
            return []
        while True:
            partition, is_same = self._shelf.partition_at(catalogue, whose, self._past)
            found = ask(partition)
            # Something was indexed while we asked: then it is no longer the newest, and read anew.
            if is_same():
                return found


# The index made anew, beside the one in force, which serves until the new one is whole.
#
# 1. The catalogue says which generation is being made. What is in force is searched and
#    added to as before, by handles of its own model; each addition leaves a mark.
# 2. Everything is indexed into the new generation, then what was stored meanwhile, until
#    no mark was left while that was done.
# 3. In that moment the catalogue says that the new one is in force: whoever adds from now
#    on adds to it. The old one is dropped.
#
# Cut off before 3, nothing has changed for anybody. Doing it again begins with another generation.


#: How many things are embedded and committed at once.
_BATCH = 200
_CHANGES = 1_000
#: How often what was stored meanwhile is added before the old index goes, where somebody
#: stores without a pause. Each time it is less.
_ROUNDS = 100
_AS_BEFORE = "the index is as it was before: mend that, and call reindex() again"
_NOT_WHOLE = "the new index is in force without what was stored last: call reindex() again"

Progress = Callable[[int], None]


class Sources(Protocol):
    """Whatever can be found, in the order in which the index `held` has it."""

    def all(self, held: Catalogue) -> Iterable[Source]:
        """Everything of every user, partition by partition."""
        ...

    def named(self, documents: Sequence[str], held: Catalogue, since: int) -> Iterable[Source]:
        """What documents that were put after a position are found by, partition by partition.

        Many are found by nothing.
        """
        ...


class Rebuilding:
    """Makes the index of a tenant anew, with the model of a handle."""

    def __init__(self, store: Store, index: SearchIndex, shelf: Shelf, sources: Sources) -> None:
        self._store = store
        self._index = index
        self._shelf = shelf
        self._sources = sources
        #: What to do when the embedder fails.
        self._step = _AS_BEFORE

    def run(self, progress: Progress | None = None) -> int:
        """Do it; return how many were indexed.

        Raises:
            Unavailable: the embedder fails; it says what is in force.
            Conflict: somebody else began the same meanwhile, and goes on.
        """
        try:
            return self._run(progress)
        except Conflict as conflict:
            if conflict.target != DOCUMENT:
                raise
            # Nothing else changes the catalogue.
            raise Conflict(
                "another reindex() was begun after this one, and has taken its place",
                "wait until that one is done: calling it again would end that one",
                target=conflict.target,
                expected=conflict.expected,
                current=conflict.current,
            ) from conflict

    def _run(self, progress: Progress | None) -> int:
        index, store = self._index, self._store
        if index.keeper is not None:
            # Before anything is changed: it may hold another model's vectors.
            index.keeper.require_room(index.model)
        held = self._held()
        making = max(held.generation, held.making) + 1
        begun = write_catalogue(store, msgspec.structs.replace(held, making=making))
        fresh = Catalogue(index.model, making, leaving=held.generation, version=begun.version)
        try:
            since = self._position()
            count = self._indexed(fresh, self._sources.all(held), progress)
            in_force, since = self._put_in_force(fresh, held, since)
        except (Exception, KeyboardInterrupt):
            self._give_up(begun)
            raise
        index.in_force(in_force)
        self._step = _NOT_WHOLE
        # Nobody can add to the old one any more. Who stored without a pause has added to it
        # until now, and so has who leaves no marks, being of an earlier version.
        self._caught_up(in_force, held, since, self._position())
        self._drop(lambda generation: generation < making)
        self._shelf.forget()
        with suppress(Conflict):  # Another one was begun since: it drops this one in its turn.
            index.in_force(write_catalogue(store, msgspec.structs.replace(in_force, leaving=0)))
        if progress is not None:
            progress(count)
        return count

    def _held(self) -> Catalogue:
        """What there is before."""
        try:
            return read_catalogue(self._store) or settle_catalogue(self._store, self._index.model)
        except Corrupt:
            # What it said is lost. The names of logs say which generations there are.
            found = map(generation_of, logs_of_index(self._store))
            return mended_catalogue(self._store, max(found, default=1))

    def _put_in_force(self, fresh: Catalogue, held: Catalogue, since: int) -> tuple[Catalogue, int]:
        """Add what was stored meanwhile, and let it take over once there is no more.

        Also returned is up to which position all was added.
        """
        marks = marks_of(fresh.generation)
        for left in reversed(range(_ROUNDS)):
            length = self._store.length(marks)
            since = self._caught_up(fresh, held, since)
            ended: list[Operation] = [Prune(None, log=marks), Drop(marks)] if length else []
            when = [LengthIs(marks, length)] if left else []
            try:
                in_force = write_catalogue(self._store, fresh, ended, when)
                break
            except Conflict as conflict:
                if conflict.target != marks:
                    raise
        return in_force, since

    def _give_up(self, begun: Catalogue) -> None:
        """Leave nothing of it behind; where that fails too, the next one does it."""
        with suppress(PagefileError):
            # First: what is forgotten from then on is looked for in no other generation.
            self._drop(lambda generation: generation > begun.generation, [begun.unchanged])
            ended = write_catalogue(self._store, msgspec.structs.replace(begun, making=0))
            # The marks that were left in between.
            self._drop(lambda generation: generation > begun.generation, [ended.unchanged])

    def _position(self) -> int:
        """Where the catalogue was last changed: all that follows comes after it."""
        found = self._store.get(DOCUMENT)
        return 0 if found is None else found.position

    def _indexed(
        self, catalogue: Catalogue, sources: Iterable[Source], progress: Progress | None = None
    ) -> int:
        count = 0
        batch: list[Source] = []
        for source in sources:
            if batch and (batch[-1].whose != source.whose or len(batch) == _BATCH):
                count += self._added(catalogue, batch)
                batch = []
                if progress is not None:
                    progress(count)
            batch.append(source)
        return count + self._added(catalogue, batch)

    def _caught_up(
        self, catalogue: Catalogue, held: Catalogue, since: int, until: int | None = None
    ) -> int:
        """Index what was stored after a position, up to another or about now; how far that is."""
        while until is None or since < until:
            changes = self._store.changes(since, limit=_CHANGES)
            put = {
                one.name: None
                for change in changes
                for one in change.touched
                if one.name is not None and (one.stream, one.action) == ("document", "put")
            }
            self._indexed(catalogue, self._sources.named(list(put), held, since))
            since = changes[-1].position if changes else since
            if len(changes) < _CHANGES:
                break
        return since

    def _added(self, catalogue: Catalogue, batch: Sequence[Source]) -> int:
        if not batch:
            return 0
        try:
            entries = self._index.analysed([source.thing for source in batch])
        except Unavailable as failure:
            raise Unavailable(failure.fact, self._step) from failure
        try:
            self._commit(catalogue, batch, entries)
        except Conflict as conflict:
            if conflict.target == DOCUMENT:
                raise
            # What was changed meanwhile is caught up with later; what was removed is gone.
            for source, entry in zip(batch, entries, strict=True):
                try:
                    self._commit(catalogue, [source], [entry])
                except Conflict as one:
                    if one.target == DOCUMENT:
                        raise
        return len(batch)

    def _commit(
        self, catalogue: Catalogue, sources: Sequence[Source], entries: Sequence[IndexEntry]
    ) -> None:
        log = log_of(catalogue.generation, sources[0].whose)
        unchanged = [VersionIs(source.thing.key, source.version) for source in sources]
        users = [source.user for source in sources]
        operations = self._index.appends(catalogue, log, users, entries)
        self._store.commit(Batch(operations, [catalogue.unchanged, *unchanged]))

    def _drop(self, is_meant: Callable[[int], bool], when: Sequence[Condition] = ()) -> None:
        """End the logs of some generations."""
        for log in logs_of_index(self._store):
            if is_meant(generation_of(log)):
                # Erased with its user, or dropped by another who rebuilds.
                with suppress(NotFound):
                    # Pruned first: derived content has no past that anybody asks for.
                    self._store.commit(Batch([Prune(None, log=log)], when))
                    self._store.commit(Batch([Drop(log)], when))
