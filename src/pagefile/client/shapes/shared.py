"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec


class ToolDef(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a model was told about a tool."""

    name: str
    description: str = ""
    input_schema: dict[str, Any] = {}
    server: str | None = None
    destructive: bool = False


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One call that a model asked for."""

    tool: str
    args: dict[str, Any] = {}
    id: str
    tool_def: ToolDef | None = None
    destructive: bool = False


class Image(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A picture in a message, as base64."""

    data: str
    media_type: str = "image/png"


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One message of a conversation."""

    role: str
    content: str
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    images: tuple[Image, ...] = ()


class MemoryItem(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing known for the long term. `batch_id` is what made it so, last."""

    memory_id: str
    type: str
    scope: str
    content: str
    confidence: float
    status: str
    source_refs: tuple[str, ...]
    rationale: str
    created_at: datetime
    updated_at: datetime
    batch_id: str
    supersedes: tuple[str, ...] = ()
    superseded_by: str | None = None
    user_id: str | None = None
    project_id: str | None = None


class Episode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One finished exchange: what came in, what went out, and when."""

    session_id: str
    input: str = ""
    output: str = ""
    id: str
    user_id: str | None = None
    occurred_at: datetime
    tool_calls: tuple[ToolCall, ...] = ()
    embedding: tuple[float, ...] | None = None
    tool_transcript: tuple[Message, ...] | None = None
    speaker: str | None = None
    said_again: tuple[datetime, ...] = ()


class Closing(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What ended a fact, or keeps an assertion from being seen."""

    how: str
    by: str
    reason: str = ""
    actor: str = ""
    recorded_at: datetime | None = None


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Subject, predicate, object; true from `valid_from` until just before `valid_until`."""

    subject: str
    predicate: str
    object: str
    id: str
    user_id: str | None = None
    confidence: float = 1.0
    valid_from: datetime
    valid_until: datetime | None = None
    recorded_at: datetime | None = None
    sources: tuple[str, ...] = ()
    reason: str = ""
    actor: str = ""
    status: str = "asserted"
    superseded_by: str | None = None
    closed: Closing | None = None
    asserted: tuple[str, ...] = ()
