"""The vector arm of one partition.

Up to about 10,000 vectors lie as they are, and every search looks at all of
them. More are turned and kept in a byte for each number; a search then finds some
hundreds through faiss's `IndexRaBitQ` (one bit for each number) and scores
those from what is kept. Without faiss, which is an extra, it looks at all of
that block by block: the same order, several times slower.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pagefile.errors import Invalid
from pagefile.recall.embed.embedder import Floats, products
from pagefile.recall.extras import optional, required
from pagefile.recall.growable_array import Column
from pagefile.recall.text.inverted_index import Rows, different
from pagefile.recall.vectors.quantization import CompactRows
from pagefile.recall.vectors.rotation import turned, turned_back, turned_one
from pagefile.recall.vectors.slots import NOBODY, Slots

#: A partition of so many rows is scored whole; of a larger one the best of each arm.
WHOLE_ROWS = 10_000
#: Up to so many vectors are kept whole.
DENSE_ROWS = 10_000
#: How many of the roughly nearest are scored exactly.
_ROUGHLY_NEAREST = 512
#: How many bits each number of the question has when it is roughly compared.
_QUERY_BITS = 3
#: How many are turned and rounded at once; all at once, floats would lie beside the bytes.
_BLOCK = 256
#: About how many say where the middle of all is.
_TRAINED = 1_024
#: A filter that leaves no more than this is answered by looking at what it leaves.
_FEW = 20_000
_SAMPLE = 256
#: How many times as long it takes to copy a vector and multiply it as to multiply it.
_PICKING = 5


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
        self._slots = Slots()
        self.dimensions = 0
        self._whole: Column | None = None
        self._small: CompactRows | None = None
        self._rough: Any = None
        self._sample: Floats | None = None

    def __len__(self) -> int:
        """How many living rows have a vector."""
        return self._slots.living

    @property
    def size_bytes(self) -> int:
        held = [self._slots, self._whole, self._small]
        rough = 0 if self._rough is None else self._rough.ntotal * self._rough.code_size
        return sum(column.size_bytes for column in held if column is not None) + int(rough)

    def add(self, vector: Floats | None) -> None:
        """Give the next row a vector of unit length, or none."""
        if vector is None:
            self._slots.extend(np.zeros(1, np.bool_))
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
        self._slots.extend(having)
        if not count:
            return
        if not self.dimensions:
            self.dimensions = vectors.shape[1]
            self._whole = Column(np.float32, self.dimensions)
        if self._whole is not None and len(self._slots) <= self._dense_rows:
            self._whole.extend(vectors)
            return
        if self._whole is not None:
            whole = self._whole.values if len(self._whole) else vectors
            self._small = CompactRows(self.dimensions)
            self._rough = self._new_rough(turned(whole[:: max(1, len(whole) // _TRAINED)]))
            self._extend_small(self._whole.values)
            self._whole = None
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
        self._slots.free(row)

    def compacted(self, rows: Rows) -> VectorIndex:
        """An index of these rows only, numbered anew in their order."""
        fresh = VectorIndex(self._dense_rows, quantised=self._quantised)
        for start in range(0, len(rows), _BLOCK):
            slots = self._slots.of(rows[start : start + _BLOCK])
            having = slots != NOBODY
            fresh.add_many(self._rows_at(slots[having]), having)
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
        slots = self._slots.allowed(allowed)
        if not (len(self._slots) if slots is None else len(slots)):
            return Similar(np.zeros(0, np.int64), np.zeros(0, np.float32), 0.0, 0.0)
        if self._small is not None:
            slots, scores, sample = self._nearest_small(turned_one(query), slots, least, beside)
        elif slots is None:
            assert self._whole is not None
            slots = np.arange(len(self._slots))
            scores = sample = products(self._whole.values, query)
        else:
            scores = sample = self._exact(query, slots)
        level, lowest = _ground(sample, floor)
        # Slots are given in the order of rows, so rows come in their order too.
        rows = self._slots.rows(slots)
        return Similar(rows, scores, level, min(lowest, float(scores.min(initial=1))))

    def _nearest_small(
        self, query: Floats, slots: Rows | None, least: int, beside: Rows | None
    ) -> tuple[Rows, Floats, Floats]:
        """The slots of the nearest in their order, their cosines, and those of a sample of all.

        Of the slots given, None for every one. `query` is turned.
        """
        assert self._small is not None
        count = len(self._slots) if slots is None else len(slots)
        most = min(max(_ROUGHLY_NEAREST, least), count)
        if self._rough is None or count <= _FEW:
            every = np.arange(count) if slots is None else slots
            scores = self._small.scores(query, every)
            if most == count:
                return every, scores, scores
            best = np.sort(np.argpartition(-scores, most)[:most])
            return every[best], scores[best], scores
        found = self._roughly(query, slots, most)
        if beside is not None:
            # In one go with the nearest, which is faster than to be asked again.
            found = np.concatenate((found, self._slots.of(beside)))
        near = different(found)
        near = near[1:] if near[0] == NOBODY else near
        return near, self._small.scores(query, near), self._sampled(query, slots)

    def having(self, rows: Rows) -> NDArray[np.bool_]:
        """Which of the rows have a vector."""
        return self._slots.having(rows)

    def exact(self, query: Floats, rows: Rows) -> Floats:
        """The cosine of each row; NaN for one without a vector."""
        slots = self._slots.of(rows)
        scores = np.full(len(rows), np.nan, np.float32)
        having = slots != NOBODY
        if self._small is not None:
            scores[having] = self._small.scores(turned_one(query), slots[having])
        else:
            scores[having] = self._exact(query, slots[having])
        return scores

    def _sampled(self, query: Floats, slots: Rows | None) -> Floats:
        """The cosines of some, evenly spread; of all there are, the same until one is added."""
        assert self._small is not None
        if slots is not None:
            return self._small.scores(query, slots[:: max(1, len(slots) // _SAMPLE)])
        if self._sample is None:
            count = len(self._slots)
            self._sample = self._small.rows(np.arange(0, count, max(1, count // _SAMPLE)))
        return products(self._sample, query)

    def _exact(self, query: Floats, slots: Rows) -> Floats:
        if self._whole is None:
            return np.zeros(len(slots), np.float32)
        whole = self._whole.values
        # To pick rows out is to copy them, which takes longer than to multiply them all.
        many = len(slots) * _PICKING > len(whole)
        return products(whole, query)[slots] if many else products(whole[slots], query)

    def _rows_at(self, slots: Rows) -> Floats:
        if self._whole is not None:
            whole: Floats = self._whole.values[slots]
            return whole
        if self._small is None:
            return np.zeros((0, self.dimensions), np.float32)
        return turned_back(self._small.rows(slots))

    def _extend_small(self, vectors: Floats) -> None:
        assert self._small is not None
        self._sample = None
        for start in range(0, len(vectors), _BLOCK):
            block = turned(vectors[start : start + _BLOCK])
            self._small.extend(block)
            if self._rough is not None:
                self._rough.add(block)

    def _new_rough(self, vectors: Floats) -> Any:
        if not self._quantised:
            return None
        faiss = optional("faiss")
        if faiss is None:
            return None
        rough = faiss.IndexRaBitQ(self.dimensions, faiss.METRIC_INNER_PRODUCT)
        rough.train(np.ascontiguousarray(vectors, np.float32))
        return rough

    def _roughly(self, query: Floats, slots: Rows | None, most: int) -> Rows:
        faiss = required("faiss", "vectors")
        asked = np.ascontiguousarray(query, np.float32)[None]
        chosen = None
        if slots is not None:
            bits = np.zeros(len(self._slots), np.bool_)
            bits[slots] = True
            chosen = faiss.IDSelectorBitmap(np.packbits(bits, bitorder="little"))
        among = faiss.RaBitQSearchParameters(sel=chosen, qb=_QUERY_BITS, centered=True)
        # One question is one thread's work; others would only wait, and burn while they do.
        threads = faiss.omp_get_max_threads()
        faiss.omp_set_num_threads(1)
        try:
            found: Rows = self._rough.search(asked, most, params=among)[1][0]
        finally:
            faiss.omp_set_num_threads(threads)
        return found


def _ground(sample: Floats, floor: float) -> tuple[float, float]:
    """The value of a quantile, and the lowest."""
    middle = int(floor * (len(sample) - 1))
    parted = np.partition(sample, middle)
    return float(parted[middle]), float(parted[: middle + 1].min())
