"""What a parameter or field means: a sentence of a docstring that names it, else its word here."""

from __future__ import annotations

import re
from collections.abc import Mapping

_SENTENCE = re.compile(r"(?<=[.;:?!])\s+")

#: Names that mean the same wherever they stand.
WORDS: Mapping[str, str] = {
    "user_id": "Whose; nobody's when left out.",
    "limit": "How many at most.",
    "cursor": "`cursor` of the page before; leave it out to begin.",
}


def about(name: str, *docstrings: str | None) -> str:
    """What a name means in a place with these docstrings; empty if nothing says it."""
    if name in WORDS:
        return WORDS[name]
    marked = f"`{name}`"
    for text in docstrings:
        prose = " ".join((text or "").partition("Raises:")[0].split())
        for sentence in _SENTENCE.split(prose):
            if marked in sentence:
                return sentence[0].upper() + sentence[1:]
    return ""
