"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

import msgspec


class Activation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A thread id and the path it stands for."""

    thread_id: str
    path: list[str]
    text: str
    conversation: str | None


class Answered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Whom to answer; both null when nobody waits."""

    name: str | None
    thread_id: str | None


class Done(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """It is so."""

    ok: bool
