"""Every operation that is served over HTTP, and what a path says of the one that is there.

Those for operators of the server, which only a server has, are written here.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Callable
from functools import cache, cached_property
from typing import Any

import msgspec

import pagefile
from pagefile import operations
from pagefile.errors import Forbidden, Unavailable
from pagefile.operations import Operation
from pagefile.operations.answer import cursor_of, number_in
from pagefile.operations.operation import get, operation
from pagefile.surfaces.access.refusals import Refusal
from pagefile.surfaces.http import earlier
from pagefile.surfaces.http.request import Caller

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


_NAME = re.compile(r"\{\w+\}")


@cache
def served() -> tuple[Operation, ...]:
    """Every operation that is served over HTTP."""
    every = (*operations.table(), *operations.rows(earlier, sys.modules[__name__]))
    return tuple(each for each in every if each.http is not None)


class Paths:
    """The paths of some operations, to be asked whether a request is for one of them."""

    def __init__(self, wanted: Callable[[Operation], bool]) -> None:
        self._wanted = wanted

    def __contains__(self, path: str) -> bool:
        whole, ends, pattern = self._known
        # The end first: most paths have another, and a pattern costs more than that.
        return path in whole or (path.endswith(ends) and pattern.fullmatch(path) is not None)

    @cached_property
    def _known(self) -> tuple[frozenset[str], tuple[str, ...], re.Pattern[str]]:
        paths = [each.http.path for each in served() if each.http and self._wanted(each)]
        named = [path for path in paths if "{" in path]
        ends = {path.rpartition("}")[2] for path in named}
        pattern = "|".join(_NAME.sub("[^/]+", path) for path in named)
        return frozenset(paths) - {*named}, tuple(ends), re.compile(pattern or "(?!)")


def _is_asked(operation: Operation) -> bool:
    assert operation.http is not None
    return operation.http.method != "GET"


#: What is sent with POST because a question can be long; it needs no more than "read".
ASKING = Paths(lambda each: _is_asked(each) and (each.right == "read" or not each.changes))
#: What changes nothing, whatever is sent: no repeat of it has to be known.
UNCHANGING = Paths(lambda each: _is_asked(each) and not each.changes)
#: What knows repeats itself, in the store.
EXACT = Paths(lambda each: each.is_exact)
#: Bodies that are files.
UPLOADS = Paths(lambda each: bool(each.upload))
