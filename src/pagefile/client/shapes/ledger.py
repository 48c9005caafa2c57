"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

import msgspec


class Recorded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where it stands in the ledger."""

    sequence_id: int


class Milestone(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a milestone made; `digest` is SHA-256 of the episode's content."""

    episode_id: str
    committed_memory_ids: tuple[str, ...]
    first_sequence_id: int
    last_sequence_id: int
    digest: str = ""
