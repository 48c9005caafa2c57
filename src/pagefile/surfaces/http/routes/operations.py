"""For operators of the server: is it alive, is it ready, what does it count, whom did it refuse."""

from __future__ import annotations

import asyncio

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.responses import RedirectResponse

import pagefile
from pagefile.errors import Forbidden, Unavailable
from pagefile.surfaces.access.refusals import Refusal
from pagefile.surfaces.http.bodies import reply
from pagefile.surfaces.http.call import Caller, caller_of
from pagefile.surfaces.http.metrics import MEDIA_TYPE
from pagefile.surfaces.http.openapi import told
from pagefile.surfaces.http.pagination import Cursor, Limit, cursor_of, number_in

router = APIRouter(tags=["operations"])


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


@router.get("/", include_in_schema=False)
async def root() -> Response:
    """The documentation is a better start than an empty page."""
    return RedirectResponse("/docs", 307)


@router.get("/health", **told(gives=Health))
async def health() -> Response:
    """Whether the process answers; touches nothing."""
    version = pagefile.__version__
    return reply(Health(ok=True, status="ok", service="pagefile", version=version))


@router.get("/ready", **told(gives=Health))
async def ready(request: Request) -> Response:
    """Whether the store answers too."""
    server = request.app.state.server
    if not server.is_ready:
        raise Unavailable("the store is not open", "wait")
    await asyncio.to_thread(server.keys.is_empty)
    version = pagefile.__version__
    return reply(Health(ok=True, status="ready", service="pagefile", version=version))


@router.get("/metrics", **told(binary="text/plain", says="Counters for Prometheus."))
async def metrics(request: Request) -> Response:
    """Counters of all its processes; for those who operate the server."""
    _require_operator(caller_of(request))
    # In the loop: what it counts up is changed by requests meanwhile.
    return Response(request.app.state.server.metrics.shown(), media_type=MEDIA_TYPE)


@router.get("/v1/whoami", **told(gives=WhoAmI))
async def whoami(request: Request) -> Response:
    """Whose key this is, and what it may do."""
    who = caller_of(request).identity
    rights: list[str] = sorted(who.rights)
    return reply(WhoAmI(name=who.name, tenant=who.tenant, rights=rights, user_id=who.user_id))


@router.get("/v1/refusals", **told(gives=Refusals))
async def refusals(request: Request, limit: Limit = 100, cursor: Cursor = None) -> Response:
    """Requests that were refused; for those who operate the server."""
    _require_operator(caller_of(request))
    log = request.app.state.server.refusals
    start = number_in(cursor)
    found = await asyncio.to_thread(log.list, after=start - 1, limit=limit)
    items = [RefusalShown(time=entry.time.isoformat(), refusal=each) for entry, each in found]
    after = cursor_of(found[-1][0].index + 1) if len(found) == limit else None
    return reply(Refusals(items=items, cursor=after))


def _require_operator(caller: Caller) -> None:
    """Counts of all tenants together are for who runs the server: admins of its home tenant."""
    caller.require("admin")
    caller.require_whole_tenant()
    if caller.identity.tenant != caller.config.tenant:
        raise Forbidden(
            "this is for those who operate the server", "use an admin key of its home tenant"
        )
