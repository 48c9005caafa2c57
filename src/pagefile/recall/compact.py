"""Vectors in twelve bits for each number: a byte, and four bits of what rounding to it lost.

A byte alone confuses neighbours that lie close together, as memories about one
thing do; sixteen bits would take more than half of what the whole takes.
"""

from __future__ import annotations

import numpy as np

from pagefile.recall.column import Column
from pagefile.recall.embedder import Floats, products
from pagefile.recall.lexical import Rows

_BLOCK = 4_096
_LEVELS = np.float32(127)
#: The steps into which the rest of a rounded number, from -0.5 to 0.5, is cut.
_STEPS = np.float32(16)
_HALF_STEP = np.float32(0.5) / _STEPS


class CompactRows:
    """Rows of unit length, each with a scale of its own."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._bytes = Column(np.int8, dimensions)
        self._rests = Column(np.uint8, (dimensions + 1) // 2)
        self._scale = Column(np.float32)

    def __len__(self) -> int:
        return len(self._bytes)

    @property
    def size_bytes(self) -> int:
        return sum(column.size_bytes for column in (self._bytes, self._rests, self._scale))

    def extend(self, vectors: Floats) -> None:
        """Add rows at the end."""
        for start in range(0, len(vectors), _BLOCK):
            block = np.ascontiguousarray(vectors[start : start + _BLOCK], np.float32)
            scale = np.abs(block).max(axis=1) / _LEVELS
            levels = block / scale[:, None]
            rounded = np.rint(levels)
            rests = np.clip((levels - rounded + np.float32(0.5)) * _STEPS, 0, 15).astype(np.uint8)
            if self._dimensions % 2:
                rests = np.pad(rests, ((0, 0), (0, 1)))
            self._bytes.extend(rounded.astype(np.int8))
            self._rests.extend(rests[:, ::2] << 4 | rests[:, 1::2])
            self._scale.extend(scale)

    def rows(self, slots: Rows) -> Floats:
        """The rows at these places, as nearly as they were kept."""
        found: Floats = self._levels(slots)
        found *= self._scale.values[slots][:, None]
        return found

    def scores(self, query: Floats, slots: Rows) -> Floats:
        """The product of each row with the query."""
        scores = np.empty(len(slots), np.float32)
        # The rests are multiplied as they lie, two in a byte: spreading them takes longer.
        odd = query[1::2] if self._dimensions % 2 == 0 else np.append(query[1::2], np.float32(0))
        even, odd = query[::2] / _STEPS, odd / _STEPS
        middle = (np.float32(0.5) - _HALF_STEP) * query.sum()
        for start in range(0, len(slots), _BLOCK):
            some = slots[start : start + _BLOCK]
            packed = self._rests.values[some]
            part = products(self._bytes.values[some].astype(np.float32), query)
            part += products((packed >> 4).astype(np.float32), even)
            part += products((packed & 15).astype(np.float32), odd)
            part -= middle
            part *= self._scale.values[some]
            scores[start : start + _BLOCK] = part
        return scores

    def _levels(self, slots: Rows) -> Floats:
        levels: Floats = self._bytes.values[slots].astype(np.float32)
        packed = self._rests.values[slots]
        for first, rests in ((0, packed >> 4), (1, packed & 15)):
            part = levels[:, first::2]
            part += rests[:, : part.shape[1]] / _STEPS - (np.float32(0.5) - _HALF_STEP)
        return levels
