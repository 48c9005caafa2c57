"""What a clause says of its subject: its words in one form, affirmed, denied or ended."""

from __future__ import annotations

import re
from typing import Literal

import msgspec

from pagefile.recall.text import dates

Polarity = Literal["affirmed", "denied", "ended"]

_CONTRACTIONS = (
    (re.compile(r"\b(i)'m\b", re.I), r"\1 am"),
    (re.compile(r"\bim (?=a |an |from |\d|allergic |called |not )", re.I), "I am "),
    (re.compile(r"\b(we|you|they)'re\b", re.I), r"\1 are"),
    (re.compile(r"\b(i|we|you|they)'ve\b", re.I), r"\1 have"),
    (re.compile(r"\b(he|she|it|that|here|there)'s\b", re.I), r"\1 is"),
    (re.compile(r"\bcan(?:'t|not)\b", re.I), "can not"),
    (re.compile(r"\bwon't\b", re.I), "will not"),
    (re.compile(r"\b(do|does|did|is|are|was|were|have|has|had)n't\b", re.I), r"\1 not"),
    (re.compile(r"(?<=\w)'s (?=(?:a|an|not|from|allergic|called|named|\d+) )"), " is "),
    (re.compile(r"\b(have|has) got\b", re.I), r"\1"),
)
_LEAD = re.compile(
    r"(?:(?:(?:hi|hello|hey)(?: there| all| everyone| team| (?-i:[A-Z]\w+)(?=[,!]))?|well|so|"
    r"ok|okay|actually|btw|by the way|also|and|anyway|honestly|"
    r"now|currently|fyi|just so you know|no|nope|yes|yeah|oh|ah|unfortunately|sadly|luckily|"
    r"to be clear|in fact|for the record|for context|for reference|some background|background|"
    r"please remember|remember|note|please note|keep in mind|"
    r"i mean|i meant(?: to say)?|what i meant (?:is|was)|"
    r"correction|sorry|one thing|good (?:morning|evening|afternoon)|"
    r"right now|these days|nowadays|thanks|because|but|then|plus|update|as of today)"
    r"(?: that)?[,!:.]? )+",
    re.I,
)
_ADVERB = (
    r"(?:really|absolutely|actually|truly|also|still|now|currently|just|recently|already|totally|"
    r"definitely|certainly|simply|especially|particularly|personally|quite|very|genuinely|honestly|"
    r"originally|mostly|mainly|severely|highly|deathly|officially|basically|finally|happily|proudly|"
    r"completely|super|so|pretty|seriously|deeply|both|all|only)"
)
_ADVERBS = re.compile(
    rf"((?:(?:am|is|are|have been|has been|have|has|was|got|do) )?)((?:{_ADVERB} )+)", re.I
)
_NOT = re.compile(
    r"(?P<aux>(?:do|does|did|am|is|are|have|has|can|will|was|were|had) )?"
    r"(?P<no>not|never|hardly|barely|rarely|no|neither|without)\b(?! longer) ?",
    re.I,
)
_NO_LONGER = re.compile(r"((?:am|is|are|have|has|can) )?no longer ", re.I)
_USED_TO = re.compile(r"used to (?=[a-z])", re.I)
_STOPPED = re.compile(r"(?:have |has )?(?:stopped|quit|gave up|given up) (?=[a-z]+ing\b)", re.I)
_COMPANY = re.compile(
    r" (?:with|for|to be with|because of) (?:my|our|a|the|some|work|love)\b[\w ]{0,40}$", re.I
)


class Phrase(msgspec.Struct, frozen=True):
    """A verb phrase without adverbs, negation and words of time."""

    text: str
    polarity: Polarity
    times: tuple[str, ...]
    #: It happened just before it was said.
    just: bool = False


def plain(clause: str) -> str:
    """The clause without contractions, and without what leads into it."""
    for pattern, full in _CONTRACTIONS:
        clause = pattern.sub(full, clause)
    if lead := _LEAD.match(clause):
        clause = clause[lead.end() :]
    return clause


def phrase_of(rest: str, times: list[str]) -> Phrase | None:
    """The phrase after a subject; None when it denies the past or the future."""
    rest, late = dates.split_tail(rest)
    if not late and (company := _COMPANY.search(rest)):
        # "moved to Porto last March with my partner": the time stands before the company.
        alone, late = dates.split_tail(rest[: company.start()])
        rest = alone if late else rest
    times = [*times, *late]
    just = False
    rest, said = _without_adverbs(rest)
    just = just or "just" in said
    polarity: Polarity = "affirmed"
    if found := _USED_TO.match(rest):
        rest, polarity = rest[found.end() :], "ended"
    elif found := _NO_LONGER.match(rest):
        rest, polarity = (found[1] or "") + rest[found.end() :], "ended"
    elif found := _STOPPED.match(rest):
        rest, polarity = "am " + rest[found.end() :], "ended"
    elif found := _NOT.match(rest):
        aux = (found["aux"] or "").lower()
        if aux in ("did ", "will ", "was ", "were ", "had "):
            return None
        keeps = aux if aux in ("am ", "is ", "are ", "have ", "has ", "can ") else ""
        rest = keeps + rest[found.end() :]
        over = any(time in ("anymore", "any more", "any longer") for time in times)
        polarity = "ended" if over and found["no"].lower() == "not" else "denied"
    rest, said = _without_adverbs(rest)
    return Phrase(rest, polarity, tuple(times), just or "just" in said)


def _without_adverbs(rest: str) -> tuple[str, str]:
    found = _ADVERBS.match(rest)
    return (found[1] + rest[found.end() :], found[2].lower()) if found else (rest, "")
