"""Vectors in a byte for each number, and a scale for each vector.

They are turned first (`rotation`): as a model makes them, a byte confuses neighbours
that lie close together, as memories about one thing do.
"""

from __future__ import annotations

import numpy as np

from pagefile.recall.embed.embedder import Floats, products
from pagefile.recall.growable_array import Column
from pagefile.recall.text.inverted_index import Rows

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
