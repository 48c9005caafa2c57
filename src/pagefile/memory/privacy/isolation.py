"""The warning for asking about nobody where somebody's memories are kept."""

from __future__ import annotations

import re
import sys
import warnings
from contextvars import ContextVar
from types import FrameType
from typing import Any, NamedTuple

from pagefile.memory.documents import USERS
from pagefile.store.batch import Query
from pagefile.store.store import Store

_INSIDE = re.compile(r"pagefile(?!\.testing)(\.|$)")
#: Where the calls of a worker thread begin.
_WORKER = "concurrent.futures.thread"


class IsolationWarning(UserWarning):
    """A call without `user_id` reached the bucket of nobody, while named users have their own.

    Most often the `user_id` was forgotten. Nothing of a named user was seen or
    touched. Make it an error with `warnings.simplefilter("error", IsolationWarning)`.
    """


class Place(NamedTuple):
    """A line outside of this package, and what its module was warned of."""

    filename: str
    lineno: int
    module: str
    registry: dict[Any, Any]


class AwaitedFrom:
    """While this is entered, threads that work for it know the line that awaits them.

    What is awaited runs in a worker thread, whose own calls begin in the
    interpreter: nobody could tell from there who forgot a `user_id`.
    """

    def __enter__(self) -> None:
        self._token = _AWAITED_FROM.set(_place_outside(sys._getframe(1)))

    def __exit__(self, *raised: object) -> None:
        _AWAITED_FROM.reset(self._token)


_AWAITED_FROM: ContextVar[Place | None] = ContextVar("pagefile_awaited_from", default=None)


def warn_if_anonymous(store: Store, user_id: str | None) -> None:
    """Warn whoever called into the package, on every call where it applies."""
    if user_id is None and has_named_users(store):
        place = _place_outside(sys._getframe(1))
        if place is None or place.module == _WORKER:
            place = _AWAITED_FROM.get() or place
        if place is not None:
            warnings.warn_explicit(
                "no user_id was given, and there are named users: this is the bucket of nobody",
                IsolationWarning,
                place.filename,
                place.lineno,
                place.module,
                place.registry,
            )


def _place_outside(frame: FrameType | None) -> Place | None:
    """The line that called into this package; its test suites are outside."""
    while frame is not None and _INSIDE.match(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
    if frame is None:
        return None
    named = frame.f_globals
    registry = named.setdefault("__warningregistry__", {})
    return Place(frame.f_code.co_filename, frame.f_lineno, named.get("__name__", ""), registry)


def has_named_users(store: Store) -> bool:
    """Whether memory keeps something for anybody with a name."""
    return bool(store.find(Query(USERS, everyone=True), limit=1).items)


def named_users(store: Store, *, after: str = "", limit: int = 100) -> list[str]:
    """The names of users whose memories are kept, in order, after `after`."""
    found: list[str] = []
    while len(found) < limit:
        low = f"{after}\x00" if after else None
        page = store.find(Query(USERS, low=low, everyone=True), limit=1)
        if not page.items:
            break
        after = str(page.items[0].tenant_keys[USERS])
        found.append(after)
    return found
