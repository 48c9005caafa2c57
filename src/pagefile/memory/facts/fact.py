"""A fact: who, what about them, from when to when, how sure, and said by whom.

What a caller writes down is an *assertion*. What a reader gets is the same
record with the window in which it holds, computed from all assertions known.
"""

from __future__ import annotations

import math
import re
import unicodedata
from datetime import UTC, datetime
from functools import lru_cache
from typing import Literal

import msgspec

from pagefile.errors import Invalid, shown
from pagefile.memory.documents import new_id
from pagefile.memory.items.change import MOST_ID_BYTES, require_name, require_name_or_none
from pagefile.store import clock
from pagefile.store.arguments import Naming
from pagefile.store.codec import sort_key

MOST_TEXT = 4_096
MOST_PREDICATE_BYTES = 256
MOST_REASON = 4_096
MOST_SOURCES = 1_024

#: "asserted" is what a fact is before it is placed among the others.
Status = Literal["asserted", "active", "future", "ended", "superseded", "outweighed", "retracted"]
How = Literal["superseded", "outweighed", "retracted"]

_IDS = Naming(MOST_ID_BYTES)
_PREDICATES = Naming(MOST_PREDICATE_BYTES)
_UNREADABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_HUMP = re.compile("(?<=[a-z0-9])(?=[A-Z])")
_GAP = re.compile(r"[\s-]+")


class Closing(msgspec.Struct, frozen=True):
    """What ended a fact, or keeps an assertion from being seen.

    `by` is the id of the assertion that took over, or of the retraction;
    `reason` and `actor` are what came with that, and when it was recorded.
    """

    how: How
    by: str
    reason: str = ""
    actor: str = ""
    recorded_at: datetime | None = None


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """Subject, predicate, object; true from `valid_from` until just before `valid_until`.

    `recorded_at` is the store's to say: it is None until the fact is stored.
    Given all the same, it is kept, for what was learnt elsewhere and is
    brought in. The last four fields are computed on reading: `status`, what
    closed it, and `asserted`, the ids of all assertions that say it.
    """

    subject: str
    predicate: str
    object: str
    id: str = msgspec.field(default_factory=lambda: new_id("fact"))
    user_id: str | None = None
    confidence: float = 1.0
    valid_from: datetime = msgspec.field(default_factory=clock.now)
    valid_until: datetime | None = None
    recorded_at: datetime | None = None
    sources: tuple[str, ...] = ()
    reason: str = ""
    actor: str = ""
    status: Status = "asserted"
    superseded_by: str | None = None
    closed: Closing | None = None
    asserted: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _IDS.check_text("id", self.id)
        require_name_or_none("user_id", self.user_id)
        require_text("subject", self.subject)
        require_text("object", self.object)
        _set(self, "predicate", canonical_predicate(self.predicate))
        _set(self, "confidence", require_confidence(self.confidence))
        for field in ("valid_from", "valid_until", "recorded_at"):
            moment = getattr(self, field)
            if moment is not None or field == "valid_from":
                _set(self, field, require_moment(field, moment))
        if self.valid_until is not None and self.valid_until <= self.valid_from:
            raise Invalid(
                "valid_until",
                f"{self.valid_until.isoformat()} is not after valid_from",
                "give a later time, or None while it is still true",
            )
        _set(self, "sources", require_sources(self.sources))
        require_reason(self.reason)
        require_actor(self.actor)

    @property
    def text(self) -> str:
        """The three parts as words."""
        return f"{self.subject} {self.predicate.replace('_', ' ')} {self.object}"

    def format(self) -> str:
        """One line for a prompt or a listing."""
        line = f"{self.subject} {self.predicate} {self.object} [confidence {self.confidence:.2f}]"
        if self.valid_until is not None:
            line += f" (until {self.valid_until.isoformat()})"
        return line

    def holds_at(self, moment: datetime) -> bool:
        """Whether the window has this moment in it."""
        until = self.valid_until
        return self.valid_from <= moment and (until is None or moment < until)


_set = msgspec.structs.force_setattr


@lru_cache(16_384)
def normalised(text: str) -> str:
    """What two spellings of one name have in common."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    return " ".join(folded.split())


def canonical_predicate(predicate: object) -> str:
    """`livesIn`, `lives-in` and `lives in` are `lives_in`.

    Raises:
        Invalid: nothing is left of it, or it is too long.
    """
    if type(predicate) is not str:
        raise Invalid("predicate", f"is of type {type(predicate).__name__}", "give a plain str")
    text = _GAP.sub("_", _HUMP.sub("_", predicate)).lower().strip("_")
    if not text:
        raise Invalid("predicate", shown(predicate), "give at least one letter")
    _PREDICATES.check_text("predicate", text)
    return text


def require_text(field: str, text: object) -> str:
    """A subject, an object or another name, if there is something in it to compare."""
    if type(text) is not str:
        raise Invalid(field, f"is of type {type(text).__name__}", "give a plain str")
    if found := _UNREADABLE.search(text):
        code = ord(found.group())
        raise Invalid(field, f"holds the control character or surrogate U+{code:04X}", "remove it")
    if len(text) > MOST_TEXT:
        raise Invalid(field, f"is {len(text)} characters long", f"give at most {MOST_TEXT}")
    if not normalised(text):
        raise Invalid(field, f"{shown(text)} is blank", "give at least one character")
    return text


def require_moment(field: str, moment: object) -> datetime:
    """The moment in UTC, if it says which one it is.

    Raises:
        Invalid: it has no time zone, or is out of range.
    """
    if not isinstance(moment, datetime):
        raise Invalid(field, f"{shown(moment)} is no datetime", "give an aware datetime")
    if moment.utcoffset() is None:
        raise Invalid(field, f"{moment.isoformat()} has no time zone", "attach one, e.g. UTC")
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        rule = "give a time from year 1 to 9999 in UTC"
        raise Invalid(field, f"{shown(moment)} is out of range", rule) from None


def require_confidence(confidence: object) -> float:
    """A number from 0 to 1; NaN, which compares with nothing, is none."""
    if isinstance(confidence, bool) or not isinstance(confidence, (int, float)):
        raise Invalid("confidence", f"{shown(confidence)} is no number", "give 0 to 1")
    if math.isnan(confidence) or not 0 <= confidence <= 1:
        raise Invalid("confidence", shown(confidence), "give 0 to 1")
    return float(confidence)


def require_sources(sources: object) -> tuple[str, ...]:
    """Ids of slots and episodes, each once, in the order given."""
    if not isinstance(sources, (list, tuple)):
        raise Invalid("sources", f"{shown(sources)} is no list", "give a list of ids")
    if len(sources) > MOST_SOURCES:
        raise Invalid("sources", f"are {len(sources)}", f"give at most {MOST_SOURCES}")
    return tuple(
        dict.fromkeys(require_name(f"sources[{i}]", source) for i, source in enumerate(sources))
    )


def require_reason(reason: object) -> str:
    """Why something was asserted or retracted; it may be left empty."""
    if type(reason) is not str or len(reason) > MOST_REASON or _UNREADABLE.search(reason):
        raise Invalid("reason", shown(reason), f"give text of at most {MOST_REASON} characters")
    return reason


def require_actor(actor: object) -> str:
    """Who did it; it may be left empty."""
    return require_name("actor", actor) if actor != "" else ""


def moment_us(field: str, moment: object) -> int:
    """The moment as microseconds since 1970 UTC."""
    return sort_key.microseconds(require_moment(field, moment))
