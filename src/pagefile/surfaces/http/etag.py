"""Versions as entity tags: `"7"` is version 7. No body is hashed to know it."""

from __future__ import annotations

import re

from starlette.requests import Request
from starlette.responses import Response

from pagefile.errors import Conflict
from pagefile.surfaces.http.problems import AsRefused, Refused

_TAG = re.compile(r'(?:W/)?"(\d{1,18})"')


def tag(version: int) -> dict[str, str]:
    """The header that says which version an answer shows."""
    return {"etag": f'"{version}"'}


def is_known(request: Request, version: int) -> bool:
    """Whether the client says that it has this version already."""
    given = request.headers.get("if-none-match")
    if given is None:
        return False
    return any(part.strip().removeprefix("W/") == f'"{version}"' for part in given.split(","))


def not_modified(version: int) -> Response:
    return Response(status_code=304, headers=tag(version))


def expected(request: Request, given: int | None = None) -> int | None:
    """The version that the caller believes to change, from `If-Match` or the body.

    `If-None-Match: *` is version 0: there must be none yet.

    Raises:
        Refused: the two differ, or the header names no single version.
    """
    header = request.headers.get("if-match")
    if header is None:
        if request.headers.get("if-none-match", "").strip() == "*":
            return _agreed(0, given)
        return given
    found = _TAG.fullmatch(header.strip())
    if found is None:
        raise Refused(400, 'If-Match: give one version, such as "7"')
    return _agreed(int(found[1]), given)


def refusal(request: Request, error: Conflict) -> Exception:
    """A conflict, as a failed precondition where the caller spoke of one."""
    if "if-match" in request.headers or "if-none-match" in request.headers:
        return AsRefused(error, 412)
    return error


def _agreed(named: int, given: int | None) -> int:
    if given is not None and given != named:
        raise Refused(400, "If-Match and the body expect different versions")
    return named
