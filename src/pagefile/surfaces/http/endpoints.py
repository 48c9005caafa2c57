"""Operations as routes: what a request says becomes a call, and what it gives an answer."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import FileResponse, Response, StreamingResponse
from starlette.routing import Route

from pagefile.errors import Conflict, Corrupt, Invalid, PagefileError, Unsupported
from pagefile.operations import Operation
from pagefile.operations.answer import Answer, Events, File, Lines
from pagefile.store.codec.decoder import convert
from pagefile.surfaces.http import etag
from pagefile.surfaces.http.bodies import body_of, reply
from pagefile.surfaces.http.caller import Caller, caller_of
from pagefile.surfaces.http.metrics import MEDIA_TYPE
from pagefile.surfaces.http.problems import AsRefused
from pagefile.surfaces.http.sse import after_of, event_stream
from pagefile.surfaces.http.table import served
from pagefile.surfaces.http.uploads import uploaded

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
            given[guard] = etag.expected(request, given.get(guard, getattr(body, guard, None)))
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
            raise etag.refusal(request, error) from error
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
            if operation.knows and etag.is_known(request, version):
                return etag.not_modified(version)
            headers |= etag.tag(version)
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
    return Response(value, media_type=MEDIA_TYPE if media == "text/plain" else media)


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
