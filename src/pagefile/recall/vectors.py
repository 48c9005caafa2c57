"""The vector arm of one partition.

Up to about 10,000 vectors lie as they are, and every search looks at all of
them. More are kept in twelve bits for each number; a search then finds some
hundreds through faiss's `IndexRaBitQ` (one bit for each number) and scores
those from what is kept. Without faiss, which is an extra, it looks at all of
that block by block: the same order, several times slower.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pagefile.errors import Invalid
from pagefile.recall._optional import optional, required
from pagefile.recall.column import Column
from pagefile.recall.compact import CompactRows
from pagefile.recall.embedder import Floats, products
from pagefile.recall.lexical import Rows

#: A partition of so many rows is scored whole; of a larger one the best of each arm.
WHOLE_ROWS = 10_000
#: Up to so many vectors are kept whole.
DENSE_ROWS = 10_000
#: How many of the roughly nearest are scored exactly.
_ROUGHLY_NEAREST = 512
#: A filter that leaves no more than this is answered by looking at what it leaves.
_FEW = 20_000
_SAMPLE = 256
#: How many times as long it takes to copy a vector and multiply it as to multiply it.
_PICKING = 5
_NOBODY = -1


class Similar(NamedTuple):
    """Rows in their order and their cosines; where below the best the whole lies."""

    rows: Rows
    scores: Floats
    floor: float
    lowest: float


class Vectors(Protocol):
    """The vectors of one partition, wherever they lie; see `VectorIndex`."""

    @property
    def whole_rows(self) -> int: ...
    @property
    def dimensions(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    def __len__(self) -> int: ...
    def add_many(
        self, vectors: Floats, having: NDArray[np.bool_], ids: list[bytes] | None = None
    ) -> None: ...
    def require_dimensions(self, length: int) -> None: ...
    def kill(self, row: int) -> None: ...
    def compacted(self, rows: Rows) -> Vectors: ...
    def having(self, rows: Rows) -> NDArray[np.bool_]: ...
    def where(self, row: int) -> str: ...
    def exact(self, query: Floats, rows: Rows) -> Floats: ...
    def nearest(
        self,
        query: Floats,
        allowed: NDArray[np.bool_] | None,
        floor: float,
        least: int = 0,
        beside: Rows | None = None,
    ) -> Similar: ...


class VectorIndex:
    """At most one vector for each row; all of one length, the first one's."""

    whole_rows = WHOLE_ROWS

    def __init__(self, dense_rows: int = DENSE_ROWS, *, quantised: bool = True) -> None:
        self._dense_rows = dense_rows
        self._quantised = quantised
        self._row_of = Column(np.int32)
        self._slot_of = Column(np.int32)
        self._dead = 0
        self.dimensions = 0
        self._whole: Column | None = None
        self._small: CompactRows | None = None
        self._rough: Any = None
        self._sample: Floats | None = None

    def __len__(self) -> int:
        """How many living rows have a vector."""
        return len(self._row_of) - self._dead

    @property
    def size_bytes(self) -> int:
        held = [self._row_of, self._slot_of, self._whole, self._small]
        rough = 0 if self._rough is None else self._rough.ntotal * self._rough.code_size
        return sum(column.size_bytes for column in held if column is not None) + int(rough)

    def add(self, vector: Floats | None) -> None:
        """Give the next row a vector of unit length, or none."""
        if vector is None:
            self._slot_of.append(_NOBODY)
        else:
            self.add_many(vector[None], np.ones(1, np.bool_))

    def add_many(
        self, vectors: Floats, having: NDArray[np.bool_], ids: list[bytes] | None = None
    ) -> None:
        """Give the next rows vectors, in their order, to those that are `having` one.

        `ids` are for an arm that keeps them elsewhere.
        """
        count = len(vectors)
        if count:
            self.require_dimensions(vectors.shape[1])
        first_slot, first_row = len(self._row_of), len(self._slot_of)
        slots = np.full(len(having), _NOBODY, np.int32)
        slots[having] = np.arange(first_slot, first_slot + count)
        self._slot_of.extend(slots)
        self._row_of.extend(first_row + np.flatnonzero(having))
        if not count:
            return
        if not self.dimensions:
            self.dimensions = vectors.shape[1]
            self._whole = Column(np.float32, self.dimensions)
        if self._whole is not None and len(self._row_of) <= self._dense_rows:
            self._whole.extend(vectors)
            return
        if self._whole is not None:
            vectors = np.concatenate((self._whole.values, vectors))
            self._whole, self._small = None, CompactRows(self.dimensions)
            self._rough = self._new_rough(vectors)
        self._extend_small(vectors)

    def require_dimensions(self, length: int) -> None:
        """Refuse a vector of another length than those that are here."""
        if self.dimensions and length != self.dimensions:
            raise Invalid(
                "vector",
                f"of {length} numbers among vectors of {self.dimensions}",
                "embed with the model of this index, or index anew with the other one",
            )

    def kill(self, row: int) -> None:
        """Forget the vector of a row; its place stays until `compacted`."""
        slot = int(self._slot_of.values[row])
        if slot != _NOBODY:
            self._slot_of.values[row] = _NOBODY
            self._row_of.values[slot] = _NOBODY
            self._dead += 1

    def compacted(self, rows: Rows) -> VectorIndex:
        """An index of these rows only, numbered anew in their order."""
        slots = self._slot_of.values[rows]
        having = slots != _NOBODY
        fresh = VectorIndex(self._dense_rows, quantised=self._quantised)
        fresh.add_many(self._exact_rows(slots[having]), having)
        return fresh

    def where(self, row: int) -> str:
        """Where the vector of a row was compared; "" is in this process."""
        return ""

    def nearest(
        self,
        query: Floats,
        allowed: NDArray[np.bool_] | None,
        floor: float,
        least: int = 0,
        beside: Rows | None = None,
    ) -> Similar:
        """The nearest of the allowed rows with their cosines: `least` or more, of few rows all.

        `floor` is a quantile of the cosines, whose value is given back. `beside` are
        rows that will be asked about next, for an arm that answers all at once.
        """
        self.require_dimensions(len(query))
        if self._whole is not None and allowed is None and not self._dead:
            scores = products(self._whole.values, query)
            return Similar(self._row_of.values.astype(np.int64), scores, *_ground(scores, floor))
        slots = self._allowed_slots(allowed)
        if not len(slots):
            return Similar(np.zeros(0, np.int64), np.zeros(0, np.float32), 0.0, 0.0)
        most = min(max(_ROUGHLY_NEAREST, least), len(slots))
        if self._whole is not None or self._rough is None or len(slots) <= _FEW:
            scores = self._exact(query, slots)
            sample = scores
            if self._small is not None and most < len(slots):
                best = np.argpartition(-scores, most)[:most]
                slots, scores = slots[best], scores[best]
        else:
            sample = self._sampled(query, slots)
            slots = self._roughly(query, slots, most)
            scores = self._exact(query, slots)
        rows = self._row_of.values[slots].astype(np.int64)
        if self._whole is None:  # Otherwise they come in their order.
            order = np.argsort(rows)
            rows, scores = rows[order], scores[order]
        level, lowest = _ground(sample, floor)
        return Similar(rows, scores, level, min(lowest, float(scores.min(initial=1))))

    def having(self, rows: Rows) -> NDArray[np.bool_]:
        """Which of the rows have a vector."""
        found: NDArray[np.bool_] = self._slot_of.values[rows] != _NOBODY
        return found

    def exact(self, query: Floats, rows: Rows) -> Floats:
        """The cosine of each row; NaN for one without a vector."""
        slots = self._slot_of.values[rows]
        scores = np.full(len(rows), np.nan, np.float32)
        having = slots != _NOBODY
        scores[having] = self._exact(query, slots[having])
        return scores

    def _sampled(self, query: Floats, slots: Rows) -> Floats:
        """The cosines of some, evenly spread; of all there are, the same until one is added."""
        some = slots[:: max(1, len(slots) // _SAMPLE)]
        if len(slots) < len(self._row_of):
            return self._exact(query, some)
        if self._sample is None:
            self._sample = self._exact_rows(some)
        return products(self._sample, query)

    def _allowed_slots(self, allowed: NDArray[np.bool_] | None) -> Rows:
        if allowed is None and not self._dead:
            return np.arange(len(self._row_of))
        rows = self._row_of.values
        living = rows != _NOBODY
        if allowed is not None:
            living &= allowed[rows]
        return np.flatnonzero(living)

    def _exact(self, query: Floats, slots: Rows) -> Floats:
        if self._whole is not None:
            whole = self._whole.values
            # To pick rows out is to copy them, which takes longer than to multiply them all.
            many = len(slots) * _PICKING > len(whole)
            return products(whole, query)[slots] if many else products(whole[slots], query)
        if self._small is None:
            return np.zeros(len(slots), np.float32)
        return self._small.scores(query, slots)

    def _exact_rows(self, slots: Rows) -> Floats:
        if self._whole is not None:
            whole: Floats = self._whole.values[slots]
            return whole
        if self._small is None:
            return np.zeros((0, self.dimensions), np.float32)
        return self._small.rows(slots)

    def _extend_small(self, vectors: Floats) -> None:
        assert self._small is not None
        self._small.extend(vectors)
        self._sample = None
        if self._rough is not None:
            self._rough.add(np.ascontiguousarray(vectors, np.float32))

    def _new_rough(self, vectors: Floats) -> Any:
        if not self._quantised:
            return None
        faiss = optional("faiss")
        if faiss is None:
            return None
        rough = faiss.IndexRaBitQ(self.dimensions, faiss.METRIC_INNER_PRODUCT)
        rough.train(np.ascontiguousarray(vectors, np.float32))
        return rough

    def _roughly(self, query: Floats, slots: Rows, most: int) -> Rows:
        faiss = required("faiss", "vectors")
        asked = np.ascontiguousarray(query, np.float32)[None]
        among = None
        if len(slots) != len(self._row_of):
            bits = np.zeros(len(self._row_of), np.bool_)
            bits[slots] = True
            chosen = faiss.IDSelectorBitmap(np.packbits(bits, bitorder="little"))
            among = faiss.RaBitQSearchParameters(sel=chosen, qb=self._rough.qb)
        # One question is one thread's work; others would only wait, and burn while they do.
        threads = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)
        try:
            found = self._rough.search(asked, most, params=among)[1][0]
        finally:
            faiss.omp_set_num_threads(threads)
        return np.sort(found[found != _NOBODY])


def _ground(sample: Floats, floor: float) -> tuple[float, float]:
    """The value of a quantile, and the lowest."""
    middle = int(floor * (len(sample) - 1))
    parted = np.partition(sample, middle)
    return float(parted[middle]), float(parted[: middle + 1].min())
