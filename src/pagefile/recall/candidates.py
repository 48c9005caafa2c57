"""The rows that a search looks at, and what of them is so whatever is asked.

Of a small partition these are the same for every question with the same filter,
so they are kept until something changes; of a large one each question has its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pagefile.recall.embed.embedder import Floats
from pagefile.recall.fusion import Weights
from pagefile.recall.neighbours import Structure
from pagefile.recall.text.inverted_index import LexicalIndex, Rows
from pagefile.recall.vectors.vector_index import Vectors

_ONE = np.float32(1)


class Mixture(NamedTuple):
    """What each row gives to each part of its score, under some weights."""

    lexical: Floats
    window: Floats
    vector: Floats
    session: Floats
    #: What is left to a row that asks.
    asks: Floats
    #: How much of what its neighbours lend a row takes.
    shortness: Floats
    #: What the length of a row, read with its neighbours, takes from each further term.
    softened: Floats


class Looked:
    """Some rows of a partition, in their order."""

    def __init__(
        self,
        lexical: LexicalIndex,
        structure: Structure,
        vectors: Vectors,
        rows: Rows,
        allowed: NDArray[np.bool_],
    ) -> None:
        self._lexical, self._structure, self._vectors = lexical, structure, vectors
        self.rows = rows
        self._are_all = len(rows) == len(allowed)
        self.allowed: NDArray[np.bool_] = self.of(allowed)
        #: Whether each of them may be found; those that may not only lend.
        self.all_allowed = bool(self.allowed.all())
        #: Each row, one before, one after, two before, two after; -1 for nobody.
        self.beside = structure.beside(rows)
        #: 1 where the row before asks.
        self.asked_before = structure.asked_before(self.beside[1])
        self.zeros = np.zeros(len(rows), np.float32)
        self.ones = np.ones(len(rows), np.float32)
        self._mixed: tuple[Weights, bool, Mixture] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def of(self, values: NDArray[Any]) -> NDArray[Any]:
        """What an array of the whole partition says of these rows."""
        return values if self._are_all else values[self.rows]

    def mixture(self, weights: Weights, *, with_vectors: bool) -> Mixture:
        """How the scores of these rows are put together."""
        kept = self._mixed
        if kept is not None and kept[0] is weights and kept[1] is with_vectors:
            return kept[2]
        share = self._vector_share(weights) if with_vectors else self.zeros
        short = self._structure.shortness(self.rows, weights)
        around = np.float32(weights.window) * short
        asks = np.where(self.of(self._structure.asks), np.float32(weights.asks), _ONE)
        mixture = Mixture(
            lexical=(1 - share) * (1 - around),
            window=(1 - share) * around,
            vector=share,
            session=(1 - share) * np.float32(weights.session),
            asks=asks,
            shortness=short,
            softened=self._structure.softened(self._lexical, self.beside, weights),
        )
        self._mixed = weights, with_vectors, mixture
        return mixture

    def _vector_share(self, weights: Weights) -> Floats:
        """The vector arm's share in each row: a row without a vector is judged by its words.

        Except where vectors alone were asked for: then it is not found. A row without
        words has nothing to be judged by, and must not gain by having no vector either.
        """
        if weights.alpha == 1:
            return self.ones
        shared = self._vectors.having(self.rows) | (self.of(self._lexical.lengths) == 0)
        return np.where(shared, np.float32(weights.alpha), np.float32(0))
