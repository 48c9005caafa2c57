"""What every request passes before a route sees it: id, key, rate, size, time, log, count.

It is one plain ASGI application around the whole, so that nothing that is
mounted later can be reached without a key.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Sequence
from typing import Protocol

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pagefile.errors import PagefileError
from pagefile.surfaces.access.identity import Identity
from pagefile.surfaces.access.refusals import Refusal, RefusalLog
from pagefile.surfaces.http import problems
from pagefile.surfaces.http.call import Call, Lease, Tenants
from pagefile.surfaces.http.config import ServerConfig
from pagefile.surfaces.http.gate import (
    PUBLIC,
    BoundedBody,
    Deadline,
    Deadlines,
    Gate,
    Rates,
    is_packed,
    packed_body,
    right_for,
    too_large,
    too_long,
    whole_body,
    without_body,
)
from pagefile.surfaces.http.request import LARGE_BYTES, require_few_values
from pagefile.surfaces.http.table import UPLOADS
from pagefile.surfaces.http.telemetry import Log, Metrics

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_UNMATCHED = "unmatched"
_AUDITED = frozenset({401, 403, 421, 429})
#: What every answer has.
_SAFE_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
)
#: Headers that say where a request begins, ends and goes.
_ONCE = (b"host", b"content-length", b"transfer-encoding")


class Parts(Protocol):
    """What the front needs of a server that is running."""

    config: ServerConfig
    gate: Gate
    tenants: Tenants
    refusals: RefusalLog
    metrics: Metrics
    log: Log
    rates: Rates
    #: Where other applications are mounted, which check rights by themselves.
    mounted: tuple[str, ...]
    #: All routes, in the order in which they are looked at.
    routes: Sequence[BaseRoute]


class Front:
    """The outermost application."""

    def __init__(self, app: ASGIApp, parts: Parts) -> None:
        self._app = app
        self._parts = parts
        #: Ids of requests: this process, and a number. Random ones for each would cost more.
        self._prefix = secrets.token_hex(6)
        self._count = 0
        self._deadlines = Deadlines()
        self._below = tuple(f"{at}/" for at in parts.mounted)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http":
            await self._answer(scope, receive, send)
        elif kind == "lifespan":
            await self._app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        parts, method, headers = self._parts, scope["method"], scope["headers"]
        client = scope.get("client")
        heads: dict[bytes, bytes] = dict(headers)
        call = Call(self._request_id(heads), client[0] if client else "", parts.config, heads)
        scope["pagefile"] = call
        out = _Sending(send, call)
        lease: Lease | None = None
        parts.metrics.in_flight += 1
        try:
            _require_plain_head(scope, heads)
            identity = self._known(scope, heads) or await self._identify(scope, call)
            if identity is not None:
                self._let_in(scope, call, identity)
                tenants, tenant = parts.tenants, identity.tenant
                lease = tenants.at_hand(tenant) or await tenants.lease(tenant)
                call.take(lease)
            await self._bounded(scope, receive, out)
        except asyncio.CancelledError:
            call.reason = call.reason or "gone"
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            await self._refuse(scope, receive, out, error)
        finally:
            if lease is not None:
                lease.release()
            parts.metrics.in_flight -= 1
            call.route = call.route or _route_of(scope)
            seconds = time.perf_counter() - started
            parts.metrics.observe(method, call, seconds)
            parts.log.request(method, call, seconds)
        if call.status in _AUDITED:
            await self._audit(scope, call)

    def _request_id(self, heads: dict[bytes, bytes]) -> str:
        given = heads.get(b"x-request-id")
        if given is not None and _REQUEST_ID.fullmatch(given):
            return given.decode()
        self._count += 1
        return f"{self._prefix}{self._count:012x}"

    def _known(self, scope: Scope, heads: dict[bytes, bytes]) -> Identity | None:
        """Who asks, if that is known without a look into the store."""
        if scope["path"] in PUBLIC:
            return None
        return self._parts.gate.known(heads, len(scope["headers"]))

    async def _identify(self, scope: Scope, call: Call) -> Identity | None:
        """Who asks; None where nobody has to say so."""
        parts, path = self._parts, scope["path"]
        identity = None
        if path not in PUBLIC or (parts.config.local and path not in ("/health", "/ready")):
            identity = await parts.gate.identify(scope["headers"], call.client)
        return None if path in PUBLIC else identity

    def _let_in(self, scope: Scope, call: Call, identity: Identity) -> None:
        """Refuse who may not do that, or does it too often."""
        path = scope["path"]
        call.identity = identity
        self._parts.rates.take(identity.principal)
        identity.require("read" if self._is_mounted(path) else right_for(scope["method"], path))

    async def _bounded(self, scope: Scope, receive: Receive, out: _Sending) -> None:
        config = self._parts.config
        is_head = scope["method"] == "HEAD" and not self._may_have_no_end(scope["path"])
        if scope["method"] in ("GET", "HEAD"):
            most, body_seconds, seconds = 1_024, config.body_seconds, config.request_seconds
        elif is_packed(scope["pagefile"]):
            raise packed_body()
        elif scope["path"] in UPLOADS:
            most, body_seconds = config.max_upload_bytes, config.upload_seconds
            seconds = config.upload_seconds + config.request_seconds
        else:
            most, body_seconds, seconds = (
                config.max_body_bytes,
                config.body_seconds,
                config.request_seconds,
            )
        _require_length(scope["pagefile"], most)
        deadline = self._deadlines.after(seconds)
        body = BoundedBody(receive, most, deadline, body_seconds)
        try:
            with deadline:
                bounded: Receive = body
                if scope["method"] == "POST" and self._is_mounted(scope["path"]):
                    # What is mounted decodes by itself, in this loop.
                    bounded = await _few_values(body, most, config.max_body_values)
                out.deadline = deadline
                if is_head:
                    # Whatever can be read has a head, though routes are told for GET alone. The
                    # server has to know that it was a head that was asked for.
                    asked = {**scope, "method": "GET"}
                    try:
                        await self._app(asked, bounded, without_body(out))
                    finally:
                        scope["route"] = asked.get("route")
                else:
                    await self._app(scope, bounded, out)
        except TimeoutError:
            if not deadline.is_over:
                raise
            if body.is_coming:
                raise problems.Refused(408, "the body took too long") from None
            raise too_long(seconds) from None
        finally:
            out.deadline = None

    def _may_have_no_end(self, path: str) -> bool:
        """Whether an answer may be a stream; whoever asks for its head would wait for ever."""
        return self._is_mounted(path) or path.endswith("/follow")

    def _is_mounted(self, path: str) -> bool:
        return path in self._parts.mounted or path.startswith(self._below)

    async def _refuse(
        self, scope: Scope, receive: Receive, out: _Sending, error: Exception
    ) -> None:
        call: Call = scope["pagefile"]
        if out.has_started:
            # The client sees a body that ends too early; there is no second answer.
            call.error_kind = call.error_kind or problems.place_of(error)
            return
        # What is refused at the door has met no route yet; the record says where it went.
        call.route = call.route or _route_of(scope, self._parts.routes)
        response = problems.response_to(call, error)
        await response(scope, receive, out)

    async def _audit(self, scope: Scope, call: Call) -> None:
        who = call.identity
        refusal = Refusal(
            status=call.status,
            reason=call.reason,
            method=scope["method"][:16],
            route=call.route,
            request_id=call.request_id,
            who="" if who is None else who.name,
            tenant="" if who is None else who.tenant,
            client=call.client,
        )
        try:
            await self._parts.refusals.record(refusal)
        except PagefileError as error:
            place = problems.place_of(error)
            told: dict[str, object] = {"request_id": call.request_id, "error": place}
            self._parts.log.tell("error", "a refusal could not be recorded", told)


async def _few_values(receive: Receive, most: int, most_values: int) -> Receive:
    """The same body, once it is whole and known to have no more values than it may."""
    body = await whole_body(receive, most)
    if len(body) > LARGE_BYTES:
        await asyncio.to_thread(require_few_values, body, most_values)
    first: list[Message] = [{"type": "http.request", "body": body}]

    async def again() -> Message:
        return first.pop() if first else await receive()

    return again


class _Sending:
    """Passes messages on; remembers the status, and adds what every answer has."""

    __slots__ = ("_call", "_send", "deadline", "has_started")

    def __init__(self, send: Send, call: Call) -> None:
        self._send = send
        self._call = call
        self.has_started = False
        self.deadline: Deadline | None = None

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_started = True
            self._call.status = message["status"]
            headers = message["headers"]
            if not isinstance(headers, list):
                headers = list(headers)
            headers.append((b"x-request-id", self._call.request_id.encode()))
            headers.append(_SAFE_HEADERS[0])
            for name, _ in headers:
                if name == b"cache-control":
                    break
            else:
                headers.append(_SAFE_HEADERS[1])
            message["headers"] = headers
            if self.deadline is not None:
                # How long an answer may be sent is the client's affair: streams have no end.
                self.deadline.set(None)
        await self._send(message)


def _require_plain_head(scope: Scope, heads: dict[bytes, bytes]) -> None:
    """Refuse what two programs could read in two ways, though the server program takes it."""
    coding = heads.get(b"transfer-encoding")
    if coding is not None:
        if coding.strip().lower() != b"chunked":
            raise _unclear(501, "of transfer codings only 'chunked' is understood")
        if b"content-length" in heads:
            raise _unclear(400, "a body has a length or comes in chunks, not both")
    # The server program makes a header that is missing an empty one.
    if not heads.get(b"host") and scope["http_version"] not in ("1", "1.0"):
        raise _unclear(400, "the request does not say which host it is for")
    if len(heads) != len(scope["headers"]):
        names = [name for name, _ in scope["headers"]]
        for name in _ONCE:
            if names.count(name) > 1:
                raise _unclear(400, f"the header {name.decode()!r} was sent twice")


def _unclear(status: int, detail: str) -> problems.Refused:
    """A refusal after which the connection closes: where its next request begins is unclear."""
    return problems.Refused(status, detail, headers={"connection": "close"})


def _require_length(call: Call, most: int) -> None:
    """Refuse by what the request says of itself, before anything of it is read."""
    said = call.heads.get(b"content-length")
    if said is None:
        return
    if not said.isdigit():
        raise _unclear(400, "the content-length is not a number")
    if len(said) > 18 or int(said) > most:
        raise too_large(most)


def _route_of(scope: Scope, routes: Sequence[BaseRoute] = ()) -> str:
    """The template that a request met, or would have met among these."""
    path = getattr(scope.get("route"), "path", None)
    for route in routes if path is None else ():
        if route.matches(scope)[0] is not Match.NONE:
            path = getattr(route, "path", None)
            break
    return path if isinstance(path, str) else _UNMATCHED
