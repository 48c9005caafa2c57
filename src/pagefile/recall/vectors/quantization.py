"""Vectors in a byte for each number, and a scale for each vector.

They are turned first (`rotation`): as a model makes them, a byte confuses neighbours
that lie close together, as memories about one thing do.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from pagefile.recall.columns import Column, Rows
from pagefile.recall.embed.embedder import Floats, products

#: So many are looked at at once: what is worked on stays near the processor.
_BLOCK = 512
_LEVELS = np.float32(127)


class CompactRows:
    """Rows of unit length, turned, each with a scale of its own."""

    def __init__(self, dimensions: int) -> None:
        self._bytes = Column(np.int8, dimensions)
        self._scale = Column(np.float32)

    def __len__(self) -> int:
        return len(self._bytes)

    @property
    def size_bytes(self) -> int:
        return self._bytes.size_bytes + self._scale.size_bytes

    def extend(self, vectors: Floats) -> None:
        """Add rows at the end."""
        for start in range(0, len(vectors), _BLOCK):
            block = vectors[start : start + _BLOCK]
            scale = np.abs(block).max(axis=1) / _LEVELS
            self._bytes.extend(np.rint(block / scale[:, None]).astype(np.int8))
            self._scale.extend(scale)

    def rows(self, slots: Rows) -> Floats:
        """The rows at these places, as nearly as they were kept."""
        found: Floats = self._bytes.values[slots].astype(np.float32)
        found *= self._scale.values[slots][:, None]
        return found

    def scores(self, query: Floats, slots: Rows) -> Floats:
        """The product of each row with the query."""
        scores = np.empty(len(slots), np.float32)
        for start in range(0, len(slots), _BLOCK):
            some = slots[start : start + _BLOCK]
            block = self._bytes.values.take(some, axis=0).astype(np.float32)
            scores[start : start + _BLOCK] = products(block, query)
        scores *= self._scale.values[slots]
        return scores


# Vectors turned in space, all in the same way, so that no number of one stands out.
#
# Of what a model makes, some places are always large and others always small; rounded to
# few bits, the large ones decide how coarse the rest is. Turned, every number has a little
# of each place, and as few bits tell neighbours apart as well as many did. Angles and
# lengths stay what they were.


_SEED = 5
#: So many rows are turned at once: what is worked on stays near the processor.
_ROTATED_AT_ONCE = 256


def turned(rows: Floats) -> Floats:
    """The rows, turned; of each row the same among any others, as only sums are made."""
    return _by_blocks(rows, _steps(rows.shape[1]))


def turned_back(rows: Floats) -> Floats:
    """The inverse of `turned`."""
    return _by_blocks(rows, _steps(rows.shape[1])[::-1], is_back=True)


def turned_one(vector: Floats) -> Floats:
    """One vector, turned; to the last bit it may differ from what `turned` makes of it.

    For questions: sums of pairs are many steps, and each takes as long for one as for many.
    """
    work = vector.astype(np.float32)
    for step in _steps(len(vector)):
        work *= step.signs[:, 0]
        part = work[step.first : step.first + step.size]
        one, other = step.factors
        part[:] = (one @ part.reshape(len(one), len(other)) @ other).ravel()
    return work


class _Step:
    """Some numbers get the other sign, then a stretch of them is mixed."""

    def __init__(self, signs: Floats, first: int, size: int) -> None:
        self.signs, self.first, self.size = signs, first, size
        #: Hadamard's matrix is the product of two smaller ones, each for one side of a square.
        half = 1 << (size.bit_length() - 1) // 2
        self.factors = _hadamard(half), _hadamard(size // half)

    def mix(self, work: Floats) -> None:
        """Hadamard's matrix times the stretch, by sums and differences of pairs."""
        part = work[self.first : self.first + self.size]
        half = 1
        while half < self.size:
            pairs = part.reshape(self.size // (2 * half), 2, half, -1)
            one, other = pairs[:, 0], pairs[:, 1]
            summed = one + other
            np.subtract(one, other, out=other)
            one[...] = summed
            half *= 2
        part *= np.float32(self.size**-0.5)


@lru_cache(16)
def _steps(length: int) -> tuple[_Step, ...]:
    size = 1 << (length.bit_length() - 1)
    # A stretch is a power of two: of other lengths the first and the last are mixed in turn.
    firsts = (0,) if size == length else (0, length - size) * 2
    chance = np.random.default_rng(_SEED)
    signs = (chance.integers(0, 2, length) * 2 - 1 for _ in firsts)
    return tuple(
        _Step(one.astype(np.float32)[:, None], first, size)
        for one, first in zip(signs, firsts, strict=True)
    )


def _hadamard(size: int) -> Floats:
    made = np.ones((1, 1), np.float32)
    while len(made) < size:
        made = np.block([[made, made], [made, -made]])
    unit: Floats = made * np.float32(size**-0.5)
    return unit


def _by_blocks(rows: Floats, steps: tuple[_Step, ...], *, is_back: bool = False) -> Floats:
    made = np.empty(rows.shape, np.float32)
    for start, work in _blocks(rows):
        for step in steps:
            if not is_back:
                work *= step.signs
            step.mix(work)
            if is_back:
                work *= step.signs
        made[start : start + work.shape[1]] = work.T
    return made


def _blocks(rows: Floats) -> Iterator[tuple[int, Floats]]:
    """Copies of some rows at a time, each number of all of them side by side."""
    for start in range(0, len(rows), _ROTATED_AT_ONCE):
        yield start, np.array(rows[start : start + _ROTATED_AT_ONCE].T, np.float32, order="C")
