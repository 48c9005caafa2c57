"""What an extractor reads and what it proposes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable

import msgspec

from pagefile.errors import Invalid, shown


class Candidate(msgspec.Struct, frozen=True):
    """A fact that an exchange seems to state; nothing is true before it is committed.

    `valid_from` None means that the exchange does not say since when. A set
    `valid_until` with `valid_from` None means "it was so, and ended then": what
    is known of it closes at that time. `quote` is the clause it was read in.
    """

    subject: str
    predicate: str
    object: str
    confidence: float
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    quote: str = ""

    def __post_init__(self) -> None:
        for field in ("subject", "predicate", "object"):
            value = getattr(self, field)
            if not isinstance(value, str) or not value.strip():
                raise Invalid(field, f"{shown(value)} is no text", "give a text that is not blank")
        # Compared, not only typed: a NaN is between no bounds.
        if not isinstance(self.confidence, int | float) or not 0 <= self.confidence <= 1:
            raise Invalid("confidence", shown(self.confidence), "give a number from 0 to 1")
        for field in ("valid_from", "valid_until"):
            _require_aware(field, getattr(self, field))
        if self.valid_from and self.valid_until and self.valid_until <= self.valid_from:
            raise Invalid("valid_until", "it is not after valid_from", "give a later time")


class Exchange(Protocol):
    """One finished turn: what was said to the agent, and what it answered."""

    @property
    def input(self) -> str: ...
    @property
    def output(self) -> str: ...
    @property
    def occurred_at(self) -> datetime: ...
    @property
    def speaker(self) -> str | None: ...
    @property
    def user_id(self) -> str | None: ...


@runtime_checkable
class Extractor(Protocol):
    """Reads exchanges. `name` and `version` say who proposed a fact, and by which rules."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...

    def extract(
        self, exchange: Exchange, *, cancel: threading.Event | None = None
    ) -> list[Candidate]:
        """The facts that the exchange states, in the order in which it states them.

        An empty list means that it states none; an extractor that could not tell raises.
        """
        ...


def signature_of(extractor: Extractor) -> str:
    """Who proposed a fact, and by which rules, in a word that is kept with it."""
    return f"{extractor.name}/{extractor.version}"


def speaker_of(exchange: Exchange) -> str:
    """Who says "I": the speaker by name, or the user."""
    return " ".join((exchange.speaker or "").split()) or "user"


def distinct(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Each statement once, the surest, where it was first made; of two spans each is one."""
    best: dict[tuple[object, ...], Candidate] = {}
    for candidate in candidates:
        since, until = candidate.valid_from, candidate.valid_until
        key = (
            candidate.subject.casefold(),
            candidate.predicate,
            candidate.object.casefold(),
            (since, until) if since is not None and until is not None else until is not None,
        )
        known = best.get(key)
        if known is None or known.confidence < candidate.confidence:
            best[key] = candidate
    return list(best.values())


def _require_aware(field: str, moment: datetime | None) -> None:
    if moment is None:
        return
    if not isinstance(moment, datetime) or moment.utcoffset() is None:
        raise Invalid(field, f"{shown(moment)} has no time zone", "give an aware datetime")
