"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from datetime import datetime

import msgspec

import pagefile.store.records as library
from pagefile.client.shapes import shared


class MemoryProfile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much is kept of a user, and the newest of it."""

    user_id: str | None
    episode_count: int = 0
    fact_count: int = 0
    block_count: int = 0
    last_seen: datetime | None = None
    recent_sessions: tuple[str, ...] = ()
    sample_facts: tuple[shared.Fact, ...] = ()


class ImportReceipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What an import did: records stored, streams there already, streams that stay forgotten."""

    user_id: str | None
    records: int = 0
    present: int = 0
    forgotten: int = 0


class Forgotten(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was removed, by kind, and how far the removal reaches."""

    count: int
    counts: dict[str, int]
    dry_run: bool
    receipt: library.Receipt | None
