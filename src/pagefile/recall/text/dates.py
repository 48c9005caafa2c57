"""Dates and words of time in English: "yesterday", "in May 2023", "two months ago".

Two readers share one calendar and one vocabulary. `time_words` reads a question: what it
may mean are intervals, read in UTC against a `now`, and a month, a day or a season
without its year is every one within the years that are asked about. What is not
understood is left alone: the intervals raise what lies in them, they exclude nothing.
`time_of` reads the words at an end of a statement: they mean one time, seen from when
they were said.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Literal, TypeVar

import msgspec

from pagefile.store.codec.sort_key import microseconds, moment

#: The first day, and the one after the last.
Range = tuple[date, date]
_When = TypeVar("_When", bound=date)


def _listed(text: str) -> list[str]:
    return text.split()


_MONTHS = _listed(
    "january february march april may june july august september october november december"
)
_MONTH_NUMBER = {name[:3]: number for number, name in enumerate(_MONTHS, 1)}
_WEEKDAYS = _listed("monday tuesday wednesday thursday friday saturday sunday")
_NUMBERS = _listed(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
    " fifteen sixteen seventeen eighteen nineteen"
)
_TENS = _listed("twenty thirty forty fifty sixty seventy eighty ninety")
#: First month of each; a winter begins in the year before.
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12}


def _month(name: str) -> int:
    return _MONTH_NUMBER[name[:3].lower()]


def _shifted(at: _When, count: int, unit: str) -> _When:
    """The same day so many units on; the last day of a month that is too short for it."""
    unit = unit.removesuffix("s")
    if unit not in ("month", "year", "decade"):
        return at + timedelta(count * {"day": 1, "fortnight": 14}.get(unit, 7))
    months = count * {"month": 1, "year": 12, "decade": 120}[unit]
    year, month = divmod(at.year * 12 + at.month - 1 + months, 12)
    last = monthrange(year, month + 1)[1]
    return at.replace(year=year, month=month + 1, day=min(at.day, last))


# What a question says about time

_COUNTS = {word: count for count, word in enumerate(_NUMBERS) if count}
_COUNTS |= {"a": 1, "an": 1, "couple": 2, "few": 3, "several": 4, "dozen": 12}
_COUNTS |= {word: 20 + 10 * at for at, word in enumerate(_TENS)} | {"hundred": 100}
#: Counts that are none: so many days to both sides.
_VAGUE = {"few": 2, "several": 2}
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


class _Calendar(msgspec.Struct, frozen=True):
    """The day on which a question is asked, and the years that it may be about."""

    today: date
    years: tuple[int, ...]


def _count(match: re.Match[str]) -> int:
    word = match["count"].lower()
    return int(word) if word.isdigit() else _COUNTS[word]


def _of_month(year: int, month: int, months: int = 1) -> Range:
    last = year * 12 + month - 1 + months
    return date(year, month, 1), date(last // 12, last % 12 + 1, 1)


def _of_day(first: date, days: int = 1) -> Range:
    return first, first + timedelta(days)


def _each(make: Callable[[int], Range], calendar: _Calendar) -> Iterator[Range]:
    for year in calendar.years:
        try:
            yield make(year)
        except ValueError:  # the 29th of February
            continue


def _date(match: re.Match[str], calendar: _Calendar) -> Iterator[Range]:
    day, month = int(match["day"]), _month(match["month"])
    if match["year"]:
        yield _of_day(date(int(match["year"]), month, day))
    else:
        yield from _each(lambda year: _of_day(date(year, month, day)), calendar)


def _number_date(match: re.Match[str], calendar: _Calendar) -> Iterator[Range]:
    yield _of_day(date(int(match["year"]), int(match["month"]), int(match["day"])))


def _either_date(match: re.Match[str], calendar: _Calendar) -> Iterator[Range]:
    """The day first, or the month: where both can be, both are meant."""
    one, two, year = int(match["one"]), int(match["two"]), int(match["year"])
    for month, day in sorted({(one, two), (two, one)}):
        if month <= 12:
            yield _of_day(date(year, month, day))


def _month_of_year(match: re.Match[str], calendar: _Calendar) -> Iterator[Range]:
    yield _of_month(int(match["year"]), _month(match["month"]))


def _month_alone(match: re.Match[str], calendar: _Calendar) -> Iterator[Range]:
    # "may" and "march" are verbs too: they count with a capital or a little word before them.
    name, month = match["month"], _month(match["month"])
    start = match.start()
    led = match["lead"] or _OPEN.search(match.string[max(0, start - _OPEN_CHARS) : start])
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


def _season(match: re.Match[str], calendar: _Calendar) -> Iterator[Range]:
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


def _feast(match: re.Match[str], calendar: _Calendar) -> Iterator[Range]:
    month, day, days = _FEASTS[match["feast"].lower().replace("’", "'")]
    years = [int(match["year"])] if match["year"] else [calendar.years[0] - 1, *calendar.years]
    yield from (_of_day(date(year, month, day), days) for year in years)


def _quarter(match: re.Match[str], calendar: _Calendar) -> Iterator[Range]:
    yield _of_month(int(match["year"]), 3 * int(match["quarter"]) - 2, 3)


def _year(match: re.Match[str], calendar: _Calendar) -> Iterator[Range]:
    yield _of_month(int(match["year"]), 1, 12)


def _ago(match: re.Match[str], calendar: _Calendar) -> Iterator[Range]:
    count, unit = _count(match), match["unit"].lower()
    there = _shifted(calendar.today, -count, unit)
    # "two months ago" is no day: half a unit to both sides.
    slack = {"day": 0, "week": 3, "weekend": 3, "fortnight": 7, "month": 15}.get(unit, 182)
    slack = max(slack, _VAGUE.get(match["count"].lower(), 0))
    yield there - timedelta(slack), there + timedelta(slack + 1)


def _half_ago(match: re.Match[str], calendar: _Calendar) -> Iterator[Range]:
    """Half a unit ago, or so many and a half."""
    unit = match["unit"].lower()
    half = {"week": 3, "fortnight": 7, "month": 15, "year": 182, "decade": 1826}[unit]
    there = calendar.today - timedelta(half)
    if match["count"]:
        there = _shifted(there, -_count(match), unit)
    slack = half // 5
    yield there - timedelta(slack), there + timedelta(slack + 1)


def _lately(match: re.Match[str], calendar: _Calendar) -> Iterator[Range]:
    yield (
        _shifted(calendar.today, -_count(match), match["unit"].lower()),
        calendar.today + timedelta(1),
    )


def _before_date(match: re.Match[str], calendar: _Calendar) -> Iterator[Range]:
    count = _COUNTS.get((match["count"] or "one").lower()) or int(match["count"])
    for first, _ in _date(match, calendar):
        yield _shifted(first, -count, match["unit"].lower()), first


def _named_unit(match: re.Match[str], calendar: _Calendar) -> Iterator[Range]:
    lead, unit = match["lead"].lower(), match["unit"].lower()
    step = {"this": 0, "current": 0, "next": 1, "coming": 1, "upcoming": 1}.get(lead, -1)
    if lead == "past":
        yield _shifted(calendar.today, -1, unit), calendar.today + timedelta(1)
    else:
        yield from _unit_at(calendar.today, unit, step)


def _second_unit(match: re.Match[str], calendar: _Calendar) -> Iterator[Range]:
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
_OPEN = re.compile(r"\b(since|after|until|till|before|prior to)(?: the)?\s+$", re.I)


def _weekday(match: re.Match[str], calendar: _Calendar) -> Iterator[Range]:
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


def _day_word(match: re.Match[str], calendar: _Calendar) -> Iterator[Range]:
    back = _DAYS_BACK[" ".join(match.group().lower().split())]
    yield _of_day(calendar.today - timedelta(back))


_Reading = Callable[[re.Match[str], _Calendar], Iterator[Range]]


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(rf"\b(?:{text})", re.I)


_DAY_MONTH = rf"{_D}(?: of)? {_M}(?:,? {_Y})?"
_MONTH_DAY = rf"{_M} (?:the )?{_D}(?:,? {_Y})?"
_SOME_BEFORE = rf"(?:{_N} )?(?:last )?{_U} (?:before|prior to)"
_IN = rf"{_BACK}|this|next|coming|in|during"
_PRONOUN = r"(?:i|we|you|he|she|it|they)\b"
#: Without one of these no pattern can match; most questions hold none.
_HINT = re.compile(
    r"\d|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec|spring|summer|autumn|fall|winter"
    r"|new years?|valentine|halloween|thanksgiving|christmas|xmas|yesterday|today|tonight"
    r"|tomorrow|last|past|previous|this|current|next|coming|upcoming|ago|back|earlier"
    r"|mon|tue|wed|thu|fri|sat|sun)",
    re.I,
)
#: The longer form first: a later pattern does not see what an earlier one took.
_READINGS: tuple[tuple[re.Pattern[str], _Reading], ...] = tuple(
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


_EARLIEST, _LATEST = date(1, 1, 2), date(9999, 12, 30)
#: Of a partition over more years than this, those nearest to now are asked for.
_MOST_YEARS = 50
#: More words of time than this are no question: reading them all would only take long.
_MOST_WORDS = 32
#: How far back the little words before a time are looked for.
_LEAD_CHARS = 200


class TimeWords(msgspec.Struct, frozen=True):
    """Some words of a question, and the intervals they may mean: [start, end) in microseconds."""

    words: str
    start: int
    end: int
    spans: tuple[tuple[int, int], ...]


def time_words(
    text: str, now_us: int, oldest_us: int | None = None, newest_us: int | None = None
) -> tuple[TimeWords, ...]:
    """What `text` says about time, in its order.

    `now_us` is what "yesterday" is the day before of. Dates without a year are
    taken in every year from `oldest_us` to `now_us`, or to `newest_us` if that is later.
    """
    if not _HINT.search(text):
        return ()
    today = _day_of(now_us)
    oldest = today if oldest_us is None else min(_day_of(oldest_us), today)
    newest = today if newest_us is None else max(_day_of(newest_us), today)
    first = max(oldest.year, today.year - _MOST_YEARS)
    years = tuple(range(first, min(newest.year, today.year + _MOST_YEARS) + 1))
    calendar = _Calendar(today, years)
    found: list[tuple[int, int, list[Range]]] = []
    for pattern, reading in _READINGS:
        for match in pattern.finditer(text):
            if len(found) >= _MOST_WORDS:
                break
            if any(match.start() < end and start < match.end() for start, end, _ in found):
                continue
            try:
                ranges = list(reading(match, calendar))
            except (ValueError, OverflowError, LookupError):
                # The 31st of June, the year 10,000, a dotless i, which passes for one and is none.
                continue
            if ranges:
                found.append((match.start(), match.end(), ranges))
    return tuple(_open_or_joined(text, sorted(found, key=lambda f: f[0]), today))


def without(text: str, found: tuple[TimeWords, ...]) -> str:
    """The text without its time words and the little words that led to them."""
    kept, at = "", 0
    for words in found:
        lead = max(at, words.start - _LEAD_CHARS)
        kept += text[at:lead] + _LEADING.sub(" ", text[lead : words.start])
        at = words.end
    return " ".join((kept + text[at:]).split())


_LEADING = re.compile(
    r"(?:^|[\s,]+)(?:(?:in|on|at|of|during|over|by|since|until|before|after|from|between|around"
    r"|the|early|late|mid)\s+)+$",
    re.I,
)
_JOIN = re.compile(r"^\s*(?:to|and|until|till|through|-|–)\s+(?:the )?$", re.I)
_JOINED = re.compile(r"\b(?:from|between)(?: the)?\s+$", re.I)


def _open_or_joined(
    text: str, found: list[tuple[int, int, list[Range]]], today: date
) -> Iterator[TimeWords]:
    position = 0
    while position < len(found):
        start, end, ranges = found[position]
        if (
            position + 1 < len(found)
            and _JOIN.match(text[end : found[position + 1][0]])
            and _JOINED.search(_before(text, start))
        ):
            position += 1
            _, end, last = found[position]
            # The year is said once, at the end: each end takes the nearest beginning.
            nearest = [(max((a for a, _ in ranges if a < b), default=b), b) for _, b in last]
            ranges = [(a, b) for a, b in nearest if a < b]
        elif opened := _OPEN.search(_before(text, start)):
            word = opened.group(1).lower()
            if len(ranges) > 1 and len({first.year for first, _ in ranges}) > 1:
                # Without its year, it is the last one that has begun.
                ranges = [max((one for one in ranges if one[0] <= today), default=ranges[0])]
            if word == "since":
                ranges = [(first, _LATEST) for first, _ in ranges]
            elif word == "after":
                ranges = [(last, _LATEST) for _, last in ranges]
            else:
                ranges = [(_EARLIEST, first) for first, _ in ranges]
        spans = tuple((_us(first), _us(last)) for first, last in ranges)
        yield TimeWords(text[start:end], start, end, spans)
        position += 1


def _before(text: str, start: int) -> str:
    return text[max(0, start - _LEAD_CHARS) : start]


def _day_of(time_us: int) -> date:
    """The day of a moment; of one beyond the calendar the calendar's first or last."""
    return moment(min(max(time_us, _us(_EARLIEST)), _us(_LATEST))).date()


def _us(day: date) -> int:
    return microseconds(datetime(day.year, day.month, day.day, tzinfo=UTC))


# What a statement says about time

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
_WEEKDAY = r"(?:" + "|".join(_WEEKDAYS) + r")"
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
        point = _point(phrase[6:], at, False)
        return point and Time("since", point.start)
    if found := re.fullmatch(rf"for (?:the (?:last|past) )?({_COUNT}) ({_UNIT})(?: now)?", phrase):
        return Time("since", _shifted(_midnight(at), -(number_of(found[1]) or 1), found[2]))
    if found := re.fullmatch(rf"(?:from|between) ({YEAR}) \w+ ({YEAR})", phrase):
        first, last = int(found[1]), int(found[2])
        return (
            Time("between", _start_of(at, first), _start_of(at, last + 1))
            if first <= last
            else None
        )
    return _point(phrase, at, forward)


def _point(phrase: str, at: datetime, forward: bool) -> Time | None:
    phrase = re.sub(r"^(?:back )?(?:in|on|by|around) (?:early |late |mid-?)?", "", phrase)
    today = _midnight(at)
    near = {"yesterday": -1, "today": 0, "tonight": 0, "this morning": 0, "tomorrow": 1}
    if phrase in near:
        return _one_day(today + timedelta(days=near[phrase]))
    if found := re.fullmatch(rf"({_COUNT}) ({_UNIT})( ago)?", phrase):
        sign = -1 if found[3] else 1
        start = _shifted(today, sign * (number_of(found[1]) or 1), found[2])
        return _one_day(start)
    if found := re.fullmatch(r"(last|next|this|this past|this coming) (.+)", phrase):
        return _named_time(found[1].split()[-1], found[2], today)
    if found := re.fullmatch(YEAR, phrase):
        return Time("point", _start_of(at, int(phrase)), _start_of(at, int(phrase) + 1), phrase)
    if phrase in _WEEKDAYS:
        ahead = (_WEEKDAYS.index(phrase) - today.weekday()) % 7
        return _one_day(today + timedelta(days=ahead if forward else ahead - 7 if ahead else 0))
    if found := re.fullmatch(rf"({MONTH})(?:,? ({YEAR}))?", phrase):
        month = _month(found[1])
        return _named_month(today, month, int(found[2]) if found[2] else None, forward)
    return _said_date(phrase, today, forward)


def _said_date(phrase: str, today: datetime, forward: bool) -> Time | None:
    if found := re.fullmatch(r"(\d{4})-(\d\d)-(\d\d)", phrase):
        return _one_day(_start_of(today, int(found[1]), int(found[2]), int(found[3])))
    month, year = re.search(MONTH, phrase), re.search(YEAR, phrase)
    day = re.search(r"\d{1,2}(?!\d)", phrase)
    if month is None or day is None:
        return None
    first = _start_of(today, int(year[0]) if year else today.year, _month(month[0]), int(day[0]))
    if year is None and forward and first < today:
        first = first.replace(year=first.year + 1)
    elif year is None and not forward and first > today:
        first = first.replace(year=first.year - 1)
    return _one_day(first)


def _named_time(which: str, unit: str, today: datetime) -> Time | None:
    step = {"last": -1, "past": -1, "this": 0, "coming": 1, "next": 1}[which]
    if unit == "night":
        return _one_day(today + timedelta(days=step))
    if unit in ("week", "weekend"):
        monday = today - timedelta(days=today.weekday()) + timedelta(weeks=step)
        start = monday + timedelta(days=5) if unit == "weekend" else monday
        return Time("point", start, monday + timedelta(weeks=1), f"{start:%Y-%m-%d}")
    if unit == "month":
        return _whole_month(_shifted(today.replace(day=1), step, "month"))
    if unit == "year":
        year = today.year + step
        return Time("point", _start_of(today, year), _start_of(today, year + 1), f"{year:04}")
    if unit in _WEEKDAYS:
        ahead = (_WEEKDAYS.index(unit) - today.weekday()) % 7
        return _one_day(
            today + timedelta(days=(ahead or 7) if step > 0 else ahead - 7 if step else ahead)
        )
    if unit in _SEASONS:
        start = _start_of(today, today.year, _SEASONS[unit])
        if step > 0 and start <= today:
            start = _shifted(start, 1, "year")
        elif step < 0 and _shifted(start, 3, "month") > today:
            start = _shifted(start, -1, "year")
        return Time("point", start, _shifted(start, 3, "month"), f"{unit} {start.year:04}")
    return _named_month(today, _month(unit), None, forward=step >= 0)


def _named_month(today: datetime, month: int, year: int | None, forward: bool) -> Time:
    start = _start_of(today, year or today.year, month)
    if year is None and forward and month < today.month:
        start = start.replace(year=start.year + 1)
    elif year is None and not forward and month > today.month:
        start = start.replace(year=start.year - 1)
    return _whole_month(start)


def _whole_month(start: datetime) -> Time:
    return Time("point", start, _shifted(start, 1, "month"), f"{start.year:04}-{start.month:02}")


def _one_day(start: datetime) -> Time:
    return Time("point", start, start + timedelta(days=1), f"{start:%Y-%m-%d}")


def _start_of(at: datetime, year: int, month: int = 1, day: int = 1) -> datetime:
    return datetime(year, month, day, tzinfo=at.tzinfo)


def _midnight(at: datetime) -> datetime:
    return at.replace(hour=0, minute=0, second=0, microsecond=0)
