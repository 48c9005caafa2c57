"""Keeping a vector arm in step with the index logs, once or from a thread.

The arm follows the logs: everything that is in them up to an entry is put in,
then the mark says so, then what has died since is taken out. Killed anywhere,
the next one goes on from the last mark; doing anything twice changes nothing.
When the arm's count is not what it should be, both sides are compared id by id.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import islice
from typing import ClassVar, Protocol

import msgspec

from pagefile.errors import Forbidden, PagefileError, Unavailable, Unsupported
from pagefile.recall.arms.arm import Mark, Part, VectorArm, VectorLog
from pagefile.recall.arms.remote_vectors import ArmRows
from pagefile.recall.arms.store_arm import KeptVectors, vectors_of
from pagefile.recall.partition_cache import Resident, Shelf
from pagefile.recall.records import (
    NO_MODEL,
    REREAD,
    Catalogue,
    Model,
    decoded,
    entries_of,
    log_of,
    read_catalogue,
)
from pagefile.settings import Settings
from pagefile.store.arguments import require_seconds
from pagefile.store.batch import Vector
from pagefile.store.codec.vector import MOST_DIMENSIONS
from pagefile.store.store import Store
from pagefile.store.threads import Rounds

#: How many ids are let go at once.
_DELETED = 5_000

#: Whether to go no further; asked before each request that puts vectors in.
Cancelled = Callable[[], bool]


class _Stopped(Exception):
    """It was told to go no further. The next one goes on from the last mark."""


def never() -> bool:
    return False


def owners_of(store: Store, catalogue: Catalogue) -> Iterator[str]:
    """Of whom something is indexed, in order."""
    prefix = log_of(catalogue.generation, "")
    after = ""
    while names := store.names("log", prefix=prefix, after=after, limit=1_000):
        yield from (name.removeprefix(prefix) for name in names)
        after = names[-1]


class VectorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Where one user's vectors are.

    `indexed` are in the arm; `waiting` entries of the index log are not looked at
    by it yet, and are compared in this process meanwhile.
    """

    arm: str
    indexed: int
    waiting: int


class Keeper(Protocol):
    """Who sees to it that vectors are where they are compared; see `ArmKeeper`."""

    @property
    def lags(self) -> bool:
        """Whether they come after the commit, so that somebody has to follow."""
        ...

    def require_room(self, model: Model) -> None: ...
    def status(self, whose: str) -> VectorStatus: ...
    def sync_all(
        self, progress: Callable[[int], None] | None = None, cancelled: Cancelled = never
    ) -> int: ...
    def erased(self, whose: str, *, whole: bool) -> str: ...


class ArmKeeper:
    """Keeps the arm of one tenant up to date; any number of processes may do so at once."""

    lags: ClassVar[bool] = True

    def __init__(self, store: Store, shelf: Shelf, arm: VectorArm) -> None:
        self._store = store
        self._shelf = shelf
        self.arm = arm

    def require_room(self, model: Model) -> None:
        """Refuse a model that the arm cannot take; make room for it otherwise.

        Raises:
            Unsupported: the arm holds another model's vectors.
            Unavailable: it does not answer.
        """
        if model.dimensions:
            self.arm.prepare(model.name, model.dimensions)

    def status(self, whose: str) -> VectorStatus:
        """How far the arm has come with one user."""
        catalogue = read_catalogue(self._store)
        part = self._part(catalogue, whose)
        if catalogue is None or not part.dimensions:
            return VectorStatus(arm=self.arm.name, indexed=0, waiting=0)
        log = VectorLog(self._store, part, catalogue.generation)
        mark = self.arm.mark(part)
        count = self.arm.count(part)
        seen = mark.seen if mark is not None and log.holds(mark) and count >= mark.count else 0
        waiting = max(0, log.length() - seen)
        return VectorStatus(arm=self.arm.name, indexed=count if seen else 0, waiting=waiting)

    def sync_all(
        self, progress: Callable[[int], None] | None = None, cancelled: Cancelled = never
    ) -> int:
        """Bring the arm up to date for every user; return how many vectors were put in."""
        catalogue = read_catalogue(self._store)
        living = set[str]()
        count = 0
        if catalogue is not None and catalogue.model.dimensions:
            self.require_room(catalogue.model)
            for whose in owners_of(self._store, catalogue):
                living.add(whose)
                try:
                    count += self._synced(catalogue, whose, cancelled)
                except _Stopped:
                    return count
                if progress is not None:
                    progress(count)
        # Of whom nothing is left in the store, nothing is left here.
        for whose in self.arm.owners(self._store.tenant):
            if whose not in living:
                self.arm.forget(self._part(catalogue, whose))
        return count

    def sync(self, whose: str) -> int:
        """Bring the arm up to date for one user; return how many vectors were put in."""
        catalogue = read_catalogue(self._store)
        if catalogue is None or not catalogue.model.dimensions:
            return 0
        self.require_room(catalogue.model)
        return self._synced(catalogue, whose)

    def erased(self, whose: str, *, whole: bool) -> str:
        """Take out what the store has erased of one user; what is left to do for that.

        The erasure is committed: an arm that does not answer is no reason to raise, but
        the receipt has to say it. Nothing else has to remember it: what the arm holds and
        the store does not is found by the next `sync_vectors`, follower or `reindex`, and
        by forgetting the same again.
        """
        try:
            catalogue = read_catalogue(self._store)
            part = self._part(catalogue, whose)
            if whole:
                self.arm.forget(part)
            elif catalogue is not None and part.dimensions and self.arm.count(part):
                self._reconciled(catalogue, whose)
        except Unavailable as failure:
            return (
                f"vectors may still be in {self.arm.name} ({failure.fact}): "
                "call sync_vectors() when it answers"
            )
        return (
            f"{self.arm.name} gives the vectors out no more; its files are rewritten when it "
            "tidies up, and its snapshots have to expire"
        )

    def _part(self, catalogue: Catalogue | None, whose: str) -> Part:
        model = Model(NO_MODEL, 0, 0) if catalogue is None else catalogue.model
        return Part(self._store.tenant, whose, model.name, model.dimensions)

    def _folded(self, catalogue: Catalogue, whose: str) -> tuple[Resident, set[bytes], Mark]:
        """A partition up to date, which vectors live in it, and the mark that says so."""
        resident = self._shelf.resident(catalogue, whose)
        with resident.lock:
            resident.catch_up(self._store)
            with resident.index.vectors() as rows:
                living = rows.living() if isinstance(rows, ArmRows) else set[bytes]()
            mark = Mark(catalogue.generation, resident.seen, resident.position, len(living))
        return resident, living, mark

    def _synced(self, catalogue: Catalogue, whose: str, cancelled: Cancelled = never) -> int:
        if cancelled():
            raise _Stopped
        resident, living, mark = self._folded(catalogue, whose)
        log = resident.vectors
        assert log is not None
        held = self.arm.mark(log.part)
        if held == mark and self.arm.count(log.part) == mark.count:
            self._hold_rest(resident, mark.seen)
            return 0
        if not log.holds(held):
            return self._reconciled(catalogue, whose, cancelled)
        assert held is not None
        count = self._put(log, held.seen, living, cancelled)
        self.arm.set_mark(log.part, mark)
        # What was forgotten while it was on its way is taken out again.
        _, now, _ = self._folded(catalogue, whose)
        self._delete(log.part, living - now)
        self._let_go(resident, log.part)
        if self.arm.count(log.part) != mark.count:
            return count + self._reconciled(catalogue, whose, cancelled)
        self._hold_rest(resident, mark.seen)
        return count

    def _reconciled(self, catalogue: Catalogue, whose: str, cancelled: Cancelled = never) -> int:
        """Make the arm hold what the log says, whatever it holds now."""
        part = self._part(catalogue, whose)
        # What is there first, what should be there second: whatever another process puts in
        # meanwhile is of entries that are folded here, and not taken for a leftover.
        there = self.arm.ids(part)
        resident, living, mark = self._folded(catalogue, whose)
        log = resident.vectors
        assert log is not None
        self._delete(part, there - living)
        missing = living - there
        count = self._put(log, 0, missing, cancelled) if missing else 0
        self.arm.set_mark(part, mark)
        self._hold_rest(resident, mark.seen)
        return count

    def _put(self, log: VectorLog, start: int, wanted: set[bytes], cancelled: Cancelled) -> int:
        count = 0
        for ids, vectors in log.vectors(start):
            if cancelled():
                raise _Stopped
            chosen = [n for n, one in enumerate(ids) if one in wanted]
            if chosen:
                self.arm.upsert(log.part, [ids[n] for n in chosen], vectors[chosen])
                count += len(chosen)
        return count

    def _let_go(self, resident: Resident, part: Part) -> None:
        with resident.index.vectors() as rows:
            dead = rows.take_dead() if isinstance(rows, ArmRows) else []
        self._delete(part, set(dead))

    def _delete(self, part: Part, ids: set[bytes]) -> None:
        gone = sorted(ids)
        for start in range(0, len(gone), _DELETED):
            self.arm.delete(part, gone[start : start + _DELETED])

    def _hold_rest(self, resident: Resident, seen: int) -> None:
        with resident.index.vectors() as rows:
            if isinstance(rows, ArmRows):
                rows.hold_from(seen)


# Keeping vectors that the store keeps itself: mostly there is nothing to do.
#
# They come with their entries and go with them. What is left are entries that came
# without: stored before the store kept vectors, or copied into it from elsewhere.


#: How many vectors are sent at once.
_AT_ONCE = 500


class KeptKeeper:
    """Fills in what the store's own vectors lack; any number of processes may do so at once."""

    #: Nothing has to be followed: a vector is there when its entry is.
    lags: ClassVar[bool] = False

    def __init__(self, store: Store) -> None:
        self._store = store

    def require_room(self, model: Model) -> None:
        """Refuse a model whose vectors are too long to be kept.

        Raises:
            Unsupported: they are.
        """
        if model.dimensions > MOST_DIMENSIONS:
            raise Unsupported(
                f"{self._store.vectors} keeps vectors of up to {MOST_DIMENSIONS} numbers, "
                f"not of {model.dimensions}",
                "embed with a model of fewer dimensions",
            )

    def status(self, whose: str) -> VectorStatus:
        """How many of one user's vectors are in the table, and how many entries came without."""
        catalogue = read_catalogue(self._store)
        there, living = set[int](), set[int]()
        if catalogue is not None and catalogue.model.dimensions:
            log = log_of(catalogue.generation, whose)
            there = set(self._store.vector_numbers(log))
            living = set(self._living(log).values())
        return VectorStatus(
            arm=self._store.vectors, indexed=len(living & there), waiting=len(living - there)
        )

    def sync_all(
        self, progress: Callable[[int], None] | None = None, cancelled: Cancelled = never
    ) -> int:
        """Give every user's entries the vectors they lack; return how many those were."""
        catalogue = read_catalogue(self._store)
        count = 0
        if catalogue is None or not catalogue.model.dimensions:
            return 0
        for whose in owners_of(self._store, catalogue):
            if cancelled():
                break
            count += self._synced(catalogue, whose)
            if progress is not None:
                progress(count)
        return count

    def erased(self, whose: str, *, whole: bool) -> str:
        """Nothing is left to do: they went in the commit that erased their entries."""
        return ""

    def _synced(self, catalogue: Catalogue, whose: str) -> int:
        log = log_of(catalogue.generation, whose)
        # What is there first, what should be there second: nothing new is taken for a leftover.
        there = set(self._store.vector_numbers(log))
        living = set(self._living(log).values())
        self._store.remove_vectors(log, sorted(there - living))
        missing = living - there
        if missing:
            found = self._vectors(log, missing, catalogue.model)
            while some := dict(islice(found, _AT_ONCE)):
                self._store.fill_vectors(log, some)
        return len(missing)

    def _living(self, log: str) -> dict[str, int]:
        """The last entry of each thing, where it has a vector."""
        found: dict[str, int] = {}
        for stored in entries_of(self._store, log):
            if stored.erased:
                continue
            entry = decoded(stored)
            if entry.vector and not entry.gone:
                found[entry.key] = stored.index
            elif entry.kind != REREAD:
                found.pop(entry.key, None)
        return found

    def _vectors(self, log: str, wanted: set[int], model: Model) -> Iterator[tuple[int, Vector]]:
        for stored in entries_of(self._store, log, min(wanted)):
            if stored.index in wanted and not stored.erased:
                yield stored.index, vectors_of([decoded(stored)], model.dimensions)[0]


def keeper_of(store: Store, shelf: Shelf) -> Keeper | None:
    """Who sees to vectors that are compared elsewhere than in this process; None where none are."""
    if isinstance(shelf.arm, KeptVectors):
        return KeptKeeper(store)
    return None if shelf.arm is None else ArmKeeper(store, shelf, shelf.arm)


# A thread that keeps the vector arm up to date, and ends when it is told to.


#: How long closing waits for the request under way; an arm's own requests end sooner.
CLOSE_SECONDS = 15.0


class VectorsFollowed(msgspec.Struct, frozen=True, kw_only=True):
    """How far the thread of `vectors_every` has come.

    `behind` commits were made since the ones it has looked at; 0 is up to date.
    `failure` is the error of the last round, "" when that went well; the next
    round tries again, and `is_running` says whether there will be one.
    """

    every_seconds: float
    rounds: int
    given: int
    behind: int
    failure: str
    is_running: bool


class VectorFollower(Rounds):
    """Does what `sync_vectors` does, every few seconds, when something was committed since.

    What the arm or the store refuses is kept and shown, and tried again. Any other
    error ends the thread, is shown, and is raised by `end`.
    """

    def __init__(self, store: Store, keeper: Keeper, every_seconds: float) -> None:
        super().__init__("pagefile-vectors", every_seconds, daemon=True)
        self._store = store
        self._keeper = keeper
        self._state = threading.Lock()
        self._rounds = self._given = 0
        #: The position that the arm has followed to; before the first round none.
        self._position = -1
        self._trouble: Exception | None = None

    def _round(self) -> bool:
        position = self._head()
        if position != self._position or self._trouble is not None:
            given = self._keeper.sync_all(cancelled=self._stop.is_set)
            with self._state:
                self._given += given
                if not self._stop.is_set():
                    # What was committed while it went on is looked at in the next round.
                    self._position, self._trouble = position, None
        with self._state:
            self._rounds += 1
        return False

    def _head(self) -> int:
        try:
            return self._store.head().position
        except Forbidden:
            # The handle below was closed: nothing will ever come again.
            self._stop.set()
            raise

    def _goes_on_after(self, failure: Exception) -> bool:
        with self._state:
            self._rounds += 1
            self._trouble = failure
        return isinstance(failure, PagefileError)

    def status(self) -> VectorsFollowed:
        """How far it has come. Asks the store where it is, and never the arm."""
        head = self._store.head().position
        thread = self._thread
        with self._state:
            trouble = self._trouble
            return VectorsFollowed(
                every_seconds=self._interval,
                rounds=self._rounds,
                given=self._given,
                behind=max(0, head - max(0, self._position)),
                failure="" if trouble is None else f"{type(trouble).__name__}: {trouble}",
                is_running=thread is not None and thread.is_alive() and not self._stop.is_set(),
            )

    def end(self) -> None:
        """Stop: a round under way ends at its next request to the arm, and nothing is lost.

        An arm that does not answer is not waited for longer than `CLOSE_SECONDS`: then the
        thread ends by itself, later.

        Raises:
            Exception: what ended the thread before, when that was no refusal.
        """
        self._stop.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(CLOSE_SECONDS)
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure


def follower_of(store: Store, keeper: Keeper | None, every: float | None) -> VectorFollower | None:
    """The thread that `vectors_every` asks for, not started yet; None where there is none.

    None is what PAGEFILE_VECTORS_EVERY says, and 0 never. Without an arm,
    or where vectors come with their entries, there is nothing to follow.

    Raises:
        Invalid: it is no number of seconds.
    """
    if every is None:
        every = Settings.from_environment().vectors_every
    require_seconds(every, "vectors_every")
    if keeper is None or not keeper.lags or not every:
        return None
    return VectorFollower(store, keeper, every)
