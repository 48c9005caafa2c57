"""The forms in which English gives dates and times, each with the days it means."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from datetime import date, timedelta

import msgspec

#: The first day, and the one after the last.
Range = tuple[date, date]

_MONTHS = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
]
_MONTH_NUMBER = {name[:3]: number for number, name in enumerate(_MONTHS, 1)}
_WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_COUNTS = {
    word: count
    for count, group in enumerate(
        [
            "a|an|one",
            "two|couple",
            "three|few",
            "four|several",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve|dozen",
            "thirteen",
            "fourteen",
            "fifteen",
            "sixteen",
            "seventeen",
            "eighteen",
            "nineteen",
        ],
        1,
    )
    for word in group.split("|")
}
_TENS = ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_COUNTS |= {word: 20 + 10 * at for at, word in enumerate(_TENS)} | {"hundred": 100}
#: Counts that are none: so many days to both sides.
_VAGUE = {"few": 2, "several": 2}
#: First month, and how many; a winter begins in the year before.
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}
_FEASTS = {
    "new year's": (12, 30, 4),
    "new years": (12, 30, 4),
    "valentine's": (2, 13, 3),
    "halloween": (10, 30, 3),
    "thanksgiving": (11, 21, 9),
    "christmas": (12, 21, 9),
    "xmas": (12, 21, 9),
}

_M = (
    r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?"
    r"|sept?(?:ember)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_D = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?\b"
_Y = r"(?P<year>(?:19|20)\d\d)\b"
_N = r"(?P<count>\d{1,3}|" + "|".join(_COUNTS) + r")"
_U = r"(?P<unit>day|week|weekend|fortnight|month|year|decade)s?"
_BACK = r"last|past|previous"
_LEAD = rf"(?P<lead>{_BACK}|this|current|next|coming|upcoming)"
_FEAST = "|".join(_FEASTS).replace("'", "['’]")


class Calendar(msgspec.Struct, frozen=True):
    today: date
    years: tuple[int, ...]


def _month(match: re.Match[str]) -> int:
    return _MONTH_NUMBER[match["month"][:3].lower()]


def _count(match: re.Match[str]) -> int:
    word = match["count"].lower()
    return int(word) if word.isdigit() else _COUNTS[word]


def _of_month(year: int, month: int, months: int = 1) -> Range:
    last = year * 12 + month - 1 + months
    return date(year, month, 1), date(last // 12, last % 12 + 1, 1)


def _of_day(first: date, days: int = 1) -> Range:
    return first, first + timedelta(days)


def _each(make: Callable[[int], Range], calendar: Calendar) -> Iterator[Range]:
    for year in calendar.years:
        try:
            yield make(year)
        except ValueError:  # the 29th of February
            continue


def _back(today: date, count: int, unit: str) -> date:
    """The day `count` units before."""
    if unit in ("month", "year", "decade"):
        months = count * {"month": 1, "year": 12, "decade": 120}[unit]
        then = today.year * 12 + today.month - 1 - months
        first = date(then // 12, then % 12 + 1, 1)
        following = _of_month(first.year, first.month)[1]
        return min(first + timedelta(today.day - 1), following - timedelta(1))
    return today - timedelta(count * {"day": 1, "fortnight": 14}.get(unit, 7))


def _date(match: re.Match[str], calendar: Calendar) -> Iterator[Range]:
    day, month = int(match["day"]), _month(match)
    if match["year"]:
        yield _of_day(date(int(match["year"]), month, day))
    else:
        yield from _each(lambda year: _of_day(date(year, month, day)), calendar)


def _number_date(match: re.Match[str], calendar: Calendar) -> Iterator[Range]:
    yield _of_day(date(int(match["year"]), int(match["month"]), int(match["day"])))


def _either_date(match: re.Match[str], calendar: Calendar) -> Iterator[Range]:
    """The day first, or the month: where both can be, both are meant."""
    one, two, year = int(match["one"]), int(match["two"]), int(match["year"])
    for month, day in sorted({(one, two), (two, one)}):
        if month <= 12:
            yield _of_day(date(year, month, day))


def _month_of_year(match: re.Match[str], calendar: Calendar) -> Iterator[Range]:
    yield _of_month(int(match["year"]), _month(match))


def _month_alone(match: re.Match[str], calendar: Calendar) -> Iterator[Range]:
    # "may" and "march" are verbs too: they count with a capital or a little word before them.
    name, month = match["month"], _month(match)
    start = match.start()
    led = match["lead"] or OPEN.search(match.string[max(0, start - _OPEN_CHARS) : start])
    if name.lower() in ("may", "march", "mar") and not (name[0].isupper() or led):
        return
    if (lead := (match["lead"] or "").strip().lower()) in ("last", "past", "previous"):
        year = calendar.today.year - (month >= calendar.today.month)
        yield _of_month(year, month)
    elif lead in ("next", "coming"):
        yield _of_month(calendar.today.year + (month <= calendar.today.month), month)
    elif lead == "this":
        yield _of_month(calendar.today.year, month)
    else:
        yield from _each(lambda year: _of_month(year, month), calendar)


def _season(match: re.Match[str], calendar: Calendar) -> Iterator[Range]:
    month, today = _SEASONS[match["season"].lower()], calendar.today
    back = 1 if month == 12 else 0

    def of(year: int) -> Range:
        return _of_month(year - back, month, 3)

    lead = (match["lead"] or "").strip().lower()
    if match["year"]:
        # The winter of a year is the one that begins in it, or the one that ends.
        yield from (of(int(match["year"]) + later) for later in range(back + 1))
    elif lead in ("last", "past", "previous"):
        yield of(today.year if of(today.year)[1] <= today else today.year - 1)
    elif lead in ("this", "next", "coming"):
        late = of(today.year)[1] <= today
        yield of(today.year + (late if lead == "this" else of(today.year)[0] <= today))
    elif match["season"].lower() != "fall" or lead:
        yield from _each(of, calendar)


def _feast(match: re.Match[str], calendar: Calendar) -> Iterator[Range]:
    month, day, days = _FEASTS[match["feast"].lower().replace("’", "'")]
    years = [int(match["year"])] if match["year"] else [calendar.years[0] - 1, *calendar.years]
    yield from (_of_day(date(year, month, day), days) for year in years)


def _quarter(match: re.Match[str], calendar: Calendar) -> Iterator[Range]:
    yield _of_month(int(match["year"]), 3 * int(match["quarter"]) - 2, 3)


def _year(match: re.Match[str], calendar: Calendar) -> Iterator[Range]:
    yield _of_month(int(match["year"]), 1, 12)


def _ago(match: re.Match[str], calendar: Calendar) -> Iterator[Range]:
    count, unit = _count(match), match["unit"].lower()
    there = _back(calendar.today, count, unit)
    # "two months ago" is no day: half a unit to both sides.
    slack = {"day": 0, "week": 3, "weekend": 3, "fortnight": 7, "month": 15}.get(unit, 182)
    slack = max(slack, _VAGUE.get(match["count"].lower(), 0))
    yield there - timedelta(slack), there + timedelta(slack + 1)


def _half_ago(match: re.Match[str], calendar: Calendar) -> Iterator[Range]:
    """Half a unit ago, or so many and a half."""
    unit = match["unit"].lower()
    half = {"week": 3, "fortnight": 7, "month": 15, "year": 182, "decade": 1826}[unit]
    there = calendar.today - timedelta(half)
    if match["count"]:
        there = _back(there, _count(match), unit)
    slack = half // 5
    yield there - timedelta(slack), there + timedelta(slack + 1)


def _lately(match: re.Match[str], calendar: Calendar) -> Iterator[Range]:
    yield _back(calendar.today, _count(match), match["unit"].lower()), calendar.today + timedelta(1)


def _before_date(match: re.Match[str], calendar: Calendar) -> Iterator[Range]:
    count = _COUNTS.get((match["count"] or "one").lower()) or int(match["count"])
    for first, _ in _date(match, calendar):
        yield _back(first, count, match["unit"].lower()), first


def _named_unit(match: re.Match[str], calendar: Calendar) -> Iterator[Range]:
    lead, unit = match["lead"].lower(), match["unit"].lower()
    step = {"this": 0, "current": 0, "next": 1, "coming": 1, "upcoming": 1}.get(lead, -1)
    if lead == "past":
        yield _back(calendar.today, 1, unit), calendar.today + timedelta(1)
    else:
        yield from _unit_at(calendar.today, unit, step)


def _second_unit(match: re.Match[str], calendar: Calendar) -> Iterator[Range]:
    """The week before last, the month after next."""
    step = 2 if match["after"] else -2
    yield from _unit_at(calendar.today, match["unit"].lower(), step)


def _unit_at(today: date, unit: str, step: int) -> Iterator[Range]:
    """The unit so many after this one."""
    if unit == "week":
        yield _of_day(today - timedelta(today.weekday()) + timedelta(7 * step), 7)
    elif unit == "weekend":
        saturday = today - timedelta(today.weekday()) + timedelta(5)
        yield _of_day(saturday + timedelta(7 * step) - timedelta(1), 3)
    elif unit == "month":
        months = today.year * 12 + today.month - 1 + step
        yield _of_month(months // 12, months % 12 + 1)
    elif unit == "year":
        yield _of_month(today.year + step, 1, 12)
    elif unit == "decade":
        yield _of_month(today.year // 10 * 10 + 10 * step, 1, 120)


#: Words that open a time to one side.
_OPEN_CHARS = 16
OPEN = re.compile(r"\b(since|after|until|till|before|prior to)(?: the)?\s+$", re.I)


def _weekday(match: re.Match[str], calendar: Calendar) -> Iterator[Range]:
    number, today = _WEEKDAYS.index(match["weekday"].lower()), calendar.today
    if (match["lead"] or "").strip().lower() in ("next", "coming", "this"):
        yield _of_day(today + timedelta((number - today.weekday() - 1) % 7 + 1))
    else:
        yield _of_day(today - timedelta((today.weekday() - number - 1) % 7 + 1))


_DAYS_BACK = {
    "the day before yesterday": 2,
    "day before yesterday": 2,
    "the day after tomorrow": -2,
    "day after tomorrow": -2,
    "yesterday": 1,
    "last night": 1,
    "today": 0,
    "tonight": 0,
    "this morning": 0,
    "this afternoon": 0,
    "this evening": 0,
    "tomorrow": -1,
}


def _day_word(match: re.Match[str], calendar: Calendar) -> Iterator[Range]:
    back = _DAYS_BACK[" ".join(match.group().lower().split())]
    yield _of_day(calendar.today - timedelta(back))


_Reading = Callable[[re.Match[str], Calendar], Iterator[Range]]


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{text})", re.I)


_DAY_MONTH = rf"{_D}(?: of)? {_M}(?:,? {_Y})?"
_MONTH_DAY = rf"{_M} (?:the )?{_D}(?:,? {_Y})?"
_SOME_BEFORE = rf"(?:{_N} )?(?:last )?{_U} (?:before|prior to)"
_IN = rf"{_BACK}|this|next|coming|in|during"
_PRONOUN = r"(?:i|we|you|he|she|it|they)\b"
#: Without one of these no pattern can match; most questions hold none.
HINT = re.compile(
    r"\d|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|spring|summer|autumn|fall|winter"
    r"|new years?|valentine|halloween|thanksgiving|christmas|xmas|yesterday|today|tonight"
    r"|tomorrow|last|past|previous|this|current|next|coming|upcoming|ago|back|earlier"
    r"|mon|tue|wed|thu|fri|sat|sun)",
    re.I,
)
#: The longer form first: a later pattern does not see what an earlier one took.
READINGS: tuple[tuple[re.Pattern[str], _Reading], ...] = tuple(
    (_pattern(form), reading)
    for form, reading in (
        (rf"{_SOME_BEFORE} {_DAY_MONTH}", _before_date),
        (rf"{_SOME_BEFORE} {_MONTH_DAY}", _before_date),
        (rf"{_Y}([-/.])(?P<month>\d\d?)\2(?P<day>\d\d?)\b", _number_date),
        (rf"(?P<day>\d\d?)\.\s?(?P<month>\d\d?)\.\s?{_Y}", _number_date),
        (rf"(?P<one>\d\d?)([-/])(?P<two>\d\d?)\2{_Y}", _either_date),
        (_DAY_MONTH, _date),
        (_MONTH_DAY, _date),
        (rf"{_M}(?: of)?,? {_Y}", _month_of_year),
        (rf"q(?P<quarter>[1-4])(?: of)? {_Y}", _quarter),
        (
            rf"(?:(?P<lead>{_IN}|over|the) (?:the )?)?(?P<season>{'|'.join(_SEASONS)})\b"
            rf"(?:(?: of)? {_Y})?",
            _season,
        ),
        (rf"(?P<feast>{_FEAST})(?: (?:day|eve))?\b(?:(?: of)?,? {_Y})?", _feast),
        (
            rf"(?:(?P<lead>{_IN}|by|of|early|late|mid) )?{_M}(?! \d| {_PRONOUN})",
            _month_alone,
        ),
        ("|".join(words.replace(" ", r"\s+") + r"\b" for words in _DAYS_BACK), _day_word),
        (
            rf"(?:half an?|{_N} and a half) (?P<unit>week|fortnight|month|year|decade)s?"
            r" (?:ago|back|earlier)\b",
            _half_ago,
        ),
        (rf"(?:an? )?{_N}(?: of)? {_U} (?:ago|back|earlier)\b", _ago),
        (rf"(?:{_BACK}) {_N} {_U}\b", _lately),
        (
            r"(?:the )?(?P<unit>week|weekend|month|year|decade) "
            r"(?:before last|(?P<after>after) next)\b",
            _second_unit,
        ),
        (rf"{_LEAD} (?P<unit>week|weekend|month|year|decade)\b", _named_unit),
        (
            rf"(?<!every )(?<!each )(?:(?P<lead>{_BACK}|this|next|coming|on) )?"
            rf"(?P<weekday>{'|'.join(_WEEKDAYS)})\b",
            _weekday,
        ),
        (_Y, _year),
    )
)
