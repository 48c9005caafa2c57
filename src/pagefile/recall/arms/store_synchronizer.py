"""Keeping vectors that the store keeps itself: mostly there is nothing to do.

They come with their entries and go with them. What is left are entries that came
without: stored before the store kept vectors, or copied into it from elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import ClassVar

from pagefile.errors import Unsupported
from pagefile.recall.arms.store_arm import KeptVectors, vectors_of
from pagefile.recall.arms.synchronizer import (
    ArmKeeper,
    Cancelled,
    Keeper,
    VectorStatus,
    never,
    owners_of,
)
from pagefile.recall.catalogue import Catalogue, Model, read_catalogue
from pagefile.recall.logs import REREAD, decoded, entries_of, log_of
from pagefile.recall.partition_cache import Shelf
from pagefile.store.batch import Vector
from pagefile.store.codec.vector import MOST_DIMENSIONS
from pagefile.store.store import Store

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
