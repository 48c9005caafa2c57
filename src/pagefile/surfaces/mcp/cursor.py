"""Where a listing goes on: behind a name that the caller was shown, and so many further.

A cursor never holds a name that its reader may not see.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final, Literal

import msgspec

from pagefile.context.names import THREADS
from pagefile.errors import Invalid, shown
from pagefile.runs.names import RUNS
from pagefile.store.codec.decoder import convert
from pagefile.store.store import Store

Kind = Literal["threads", "runs"]
_MOST_CURSOR: Final = 4_096
_AT_ONCE = 1_000
_MOST_PASSED = 100_000_000


class Place(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Behind `after`, a name that was shown, and `passed` names that were not."""

    kind: Kind = "threads"
    after: str = ""
    passed: int = 0

    def further(self) -> Place:
        """Behind the next name, which is not shown."""
        return Place(self.kind, self.after, self.passed + 1)

    def next_kind(self) -> Place | None:
        """Where the listing goes on when there are no more of a kind."""
        return Place("runs") if self.kind == "threads" else None


def place_in(cursor: str | None) -> Place:
    """The place that a cursor stands for; None is the beginning.

    Raises:
        Invalid: it is none of ours.
    """
    if cursor is None:
        return Place()
    try:
        if len(cursor) > _MOST_CURSOR:
            raise ValueError
        plain = base64.urlsafe_b64decode(cursor.encode())
        place = convert(msgspec.json.decode(plain), Place)
        if not 0 <= place.passed <= _MOST_PASSED:
            raise ValueError
    except (ValueError, binascii.Error, msgspec.MsgspecError):
        raise Invalid(
            "cursor", f"{shown(cursor)} is none of ours", "pass a cursor unchanged"
        ) from None
    return place


def cursor_of(place: Place) -> str:
    """A place as clients pass it back."""
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode()


def names_behind(store: Store, place: Place, limit: int) -> list[str]:
    """The next names of a place's kind, whoever may read them."""
    space: Literal["log", "document"] = "log" if place.kind == "threads" else "document"
    prefix = THREADS if place.kind == "threads" else RUNS
    after, left = prefix + place.after if place.after else "", place.passed
    while left:
        passed = store.names(space, prefix=prefix, after=after, limit=min(left, _AT_ONCE))
        if not passed:
            return []
        after, left = passed[-1], left - len(passed)
    names = store.names(space, prefix=prefix, after=after, limit=limit)
    return [name.removeprefix(prefix) for name in names]
