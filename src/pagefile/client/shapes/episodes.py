"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from pagefile.client.shapes import shared


class NewEpisode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A finished exchange. The same `id` with the same content stores nothing."""

    session_id: str
    input: str = ""
    output: str = ""
    id: str | None = None
    user_id: str | None = None
    occurred_at: datetime | None = None
    speaker: str | None = None
    tool_calls: Sequence[shared.ToolCall | Mapping[str, Any]] = []
    tool_transcript: Sequence[shared.Message | Mapping[str, Any]] | None = None
    embedding: Sequence[float] | None = None


class Remembered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Its id."""

    id: str


class RememberedAll(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Their ids, in the order given."""

    ids: list[str]


class Episodes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Exchanges, newest first."""

    items: list[shared.Episode]
    cursor: str | None


class Messages(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The last messages of a session, oldest first."""

    items: list[shared.Message]


class Duplicate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A memory that says what an earlier one says; `similarity` is 1 for the same terms."""

    key: str
    of: str
    similarity: float
    is_same: bool = False


class Duplicates(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Episodes that say what another says."""

    items: list[Duplicate]
    cursor: str | None


class ConsolidationReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one consolidation did."""

    episodes: int = 0
    facts: int = 0
    proposed: int = 0
    dropped: int = 0
    failed: int = 0
    cancelled: bool = False
    budget_spent: bool = False
    errors: tuple[tuple[str, str], ...] = ()
