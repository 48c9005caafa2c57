"""The warning for asking about nobody where somebody's memories are kept."""

from __future__ import annotations

import re
import sys
import warnings
from types import FrameType

from pagefile.memory.owner import USERS
from pagefile.query import Query
from pagefile.store import Store

_INSIDE = re.compile(r"pagefile(?!\.testing)(\.|$)")


class IsolationWarning(UserWarning):
    """A call without `user_id` reached the bucket of nobody, while named users have their own.

    Most often the `user_id` was forgotten. Nothing of a named user was seen or
    touched. Make it an error with `warnings.simplefilter("error", IsolationWarning)`.
    """


def warn_if_anonymous(store: Store, user_id: str | None) -> None:
    """Warn whoever called into the package, on every call where it applies."""
    if user_id is None and has_named_users(store):
        warnings.warn(
            "no user_id was given, and there are named users: this is the bucket of nobody",
            IsolationWarning,
            stacklevel=_frames_inside() + 1,
        )


def _frames_inside() -> int:
    """How many frames, from the caller's on, are of this package; its test suites are outside."""
    frame: FrameType | None = sys._getframe(1)
    count = 0
    while frame is not None and _INSIDE.match(frame.f_globals.get("__name__", "")):
        frame = frame.f_back
        count += 1
    return count


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
