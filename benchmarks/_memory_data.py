"""The memories that every subject stores: the same texts, the same vectors."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

DIMENSIONS = 384
_TOPICS = 400
_WORDS = 20_000
Vectors = NDArray[np.float32]


def vectors(count: int, seed: int) -> Vectors:
    """Unit vectors around topics, with a spectrum that falls as that of real text does."""
    made = np.random.default_rng(7)
    scale = (1.0 / np.sqrt(1 + np.arange(DIMENSIONS))).astype(np.float32)
    topics = made.standard_normal((_TOPICS, DIMENSIONS)).astype(np.float32) * scale
    draw = np.random.default_rng(seed)
    rows: Vectors = topics[draw.integers(0, _TOPICS, count)]
    rows = rows + 0.8 * draw.standard_normal((count, DIMENSIONS)).astype(np.float32) * scale
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def texts(count: int, seed: int, words: int = 24) -> list[str]:
    """Sentences of made words, some of which are common and most rare, as in real text."""
    draw = np.random.default_rng(seed)
    ranks = np.minimum(draw.zipf(1.35, (count, words)), _WORDS) - 1
    return [" ".join(_word(rank) for rank in row) for row in ranks.tolist()]


#: The commonest words are those that say nothing, as in real text.
_EMPTY = [
    "the",
    "a",
    "of",
    "to",
    "and",
    "in",
    "is",
    "it",
    "you",
    "that",
    "he",
    "was",
    "for",
    "on",
    "are",
    "with",
    "as",
    "his",
    "they",
    "at",
    "be",
    "this",
]


@cache
def _word(rank: int) -> str:
    if rank < len(_EMPTY):
        return _EMPTY[rank]
    letters = random.Random(rank)
    parts = ("ba", "co", "di", "fu", "ge", "ha", "ki", "lo", "mu", "ne", "pa", "ro", "su", "ti")
    return "".join(letters.choice(parts) for _ in range(2 + letters.randrange(3)))


class GivenVectors:
    """An embedder that hands out vectors that were made before: embedding is not measured."""

    name = "given"
    dimensions = DIMENSIONS

    def __init__(self, table: dict[str, Vectors]) -> None:
        self._table = table

    def embed(self, text: str) -> Vectors:
        return self._table[text]

    def embed_batch(self, asked: Sequence[str]) -> Vectors:
        return np.stack([self._table[text] for text in asked])
