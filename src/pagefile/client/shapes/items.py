"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

import msgspec

from pagefile.client.shapes import shared


class Hit(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An item that shares words with the query; a higher score is a better match."""

    item: shared.MemoryItem
    score: float


class Hits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Items that share a word with the question, best first; without one, the newest first."""

    items: list[Hit]
    cursor: str | None


class Cause(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Why an item has this version: the request, and who let it pass."""

    op: str
    batch_id: str
    rationale: str = ""
    source_refs: tuple[str, ...] = ()
    gate: str = ""
    by: str = ""


class Revision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One version of an item, as `history` lists it."""

    version: int
    position: int
    item: shared.MemoryItem
    cause: Cause


class Revisions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Versions of an item, oldest first."""

    items: list[Revision]
    cursor: str | None
