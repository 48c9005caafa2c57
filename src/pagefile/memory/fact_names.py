"""Names that stand for others: what a subject or object is called, and what it is."""

from __future__ import annotations

from collections.abc import Iterable

from pagefile.memory.fact import normalised
from pagefile.memory.fact_documents import Alias


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
        self._members: dict[str, list[str]] = {}
        for name in self._stands_for:
            self._members.setdefault(self.canonical(name), []).append(name)

    def __contains__(self, text: str) -> bool:
        """Whether this name, as written, is an alias."""
        return normalised(text) in self._stands_for

    def canonical(self, name: str) -> str:
        """What a normalised name stands for in the end."""
        if name not in self._stands_for:
            return name
        seen = [name]
        while (after := self._stands_for.get(seen[-1])) is not None:
            if after in seen:
                # Two writers at once made a ring: all in it go by the same one.
                return min(seen[seen.index(after) :])
            seen.append(after)
        return seen[-1]

    def of(self, text: str) -> str:
        """What a name as written stands for."""
        return self.canonical(normalised(text))

    def spellings(self, canonical: str) -> list[str]:
        """Every normalised name that stands for this one, itself first."""
        others = (name for name in self._members.get(canonical, ()) if name != canonical)
        return [canonical, *sorted(others)]

    def table(self) -> dict[str, str]:
        """Each alias, and what it stands for in the end."""
        return {name: self.canonical(name) for name in sorted(self._stands_for)}
