"""Made by `python -m pagefile.testing.client_calls` from the server's routes."""

from __future__ import annotations

import msgspec


class Health(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The process answers."""

    ok: bool
    status: str
    service: str
    version: str


class WhoAmI(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the key that was sent may do."""

    name: str
    tenant: str
    rights: list[str]
    user_id: str | None


class Refusal(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One request that was turned away."""

    status: int
    reason: str
    method: str
    route: str
    request_id: str
    who: str = ""
    tenant: str = ""
    client: str = ""
    unlisted: int = 0


class RefusalShown(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One refusal and when it was."""

    time: str
    refusal: Refusal


class Refusals(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Requests that were refused, oldest first."""

    items: list[RefusalShown]
    cursor: str | None
