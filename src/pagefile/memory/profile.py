"""What is known of a user at a glance."""

from __future__ import annotations

from datetime import datetime

import msgspec

from pagefile.memory.episodes.store import Episodes
from pagefile.memory.facts.fact import Fact
from pagefile.memory.facts.store import FactStore
from pagefile.memory.names import owner_key
from pagefile.recall.index import SearchIndex
from pagefile.store.store import Store

_MOST_SHOWN = 10


class MemoryProfile(msgspec.Struct, frozen=True, kw_only=True):
    """How much is kept of a user, and the newest of it.

    `fact_count` is of facts that hold now, each once however often it was asserted.
    `recent_sessions` are those with the newest episodes, newest first;
    `sample_facts` hold now and were recorded last. Both at most ten.
    """

    user_id: str | None
    episode_count: int = 0
    fact_count: int = 0
    block_count: int = 0
    last_seen: datetime | None = None
    recent_sessions: tuple[str, ...] = ()
    sample_facts: tuple[Fact, ...] = ()


class Profiles:
    """Counts of episodes from the index, of facts from what holds."""

    def __init__(self, store: Store, index: SearchIndex, facts: FactStore) -> None:
        self._index = index
        self._facts = facts
        self._episodes = Episodes(store)

    def profile(self, user_id: str | None, block_count: int) -> MemoryProfile:
        """The profile of one user."""
        counts = self._index.counts(owner_key(user_id))
        newest = self._episodes.newest(user_id, 1)
        fact_count, sample = self._facts.overview(user_id=user_id, limit=_MOST_SHOWN)
        return MemoryProfile(
            user_id=user_id,
            episode_count=counts.get("episode", 0),
            fact_count=fact_count,
            block_count=block_count,
            last_seen=newest[0].occurred_at if newest else None,
            recent_sessions=tuple(
                self._index.recent_sessions(owner_key(user_id), "episode", _MOST_SHOWN)
            ),
            sample_facts=tuple(sample),
        )
