"""What a search of memory gives back: the thing, its score, and why it is here."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec

from pagefile.memory.episodes.episode import Episode
from pagefile.memory.facts.documents import document_of as fact_document
from pagefile.memory.facts.fact import Fact
from pagefile.memory.items.item import MemoryItem, place_of
from pagefile.recall.hit import Hit


class EpisodeMatch(msgspec.Struct, frozen=True, kw_only=True):
    """An episode that was found. A higher `score` is a better match.

    `hit` explains it: rank and score in each arm, the terms that matched, and
    what lifted it. It is None when there was no query and the newest were asked for.
    """

    episode: Episode
    score: float
    vector_score: float | None = None
    bm25_score: float | None = None
    rerank_score: float | None = None
    hit: Hit | None = None


class FactMatch(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that was found, and why."""

    fact: Fact
    score: float
    hit: Hit | None = None


class MemoryMatch(msgspec.Struct, frozen=True, kw_only=True):
    """Anything that was found; `kind` says what `value` is, scores of all kinds compare."""

    kind: Literal["episode", "fact", "item"]
    id: str
    text: str
    score: float
    at: datetime
    value: Episode | Fact | MemoryItem
    hit: Hit | None = None

    def with_score(self, score: float) -> MemoryMatch:
        """The same with another score."""
        return msgspec.structs.replace(self, score=score)

    @classmethod
    def of_episode(cls, match: EpisodeMatch) -> MemoryMatch:
        episode = match.episode
        return cls(
            kind="episode",
            id=episode.id,
            text=episode.text,
            score=match.score,
            at=episode.occurred_at,
            value=episode,
            hit=match.hit,
        )

    @classmethod
    def of_fact(cls, match: FactMatch) -> MemoryMatch:
        fact = match.fact
        return cls(
            kind="fact",
            id=fact.id,
            text=fact.text,
            score=match.score,
            at=fact.valid_from,
            value=fact,
            hit=match.hit,
        )

    @classmethod
    def of_item(cls, item: MemoryItem, score: float, hit: Hit | None = None) -> MemoryMatch:
        return cls(
            kind="item",
            id=item.memory_id,
            text=item.content,
            score=score,
            at=item.updated_at,
            value=item,
            hit=hit,
        )

    @property
    def document(self) -> str:
        """The name of the document that holds it."""
        value = self.value
        if isinstance(value, Episode):
            return value.document
        if isinstance(value, Fact):
            return fact_document(value.user_id, value.id)
        return place_of(value.scope, value.user_id, value.project_id).document(value.memory_id)
