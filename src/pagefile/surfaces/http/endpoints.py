"""Operations as routes: what a request says becomes a call, and what it gives an answer."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from pagefile.errors import Conflict, Invalid, PagefileError
from pagefile.operations import Answer, Operation
from pagefile.store.codec.decoder import convert
from pagefile.surfaces.http import etag
from pagefile.surfaces.http.bodies import body_of, reply
from pagefile.surfaces.http.call import caller_of

_RULE = "see the parameters at /docs"
_MISSING = re.compile(r"Object missing required field `(.*)`")


def routes_of(operations: Iterable[Operation]) -> list[Route]:
    """A route for each operation that is served over HTTP."""
    found = [_route(each) for each in operations if each.http is not None]
    # A path that is spelled out comes before one with a name in its place.
    return sorted(found, key=lambda route: [part[:1] == "{" for part in route.path.split("/")])


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
        self._is_asked_whether_known = operation.http.method == "GET"

    async def answer(self, request: Request) -> Response:
        operation, bound, caller = self._operation, self._bound, caller_of(request)
        bound.admit(caller)
        texts = body = None
        if self._texts is not None:
            texts = texts_of(request, self._texts)
        if self._body is not None:
            body = await body_of(request, self._body, may_be_empty=operation.may_be_empty)
        given = bound.arguments(caller, texts, body)
        guard = operation.guard
        if guard:
            given[guard] = etag.expected(request, given.get(guard))
        try:
            value = await bound.call(caller, given)
        except Conflict as error:
            if not guard:
                raise
            raise etag.refusal(request, error) from error
        if isinstance(value, Response):
            return value
        headers: dict[str, str] = {}
        version: int | None = None
        if isinstance(value, Answer):
            if value.location:
                headers["location"] = value.location
            version, value = value.version, value.value
        elif operation.etag:
            version = getattr(value, operation.etag)
        if version is not None:
            if self._is_asked_whether_known and etag.is_known(request, version):
                return etag.not_modified(version)
            headers |= etag.tag(version)
        return reply(bound.shown(value, given), self._status, headers)


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
