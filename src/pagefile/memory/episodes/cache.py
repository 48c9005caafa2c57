"""Episodes as they were last read, for as long as nothing in the store has changed."""

from __future__ import annotations

from collections.abc import Sequence

from pagefile.memory.episodes.episode import Episode, episode_of
from pagefile.store.store import Store

#: How many are kept, and how many characters of them; beyond, all are let go.
_MOST = 4_096
_MOST_CHARACTERS = 4_000_000


class KnownEpisodes:
    """Reads episodes; what is asked for again before the next commit is not read again."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept = _Kept(None)

    def read(
        self, names: Sequence[str], user_id: str | None, stamp: int | None
    ) -> list[Episode | None]:
        """The episodes of these documents; None where one is gone, or not this user's.

        `stamp` is the store's, from before.
        """
        kept = self._kept
        if stamp is None or kept.stamp != stamp:
            kept = self._kept = _Kept(stamp)
        known = kept.episodes
        missing = [name for name in names if name not in known]
        fresh: dict[str, Episode] = {}
        if missing:
            for document in self._store.get_many(missing):
                if document is None or document.erased or document.user != user_id:
                    continue
                fresh[document.name] = episode = episode_of(document)
                if stamp is not None:
                    kept.add(document.name, episode)
        found = (fresh.get(name) or known.get(name) for name in names)
        return [one if one is not None and one.user_id == user_id else None for one in found]


class _Kept:
    """What was read since a stamp was taken."""

    def __init__(self, stamp: int | None) -> None:
        self.stamp = stamp
        self.episodes: dict[str, Episode] = {}
        self._characters = 0

    def add(self, name: str, episode: Episode) -> None:
        if episode.tool_calls or episode.tool_transcript is not None:
            return  # Arguments of a call are a dict, which its owner may change.
        size = len(episode.input) + len(episode.output)
        if len(self.episodes) >= _MOST or self._characters + size > _MOST_CHARACTERS:
            self.episodes.clear()
            self._characters = 0
        if size <= _MOST_CHARACTERS:
            self.episodes[name] = episode
            self._characters += size
