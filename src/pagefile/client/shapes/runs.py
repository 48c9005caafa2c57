"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

from typing import Any

import msgspec


class RunConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The settings of one run."""

    ws_max_tokens: int = 2000
    pinned_context_max_items: int = 10
    token_counter: str = "chars/4"
    check_transitions: bool = False


class Booted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The run, and its first working set."""

    run_id: str
    status: str
    ws: dict[str, Any]


class Patched(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The working set after a patch, and the items that had to leave."""

    ok: bool
    ws: dict[str, Any]
    evicted: list[dict[str, Any]]
    error: None = None


class Deleted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether there was something to delete."""

    ok: bool
    deleted: bool


class Rebuilt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whether the ledger, folded, gives the stored working set, and what it gives."""

    ok: bool
    ws: dict[str, Any]


class Repaired(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of a repair; where nothing was wrong, nothing was written."""

    run_id: str
    repaired: bool
    found: str
    ws: dict[str, Any]


class Items(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Items that left the working set, newest first."""

    items: list[dict[str, Any]]


class Brief(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The working set as Markdown for a prompt."""

    context_brief: str
