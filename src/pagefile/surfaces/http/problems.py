"""Refusals on the wire: problem+json (RFC 9457), with `ok`, `error` and `detail` for everybody.

The status says whose turn it is, `code` is the same word as in Python.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from pagefile.errors import (
    Conflict,
    Corrupt,
    Forbidden,
    Invalid,
    LimitExceeded,
    NotFound,
    PagefileError,
    Unavailable,
    Unsupported,
    carried_by,
)
from pagefile.surfaces.http.call import Call, call_of

MEDIA_TYPE = "application/problem+json"
_MOST_DETAIL = 2_000

_STATUS: Mapping[type[PagefileError], int] = {
    NotFound: 404,
    Conflict: 409,
    Invalid: 422,
    LimitExceeded: 413,
    Unavailable: 503,
    Corrupt: 500,
    Unsupported: 501,
    Forbidden: 403,
}
#: Codes of refusals that only a server makes.
CODES = {
    400: "bad_request",
    401: "unauthenticated",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    408: "too_slow",
    409: "conflict",
    413: "limit_exceeded",
    415: "unsupported_media_type",
    421: "misdirected_request",
    422: "invalid",
    429: "too_many_requests",
    503: "unavailable",
}


class Problem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What a refused request is answered with."""

    type: str
    title: str
    status: int
    detail: str
    ok: bool
    error: str
    code: str
    request_id: str
    target: str | None = None
    expected: int | None = None
    current: int | None = None
    field: str | None = None
    rule: str | None = None
    limit: int | None = None
    wanted: int | None = None
    outcome: str | None = None
    key: str | None = None
    ws: None = None


class Refused(HTTPException):
    """A refusal that only a server makes: too slow, too many, no such media type."""

    def __init__(
        self, status: int, detail: str, *, code: str = "", headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(status, detail, headers)
        self.code = code or CODES.get(status, "error")


class AsRefused(Exception):
    """A library's refusal with the status and words of one route."""

    def __init__(self, error: PagefileError, status: int, detail: str = "") -> None:
        super().__init__(str(error))
        self.error = error
        self.status = status
        self.detail = detail


def status_of(error: PagefileError) -> int:
    """The status for a class of errors."""
    return next((_STATUS[cls] for cls in type(error).__mro__ if cls in _STATUS), 500)


def response_to(call: Call, error: Exception) -> Response:
    """The answer to whatever went wrong."""
    if isinstance(error, ClientDisconnect):
        return made(call, 400, "gone", "the client went away")
    if isinstance(error, AsRefused):
        return _of_library(call, error.error, error.status, error.detail)
    if isinstance(error, PagefileError):
        return _of_library(call, error, status_of(error))
    if isinstance(error, HTTPException):
        code = getattr(error, "code", "") or CODES.get(error.status_code, "error")
        return made(call, error.status_code, code, str(error.detail), headers=error.headers)
    # Nothing of an error that nobody expected is told outside: it may hold anything.
    call.error_kind = place_of(error)
    return made(call, 500, "error", f"something failed here; look for request {call.request_id}")


def made(
    call: Call,
    status: int,
    code: str,
    detail: str,
    *,
    headers: Mapping[str, str] | None = None,
    more: Mapping[str, Any] | None = None,
) -> Response:
    """A problem as a response."""
    call.reason = code
    detail = detail[:_MOST_DETAIL]
    body = Problem(
        type=f"urn:pagefile:problem:{code}",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        ok=False,
        error=detail,
        code=code,
        request_id=call.request_id,
        **(more or {}),
    )
    sent = dict(headers or {})
    if status == 503:
        sent.setdefault("retry-after", "1")
    if status in (408, 413):
        # What is left of the body is not read: nothing else can come on this connection.
        sent["connection"] = "close"
    return Response(msgspec.json.encode(body), status, sent, MEDIA_TYPE)


def place_of(error: BaseException) -> str:
    """Class and place of an error, without its words: they may quote a payload."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(error).__name__
    code = trace.tb_frame.f_code
    file = code.co_filename.rpartition("/")[2]
    return f"{type(error).__name__} at {file}:{trace.tb_lineno} in {code.co_name}"


async def handle(request: Request, error: Exception) -> Response:
    """The handler that the application has for every error."""
    if isinstance(error, HTTPException) and error.status_code == 405:
        # The first route of that path knows its own methods alone.
        server = request.app.state.server
        error.headers = {"allow": ", ".join(sorted(_methods(request.scope, server.routes)))}
    return response_to(call_of(request), error)


def _methods(scope: Scope, routes: Sequence[BaseRoute]) -> set[str]:
    """What can be asked of a path."""
    path: str = scope["path"]
    found: set[str] = set()
    for route in routes:
        if route.matches(scope)[0] is not Match.NONE:
            found |= getattr(route, "methods", None) or set()
    if "GET" in found and not path.endswith("/follow"):
        found.add("HEAD")
    return found


def _of_library(call: Call, error: PagefileError, status: int, detail: str = "") -> Response:
    more = carried_by(error)
    more.pop("what", None)  # The detail says it.
    if status >= 500:
        call.error_kind = place_of(error)
    return made(call, status, error.code, detail or str(error), more=more)
