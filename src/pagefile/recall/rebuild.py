"""The index made anew, beside the one in force, which serves until the new one is whole.

1. The catalogue says which generation is being made. What is in force is searched and
   added to as before, by handles of its own model; each addition leaves a mark.
2. Everything is indexed into the new generation, then what was stored meanwhile, until
   no mark was left while that was done.
3. In that moment the catalogue says that the new one is in force: whoever adds from now
   on adds to it. The old one is dropped.

Cut off before 3, nothing has changed for anybody. Doing it again begins with another generation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Protocol

import msgspec

from pagefile.errors import Conflict, Corrupt, NotFound, PagefileError, Unavailable
from pagefile.recall.index import SearchIndex, Source
from pagefile.recall.partition_cache import Shelf
from pagefile.recall.records import (
    DOCUMENT,
    Catalogue,
    IndexEntry,
    generation_of,
    log_of,
    logs_of_index,
    marks_of,
    mended_catalogue,
    read_catalogue,
    settle_catalogue,
    write_catalogue,
)
from pagefile.store.batch import Batch, Condition, Drop, LengthIs, Operation, Prune, VersionIs
from pagefile.store.store import Store

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
