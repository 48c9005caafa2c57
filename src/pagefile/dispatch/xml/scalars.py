"""Plain values as text, in the forms that XML Schema knows."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from pagefile.store.codec.decoder import convert

_MOST_EXPONENT = 1_000
#: XML Schema knows no zone further from UTC.
_MOST_OFFSET = timedelta(hours=14)


class Scalar(msgspec.Struct, frozen=True):
    """How values of one type are written and read; both raise ValueError when they cannot be."""

    xsd: str
    write: Callable[[Any], str]
    read: Callable[[str], Any]
    #: Whether white space around it belongs to it.
    exact: bool = False


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "INF" if value > 0 else "-INF"
    return repr(float(value))


def _decimal_text(value: Decimal) -> str:
    if not value.is_finite():
        raise ValueError(f"{value} is no finite number")
    if value and abs(value.adjusted()) > _MOST_EXPONENT:
        raise ValueError("its exponent is too large")
    return format(value, "f")


def _moment_text(value: datetime) -> str:
    offset = value.utcoffset()
    if offset is not None and (abs(offset) > _MOST_OFFSET or offset % timedelta(minutes=1)):
        value = value.astimezone(UTC)
    return value.isoformat()


def _time_text(value: time) -> str:
    offset = value.utcoffset()
    if offset is not None and (abs(offset) > _MOST_OFFSET or offset % timedelta(minutes=1)):
        raise ValueError("XML Schema does not know its time zone")
    return value.isoformat()


def _duration_text(value: timedelta) -> str:
    text: str = msgspec.to_builtins(value)
    return text


def _duration(text: str) -> timedelta:
    return convert(text, timedelta)


def _truth(text: str) -> bool:
    if text not in ("true", "false", "1", "0"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text in ("true", "1")


SCALARS: dict[type[Any], Scalar] = {
    str: Scalar("string", str, str, exact=True),
    bool: Scalar("boolean", lambda value: "true" if value else "false", _truth),
    int: Scalar("integer", lambda value: str(int(value)), int),
    float: Scalar("double", _float_text, float),
    bytes: Scalar(
        "base64Binary",
        lambda value: base64.b64encode(value).decode("ascii"),
        lambda text: base64.b64decode("".join(text.split()), validate=True),
    ),
    Decimal: Scalar("decimal", _decimal_text, Decimal),
    datetime: Scalar("dateTime", _moment_text, datetime.fromisoformat),
    date: Scalar("date", date.isoformat, date.fromisoformat),
    time: Scalar("time", _time_text, time.fromisoformat),
    timedelta: Scalar("duration", _duration_text, _duration),
    UUID: Scalar("string", str, UUID),
}
