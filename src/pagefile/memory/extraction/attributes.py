"""Attributes that are said to be something: "my X is Y", "Y is my favourite X"."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import msgspec

from pagefile.memory.extraction import objects, words
from pagefile.memory.extraction.predicates import favorite

_BREAKS = re.compile(r"(?:on|in|at|spelled|spelt|not|broken|written|listed|too|hard|easy) ", re.I)


def _text(text: str) -> str:
    return "" if _BREAKS.match(text + " ") else objects.thing(text)


def _name(text: str) -> str:
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
    (r"(?:full |first |real |given |legal )?name", "has_name", _name, 0.95),
    (r"nickname", "nickname", _name, 0.9),
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
        predicate, _name, 0.9, re.sub(r",? (?:please|from now on).*$", "", value), False
    )
