"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from pagefile.client.shapes import shared


class Arm(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How one arm saw the thing: its place there, its own score, and what that adds to the sum."""

    name: str
    rank: int
    score: float
    adds: float
    where: str = ""


class Boost(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a score is other than the arms' sum."""

    name: str
    reason: str
    adds: float = 0.0
    times: float = 1.0


class Hit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was found. Scores of one search compare with each other, not with another's."""

    key: str
    kind: str
    score: float
    time_us: int
    speaker: str = ""
    session: str = ""
    status: str = ""
    scope: str = ""
    arms: tuple[Arm, ...] = ()
    matched: tuple[str, ...] = ()
    boosts: tuple[Boost, ...] = ()


class EpisodeMatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An episode that was found. A higher `score` is a better match."""

    episode: shared.Episode
    score: float
    vector_score: float | None = None
    bm25_score: float | None = None
    rerank_score: float | None = None
    hit: Hit | None = None


class EpisodeMatches(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Episodes, best first."""

    items: list[EpisodeMatch]


class FactMatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A fact that was found, and why."""

    fact: shared.Fact
    score: float
    hit: Hit | None = None


class FactMatches(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts, best first."""

    items: list[FactMatch]


class Match(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Anything that was found; `kind` says whether `value` is an episode, a fact or an item."""

    kind: str
    id: str
    text: str
    score: float
    at: datetime
    value: Any
    hit: Hit | None


class Matches(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whatever was found, best first."""

    items: list[Match]


class Use(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One recall that gave a memory back: when, at which place of its answer, and its id."""

    recall_id: str
    at: datetime
    rank: int


class Provenance(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a memory comes from and what became of it."""

    id: str
    kind: str
    text: str
    status: str = ""
    sources: tuple[str, ...] = ()
    proposed_by: str = ""
    proposed_in: str = ""
    committed_by: str = ""
    recorded_at: datetime | None = None
    reason: str = ""
    quote: str = ""
    supersedes: tuple[str, ...] = ()
    superseded_by: tuple[str, ...] = ()
    uses: tuple[Use, ...] = ()
    uses_cut: bool = False
    details: Any = None
