"""Names that stand for others: what a subject or object is called, and what it is."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import cached_property

from pagefile.memory.facts.documents import Alias
from pagefile.memory.facts.fact import normalised

_WORD = re.compile(r"[^\W_]+")
#: So many other names are asked for with a question, and so many words of one are compared.
_MOST_OTHERS = 100
_MOST_WORDS = 8


class Names:
    """Who is who, as known at one moment."""

    def __init__(self, aliases: Iterable[Alias], known_us: int | None = None) -> None:
        self._stands_for: dict[str, str] = {}
        for alias in aliases:
            if known_us is not None and alias.order[0] > known_us:
                continue
            name = normalised(alias.name)
            if alias.canonical is None:
                self._stands_for.pop(name, None)
            else:
                self._stands_for[name] = normalised(alias.canonical)
        self._canonical: dict[str, str] = {}
        for name in self._stands_for:
            self._resolve(name)
        self._members: dict[str, list[str]] = {}
        for name, canonical in self._canonical.items():
            self._members.setdefault(canonical, []).append(name)

    def __contains__(self, text: str) -> bool:
        """Whether this name, as written, is an alias."""
        return normalised(text) in self._stands_for

    def canonical(self, name: str) -> str:
        """What a normalised name stands for in the end."""
        return self._canonical.get(name, name)

    def _resolve(self, name: str) -> None:
        """Find out what a name stands for, and all that it leads over."""
        met: dict[str, None] = {}
        while name in self._stands_for and name not in self._canonical and name not in met:
            met[name] = None
            name = self._stands_for[name]
        if name in met:
            # Two writers at once made a ring: all in it go by the same one.
            way = list(met)
            name = min(way[way.index(name) :])
        canonical = self._canonical.get(name, name)
        self._canonical.update(dict.fromkeys(met, canonical))

    def of(self, text: str) -> str:
        """What a name as written stands for."""
        return self.canonical(normalised(text))

    def spellings(self, canonical: str) -> list[str]:
        """Every normalised name that stands for this one, itself first."""
        others = (name for name in self._members.get(canonical, ()) if name != canonical)
        return [canonical, *sorted(others)]

    def table(self) -> dict[str, str]:
        """Each alias, and what it stands for in the end."""
        return dict(sorted(self._canonical.items()))

    def widened(self, question: str) -> str:
        """The question, and behind it what those whom it names are called otherwise."""
        return f"{question} {self.others_in(question)}".rstrip()

    def others_in(self, question: str) -> str:
        """What those whom the question names are called otherwise, one after the other."""
        if not self._members:
            return ""
        asked = _words(question)
        others: dict[str, None] = {}
        for size in {len(words) for words in self._by_words}:
            for i in range(len(asked) - size + 1):
                for canonical in self._by_words.get(asked[i : i + size], ()):
                    others.update(dict.fromkeys(self.spellings(canonical)))
        known = set(asked)
        new = [name for name in others if not known.issuperset(_words(name))]
        return " ".join(new[:_MOST_OTHERS])

    @cached_property
    def _by_words(self) -> dict[tuple[str, ...], list[str]]:
        """What the words of names that stand for others, or are stood for, may mean."""
        found: dict[tuple[str, ...], list[str]] = {}
        for canonical in self._members:
            for name in self.spellings(canonical):
                if words := _words(name)[:_MOST_WORDS]:
                    found.setdefault(words, []).append(canonical)
        return found


def _words(text: str) -> tuple[str, ...]:
    return tuple(_WORD.findall(unicodedata.normalize("NFKC", text).casefold()))
