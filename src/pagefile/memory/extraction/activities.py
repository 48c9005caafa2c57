"""What people have at home, plan and do again and again: facts that need more than a table."""

from __future__ import annotations

import re
from datetime import datetime

import msgspec

from pagefile.memory.extraction import objects, people, words
from pagefile.memory.extraction.phrases import Phrase
from pagefile.recall.text import dates

_COUNTED = rf"(?:an?|my own|{dates.NUMBER}|several|some|many)"
_NAMED = re.compile(r"^(?P<what>.+?),? (?:named|called|whose name is) (?P<name>.+)$", re.I)
_AGES = re.compile(r",? (?:ages?|aged) [\w ,]{1,30}$", re.I)
_APPOSED = re.compile(r"^(?P<what>[^,]+), (?P<name>[A-ZÀ-Þ].*)$")
_HOUSE = re.compile(rf"(?P<verb>have|has|adopted|got|own|owns) (?P<list>{_COUNTED} .+)$", re.I)
_OWN = re.compile(r" (?:too|of my own|of our own|as well|at home|now|already)$", re.I)
_ITEM = re.compile(rf"(?P<count>{_COUNTED}) (?P<what>[\w' -]+)$", re.I)
_PET_NOUN = re.compile(rf"(?:[\w-]+ ){{0,2}}{words.PETS}s?$", re.I)
_KINSMAN = re.compile(
    r"(?:(?:younger|older|little|big|twin|elder|half|step|baby|adult|grown) ?-?){0,2}"
)

_ACTIVITIES = (
    r"(?:get up|wake up|have|eat|drink|take|go|walk|run|cycle|bike|swim|train|work out|"
    r"exercise|read|"
    r"cook|sleep|meditate|commute|call|visit|play|watch|listen|practi[cs]e|do|jog|skip|start|finish|"
    r"garden|paint|bake|dance|hike|climb|ski|surf|travel|volunteer|attend|meet|teach|work "
    r"from home)"
)
_OFTEN = (
    r"(?:every (?:single )?(?:other )?(?:morning|evening|night|day|week|weekend|month|year|summer|"
    r"winter|monday|tuesday|wednesday|thursday|friday|saturday|sunday)|daily|weekly|"
    rf"(?:once|twice|{dates.NUMBER} times) (?:a|per) (?:day|week|month|year)|"
    r"on (?:mon|tues|wednes|thurs|fri|satur|sun)days|on weekends|on weekdays|each (?:morning|"
    r"night))"
)
_HABIT = re.compile(rf"(?P<o>{_ACTIVITIES}\b.*?\b{_OFTEN})$|(?P<o2>{_ACTIVITIES} {_OFTEN})$", re.I)
_ROUTINE = re.compile(
    rf"(?:usually|always|normally|typically|generally) (?P<o>{_ACTIVITIES}\b.+)$", re.I
)
_MEDICINE = re.compile(rf"takes? {words.MEDICINE}\b", re.I)
_FREE_TIME = re.compile(
    r"in (?:my|our) (?:free|spare) time,? (?:i|we)(?: like to| love to| enjoy| mostly| "
    r"often)? (?P<o>.+)$",
    re.I,
)

_LIFE_VERBS = (
    r"(?:visit|move|travel|fly|go|marry|get married|buy|sell|learn|study|run|start|launch|"
    r"open|apply|"
    r"retire|quit|graduate|adopt|hike|climb|attend|take|meet|see|join|train|renovate|build|write|"
    r"spend|celebrate|have surgery|host|compete|enroll|read|paint|finish|change|propose|watch)"
)
_WILL = re.compile(rf"(?:am|are|is) (?:going to|planning to) (?P<o>{_LIFE_VERBS}\b.*)$", re.I)
_PLAN = re.compile(rf"(?:plan|intend|{'have decided'}|decided) to (?P<o>{_LIFE_VERBS}\b.*)$", re.I)
_COMING = re.compile(
    r"(?:am|are|is) (?P<verb>going|flying|travell?ing|moving|getting|visiting|starting|meeting|"
    r"leaving|having|running|attending|buying|joining|driving|hosting|launching)(?P<o> "
    r"(?!ready|better|back|started|close|used|fun|trouble|along|over).+)$",
    re.I,
)
_BASES = {
    "getting": "get", "running": "run", "having": "have", "leaving": "leave", "moving": "move",
    "driving": "drive", "travelling": "travel", "traveling": "travel",
}  # fmt: skip
_DEICTIC = re.compile(
    r"\b(?:this|that|it|you|your|error|bug|them|these|those|crazy|there|here)\b", re.I
)


class Doing(msgspec.Struct, frozen=True):
    """A fact about somebody; about what it names, when `subject` is set."""

    predicate: str
    object: str
    confidence: float
    subject: str = ""
    #: When it began, or None; and when it will be over.
    since: datetime | None = None
    until: datetime | None = None


def household(phrase: Phrase) -> list[Doing]:
    """Pets and relatives that somebody has: "a dog named Rex and two sons"."""
    found = _HOUSE.match(phrase.text)
    if found is None:
        return []
    doings: list[Doing] = []
    for part in re.split(rf",? and (?={_COUNTED} )|, (?={_COUNTED} )", found["list"], flags=re.I):
        doings += _had(_AGES.sub("", _OWN.sub("", part.strip(" ,."))))
    return doings


def _had(part: str) -> list[Doing]:
    named = _NAMED.match(part) or _APPOSED.match(part)
    item = _ITEM.match(named["what"] if named else part)
    if item is None:
        return []
    what, count = item["what"], item["count"].lower()
    single = count in ("a", "an", "my own", "one")
    if named and named.re is _APPOSED and not people.names(named["name"]):
        return []
    name = _name(named["name"]) if named else ""
    if named and not single and (several := _several(what, count, named["name"])):
        return several
    if _PET_NOUN.match(what):
        if name and single:
            return [Doing("has_pet", name, 0.95), Doing("is_a", what.lower(), 0.95, name)]
        return [Doing("has_pet", what if single else f"{count} {what}", 0.85)]
    noun = what[_KINSMAN.match(what).end() :].strip() if _KINSMAN.match(what) else what  # type: ignore[union-attr]
    if not people.household(noun):
        return []
    if name and single and (predicate := people.relation(noun)):
        return [Doing(predicate, name, 0.95)]
    return [Doing("has_family", what if single else f"{count} {what}", 0.85)]


def _several(what: str, count: str, said: str) -> list[Doing]:
    """ "Two kids, Emma and Liam": each by name, when there are as many names."""
    names = people.names(said)
    if not names or dates.number_of(count) not in (None, len(names)):
        return []
    if _PET_NOUN.match(what):
        kind = re.sub(r"ies$", "y", what.lower()) if what.endswith("ies") else what.lower()
        kind = kind.removesuffix("s")
        return [
            doing
            for name in names
            for doing in (Doing("has_pet", name, 0.9), Doing("is_a", kind, 0.9, name))
        ]
    noun = _KINSMAN.sub("", what, count=1).strip()
    predicate = people.relation(noun) or people.relation(noun.removesuffix("s"))
    return [Doing(predicate, name, 0.9) for name in names] if predicate else []


def _name(text: str) -> str:
    """A name after "named" or "called": there it is one without a capital too."""
    name = objects.person(text)
    plain = (
        text.strip(" .").isalpha() and text.islower() and text.strip(" .") not in words.NOT_NAMES
    )
    return name or (text.strip(" .").capitalize() if plain else "")


def habit(phrase: Phrase) -> list[Doing]:
    """What somebody does again and again."""
    if phrase.times or _DEICTIC.search(phrase.text) or _MEDICINE.match(phrase.text):
        return []
    if found := _ROUTINE.match(phrase.text):
        return _said("habit", found["o"], 0.75)
    if found := _HABIT.match(phrase.text):
        return _said("habit", found["o"] or found["o2"], 0.8)
    return []


def pastime(clause: str) -> list[Doing]:
    """What somebody says they do in their free time."""
    found = _FREE_TIME.match(clause)
    return _said("hobby", found["o"], 0.85) if found else []


def plan(phrase: Phrase, at: datetime) -> list[Doing]:
    """What somebody is going to do, with its date when there is one.

    A plan is a fact until its date has passed.
    """
    time = None
    for said in phrase.times:
        time = dates.time_of(said, at, forward=True) or time
    ahead = time is not None and time.kind == "point" and time.end is not None and time.end > at
    if time is not None and not ahead:
        return []
    found = _WILL.match(phrase.text) or _PLAN.match(phrase.text)
    if found:
        what, sure = found["o"], 0.8 if ahead else 0.7
    elif ahead and (found := _COMING.match(phrase.text)):
        verb = found["verb"].lower()
        what, sure = _BASES.get(verb, verb.removesuffix("ing")) + found["o"], 0.8
    else:
        return []
    if _DEICTIC.search(what) or not (what := objects.deed(what)):
        return []
    if time is None or not ahead:
        return [Doing("plans_to", what, sure)]
    return [Doing("plans_to", f"{what} ({time.label})", sure, until=time.end)]


def birth(phrase: Phrase, at: datetime) -> list[Doing]:
    """When somebody was born, from words that stand where other clauses say when."""
    if phrase.text.lower() != "was born" or phrase.polarity != "affirmed" or len(phrase.times) != 1:
        return []
    said = phrase.times[0].removeprefix("in ").removeprefix("on ")
    if re.fullmatch(dates.YEAR, said):
        return [Doing("birth_year", said, 0.95)]
    if re.fullmatch(dates.DATE, said, re.I) and dates.time_of(said, at):
        return [Doing("birthday", objects.day(said.title()), 0.95)]
    return []


def _said(predicate: str, text: str, sure: float) -> list[Doing]:
    what = objects.deed(text)
    return [Doing(predicate, what, sure)] if what else []
