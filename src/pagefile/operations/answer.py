"""What is answered: values as JSON, pages and their cursors, streams, files."""

from __future__ import annotations

import base64
import binascii
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from pagefile.errors import Invalid
from pagefile.store.codec import Record

Item = TypeVar("Item")
#: The media type of a stream of events.
EVENTS = "text/event-stream"
_RULE = "give `cursor` of the page before"


class Answer(msgspec.Struct, Generic[Item], frozen=True):
    """A value, and what a function has to say besides."""

    value: Item
    #: The version it shows, for `ETag`.
    version: int | None = None
    #: Where what was made is found.
    location: str = ""


class Events(msgspec.Struct, frozen=True):
    """A stream of what comes, as long as somebody listens."""

    #: An async iterator that can be closed.
    followed: Any
    #: What each item is called.
    name: str
    #: The number and the JSON of an item; None for one that is not shown.
    event: Callable[[Any], tuple[int, bytes] | None]


class Lines(msgspec.Struct, frozen=True):
    """A file that is made as it is read."""

    pieces: AsyncIterator[bytes]
    name: str


class File(msgspec.Struct, frozen=True):
    """A file that is there."""

    path: Path


class Page(msgspec.Struct, kw_only=True):
    """Part of a listing; `cursor` continues it, null means that was all."""

    items: list[Any]
    cursor: str | None


def cursor_of(place: str | int) -> str:
    """A place in a listing, as clients are given it."""
    return base64.urlsafe_b64encode(str(place).encode()).decode().rstrip("=")


def place_in(cursor: str | None) -> str:
    """The place that a cursor stands for; empty for None.

    Raises:
        Invalid: it is not one of ours.
    """
    if not cursor:
        return ""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise Invalid("cursor", "is not the cursor of a page", _RULE) from error


def number_in(cursor: str | None) -> int:
    """The number that a cursor stands for; 0 for None.

    Raises:
        Invalid: it is not one of ours, or of another listing.
    """
    place = place_in(cursor)
    if not place:
        return 0
    if not place.isdecimal() or not place.isascii() or len(place) > 18:
        raise Invalid("cursor", "is not a cursor of this listing", _RULE)
    return int(place)


def cut(found: Sequence[Item], start: int, limit: int) -> tuple[list[Item], str | None]:
    """The page that begins at a place of a list, and the cursor of the next one."""
    more = cursor_of(start + limit) if len(found) > start + limit else None
    return list(found[start : start + limit]), more


def room_for(start: int, limit: int, most: int) -> int:
    """How many to ask for, to have this page and to know whether there is another."""
    return min(start + limit + 1, most)


def behind(found: Sequence[Any], limit: int, field: str) -> str | None:
    """The cursor behind the last item of a full page; None behind a page that was not full.

    `field` is what the place is called in an item, "" the item itself.
    """
    if len(found) != limit:
        return None
    last = found[-1]
    if field:
        last = last[field] if isinstance(last, dict) else getattr(last, field)
    return cursor_of(last)


def encoded(value: Any) -> bytes:
    """A value as JSON."""
    return _encode(value)


def _plain(value: Any) -> Any:
    """Values of the library that JSON has no word for."""
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)
    raise NotImplementedError(type(value).__name__)


_encode = msgspec.json.Encoder(enc_hook=_plain, decimal_format="string").encode


# Moments as text, quickly: most of them share their second with the one before

_MICRO = 1_000_000


@lru_cache(64)
def iso_of(time_us: int) -> str:
    """Microseconds since 1970 as `datetime.isoformat` writes them in UTC.

    Those of one commit group are all the same.
    """
    second, rest = divmod(time_us, _MICRO)
    return f"{_second(second)}.{rest:06d}+00:00" if rest else f"{_second(second)}+00:00"


def milliseconds_of(time_us: int) -> str:
    """The same with three digits behind the second, always."""
    return _milliseconds(time_us // 1_000)


@lru_cache(64)
def _milliseconds(time_ms: int) -> str:
    second, rest = divmod(time_ms, 1_000)
    return f"{_second(second)}.{rest:03d}+00:00"


@lru_cache(64)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).replace(tzinfo=None).isoformat()
