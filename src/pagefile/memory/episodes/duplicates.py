"""Memories that say the same, or nearly: by the words they share, without a model.

Two are near when the sets of their terms overlap by at least the threshold
(Jaccard). What is compared is found through rare terms: two sets that overlap
so much must share one of the rarest few of each, so not every pair is looked at.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from pagefile.errors import Invalid, shown

#: Below this many terms, overlap says little: "yes please" is not a repetition.
LEAST_TERMS = 4
#: What is compared at most with one; more share a rare term only in made-up text.
_MOST_COMPARED = 1_000


class Duplicate(msgspec.Struct, frozen=True):
    """A memory that says what an earlier one says; `similarity` is 1 for the same terms.

    `is_same` when it is the same word for word, but for case and stops: "not"
    is no term, and turns what the others say.
    """

    key: str
    of: str
    similarity: float
    is_same: bool = False


def require_threshold(threshold: object) -> float:
    """A share of terms that makes sense to compare by."""
    if type(threshold) not in (int, float) or not 0.5 <= threshold <= 1:  # type: ignore[operator]
        raise Invalid("threshold", shown(threshold), "give 0.5 to 1")
    return float(str(threshold))


def similarity(one: Iterable[str], other: Iterable[str]) -> float:
    """The share of terms that two have in common, of all they have."""
    mine, theirs = set(one), set(other)
    either = len(mine | theirs)
    return len(mine & theirs) / either if either else 1.0


def duplicates_of(texts: Mapping[str, Sequence[str]], threshold: float) -> list[Duplicate]:
    """Every memory that says what one before it says, in the order they are given.

    Each is told of the most similar one before it; of equals, of the first.
    """
    counts = Counter(term for terms in texts.values() for term in set(terms))
    seen: dict[str, list[str]] = {}
    sets: dict[str, frozenset[str]] = {}
    found: list[Duplicate] = []
    for key, terms in texts.items():
        mine = frozenset(terms)
        if len(mine) < LEAST_TERMS:
            continue
        rarest = sorted(mine, key=lambda term: (counts[term], term))
        prefix = rarest[: len(mine) - math.ceil(threshold * len(mine)) + 1]
        best = _best(mine, prefix, seen, sets, threshold)
        if best is not None:
            found.append(Duplicate(key, best[1], best[0]))
        sets[key] = mine
        for term in prefix:
            seen.setdefault(term, []).append(key)
    return found


def _best(
    mine: frozenset[str],
    prefix: Sequence[str],
    seen: Mapping[str, Sequence[str]],
    sets: Mapping[str, frozenset[str]],
    threshold: float,
) -> tuple[float, str] | None:
    best: tuple[float, str] | None = None
    looked: set[str] = set()
    for term in prefix:
        for other in seen.get(term, ())[:_MOST_COMPARED]:
            if other in looked:
                continue
            looked.add(other)
            share = similarity(mine, sets[other])
            if share >= threshold and (best is None or share > best[0]):
                best = (share, other)
    return best
