"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from typing import Any

import msgspec

import pagefile.store.records as library


class HeadShown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of the tenant's commit log; keep it elsewhere to prove that nothing was cut."""

    position: int
    digest: str


class ReportShown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an examination found."""

    ok: bool
    commits: int
    records: int
    problems: list[library.Problem]
    head: HeadShown


class Changes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Commits after a position, oldest first."""

    items: list[library.Change]
    cursor: str | None


class Stored(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One entry of a log, or version of a document. `value` is null when `erased`."""

    name: str
    number: int
    position: int
    time: str
    user: str | None
    kind: str
    actor: str
    sources: list[str]
    erased: bool
    deleted: bool
    value: Any


class VectorsShown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a user's vectors are; `waiting` entries have not reached the arm yet."""

    arm: str
    indexed: int
    waiting: int


class Synced(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How many vectors the arm was given."""

    ok: bool
    given: int
