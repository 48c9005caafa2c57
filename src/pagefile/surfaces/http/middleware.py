"""What every request passes before a route sees it: id, key, rate, size, time, log, count.

It is one plain ASGI application around the whole, so that nothing that is
mounted later can be reached without a key.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple, Protocol

from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pagefile.errors import PagefileError
from pagefile.surfaces.access.identity import Identity
from pagefile.surfaces.access.refusals import Refusal, RefusalLog
from pagefile.surfaces.http import hot_routes, problems
from pagefile.surfaces.http.authentication import PUBLIC, Gate, right_for
from pagefile.surfaces.http.bodies import LARGE_BYTES, require_few_values
from pagefile.surfaces.http.call import SAFE_HEADERS, Call
from pagefile.surfaces.http.config import ServerConfig
from pagefile.surfaces.http.deadlines import Deadline, Deadlines, too_long
from pagefile.surfaces.http.express import Express
from pagefile.surfaces.http.limits import (
    BoundedBody,
    Rates,
    is_packed,
    packed_body,
    too_large,
    whole_body,
    without_body,
)
from pagefile.surfaces.http.logs import Log
from pagefile.surfaces.http.metrics import Metrics
from pagefile.surfaces.http.table import UPLOADS
from pagefile.surfaces.http.tenants import Lease, Tenants

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_UNMATCHED = "unmatched"
_AUDITED = frozenset({401, 403, 421, 429})


class Once(Protocol):
    """Where the answer to a request goes that came as a whole, and the task that makes it."""

    task: asyncio.Task[None] | None

    def begin(self, answering: Coroutine[Any, Any, None]) -> None: ...

    async def send(self, message: Message) -> None: ...

    def whole(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None: ...

    def write(self, head: bytes, body: bytes) -> None: ...

    def end(self) -> None: ...


Headers = tuple[tuple[bytes, bytes], ...]


class Whole(NamedTuple):
    """A request that is here as a whole: what answers it, its body, where the answer goes."""

    route: hot_routes.Route
    body: bytes
    once: Once
    #: When it began, if that is a while ago; then it was counted against a rate, too.
    began: float | None = None


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
        self._express = Express(parts, self._deadlines, self._request_id, self._see_on)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "http":
            await self._answer(scope, receive, send)
        elif kind == "lifespan":
            await self._app(scope, receive, send)
        else:
            await send({"type": "websocket.close", "code": 1008})

    def at_once(self, scope: Scope, route: hot_routes.Route, body: bytes, once: Once) -> None:
        """Answer a request that is here as a whole, by the route that `hot` has for it."""
        if route is not hot_routes.append_slot or not self._express.takes(scope, body, once):
            once.begin(self._see_through(scope, Whole(route, body, once)))

    def _see_on(
        self, scope: Scope, body: bytes, once: Once, began: float, route: hot_routes.Route
    ) -> None:
        once.begin(self._see_through(scope, Whole(route, body, once, began)))

    async def _see_through(self, scope: Scope, whole: Whole) -> None:
        try:
            await self._answer(scope, _nothing_more, whole.once.send, whole)
        finally:
            whole.once.end()

    async def _answer(
        self, scope: Scope, receive: Receive, send: Send, whole: Whole | None = None
    ) -> None:
        began = None if whole is None else whole.began
        started = began or time.perf_counter()
        parts, method = self._parts, scope["method"]
        client = scope.get("client")
        heads: dict[bytes, bytes] = dict(scope["headers"])
        call = Call(self._request_id(heads), client[0] if client else "", parts.config, heads)
        scope["pagefile"] = call
        out = _Sending(send, call)
        lease: Lease | None = None
        parts.metrics.in_flight += 1
        try:
            identity = self._known(scope, heads) or await self._identify(scope, call)
            if identity is None:
                await self._bounded(scope, receive, out)
            else:
                lease = self._let_in(scope, call, identity, is_counted=began is not None)
                if lease is None:
                    lease = await parts.tenants.lease(identity.tenant)
                call.take(lease)
                if whole is not None:
                    route: hot_routes.Route | None = whole.route
                else:
                    route = hot_routes.route_of(method, scope["path"], scope["query_string"])
                if route is None:
                    await self._bounded(scope, receive, out)
                else:
                    if method == "POST":
                        answer = await self._append(scope, receive, route, whole)
                    else:
                        answer = await route(scope, call, b"")
                    if whole is None:
                        await out.whole(*answer)
                    else:
                        out.write(whole.once, *answer)
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

    def _let_in(
        self, scope: Scope, call: Call, identity: Identity, *, is_counted: bool
    ) -> Lease | None:
        """Whether they may, and not too often; the tenant's handle, if it is open already."""
        parts, path = self._parts, scope["path"]
        call.identity = identity
        if not is_counted:
            parts.rates.take(identity.principal)
        identity.require("read" if self._is_mounted(path) else right_for(scope["method"], path))
        return parts.tenants.at_hand(identity.tenant)

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
        bounded: Receive = BoundedBody(receive, most, body_seconds)
        if scope["method"] == "POST" and self._is_mounted(scope["path"]):
            # What is mounted decodes by itself, in this loop.
            bounded = await _few_values(bounded, most, config.max_body_values)
        deadline = self._deadlines.after(seconds)
        try:
            with deadline:
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
            raise too_long(seconds) from None
        finally:
            out.deadline = None

    def _may_have_no_end(self, path: str) -> bool:
        """Whether an answer may be a stream; whoever asks for its head would wait for ever."""
        return self._is_mounted(path) or path.endswith("/follow")

    def _is_mounted(self, path: str) -> bool:
        return path in self._parts.mounted or path.startswith(self._below)

    async def _append(
        self,
        scope: Scope,
        receive: Receive,
        append: hot_routes.Route,
        whole: Whole | None,
    ) -> hot_routes.Answer:
        """The same bounds for the route that is asked most, with one timer."""
        config, call = self._parts.config, scope["pagefile"]
        body, task = (None, None) if whole is None else (whole.body, whole.once.task)
        most = config.max_body_bytes
        if body is None:
            _require_length(call, most)
            seconds = config.body_seconds
        else:
            if len(body) > most:
                raise too_large(most)
            seconds = config.request_seconds
        deadline = self._deadlines.after(seconds, task)
        try:
            with deadline:
                if body is None:
                    body = await whole_body(receive, most)
                    deadline.set(config.request_seconds)
                return await append(scope, call, body)
        except TimeoutError:
            if not deadline.is_over:
                raise
            if body is None:
                raise problems.Refused(408, "the body took too long") from None
            raise too_long(config.request_seconds) from None

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


async def _nothing_more() -> Message:
    return {"type": "http.disconnect"}


class _Sending:
    """Passes messages on; remembers the status, and adds what every answer has."""

    __slots__ = ("_call", "_send", "deadline", "has_started")

    def __init__(self, send: Send, call: Call) -> None:
        self._send = send
        self._call = call
        self.has_started = False
        self.deadline: Deadline | None = None

    async def whole(self, status: int, body: bytes, headers: Headers) -> None:
        """An answer that is known as a whole, with what every answer has."""
        told = self._told(status, headers)
        await self._send({"type": "http.response.start", "status": status, "headers": told})
        await self._send({"type": "http.response.body", "body": body})

    def write(self, once: Once, status: int, body: bytes, headers: Headers) -> None:
        """The same, to where it can be written at once."""
        once.whole(status, self._told(status, headers), body)

    def _told(self, status: int, headers: Headers) -> list[tuple[bytes, bytes]]:
        self.has_started = True
        return self._call.answered(status, headers)

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.has_started = True
            self._call.status = message["status"]
            headers = message["headers"]
            if not isinstance(headers, list):
                headers = list(headers)
            headers.append((b"x-request-id", self._call.request_id.encode()))
            headers.append(SAFE_HEADERS[0])
            for name, _ in headers:
                if name == b"cache-control":
                    break
            else:
                headers.append(SAFE_HEADERS[1])
            message["headers"] = headers
            if self.deadline is not None:
                # How long an answer may be sent is the client's affair: streams have no end.
                self.deadline.set(None)
        await self._send(message)


def _require_length(call: Call, most: int) -> None:
    """Refuse by what the request says of itself, before anything of it is read."""
    said = call.heads.get(b"content-length")
    if said is None:
        return
    if not said.isdigit():
        raise problems.Refused(400, "the content-length is no number")
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
