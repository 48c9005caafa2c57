"""What is kept of a user, looked over: how much, from where, and what stands there twice."""

from __future__ import annotations

from typing import Any

import msgspec

from pagefile.memory.blocks import Blocks
from pagefile.memory.episodes.duplicates import (
    Duplicate,
    duplicates_of,
    repetitions,
    require_threshold,
)
from pagefile.memory.episodes.episode import episode_of, stored_form
from pagefile.memory.episodes.store import Episodes, require_limit
from pagefile.memory.names import owner_key
from pagefile.memory.privacy.isolation import named_users
from pagefile.memory.profile import MemoryProfile, Profiles
from pagefile.memory.provenance import Provenance, Provenances
from pagefile.memory.serializer import require_text
from pagefile.memory.user_check import WatchedCalls
from pagefile.recall.index import SearchIndex
from pagefile.store.arguments import require_count


class Overview(WatchedCalls):
    """The part of `Memory` that shows what is kept, and changes nothing."""

    _blocks: Blocks
    _episodes: Episodes
    _index: SearchIndex
    _profiles: Profiles
    _provenances: Provenances

    def profile(self, *, user_id: str | None = None) -> MemoryProfile:
        """How much is kept of a user, and the newest of it."""
        self._watch(user_id)
        return self._profiles.profile(user_id, len(self._blocks.all(user_id)))

    def snapshot(self, *, user_id: str | None = None) -> dict[str, Any]:
        """A user's blocks and episodes as plain values, for looking at."""
        self._watch(user_id)
        return {
            "blocks": [msgspec.to_builtins(block) for block in self._blocks.all(user_id)],
            "episodes": [
                stored_form(episode_of(found)) for found in self._episodes.documents(user_id)
            ],
        }

    def duplicates(
        self, *, user_id: str | None = None, threshold: float = 0.9, limit: int = 100
    ) -> list[Duplicate]:
        """Episodes that say what an earlier one says, nearly in the same words.

        Goes through all episodes of the user, in the order of their time; ids, with
        the share of terms in common, and whether it is the same word for word.
        Of a few words, only what is.
        """
        self._watch(user_id)
        share = require_threshold(threshold)
        most = require_limit(limit, 10_000)
        texts = self._index.texts(owner_key(user_id), "episode")
        named = {key.rsplit("/", 1)[1]: terms for key, terms in texts.items()}
        found = {one.key: one for one in duplicates_of(named, share)}
        found |= {one.key: one for one in repetitions(self._store, texts).values()}
        return [found[name] for name in named if name in found][:most]

    def why(
        self, memory_id: str, *, user_id: str | None = None, project_id: str | None = None
    ) -> Provenance:
        """Where a memory comes from: its sources, who let it in, what it replaced, who used it.

        Raises:
            NotFound: nothing of that id is to be seen with this user and project.
        """
        self._watch(user_id)
        return self._provenances.why(memory_id, user_id, project_id)

    def users(self, *, after: str = "", limit: int = 100) -> list[str]:
        """Named users whose memories are kept, in order; for operators."""
        require_text("after", after)
        require_count(limit, "limit", most=10_000)
        return named_users(self._store, after=after, limit=limit)
