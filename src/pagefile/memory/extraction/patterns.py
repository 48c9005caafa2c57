"""The table of rules: what a verb phrase must look like to state a fact, and how sure that is."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from pagefile.memory.extraction import objects
from pagefile.memory.extraction.phrases import Polarity

#: How a rule's time is read: it holds, it began, it ended, or it held between two years.
Tense = Literal["holds", "began", "ended", "held", "lasts"]
Cleaner = Callable[[str], str | Sequence[str]]

BE = r"(?:am|is|are|be)"
HAVE = r"(?:have|has)"


class Emit(msgspec.Struct, frozen=True):
    """One fact that a match gives: from a group of it, cleaned, under a predicate."""

    group: str
    predicate: str
    clean: Cleaner
    #: The fact ends where the rule's begins: "moved from … to …".
    ends: bool = False
    #: Without it the whole match says nothing.
    needed: bool = True


class Rule(msgspec.Struct, frozen=True):
    """A form of words, what it states and how often that is right."""

    pattern: re.Pattern[str]
    emits: tuple[Emit, ...]
    confidence: float
    tense: Tense = "holds"
    polarity: Polarity = "affirmed"
    #: Whether it may be said of others too.
    anyone: bool = True
    #: A bare "have done" says that it was once so, not that it is: it needs a "since".
    needs_since: bool = False
    #: Whether "we" say something else with it: we left the party.
    alone: bool = False


def rule(
    pattern: str,
    *emits: Emit,
    sure: float,
    tense: Tense = "holds",
    polarity: Polarity = "affirmed",
    anyone: bool = True,
    needs_since: bool = False,
    alone: bool = False,
) -> Rule:
    """A rule whose pattern is the whole phrase, in any case."""
    compiled = re.compile(pattern + r"$", re.I)
    return Rule(compiled, emits, sure, tense, polarity, anyone, needs_since, alone)


def of(predicate: str, clean: Cleaner = objects.thing, group: str = "o") -> Emit:
    """The fact without which a rule states nothing."""
    return Emit(group, predicate, clean)


def also(predicate: str, clean: Cleaner, group: str, ends: bool = False) -> Emit:
    """A fact that a rule states beside its first, if the words are there."""
    return Emit(group, predicate, clean, ends, needed=False)
