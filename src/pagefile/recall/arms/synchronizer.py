"""Filling a vector arm from the index logs, and taking out of it what is gone.

The arm follows the logs: everything that is in them up to an entry is put in,
then the mark says so, then what has died since is taken out. Killed anywhere,
the next one goes on from the last mark; doing anything twice changes nothing.
When the arm's count is not what it should be, both sides are compared id by id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import ClassVar, Protocol

import msgspec

from pagefile.errors import Unavailable
from pagefile.recall.arms.arm import Mark, Part, VectorArm
from pagefile.recall.arms.index_log import VectorLog
from pagefile.recall.arms.rows import ArmRows
from pagefile.recall.catalogue import NO_MODEL, Catalogue, Model, read_catalogue
from pagefile.recall.logs import log_of
from pagefile.recall.partition_cache import Resident, Shelf
from pagefile.store.store import Store

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
