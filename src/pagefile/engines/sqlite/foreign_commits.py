"""What other processes have committed to one tenant of an SQLite file since we last looked.

Beginning anew after each of their commits would mean to read again every stream, user and key
that our own commits need. Their manifests say what they did, and most only add records.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pagefile.store.engine import RawCommit
from pagefile.store.records import NO_MANIFEST, Action, unpack

#: Beyond, reading the commits takes longer than beginning anew.
MOST_COMMITS = 512


class News(NamedTuple):
    """What some commits did, where all they did was to add records."""

    #: The new length of each log that was appended to.
    lengths: dict[int, int]
    #: Documents with a new version, to be looked at again.
    changed: set[int]
    #: The newest stream that was written to.
    newest: int


def news_of(commits: Sequence[RawCommit]) -> News | None:
    """What they did; None when more than adding, or when it cannot be read."""
    lengths: dict[int, int] = {}
    changed: set[int] = set()
    try:
        for commit in commits:
            for entry in unpack(commit.manifest):
                action, oid, number = int(entry[0]), int(entry[1]), int(entry[2])
                if action == Action.APPEND:
                    lengths[oid] = number + 1
                elif action == Action.PUT:
                    changed.add(oid)
                else:
                    return None
    except (*NO_MANIFEST, IndexError, ValueError):
        return None
    return News(lengths, changed, max((*lengths, *changed), default=0))
