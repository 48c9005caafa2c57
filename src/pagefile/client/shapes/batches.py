"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import msgspec

from pagefile.client.shapes import shared


class Proposal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A batch that waits to be committed, until it expires."""

    batch_id: str
    count: int
    expires: datetime


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A memory change request of schema version 2.1. An empty text is one that was not given."""

    schema_version: Literal["2.1"] = msgspec.field(name="_schema_version")
    op: Literal["add", "supersede", "deprecate", "noop"]
    type: Literal["fact", "preference", "policy", "decision", "invariant"]
    scope: Literal["user", "project", "global"]
    content: str
    confidence: float
    rationale: str
    source_refs: Sequence[str]
    supersedes: Sequence[str] = ()
    target_memory_id: str = ""
    memory_id: str = ""
    user_id: str = ""
    project_id: str = ""
    created_at: datetime | msgspec.UnsetType = msgspec.UNSET
    updated_at: datetime | msgspec.UnsetType = msgspec.UNSET


class ItemBatch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Changes that become true together, or not at all."""

    batch_id: str
    status: str
    changes: tuple[Change, ...]
    created_us: int
    expires_us: int
    run_id: str | None = None
    user_id: str | None = None
    project_id: str | None = None
    scope: str | None = None
    type: str | None = None
    memory_ids: tuple[str, ...] = ()
    gate: str = ""
    by: str = ""
    made: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()


class BatchPage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Part of a listing of batches. `cursor` continues it; None means that was all."""

    items: tuple[ItemBatch, ...]
    cursor: str | None


class Difference(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One item before and after; `before` is None for one that comes into being."""

    memory_id: str
    before: shared.MemoryItem | None
    after: shared.MemoryItem


class Preview(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a commit would do now; `problems` are why it would be refused."""

    batch_id: str
    status: str
    added: tuple[Difference, ...]
    superseded: tuple[Difference, ...]
    deprecated: tuple[Difference, ...]
    problems: tuple[str, ...]


class Committed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a commit, or an undo, changed, and where it landed."""

    batch_id: str
    memory_ids: tuple[str, ...]
    position: int


class Token(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A token that lets one batch of the run pass, once."""

    token: str
    ttl_seconds: int
