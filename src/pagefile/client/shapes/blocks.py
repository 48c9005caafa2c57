"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from datetime import datetime

import msgspec


class MemoryBlock(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Named text pinned to every prompt; `pinned_order` says where among the others."""

    name: str
    content: str
    updated_at: datetime
    pinned_order: int = 0
    version: int = 0


class BlockList(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Blocks, in their order."""

    items: list[MemoryBlock]
    cursor: str | None = None


class Removed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """It is gone."""

    ok: bool
