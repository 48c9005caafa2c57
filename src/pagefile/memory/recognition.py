"""Whether something was said before, nearly in the same words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pagefile.memory.document import is_kept
from pagefile.memory.duplicates import LEAST_TERMS, Duplicate, duplicates_of, similarity
from pagefile.memory.episode import Episode, episode_of
from pagefile.memory.owner import owner_key
from pagefile.recall.analysis import terms
from pagefile.recall.fusion import Weights
from pagefile.recall.index import SearchIndex
from pagefile.records import Document
from pagefile.store import Store

#: "keep" stores everything, "report" too and says so, "merge" adds to what was there.
DuplicatePolicy = Literal["keep", "report", "merge"]
POLICIES = ("keep", "report", "merge")
_COMPARED = 5
_WORDS_ALONE = Weights.plain(0)


class Recognition:
    """Finds the episode that one repeats, by the words they share; no model is asked."""

    def __init__(self, store: Store, index: SearchIndex, threshold: float = 0.9) -> None:
        self._store = store
        self._index = index
        self._threshold = threshold

    def earlier(self, episode: Episode) -> tuple[Duplicate, Document] | None:
        """The stored episode that says the same; None when there is none.

        One that is stored already is itself, and repeats nothing.
        """
        said = frozenset(terms(episode.text))
        if len(said) < LEAST_TERMS or is_kept(self._store, episode.document):
            return None
        hits = self._index.search(
            owner_key(episode.user_id),
            episode.text,
            limit=_COMPARED,
            kinds=("episode",),
            weights=_WORDS_ALONE,
            explain=False,
        )
        best: tuple[Duplicate, Document] | None = None
        for hit in hits:
            found = self._store.get(hit.key)
            if found is None or found.erased or found.user != episode.user_id:
                continue
            other = episode_of(found)
            share = similarity(said, terms(other.text))
            if other.speaker != episode.speaker or share < self._threshold:
                continue
            if best is None or share > best[0].similarity:
                best = Duplicate(episode.id, other.id, share), found
        return best

    def within(self, episodes: Sequence[Episode]) -> list[tuple[Episode, Episode, float]]:
        """Which of these says what one before it says, and which that is."""
        groups: dict[tuple[str | None, str | None], list[Episode]] = {}
        for episode in episodes:
            groups.setdefault((episode.user_id, episode.speaker), []).append(episode)
        found: list[tuple[Episode, Episode, float]] = []
        for group in groups.values():
            named = {episode.document: episode for episode in group}
            texts = {name: terms(episode.text) for name, episode in named.items()}
            found += [
                (named[one.key], named[one.of], one.similarity)
                for one in duplicates_of(texts, self._threshold)
            ]
        return found
