"""Recall: what answers a question, each with why it was found."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from pagefile.memory.match import EpisodeMatch, FactMatch
from pagefile.memory.memory import Memory
from pagefile.operations.binder import Id
from pagefile.operations.operation import get, operation, post
from pagefile.recall.hit import Hit

Question = Annotated[str, msgspec.Meta(max_length=100_000)]
Most = Annotated[int, msgspec.Meta(ge=0, le=1_000)]


class EpisodeMatches(msgspec.Struct, kw_only=True):
    """Episodes, best first."""

    items: list[EpisodeMatch]


class FactMatches(msgspec.Struct, kw_only=True):
    """Facts, best first."""

    items: list[FactMatch]


class Match(msgspec.Struct, kw_only=True):
    """Anything that was found; `kind` says whether `value` is an episode, a fact or an item."""

    kind: Literal["episode", "fact", "item"]
    id: str
    text: str
    score: float
    at: datetime
    value: Any
    hit: Hit | None


class Matches(msgspec.Struct, kw_only=True):
    """Whatever was found, best first."""

    items: list[Match]


recall = operation(
    Memory.recall_scored,
    http=post("/v1/recall", "recall"),
    right="read",
    takes="Question: What to find among episodes; a blank query gives the newest.",
    wire={"query": Question, "limit": Most},
    spread={"time_range": ("since", "until")},
    without=("kind",),
    gives=EpisodeMatches,
    span="search_memory",
)

recall_facts = operation(
    Memory.recall_facts_scored,
    http=post("/v1/recall/facts", "recall"),
    right="read",
    takes="FactQuestion: What to find among facts.",
    wire={"query": Question, "limit": Most},
    gives=FactMatches,
    span="search_memory",
)

search = operation(
    Memory.search,
    http=post("/v1/search", "recall"),
    right="read",
    takes="SearchQuestion: What to find among everything.",
    wire={"query": Question, "limit": Most},
    spread={"time_range": ("since", "until")},
    gives=Matches,
    span="search_memory",
)

why = operation(
    Memory.why,
    http=get("/v1/memories/{memory_id}/why", "recall"),
    wire={"memory_id": Id},
)

unscored_recall = operation(Memory.recall, span="search_memory")
unscored_recall_facts = operation(Memory.recall_facts, span="search_memory")
