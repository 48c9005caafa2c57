"""Searching everything at once: episodes, facts and items, in one list."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, get_args

import msgspec

from pagefile.errors import Invalid, shown
from pagefile.memory.episodes.store import TimeRange, bounds_of, require_limit
from pagefile.memory.facts.fact import Status as FactStatus
from pagefile.memory.items.change import Scope
from pagefile.memory.items.item import Status as ItemStatus
from pagefile.memory.items.reader import ItemReader
from pagefile.memory.items.text_search import Hit as ItemHit
from pagefile.memory.items.text_search import words
from pagefile.memory.provenance import UseRecorder
from pagefile.memory.recaller import MOST_QUERY, MemoryMatch, Recaller
from pagefile.memory.serializer import require_session, require_text
from pagefile.recall.hit import Arm, Hit
from pagefile.recall.text.analysis import terms
from pagefile.store.codec.sort_key import microseconds

MemoryKind = Literal["episode", "fact", "item"]
_WIDE = 1_000
_KINDS: tuple[MemoryKind, ...] = get_args(MemoryKind)
#: Which facts an item's status asks for; of the others there are none.
_OF_FACTS: dict[ItemStatus | None, FactStatus | None] = {
    "active": "active",
    "superseded": "superseded",
    None: None,
}
#: How many characters of a question the search for items reads.
ITEM_QUERY = 10_000


class Searching:
    """Asks each kind of memory, and merges what they find.

    Scores of kinds are brought to one scale: half is the share of the kind's own
    best, half the share of the question's terms that the memory holds. So the
    best of each kind stand high, and one that has little to do with the question
    does not stand beside one that answers it.
    """

    def __init__(self, recaller: Recaller, items: ItemReader, uses: UseRecorder) -> None:
        self._recaller = recaller
        self._items = items
        self._uses = uses

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
        for field, value, known in (("status", status, ItemStatus), ("scope", scope, Scope)):
            if value is not None and value not in get_args(known):
                step = f"use one of {', '.join(get_args(known))}, or None"
                raise Invalid(field, shown(value), step)
        require_text("query", query, MOST_QUERY)
        if session_id is not None:
            require_session(session_id)
        low, high = bounds_of(time_range)
        if not require_limit(limit):
            return []
        # Facts and items are filtered by their time here, so more than are wanted are asked for.
        wide = limit if time_range is None else max(limit, _WIDE)
        # Episodes and facts are a user's; an episode holds for good, and a fact has no other
        # statuses of an item's than these.
        own = scope in (None, "user")
        found: list[MemoryMatch] = []
        if "episode" in kinds and own and status in (None, "active"):
            episodes = self._recaller.episodes(
                query, user_id, limit, time_range, session_id, None, note=False
            )
            found += shares(query, [MemoryMatch.of_episode(match) for match in episodes])
        # What has no session is not found in one.
        if "fact" in kinds and session_id is None and own and status in _OF_FACTS:
            facts = self._recaller.facts(
                query, user_id, wide, valid_at, known_at, status=_OF_FACTS[status], note=False
            )
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
            found += shares(query, _explained(query[:ITEM_QUERY], items))
        within = [one for one in found if low <= microseconds(one.at) <= high]
        # Stable: of equal scores, episodes stand before facts, and facts before items.
        best = sorted(within, key=lambda match: -match.score)[:limit]
        # Only what is given back was used; the newest for a blank question answer nothing.
        if self._uses.is_on and query.strip():
            self._uses.note(user_id, [match.document for match in best])
        return best


def _explained(query: str, items: Sequence[ItemHit]) -> list[MemoryMatch]:
    """Items with their reasons: they are found by the words they share with the question."""
    asked = list(dict.fromkeys(words(query)))
    found: list[MemoryMatch] = []
    for rank, one in enumerate(items, 1):
        match = MemoryMatch.of_item(one.item, one.score)
        held = frozenset(words(one.item.content))
        hit = Hit(
            key=match.document,
            kind="item",
            score=one.score,
            time_us=microseconds(match.at),
            status=one.item.status,
            scope=one.item.scope,
            arms=(Arm("lexical", rank, one.score, one.score),),
            matched=tuple(word for word in asked if word in held),
        )
        found.append(msgspec.structs.replace(match, hit=hit))
    return found


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
