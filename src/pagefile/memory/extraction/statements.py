"""Facts that need more than a table: activities, belongings, attributes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from pagefile.memory.extraction import dates, objects, people, words
from pagefile.memory.extraction.clauses import Phrase
from pagefile.memory.extraction.words import favorite

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


# Attributes that are said to be something: "my X is Y", "Y is my favourite X".


_BREAKS = re.compile(r"(?:on|in|at|spelled|spelt|not|broken|written|listed|too|hard|easy) ", re.I)


def _text(text: str) -> str:
    return "" if _BREAKS.match(text + " ") else objects.thing(text)


def _attribute_name(text: str) -> str:
    name = "" if _BREAKS.match(text + " ") else objects.person(text)
    if name or not text.islower() or not text.isalpha() or text in words.NOT_NAMES:
        return name
    return text  # Typed without capitals, after words that leave no doubt.


def _address(text: str) -> str:
    found = re.fullmatch(r"[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}", text.strip(" .<>"))
    return found[0] if found else ""


def _phone(text: str) -> str:
    found = re.fullmatch(r"\+?[\d(][\d ()./-]{4,20}\d", text.strip(" ."))
    return found[0] if found else ""


def _measure(text: str) -> str:
    return objects.thing(text) if re.search(r"\d", text) else ""


def _birthday(text: str) -> str:
    return objects.day(re.sub(r"^on ", "", text)) if re.search(r"\d", text) else ""


def _language(text: str) -> Sequence[str]:
    return objects.languages(text)


_ATTRIBUTES: tuple[tuple[str, str, Callable[[str], str | Sequence[str]], float], ...] = (
    (r"(?:full |first |real |given |legal )?name", "has_name", _attribute_name, 0.95),
    (r"nickname", "nickname", _attribute_name, 0.9),
    (r"pronouns", "pronouns", _text, 0.95),
    (r"(?:birthday|date of birth|birth date)", "birthday", _birthday, 0.95),
    (r"age", "age", objects.age, 0.95),
    (r"e-?mail(?: address)?", "email", _address, 0.95),
    (r"(?:phone|mobile|cell|telephone)(?: phone)?(?: number)?", "phone", _phone, 0.95),
    (r"(?:home |postal |street )?address", "address", _measure, 0.85),
    (r"(?:time ?zone|timezone)", "timezone", _text, 0.95),
    (r"blood (?:type|group)", "blood_type", _text, 0.95),
    (r"(?:native language|mother tongue|first language)", "native_language", _language, 0.95),
    (r"(?:job title|occupation|profession)", "job_title", _text, 0.95),
    (r"job", "job_title", objects.job, 0.8),
    (r"employer", "works_at", objects.organisation, 0.9),
    (r"home ?town", "comes_from", objects.place, 0.9),
    (r"height", "height", _measure, 0.85),
    (r"weight", "weight", _measure, 0.85),
    (r"shoe size", "shoe_size", _measure, 0.9),
    (r"(?:zodiac|star) sign", "zodiac_sign", _text, 0.9),
    (r"nationality", "nationality", _text, 0.9),
    (r"religion", "religion", _text, 0.9),
    (r"(?:website|blog)", "website", _text, 0.85),
    (r"(?:main |biggest )?hobb(?:y|ies)", "hobby", objects.things, 0.9),
    (r"major", "studies", _text, 0.85),
)
_TABLE = tuple((re.compile(words_, re.I), p, clean, sure) for words_, p, clean, sure in _ATTRIBUTES)
_IS = re.compile(r"(?P<what>[\w' -]{2,40}?)(?:'s| (?:is|are))(?P<no> not)? (?P<value>.+)$", re.I)
_FAVORITE = re.compile(
    r"(?:all-time )?favou?rite (?P<thing>(?!one|thing|part|way|bit)\w{2,20}(?: (?!to\b|of\b|"
    r"in\b)\w{2,20})?)",
    re.I,
)
_REVERSED = re.compile(r"(?P<value>.{1,60}?) (?:is|are) (?:my|our) (?P<what>.+)$", re.I)
_PLURAL = re.compile(r"(?<=[a-z]{2})s$")
_SPELLINGS = {"colour": "color", "colours": "color", "movies": "movie", "series": "series"}


class Attribute(msgspec.Struct, frozen=True):
    """An attribute and its values; denied when the clause says what it is not."""

    predicate: str
    values: tuple[str, ...]
    confidence: float
    denied: bool = False


def attribute_of(rest: str) -> Attribute | None:
    """What "X is Y" says, after "my"; None when X is no attribute that rules know."""
    found = _IS.match(rest)
    if found is None:
        return None
    return _read(found["what"], found["value"], denied=found["no"] is not None)


def reversed_attribute_of(clause: str) -> Attribute | None:
    """The same, the other way round: "Y is my favourite X"."""
    found = _REVERSED.match(clause)
    if found is None or _FAVORITE.fullmatch(found["what"].strip(" .")) is None:
        return None
    return _read(found["what"].strip(" ."), found["value"])


def again(attribute: Attribute, value: str) -> Attribute | None:
    """What "it is Y" says after a clause that told what it is not."""
    for pattern, predicate, clean, sure in _TABLE:
        del pattern
        if predicate == attribute.predicate:
            return _cleaned(predicate, clean, sure, value, False)
    return None


def _read(what: str, value: str, denied: bool = False) -> Attribute | None:
    if liked := _FAVORITE.fullmatch(what):
        kind = liked["thing"].lower()
        kind = _SPELLINGS.get(kind) or _PLURAL.sub("", kind)
        return _cleaned(favorite(kind), objects.things, 0.95, value, denied)
    for pattern, predicate, clean, sure in _TABLE:
        if pattern.fullmatch(what):
            return _cleaned(predicate, clean, sure, value, denied)
    return None


def _cleaned(
    predicate: str,
    clean: Callable[[str], str | Sequence[str]],
    sure: float,
    value: str,
    denied: bool,
) -> Attribute | None:
    cleaned = clean(value)
    values = (cleaned,) if isinstance(cleaned, str) else tuple(cleaned)
    values = tuple(value for value in values if value)
    return Attribute(predicate, values, sure, denied) if values else None


def named(predicate: str, value: str) -> Attribute | None:
    """Somebody's name for themselves, under a predicate."""
    return _cleaned(
        predicate, _attribute_name, 0.9, re.sub(r",? (?:please|from now on).*$", "", value), False
    )
