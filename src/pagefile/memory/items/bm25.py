"""BM25 over a handful of texts that are at hand; the index of a user has its own, over arrays."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

# The usual constants: how fast repetition saturates, how much length counts.
_K1, _B = 1.2, 0.75


def bm25(asked: Iterable[str], texts: Sequence[Sequence[str]]) -> list[float]:
    """A score for each text, 0 where it holds none of the words asked for."""
    # In order: sums of the same words come out the same.
    wanted = sorted(set(asked))
    counts = [Counter(text) for text in texts]
    lengths = [count.total() for count in counts]
    average = sum(lengths) / len(lengths) if any(lengths) else 1.0
    weights = {}
    for word in wanted:
        holding = sum(word in count for count in counts)
        weights[word] = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
    scores = []
    for count, length in zip(counts, lengths, strict=True):
        damping = _K1 * (1 - _B + _B * length / average)
        scores.append(
            sum(
                weights[word] * count[word] * (_K1 + 1) / (count[word] + damping)
                for word in wanted
                if word in count
            )
        )
    return scores
