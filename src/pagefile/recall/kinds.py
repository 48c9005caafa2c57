"""What recall stores under which name."""

from __future__ import annotations

from pagefile.recall.records import DOCUMENT, LOGS
from pagefile.store.kinds import Kind

KINDS = (
    Kind(
        LOGS,
        "the search index of a user, and marks of an index that is being made",
        "log",
        form=r"\d+/.+",
        counted_as="index",
        derived=True,
        returns=True,
        exported=False,
    ),
    Kind(DOCUMENT, "what the index is made with", owner="tenant", form="", exported=False),
)
