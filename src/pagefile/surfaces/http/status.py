"""For operators of the server: is it alive, is it ready, what does it count, whom did it refuse."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

import pagefile
from pagefile.errors import Forbidden, Unavailable
from pagefile.operations.answer import cursor_of, number_in
from pagefile.operations.operation import get, operation
from pagefile.surfaces.access.refusals import Refusal
from pagefile.surfaces.http.caller import Caller

_TAG = "operations"


class Health(msgspec.Struct, kw_only=True):
    """The process answers."""

    ok: bool
    status: str
    service: str
    version: str


class RefusalShown(msgspec.Struct, kw_only=True):
    """One refusal and when it was."""

    time: str
    refusal: Refusal


class Refusals(msgspec.Struct, kw_only=True):
    """Requests that were refused, oldest first."""

    items: list[RefusalShown]
    cursor: str | None


class WhoAmI(msgspec.Struct, kw_only=True):
    """What the key that was sent may do."""

    name: str
    tenant: str
    rights: list[str]
    user_id: str | None


@operation(http=get("/health", _TAG), is_public=True, gives=Health)
async def health(server: Any) -> Health:
    """Whether the process answers; touches nothing."""
    return _health("ok")


@operation(http=get("/ready", _TAG), is_public=True, gives=Health)
async def ready(server: Any) -> Health:
    """Whether the store answers too."""
    if not server.is_ready:
        raise Unavailable("the store is not open", "wait")
    await asyncio.to_thread(server.keys.is_empty)
    return _health("ready")


@operation(http=get("/metrics", _TAG), gives_file="text/plain", says="Counters for Prometheus.")
async def metrics(caller: Caller) -> bytes:
    """Counters of all its processes; for those who operate the server."""
    _require_operator(caller)
    # In the loop: what it counts up is changed by requests meanwhile.
    shown: bytes = caller.server.metrics.shown()
    return shown


@operation(http=get("/v1/whoami", _TAG))
async def whoami(caller: Caller) -> WhoAmI:
    """Whose key this is, and what it may do."""
    who = caller.identity
    rights: list[str] = sorted(who.rights)
    return WhoAmI(name=who.name, tenant=who.tenant, rights=rights, user_id=who.user_id)


@operation(http=get("/v1/refusals", _TAG))
async def refusals(caller: Caller, *, limit: int = 100, cursor: str | None = None) -> Refusals:
    """Requests that were refused; for those who operate the server."""
    _require_operator(caller)
    log, start = caller.server.refusals, number_in(cursor)
    found = await asyncio.to_thread(log.list, after=start - 1, limit=limit)
    items = [RefusalShown(time=entry.time.isoformat(), refusal=each) for entry, each in found]
    after = cursor_of(found[-1][0].index + 1) if len(found) == limit else None
    return Refusals(items=items, cursor=after)


def _health(status: str) -> Health:
    return Health(ok=True, status=status, service="pagefile", version=pagefile.__version__)


def _require_operator(caller: Caller) -> None:
    """Counts of all tenants together are for who runs the server: admins of its home tenant."""
    caller.require("admin")
    caller.require_whole_tenant()
    if caller.identity.tenant != caller.config.tenant:
        raise Forbidden(
            "this is for those who operate the server", "use an admin key of its home tenant"
        )
