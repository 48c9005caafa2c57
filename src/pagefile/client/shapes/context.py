"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from typing import Any

import msgspec


class AssemblyOptions(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What goes into a prompt, and how much of it."""

    blocks: bool = True
    tail_share: float = 0.5
    working_share: float = 0.25
    max_slots: int = 1000
    max_recalled: int = 20
    kinds: tuple[str, ...] = ("episode", "fact", "item")
    min_score: float = 0.2
    related_only: bool = True
    min_similarity: float | None = None
    min_confidence: float = 0.3
    require_newest: bool = True
    include_query: bool = False


class Piece(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that went in: the record it comes from, and what it takes."""

    section: str
    tokens: int
    digest: str = ""
    stream: str = ""
    number: int = 0
    item: str = ""
    score: float | None = None


class LeftOut(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that did not go in, and why; of a log, everything from `number` to `last`."""

    section: str
    reason: str
    stream: str = ""
    number: int = 0
    last: int = 0
    item: str = ""
    tokens: int = 0
    score: float | None = None


class AssemblyReceipt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was done to make a prompt."""

    receipt_id: str
    position: int
    source: str
    user_id: str | None
    project_id: str | None
    agent: str
    counter: str
    budget: int
    tokens: int
    options: AssemblyOptions
    options_digest: str
    digest: str
    prefix_digest: str
    query_digest: str
    sections: dict[str, int]
    pieces: tuple[Piece, ...]
    left_out: tuple[LeftOut, ...]
    recorded: bool = False
    missing: int = 0


class ContextAnswer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A prompt in the form that was asked for; `system` stands apart for `anthropic`."""

    format: str
    messages: list[dict[str, Any]] | None
    system: str | None
    text: str | None
    tokens: int
    receipt: AssemblyReceipt


class ReceiptVerified(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether the same bytes came out; `differs` names the fields that did not."""

    ok: bool
    receipt_id: str
    differs: list[str]
    reason: str
