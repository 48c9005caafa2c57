"""Points in time, written as RFC 3339 text and compared as whole microseconds."""

from __future__ import annotations

import re
from datetime import date
from typing import Final

from pagefile.errors import Invalid, shown

_RFC3339: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:[Zz]|([+-])(\d\d):(\d\d))",
    re.ASCII,
)
_EPOCH: Final = date(1970, 1, 1).toordinal()


def microseconds(text: str, field: str = "timestamp") -> int:
    """Microseconds since 1970 in UTC; finer digits are cut off, a leap second is the next one.

    Raises:
        Invalid: it is no date and time with an offset.
    """
    found = _RFC3339.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        raise _no_time(field, text)
    year, month, day, hour, minute, second = map(int, found.groups()[:6])
    fraction, sign, hours, minutes = found.groups()[6:]
    if hour > 23 or minute > 59 or second > 60 or int(hours or 0) > 23 or int(minutes or 0) > 59:
        raise _no_time(field, text)
    try:
        days = date(year, month, day).toordinal() - _EPOCH
    except ValueError:
        raise _no_time(field, text) from None
    offset = (int(hours or 0) * 60 + int(minutes or 0)) * (-1 if sign == "-" else 1)
    seconds = ((days * 24 + hour) * 60 + minute - offset) * 60 + second
    return seconds * 1_000_000 + int((fraction or "")[:6].ljust(6, "0"))


def _no_time(field: str, text: object) -> Invalid:
    rule = "write it as in 2026-01-31T09:30:00Z, with Z or an offset"
    return Invalid(field, f"{shown(text)} is no date and time", rule)
