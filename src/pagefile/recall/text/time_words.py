"""Time words of a question, as intervals: "yesterday", "in May 2023", "two months ago".

Read in UTC, against a `now`. A month, a day or a season without its year is
every one within the years that are asked about. What is not understood is left
alone: the intervals raise what lies in them, they exclude nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime

import msgspec

from pagefile.recall.text.dates import HINT, OPEN, READINGS, Calendar, Range
from pagefile.store.codec.sort_key import microseconds, moment

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
    if not HINT.search(text):
        return ()
    today = _day(now_us)
    oldest = today if oldest_us is None else min(_day(oldest_us), today)
    newest = today if newest_us is None else max(_day(newest_us), today)
    first = max(oldest.year, today.year - _MOST_YEARS)
    years = tuple(range(first, min(newest.year, today.year + _MOST_YEARS) + 1))
    calendar = Calendar(today, years)
    found: list[tuple[int, int, list[Range]]] = []
    for pattern, reading in READINGS:
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
        elif opened := OPEN.search(_before(text, start)):
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


def _day(time_us: int) -> date:
    """The day of a moment; of one beyond the calendar the calendar's first or last."""
    return moment(min(max(time_us, _us(_EARLIEST)), _us(_LATEST))).date()


def _us(day: date) -> int:
    return microseconds(datetime(day.year, day.month, day.day, tzinfo=UTC))
