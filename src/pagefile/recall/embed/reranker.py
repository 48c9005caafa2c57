"""A second look at the first hits: a model that reads question and text together.

Slow and good: about 10 to 30 ms for each text, so it is asked about the first
few only, and is off by default.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec
import numpy as np

from pagefile.recall.embed.bundled import RERANKER, BertModel
from pagefile.recall.hit import Boost, Hit
from pagefile.store.arguments import require_count

_MOST_THREADS = 256
_MOST_CHARACTERS = 4_096


class Reranker(Protocol):
    """Says how well each text answers a question; only the order of its figures counts."""

    @property
    def name(self) -> str: ...

    def scores(self, query: str, texts: Sequence[str]) -> Sequence[float]: ...


class BundledReranker:
    """ms-marco-MiniLM-L-12-v2, from files that a package carries inside it."""

    name = "ms-marco-MiniLM-L-12-v2-int8"

    def __init__(self, *, threads: int = 1) -> None:
        self._model = BertModel(RERANKER, require_count(threads, "threads", 1, _MOST_THREADS))

    @staticmethod
    def available() -> bool:
        """Whether the files of the model are installed."""
        return RERANKER.present()

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        asked = query[:_MOST_CHARACTERS]
        return [float(self._model.run(asked, text[:_MOST_CHARACTERS])[0]) for text in texts]


def reranked(
    query: str,
    hits: Sequence[Hit],
    text_of: Callable[[Hit], str],
    reranker: Reranker,
    *,
    first: int = 20,
    share: float = 0.35,
) -> list[Hit]:
    """The hits with their first ones in a new order; the others follow as they were.

    The reranker's figure, scaled like the score to the range of those looked at,
    takes a `share` of the new order. Scores stay above those of the hits that follow.
    """
    head, tail = list(hits[:first]), list(hits[first:])
    if len(head) < 2:
        return [*head, *tail]
    old = np.array([hit.score for hit in head])
    new = np.asarray(reranker.scores(query, [text_of(hit) for hit in head]), np.float64)
    mixed = (1 - share) * _from_0_to_1(old) + share * _from_0_to_1(new)
    low = float(old.min())
    scores = low + mixed * (float(old.max()) - low)
    order = sorted(range(len(head)), key=lambda i: (-scores[i], i))
    return [*(_again(head[i], float(scores[i]), reranker.name) for i in order), *tail]


def _from_0_to_1(
    values: np.ndarray[tuple[int, ...], np.dtype[np.float64]],
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    width = float(values.max() - values.min())
    return (values - values.min()) / width if width else np.zeros_like(values)


def _again(hit: Hit, score: float, name: str) -> Hit:
    boost = Boost("reranker", f"{name} read it beside the question", adds=score - hit.score)
    return msgspec.structs.replace(hit, score=score, boosts=(*hit.boosts, boost))
