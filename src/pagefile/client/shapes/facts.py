"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from pagefile.client.shapes import shared


class NewFact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An assertion. The same under its `id` again changes nothing."""

    subject: str
    predicate: str
    object: str
    id: str | None = None
    user_id: str | None = None
    confidence: float = 1.0
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    sources: Sequence[str] = []
    reason: str = ""


class Asserted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Ids of the assertions, in the order given."""

    ids: list[str]


class Facts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Facts, recorded last first."""

    items: list[shared.Fact]
    cursor: str | None


class Rectangle(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was believed over a span of valid time, during a span of recorded time."""

    fact: shared.Fact
    recorded_from: datetime
    recorded_until: datetime | None
    made_by: tuple[str, ...]
    ended_by: tuple[str, ...] = ()


class History(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Rectangles in the order they were recorded, then of valid time."""

    rectangles: tuple[Rectangle, ...]
    unseen: tuple[shared.Fact, ...]
    cut: str = ""


class Story(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why a fact is as it is."""

    asserted: shared.Fact
    status: str
    facts: tuple[shared.Fact, ...]
    support: tuple[shared.Fact, ...]
    supersedes: tuple[shared.Fact, ...]
    closed_by: tuple[shared.Fact, ...]


class Aliases(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Normalised names, and what they stand for."""

    aliases: dict[str, str]


class Done(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """It is so."""

    ok: bool


class ProposedFact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A fact somebody may want to be true: what it was read in, and what became of it."""

    fact: shared.Fact
    status: str
    proposed_by: str
    proposed_at: datetime
    quote: str = ""
    decided_by: str = ""
    decided_at: datetime | None = None
    reason: str = ""
    ends: str = ""


class Proposed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Candidates that wait, or were decided about, oldest first."""

    items: list[ProposedFact]
    cursor: str | None
