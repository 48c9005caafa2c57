"""Operations as routes: what a request says becomes a call, and what it gives an answer."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from pagefile.errors import Conflict, Corrupt, Invalid, PagefileError, Unsupported
from pagefile.operations import Operation
from pagefile.operations.answer import EVENTS, Answer, Events, File, Lines
from pagefile.store.codec.decoder import convert
from pagefile.surfaces.http import problems
from pagefile.surfaces.http.call import Call
from pagefile.surfaces.http.gate import Streams
from pagefile.surfaces.http.problems import AsRefused
from pagefile.surfaces.http.request import (
    Caller,
    as_failed_precondition,
    body_of,
    caller_of,
    expected_version,
    is_known,
    not_modified,
    reply,
    uploaded,
    version_tag,
)
from pagefile.surfaces.http.table import served
from pagefile.surfaces.http.telemetry import MEDIA_TYPE as COUNTERS

_RULE = "see the parameters at /docs"
_MISSING = re.compile(r"Object missing required field `(.*)`")


def routes() -> list[Route]:
    """A route for each operation, compiled."""
    # A path that is spelled out comes before one with a name in its place.
    return sorted(map(_route, served()), key=lambda route: _is_named(route.path))


def _is_named(path: str) -> list[bool]:
    return [part[:1] == "{" for part in path.split("/")]


def _route(operation: Operation) -> Route:
    http = operation.http
    assert http is not None
    route = Route(http.path, _Endpoint(operation).answer, name=operation.name)
    # Whatever can be read has a head, but the front makes it: not of what has no end.
    route.methods = {http.method}
    return route


class _Endpoint:
    """One operation, compiled when the server starts."""

    def __init__(self, operation: Operation) -> None:
        self._operation = operation
        self._bound = bound = operation.bound
        self._texts = bound.texts
        self._body = None if operation.upload else bound.body
        assert operation.http is not None
        self._status = operation.http.status

    async def answer(self, request: Request) -> Response:
        operation, bound = self._operation, self._bound
        if operation.is_public:
            server = request.app.state.server
            return self._answered(request, await bound.call(server, {}), {})
        caller = caller_of(request)
        bound.admit(caller)
        texts = body = None
        if self._texts is not None:
            texts = texts_of(request, self._texts)
        if self._body is not None:
            body = await body_of(request, self._body, may_be_empty=operation.may_be_empty)
        given = bound.arguments(caller, texts, body)
        guard = operation.guard
        if guard:
            given[guard] = expected_version(request, given.get(guard, getattr(body, guard, None)))
        if operation.resumes:
            given["after"] = after_of(request, given["after"])
        try:
            if operation.upload:
                value = await self._taken_in(request, caller, given)
            else:
                value = await bound.call(caller, given)
        except Conflict as error:
            if not guard:
                raise
            raise as_failed_precondition(request, error) from error
        return self._answered(request, value, given)

    async def _taken_in(self, request: Request, caller: Caller, given: dict[str, Any]) -> Any:
        """Do it with what was uploaded: if that is damaged, the client sent it so."""
        async with uploaded(request, self._operation.upload) as path:
            try:
                return await self._bound.call(caller, given | {"upload": path})
            except (Corrupt, Unsupported) as error:
                raise AsRefused(error, 422) from error

    def _answered(self, request: Request, value: Any, given: dict[str, Any]) -> Response:
        operation = self._operation
        headers: dict[str, str] = {}
        version: int | None = None
        if isinstance(value, Answer):
            if value.location:
                headers["location"] = value.location
            version, value = value.version, value.value
        elif operation.etag:
            version = getattr(value, operation.etag)
        if operation.gives_file:
            return _file(request, value, operation.gives_file)
        if version is not None:
            if operation.knows and is_known(request, version):
                return not_modified(version)
            headers |= version_tag(version)
        return reply(self._bound.shown(value, given), self._status, headers)


def _file(request: Request, value: Any, media: str) -> Response:
    """An answer that is not JSON: a stream, or a file."""
    if isinstance(value, Events):
        streams = request.app.state.server.streams
        return event_stream(value.followed, value.event, value.name, streams)
    if isinstance(value, Lines):
        headers = {"content-disposition": f'attachment; filename="{value.name}"'}
        return StreamingResponse(value.pieces, 200, headers, media)
    if isinstance(value, File):
        return FileResponse(value.path, media_type=media, filename=value.path.name)
    return Response(value, media_type=COUNTERS if media == "text/plain" else media)


def texts_of(request: Request, shape: Any) -> Any:
    """What the path and the query of a request say.

    Raises:
        Invalid: a parameter is missing, or breaks a rule.
    """
    try:
        return convert({**request.query_params, **request.path_params}, shape, strict=False)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, PagefileError):
            raise error.__cause__ from None
        fact, _, place = str(error).partition(" - at `$")
        missing = _MISSING.fullmatch(fact)
        if missing is not None:
            raise Invalid(missing[1], "is missing", _RULE) from None
        raise Invalid(place.strip(".`") or "query", fact, _RULE) from None


#: Proxies close what is silent; a comment now and then keeps it open.
_BEAT_SECONDS = 15.0
_END = b"event: end\ndata: {}\n\n"
#: Whoever follows may ask again, behind the last event.
_STOPPING = b'event: end\ndata: {"stopping":true}\n\n'

Item = TypeVar("Item", covariant=True)


class Followed(Protocol[Item]):
    """What can be followed: an async iterator that can be closed."""

    async def __anext__(self) -> Item: ...
    async def aclose(self) -> None: ...


def after_of(request: Request, after: int | None) -> int | None:
    """Where to begin: behind the last event that a browser says it saw, else as asked."""
    seen = request.headers.get("last-event-id", "")
    if seen.isdecimal() and seen.isascii() and len(seen) < 19:
        return int(seen)
    return after


def event_stream(
    followed: Followed[Item],
    told: Callable[[Item], tuple[int, bytes] | None],
    name: str,
    streams: Streams,
) -> StreamingResponse:
    """An answer that has one event for each item; `told` gives its number and JSON."""
    streams.require_room()
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    body = _events(followed, told, name, streams)
    return _EventStream(body, 200, headers, EVENTS)


class _EventStream(StreamingResponse):
    """One whose events end with it: a client may be gone when the next is sent."""

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        finally:
            # Left to the collector, it would hold its place among the streams until then.
            ends = getattr(self.body_iterator, "aclose", None)
            if ends is not None:
                await ends()


async def _events(
    followed: Followed[Item],
    told: Callable[[Item], tuple[int, bytes] | None],
    name: str,
    streams: Streams,
) -> AsyncIterator[bytes]:
    coming: asyncio.Task[Item] | None = None
    stopping = asyncio.ensure_future(streams.stopping.wait())
    streams.enter()
    try:
        yield b": following\n\n"
        while True:
            coming = coming or asyncio.ensure_future(_next(followed))
            await asyncio.wait(
                {coming, stopping}, timeout=_BEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if not coming.done():
                if stopping.done():
                    yield _STOPPING
                    return
                yield b": beat\n\n"
                continue
            try:
                item = coming.result()
            except StopAsyncIteration:
                yield _END
                return
            finally:
                coming = None
            made = told(item)
            if made is not None:
                number, data = made
                yield b"event: %b\nid: %d\ndata: %b\n\n" % (name.encode(), number, data)
    finally:
        streams.leave()
        stopping.cancel()
        if coming is not None:
            coming.cancel()
        await followed.aclose()


async def _next(followed: Followed[Item]) -> Item:
    return await followed.__anext__()


class _Found(NamedTuple):
    route: Route
    answer: Callable[[Request], Awaitable[Response]]
    #: The names in its path, and which segments they are.
    names: tuple[tuple[int, str], ...]


class _Segment:
    """What can stand at one place of a path."""

    __slots__ = ("any", "ends", "named")

    def __init__(self) -> None:
        self.named: dict[str, _Segment] = {}
        self.any: _Segment | None = None
        #: By method, what answers a path that ends here.
        self.ends: dict[str, _Found] = {}

    def find(self, parts: list[str], at: int, method: str) -> _Found | None:
        """The route for these segments; a name that is spelled out comes first."""
        if at == len(parts):
            return self.ends.get(method)
        named = self.named.get(parts[at])
        if named is not None and (found := named.find(parts, at + 1, method)) is not None:
            return found
        if self.any is None or not parts[at]:
            return None
        return self.any.find(parts, at + 1, method)


class Router:
    """Answers what a route's function answers; everything else is the application's."""

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute]) -> None:
        self._app = app
        self._root = _Segment()
        for route in routes:
            # What is mounted answers by itself, and is not called with a request.
            if isinstance(route, Route) and inspect.iscoroutinefunction(route.endpoint):
                self._add(route)

    def _add(self, route: Route) -> None:
        segment, names = self._root, []
        for at, part in enumerate(route.path.split("/")):
            if part.startswith("{"):
                names.append((at, part[1:-1]))
                if segment.any is None:
                    segment.any = _Segment()
                segment = segment.any
            else:
                segment = segment.named.setdefault(part, _Segment())
        for method in route.methods or ():
            # As among patterns, the first one that was declared answers.
            segment.ends.setdefault(method, _Found(route, route.endpoint, tuple(names)))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = None
        if scope["type"] == "http":
            parts = scope["path"].split("/")
            found = self._root.find(parts, 0, scope["method"])
        if found is None:
            await self._app(scope, receive, send)
            return
        scope["route"], scope["endpoint"] = found.route, found.answer
        scope["path_params"] = {name: parts[at] for at, name in found.names}
        scope["app"] = self._app
        request = Request(scope, receive, send)
        try:
            response = await found.answer(request)
        except Exception as error:  # noqa: BLE001 - whatever it is, the client gets an answer
            call: Call = scope["pagefile"]
            response = problems.response_to(call, error)
        await response(scope, receive, send)
