"""The vector arm of one partition.

Up to about 10,000 vectors lie as they are, and every search looks at all of
them. More are turned and kept in a byte for each number; a search then finds some
hundreds through faiss's `IndexRaBitQ` (one bit for each number) and scores
those from what is kept. Without faiss, which is an extra, it looks at all of
that block by block: the same order, several times slower.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from pagefile.errors import Invalid
from pagefile.recall.columns import Column, Rows
from pagefile.recall.embed.embedder import (
    Embedder,
    Floats,
    embed_query,
    products,
    unit_rows,
    unit_vector,
)
from pagefile.recall.extras import optional, required
from pagefile.recall.hit import Weights
from pagefile.recall.text.inverted_index import different
from pagefile.recall.text.question import Question
from pagefile.recall.vectors.quantization import CompactRows, turned, turned_back, turned_one

# Which row has which vector: rows are numbered by the index, slots by the vectors themselves.
#
# Almost always every row has one and none was removed; then both numbers are the same, and
# nothing is kept. Slots are given in the order of rows.


NOBODY = -1


class Slots:
    """The slot of each row, and the row of each slot; -1 for none."""

    def __init__(self) -> None:
        self._count = 0
        self._dead = 0
        self._row_of: Column | None = None
        self._slot_of: Column | None = None

    def __len__(self) -> int:
        """How many slots were given, those of removed rows included."""
        return self._count if self._row_of is None else len(self._row_of)

    @property
    def living(self) -> int:
        """How many rows have one."""
        return len(self) - self._dead

    @property
    def size_bytes(self) -> int:
        return sum(c.size_bytes for c in (self._row_of, self._slot_of) if c is not None)

    def extend(self, having: NDArray[np.bool_]) -> None:
        """Give slots to those of the next rows that have a vector."""
        if self._row_of is None and having.all():
            self._count += len(having)
            return
        row_of, slot_of = self._kept()
        first_slot, first_row = len(row_of), len(slot_of)
        slots = np.full(len(having), NOBODY, np.int32)
        slots[having] = np.arange(first_slot, first_slot + np.count_nonzero(having))
        slot_of.extend(slots)
        row_of.extend(first_row + np.flatnonzero(having))

    def free(self, row: int) -> None:
        """Let a row have none."""
        row_of, slot_of = self._kept()
        slot = int(slot_of.values[row])
        if slot != NOBODY:
            slot_of.values[row] = NOBODY
            row_of.values[slot] = NOBODY
            self._dead += 1

    def of(self, rows: Rows) -> Rows:
        """The slots of rows; -1 where one has none."""
        return rows if self._slot_of is None else self._slot_of.values[rows].astype(np.int64)

    def rows(self, slots: Rows) -> Rows:
        """The rows of slots that are in use."""
        return slots if self._row_of is None else self._row_of.values[slots].astype(np.int64)

    def having(self, rows: Rows) -> NDArray[np.bool_]:
        """Which of the rows have one."""
        if self._slot_of is None:
            return np.ones(len(rows), np.bool_)
        found: NDArray[np.bool_] = self._slot_of.values[rows] != NOBODY
        return found

    def allowed(self, allowed: NDArray[np.bool_] | None) -> Rows | None:
        """The slots of the rows that are allowed; None where that is every slot."""
        if self._row_of is None:
            return None if allowed is None else np.flatnonzero(allowed)
        if allowed is None and not self._dead:
            return None
        rows = self._row_of.values
        living = rows != NOBODY
        if allowed is not None:
            living &= allowed[rows]
        return np.flatnonzero(living)

    def _kept(self) -> tuple[Column, Column]:
        """Both numbers of each, written down from now on."""
        if self._row_of is None or self._slot_of is None:
            self._row_of, self._slot_of = Column(np.int32), Column(np.int32)
            for column in (self._row_of, self._slot_of):
                column.extend(np.arange(self._count))
        return self._row_of, self._slot_of


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


# What the vector arm is asked with, and what it is given: vectors, fit to be compared.


#: Whoever gives the question's vector: an embedder, a function of the text, or the vector.
AsksVector = Embedder | Callable[[str], Sequence[float] | Floats] | Floats


def asked_with(
    question: Question, vector: AsksVector | None, weights: Weights, vectors: Vectors
) -> Floats | None:
    """The vector to ask with; None where the vector arm has no say."""
    if vector is None and weights.alpha == 1:
        raise Invalid("alpha", "1 asks for vectors alone", "give an embedder, or a lower alpha")
    if vector is None or not weights.alpha or not len(vectors):
        return None
    if isinstance(vector, np.ndarray):
        return unit_vector(vector, vectors.dimensions)
    if not question.text.strip():
        return None
    told = weights.first_person if question.first_person else 0
    if told in (0, 1):
        return _embedded(vector, question.first_person if told else question.text, vectors)
    forms = ((question.text, 1 - told), (question.first_person, told))
    rows = [np.float32(share) * _embedded(vector, form, vectors) for form, share in forms]
    mixed: Floats = np.sum(rows, axis=0)
    # Two opposite vectors would leave nothing to ask with.
    return unit_vector(mixed if mixed.any() else rows[0])


def _embedded(
    vector: Embedder | Callable[[str], Sequence[float] | Floats], text: str, vectors: Vectors
) -> Floats:
    if callable(vector):
        return unit_vector(vector(text), vectors.dimensions)
    vectors.require_dimensions(vector.dimensions)
    return embed_query(vector, text)


def unpacked_rows(raws: Sequence[bytes], vectors: Vectors) -> Floats:
    """Vectors as entries keep them, as rows of unit length.

    Raises:
        Invalid: they are not all as long as those that are here.
    """
    if not raws:
        return np.zeros((0, vectors.dimensions), np.float32)
    length = len(raws[0])
    if length % 2 or any(len(raw) != length for raw in raws):
        raise Invalid("vector", "vectors of two lengths, or half a number", "embed with one model")
    vectors.require_dimensions(length // 2)
    return unit_rows(np.frombuffer(b"".join(raws), "<f2").reshape(len(raws), -1), len(raws))
