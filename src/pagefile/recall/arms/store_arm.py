"""Vectors that the store itself keeps: written in the commit of the entry, asked for in its table.

Nothing is filled in afterwards, and nothing lags: an entry of the index log brings
its vector along. What came without one (stored before the store kept vectors,
copied from elsewhere, written by a process that knew of none) is compared here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pagefile.recall.arms.arm import Found, VectorLog
from pagefile.recall.arms.remote_vectors import RowsElsewhere
from pagefile.recall.embed.embedder import Floats, unit_rows
from pagefile.recall.records import IndexEntry, log_of
from pagefile.recall.vectors.vector_index import VectorIndex
from pagefile.store.batch import Vector
from pagefile.store.codec.vector import SLOT_BYTES
from pagefile.store.records import Entry
from pagefile.store.store import Store

_ID_BYTES = 8


class KeptVectors:
    """Says that vectors are compared where the store keeps them."""

    def close(self) -> None:
        """Nothing is open but the store."""


def slot_of(key: str) -> bytes:
    """What the vectors of one thing replace each other by."""
    return hashlib.blake2b(key.encode(), digest_size=SLOT_BYTES).digest()


def vectors_of(entries: Sequence[IndexEntry], dimensions: int) -> list[Vector]:
    """What entries bring along where the store keeps vectors; nothing for one without."""
    raws = [entry.vector for entry in entries if entry.vector]
    rows = np.frombuffer(b"".join(raws), "<f2").reshape(len(raws), -1) if raws else ()
    # As the fold of the log has them, so that both give the same cosines.
    made = iter(unit_rows(rows, len(raws), dimensions)) if raws else iter(())
    return [
        Vector(slot_of(entry.key), next(made).astype("<f4").tobytes() if entry.vector else b"")
        for entry in entries
    ]


def vectors_beside(
    store: Store, entries: Sequence[IndexEntry], dimensions: int
) -> Sequence[Vector | None]:
    """What entries bring along into this store: nothing, where it keeps no vectors."""
    if not dimensions or not store.vectors:
        return [None] * len(entries)
    return vectors_of(entries, dimensions)


class KeptLog(VectorLog):
    """An index log whose vectors go by the numbers of their entries."""

    @property
    def name(self) -> str:
        return log_of(self.generation, self.part.owner)

    def ids(self, stored: Sequence[Entry], entries: Sequence[IndexEntry]) -> list[bytes]:
        return [
            id_of(at.index) if entry.vector else b""
            for at, entry in zip(stored, entries, strict=True)
        ]


class KeptRows(RowsElsewhere):
    """At most one vector for each row, in the store's table or, where it lacks one, held here."""

    def __init__(self, store: Store, log: KeptLog) -> None:
        super().__init__(store.vectors, log)
        self._store = store
        self._kept_log = log
        #: Folded since the table was last looked at.
        self._unseen: list[bytes] = []

    def _fresh(self) -> Self:
        fresh = type(self)(self._store, self._kept_log)
        fresh._unseen = self._unseen
        return fresh

    def add_many(
        self, vectors: Floats, having: NDArray[np.bool_], ids: list[bytes] | None = None
    ) -> None:
        # They came into the table with their entries; one that did not is held once that is seen.
        tail, self._tail = self._tail, None
        super().add_many(vectors, having, ids)
        self._tail = tail
        if tail is not None:
            nothing = np.zeros((0, self.dimensions), np.float32)
            tail.add_many(nothing, np.zeros(len(having), np.bool_))
            self._unseen += [one for one in ids or () if one]

    def kill(self, row: int) -> None:
        # It left the table in the commit that says so.
        count = len(self._dead)
        super().kill(row)
        del self._dead[count:]

    def _finds(self, query: Floats, count: int, named: list[bytes]) -> Found:
        asked = query.astype("<f4").tobytes()
        found = self._store.nearest(self._kept_log.name, asked, count, [*map(number_of, named)])
        return Found(
            [(id_of(number), score) for number, score in found.nearest],
            {id_of(number): score for number, score in found.named.items()},
        )

    def _settled(self) -> VectorIndex:
        if self._tail is None:
            return self._look_at_all()
        unseen = [one for one in self._unseen if one in self._row_of]
        if unseen:
            there = set(self._numbers(number_of(min(unseen))))
            missing = {one for one in unseen if one not in there}
            if missing:
                self._hold_these(missing | self._held())
        self._unseen = []
        return self._tail

    def _without(self, *, is_last: bool) -> VectorIndex:
        # Replaced or erased by somebody between folding and asking: the log still knows.
        return self.hold_from(0) if is_last else self._look_at_all()

    def _look_at_all(self) -> VectorIndex:
        """Hold what the table has not; mostly nothing."""
        there = set(self._numbers(0))
        self._unseen = []
        self._dead = sorted(there - self._row_of.keys())
        return self._hold_these(self._row_of.keys() - there)

    def _hold_these(self, wanted: set[bytes]) -> VectorIndex:
        # Past the end of the log where nothing is wanted.
        start = number_of(min(wanted)) if wanted else 2**62
        return self._hold(start, wanted)

    def _numbers(self, first: int) -> Iterable[bytes]:
        return map(id_of, self._store.vector_numbers(self._kept_log.name, first))

    def _held(self) -> set[bytes]:
        assert self._tail is not None
        rows = np.flatnonzero(self._tail.having(np.arange(len(self._ids))))
        return {self._ids[row] for row in rows}


def id_of(number: int) -> bytes:
    """What an entry's vector goes by; they sort as the numbers do."""
    return number.to_bytes(_ID_BYTES, "big")


def number_of(one: bytes) -> int:
    """The entry that a vector is of."""
    return int.from_bytes(one, "big")
