"""Words of time in a clause, and the days they mean, seen from when they were said."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from pagefile.memory.extraction.words import listed

_MONTHS = listed(
    """
    january february march april may june july august september october november december
    """
)
_DAYS = listed(
    """
    monday tuesday wednesday thursday friday saturday sunday
    """
)
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
_NUMBERS = listed(
    """
    zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen
    fifteen sixteen seventeen eighteen nineteen
    """
)
_TENS = listed(
    """
    twenty thirty forty fifty sixty seventy eighty ninety
    """
)

NUMBER = (
    r"(?:\d{1,3}|(?:" + "|".join(_TENS) + r")(?:[ -](?:" + "|".join(_NUMBERS[1:10]) + r"))?"
    r"|" + "|".join(reversed(_NUMBERS[1:])) + r")"
)
MONTH = r"(?:" + "|".join(
    [*_MONTHS, *(f"{m[:3]}|sept" if m[:3] == "sep" else m[:3] for m in _MONTHS)]
)
MONTH += r")\.?"
YEAR = r"(?:19|20)\d\d"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
DATE = (
    rf"(?:\d{{4}}-\d\d-\d\d|{MONTH} {_DAY}\b(?:,? {YEAR})?"
    rf"|(?:the )?{_DAY} (?:of )?{MONTH}\b(?:,? {YEAR})?)"
)
_WEEKDAY = r"(?:" + "|".join(_DAYS) + r")"
_UNIT = r"(?:day|week|month|year)s?"
_COUNT = rf"(?:a|an|a couple of|about {NUMBER}|almost {NUMBER}|over {NUMBER}|{NUMBER})"
_RELATIVE = (
    rf"(?:last|next|this|this past|this coming) "
    rf"(?:week|month|year|night|weekend|{MONTH}|{_WEEKDAY}|spring|summer|autumn|fall|winter)\b"
)
_POINT = rf"(?:{DATE}|{MONTH},? {YEAR}|{MONTH}|{YEAR}|{_RELATIVE}|yesterday|today|tomorrow)"
_PHRASE = (
    rf"(?:since {_POINT}"
    rf"|for (?:the (?:last|past) )?{_COUNT} {_UNIT}(?: now)?"
    rf"|(?:from|between) {YEAR} (?:to|until|till|and) {YEAR}"
    rf"|{_COUNT} {_UNIT} ago|in {_COUNT} {_UNIT}|in (?:early |late |mid-?)?{_POINT}|back in "
    rf"{_POINT}"
    rf"|(?:on|by|around) (?:{DATE}|{_WEEKDAY})|{DATE}|{_RELATIVE}"
    r"|yesterday|today|tomorrow|tonight|this morning"
    r"|right now|at the moment|at present|these days|nowadays|lately|recently|anymore"
    r"|any ?more|any longer|for now|now)"
)
#: No phrase of time has more characters.
_LONGEST = 48
_TAIL = re.compile(rf"(?:^|,? )({_PHRASE})$", re.I)
_HEAD = re.compile(rf"({_PHRASE}),? (?=(?:i|we|my|our)\b)", re.I)

Kind = Literal["point", "since", "between", "now", "ended"]
_NOW = {"right now", "at the moment", "at present", "these days", "nowadays", "lately", "recently"}
_NOW |= {"for now", "now"}
_ENDED = {"anymore", "any more", "any longer"}


class Time(msgspec.Struct, frozen=True):
    """When: [start, end), and how a sentence would write it as a date."""

    kind: Kind
    start: datetime | None = None
    end: datetime | None = None
    label: str = ""


def split_tail(text: str) -> tuple[str, list[str]]:
    """A clause without the words of time at its end, and those words, first said first."""
    phrases: list[str] = []
    for _ in range(3):
        found = _TAIL.search(text, max(0, len(text) - _LONGEST))
        if found is None:
            break
        phrases.insert(0, found[1].lower())
        text = text[: found.start()].rstrip(" ,")
    return text, phrases


def split_head(text: str) -> tuple[str, list[str]]:
    """The same for words of time before the subject."""
    found = _HEAD.match(text)
    return (text[found.end() :], [found[1].lower()]) if found else (text, [])


def number_of(text: str) -> int | None:
    """The number a word or digits say, up to 999."""
    text = text.lower().removeprefix("about ").removeprefix("almost ").removeprefix("over ")
    if text.isascii() and text.isdigit():
        return int(text)
    if text in ("a", "an"):
        return 1
    if text == "a couple of":
        return 2
    if text in _NUMBERS:
        return _NUMBERS.index(text)
    tens, _, ones = text.replace("-", " ").partition(" ")
    if tens in _TENS and (not ones or ones in _NUMBERS):
        return 20 + 10 * _TENS.index(tens) + (_NUMBERS.index(ones) if ones else 0)
    return None


def time_of(phrase: str, at: datetime, *, forward: bool = False) -> Time | None:
    """What a phrase means when it is said at `at`; None if the calendar has no such day.

    `forward` looks for the next month of that name, otherwise it is the last one.
    """
    try:
        return _time_of(phrase, at, forward)
    except (ValueError, OverflowError):  # 31 February; a year before the first.
        return None


def _time_of(phrase: str, at: datetime, forward: bool) -> Time | None:
    if phrase in _NOW:
        return Time("now")
    if phrase in _ENDED:
        return Time("ended")
    if phrase.startswith("since "):
        point = _span(phrase[6:], at, False)
        return point and Time("since", point.start)
    if found := re.fullmatch(rf"for (?:the (?:last|past) )?({_COUNT}) ({_UNIT})(?: now)?", phrase):
        return Time("since", _shift(at, -(number_of(found[1]) or 1), found[2]))
    if found := re.fullmatch(rf"(?:from|between) ({YEAR}) \w+ ({YEAR})", phrase):
        first, last = int(found[1]), int(found[2])
        return Time("between", _day(at, first), _day(at, last + 1)) if first <= last else None
    return _span(phrase, at, forward)


def _span(phrase: str, at: datetime, forward: bool) -> Time | None:
    phrase = re.sub(r"^(?:back )?(?:in|on|by|around) (?:early |late |mid-?)?", "", phrase)
    today = at.replace(hour=0, minute=0, second=0, microsecond=0)
    near = {"yesterday": -1, "today": 0, "tonight": 0, "this morning": 0, "tomorrow": 1}
    if phrase in near:
        return _days(today + timedelta(days=near[phrase]))
    if found := re.fullmatch(rf"({_COUNT}) ({_UNIT})( ago)?", phrase):
        sign = -1 if found[3] else 1
        start = _shift(today, sign * (number_of(found[1]) or 1), found[2])
        return _days(start)
    if found := re.fullmatch(r"(last|next|this|this past|this coming) (.+)", phrase):
        return _relative(found[1].split()[-1], found[2], today)
    if found := re.fullmatch(YEAR, phrase):
        return Time("point", _day(at, int(phrase)), _day(at, int(phrase) + 1), phrase)
    if phrase in _DAYS:
        ahead = (_DAYS.index(phrase) - today.weekday()) % 7
        return _days(today + timedelta(days=ahead if forward else ahead - 7 if ahead else 0))
    if found := re.fullmatch(rf"({MONTH})(?:,? ({YEAR}))?", phrase):
        month = _month(found[1])
        return _month_span(today, month, int(found[2]) if found[2] else None, forward)
    return _date(phrase, today, forward)


def _date(phrase: str, today: datetime, forward: bool) -> Time | None:
    if found := re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)", phrase):
        return _days(_day(today, int(found[1]), int(found[2]), int(found[3])))
    month, year = re.search(MONTH, phrase), re.search(YEAR, phrase)
    day = re.search(r"\d{1,2}(?!\d)", phrase)
    if month is None or day is None:
        return None
    first = _day(today, int(year[0]) if year else today.year, _month(month[0]), int(day[0]))
    if year is None and forward and first < today:
        first = first.replace(year=first.year + 1)
    elif year is None and not forward and first > today:
        first = first.replace(year=first.year - 1)
    return _days(first)


def _relative(which: str, unit: str, today: datetime) -> Time | None:
    step = {"last": -1, "past": -1, "this": 0, "coming": 1, "next": 1}[which]
    if unit == "night":
        return _days(today + timedelta(days=step))
    if unit in ("week", "weekend"):
        monday = today - timedelta(days=today.weekday()) + timedelta(weeks=step)
        start = monday + timedelta(days=5) if unit == "weekend" else monday
        return Time("point", start, monday + timedelta(weeks=1), f"{start:%Y-%m-%d}")
    if unit == "month":
        return _month_of(_shift(today.replace(day=1), step, "month"))
    if unit == "year":
        year = today.year + step
        return Time("point", _day(today, year), _day(today, year + 1), f"{year:04}")
    if unit in _DAYS:
        ahead = (_DAYS.index(unit) - today.weekday()) % 7
        return _days(
            today + timedelta(days=(ahead or 7) if step > 0 else ahead - 7 if step else ahead)
        )
    if unit in _SEASONS:
        start = _day(today, today.year, _SEASONS[unit])
        if step > 0 and start <= today:
            start = _shift(start, 1, "year")
        elif step < 0 and _shift(start, 3, "month") > today:
            start = _shift(start, -1, "year")
        return Time("point", start, _shift(start, 3, "month"), f"{unit} {start.year:04}")
    return _month_span(today, _month(unit), None, forward=step >= 0)


def _month_span(today: datetime, month: int, year: int | None, forward: bool) -> Time:
    start = _day(today, year or today.year, month)
    if year is None and forward and month < today.month:
        start = start.replace(year=start.year + 1)
    elif year is None and not forward and month > today.month:
        start = start.replace(year=start.year - 1)
    return _month_of(start)


def _month_of(start: datetime) -> Time:
    return Time("point", start, _shift(start, 1, "month"), f"{start.year:04}-{start.month:02}")


def _days(start: datetime) -> Time:
    return Time("point", start, start + timedelta(days=1), f"{start:%Y-%m-%d}")


def _month(name: str) -> int:
    return next(i for i, month in enumerate(_MONTHS, 1) if month[:3] == name.lower()[:3])


def _day(at: datetime, year: int, month: int = 1, day: int = 1) -> datetime:
    return datetime(year, month, day, tzinfo=at.tzinfo)


def _shift(at: datetime, count: int, unit: str) -> datetime:
    """The same day so many units on; the last day of a month that is too short for it."""
    start = at.replace(hour=0, minute=0, second=0, microsecond=0)
    if unit.startswith("day"):
        return start + timedelta(days=count)
    if unit.startswith("week"):
        return start + timedelta(weeks=count)
    months = start.year * 12 + start.month - 1 + count * (12 if unit.startswith("year") else 1)
    year, month = divmod(months, 12)
    last = monthrange(year, month + 1)[1]
    return start.replace(year=year, month=month + 1, day=min(start.day, last))
