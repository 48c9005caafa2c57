"""Searching everything at once: episodes, facts and items, in one list."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, get_args

from pagefile.errors import Invalid, shown
from pagefile.memory.change import Scope
from pagefile.memory.episodes import TimeRange, bounds_of, require_limit
from pagefile.memory.item import Status as ItemStatus
from pagefile.memory.match import MemoryMatch
from pagefile.memory.reader import ItemReader
from pagefile.memory.recaller import MOST_QUERY, Recaller
from pagefile.memory.text import require_session, require_text
from pagefile.ordering import microseconds
from pagefile.recall.analysis import terms

MemoryKind = Literal["episode", "fact", "item"]
_WIDE = 1_000
_KINDS: tuple[MemoryKind, ...] = get_args(MemoryKind)
#: How many characters of a question the search for items reads.
ITEM_QUERY = 10_000


class Searching:
    """Asks each kind of memory, and merges what they find.

    Scores of kinds are brought to one scale: half is the share of the kind's own
    best, half the share of the question's terms that the memory holds. So the
    best of each kind stand high, and one that has little to do with the question
    does not stand beside one that answers it.
    """

    def __init__(self, recaller: Recaller, items: ItemReader) -> None:
        self._recaller = recaller
        self._items = items

    def search(
        self,
        query: str,
        user_id: str | None,
        limit: int,
        *,
        kinds: Sequence[MemoryKind] = _KINDS,
        session_id: str | None = None,
        time_range: TimeRange | None = None,
        status: ItemStatus | None = "active",
        scope: Scope | None = None,
        project_id: str | None = None,
        valid_at: datetime | None = None,
        known_at: datetime | None = None,
    ) -> list[MemoryMatch]:
        """The best of the kinds that are asked for; filters narrow those that have them."""
        if not isinstance(kinds, (list, tuple)) or not kinds:
            raise Invalid("kinds", shown(kinds), f"give some of {', '.join(_KINDS)}")
        if any(kind not in _KINDS for kind in kinds):
            raise Invalid("kinds", shown(kinds), f"give some of {', '.join(_KINDS)}")
        require_text("query", query, MOST_QUERY)
        if session_id is not None:
            require_session(session_id)
        low, high = bounds_of(time_range)
        if not require_limit(limit):
            return []
        # Facts and items are filtered by their time here, so more than are wanted are asked for.
        wide = limit if time_range is None else max(limit, _WIDE)
        found: list[MemoryMatch] = []
        if "episode" in kinds:
            episodes = self._recaller.episodes(query, user_id, limit, time_range, session_id, None)
            found += shares(query, [MemoryMatch.of_episode(match) for match in episodes])
        # What has no session is not found in one.
        if "fact" in kinds and session_id is None:
            facts = self._recaller.facts(query, user_id, wide, valid_at, known_at)
            found += shares(query, [MemoryMatch.of_fact(match) for match in facts])
        if "item" in kinds and session_id is None and query.strip():
            items = self._items.search(
                query[:ITEM_QUERY],
                scope=scope,
                user_id=user_id,
                project_id=project_id,
                status=status,
                top_k=wide,
            )
            found += shares(query, [MemoryMatch.of_item(hit.item, hit.score) for hit in items])
        within = [one for one in found if low <= microseconds(one.at) <= high]
        # Stable: of equal scores, episodes stand before facts, and facts before items.
        return sorted(within, key=lambda match: -match.score)[:limit]


def shares(query: str, matches: list[MemoryMatch]) -> list[MemoryMatch]:
    """Scores on one scale, at most 1, for any kind."""
    asked = frozenset(terms(query))
    best = max((match.score for match in matches), default=0.0)
    return [
        match.with_score(
            0.5 * (match.score / best if best > 0 else 0.0) + 0.5 * _held(asked, match)
        )
        for match in matches
    ]


def _held(asked: frozenset[str], match: MemoryMatch) -> float:
    """The share of the question's terms that the memory holds; all when it has none."""
    return len(asked & frozenset(terms(match.text))) / len(asked) if asked else 1.0
