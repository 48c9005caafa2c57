"""Which facts share words with a query, best first."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from pagefile.memory.facts.view import Sight
from pagefile.memory.items.bm25 import bm25

_WORD = re.compile(r"[^\W_]+")
#: Words that are in every question and say nothing about its answer.
_EMPTY = """
    a about am an and any are as at be been being but by can could did do does for from had has
    have he her him his how i if in into is it its me my no not of on or our she should so some
    tell than that the their them then there these they this those to us was we were what when
    where which who whom whose why will with would you your
"""
_STOP = frozenset(_EMPTY.split())


def words(text: str) -> list[str]:
    """The words of a text, whatever their case and form, without those that say nothing."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    return [word for word in _WORD.findall(folded) if word not in _STOP]


def ranked(query: str, sights: Sequence[Sight], limit: int) -> list[Sight]:
    """Those that share a word with the query; equal ones newest first, then by id.

    A query without a word that says something finds the newest.
    """
    wanted = words(query)
    newest = sorted(sights, key=lambda sight: sight.order)
    if not wanted:
        return newest[:limit]
    scores: dict[int, float] = {}
    for i, score in enumerate(bm25(wanted, [words(sight.text) for sight in newest])):
        if score:
            # Doubtful facts come after sure ones that match as well.
            window = newest[i].window
            sure = newest[i].assertion.stored.confidence if window is None else window.confidence
            scores[i] = score * (0.5 + 0.5 * sure)
    best = sorted(scores, key=lambda i: (-scores[i], i))
    return [newest[i] for i in best[:limit]]
