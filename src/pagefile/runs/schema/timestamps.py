"""Times as text: RFC 3339 date-times, checked for real and counted in microseconds."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date
from typing import Any, Final

from pagefile.errors import Invalid, shown

MOST_CHARACTERS: Final = 64
RULE: Final = "give an RFC 3339 date-time with an offset, such as 2026-01-31T09:30:00Z"

_LEAP_YEAR: Final = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_DATE: Final = (
    "(?:[0-9]{4}-(?:"
    "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
    "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))"
    f"|{_LEAP_YEAR}-02-29)"
)
# A leap second can only end an hour, or a quarter of one where the offset has quarters.
_TIME: Final = "(?:[01][0-9]|2[0-3]):(?:[0-5][0-9]:[0-5][0-9]|(?:14|29|44|59):60)"
_OFFSET: Final = r"(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
#: The whole rule, leap years included, in the part of the language that every dialect of
#: regular expressions has. The end is a look-ahead: in Python `$` lets a newline through.
PATTERN: Final = rf"^(?!0000){_DATE}[Tt]{_TIME}(?:\.[0-9]+)?{_OFFSET}(?![\s\S])"

_MATCH: Final = re.compile(PATTERN).match
_DAY_US: Final = 86_400_000_000
_EPOCH: Final = date(1970, 1, 1).toordinal()
#: Texts that passed; the items of a working set come back with every patch.
_known_good: set[str] = set()
_REMEMBERED: Final = 32_768


def is_moment(text: object) -> bool:
    """True for a date-time with an offset."""
    return isinstance(text, str) and len(text) <= MOST_CHARACTERS and _MATCH(text) is not None


def all_moments(texts: Iterable[Any]) -> bool:
    """True when every one of these texts is a date-time; those seen before cost next to nothing."""
    if _known_good.issuperset(texts):
        return True
    if not all(map(is_moment, texts)):
        return False
    if len(_known_good) >= _REMEMBERED:
        _known_good.clear()
    _known_good.update(texts)
    return True


def parse_time(text: str, field: str = "timestamp") -> int:
    """Microseconds from 1970 UTC to a date-time; finer digits are cut off.

    A leap second counts as the first second of the next minute.

    Raises:
        Invalid: `text` is no date-time, or does not say its offset from UTC.
    """
    if not is_moment(text):
        raise Invalid(field, f"{shown(text)} is no date-time", RULE)
    days = date(int(text[:4]), int(text[5:7]), int(text[8:10])).toordinal() - _EPOCH
    minutes = int(text[11:13]) * 60 + int(text[14:16])
    fraction, offset = _split_tail(text[19:])
    seconds = (minutes - offset) * 60 + int(text[17:19])
    return days * _DAY_US + seconds * 1_000_000 + fraction


def _split_tail(tail: str) -> tuple[int, int]:
    """Microseconds of the fraction and minutes of the offset, from what follows the seconds."""
    if tail[-1] in "Zz":
        digits, offset = tail[1:-1], 0
    else:
        digits = tail[1:-6]
        offset = int(tail[-5:-3]) * 60 + int(tail[-2:])
        offset = -offset if tail[-6] == "-" else offset
    return int(digits[:6].ljust(6, "0")), offset
