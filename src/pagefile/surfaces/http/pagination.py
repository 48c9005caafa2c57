"""Pages of listings: `limit`, `cursor`, and a cursor to go on with."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import Query

from pagefile.errors import Invalid

Item = TypeVar("Item")

Limit = Annotated[int, Query(ge=1, le=1_000, description="How many at most.")]
Cursor = Annotated[
    str | None,
    Query(max_length=2_048, description="`cursor` of the page before; leave it out to begin."),
]


class Page(msgspec.Struct, kw_only=True):
    """Part of a listing; `cursor` continues it, null means that was all."""

    items: list[Any]
    cursor: str | None


def cursor_of(place: str | int) -> str:
    """A place in a listing, as clients are given it."""
    return base64.urlsafe_b64encode(str(place).encode()).decode().rstrip("=")


def place_in(cursor: str | None) -> str:
    """The place that a cursor stands for; empty for none.

    Raises:
        Invalid: it is none of ours.
    """
    if not cursor:
        return ""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        return base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except (binascii.Error, ValueError) as error:
        raise Invalid("cursor", "is none of a page", "give `cursor` of the page before") from error


def number_in(cursor: str | None) -> int:
    """The number that a cursor stands for; 0 for none."""
    place = place_in(cursor)
    if not place:
        return 0
    if not place.isdecimal() or not place.isascii() or len(place) > 18:
        raise Invalid("cursor", "is none of this listing", "give `cursor` of the page before")
    return int(place)


def cut(found: Sequence[Item], start: int, limit: int) -> tuple[list[Item], str | None]:
    """The page that begins at a place of a list, and the cursor of the next one."""
    more = cursor_of(start + limit) if len(found) > start + limit else None
    return list(found[start : start + limit]), more


def room_for(start: int, limit: int, most: int) -> int:
    """How many to ask for, to have this page and to know whether there is another."""
    return min(start + limit + 1, most)


def page_by_name(names: list[str], limit: int) -> Page:
    """A page of names in order; a full one may have more behind it."""
    return Page(items=names, cursor=cursor_of(names[-1]) if len(names) == limit else None)
