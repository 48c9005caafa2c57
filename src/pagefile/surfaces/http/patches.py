"""Applying a patch, and a refusal in the words and with the status of the surface."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.requests import Request

from pagefile.errors import Conflict, Invalid, LimitExceeded, PagefileError
from pagefile.runs.patch import PatchResult
from pagefile.surfaces.http.problems import AsRefused, status_of

if TYPE_CHECKING:
    from pagefile.aio._types import AsyncRun

_NUMBERS = re.compile(r"expected_seq=(\d+) current_seq=(-?\d+)")


class Patched(msgspec.Struct, kw_only=True):
    """The working set after a patch, and the items that had to leave."""

    ok: bool
    ws: dict[str, Any]
    evicted: list[dict[str, Any]]
    error: None = None


async def patched(
    request: Request, run: AsyncRun, patch: Mapping[str, Any], writer_id: str, words: str = "{}"
) -> Patched:
    """Apply a patch, or raise what is wrong with it; `words` frame the text of a conflict.

    Raises:
        AsRefused: 409, or 412 where `If-Match` was given; 422; 413.
    """
    result = await run.apply_patch(patch, writer_id=writer_id)
    if not result.ok:
        raise refusal_of(request, result, words)
    assert result.new_ws is not None
    return Patched(ok=True, ws=result.new_ws, evicted=list(result.evicted))


def refusal_of(request: Request, result: PatchResult, words: str = "{}") -> AsRefused:
    """A patch that was refused, as a problem with the same code."""
    text = result.error or "it was refused"
    error: PagefileError
    if result.code == Conflict.code:
        found = _NUMBERS.search(text)
        expected, current = (int(found[1]), int(found[2])) if found else (0, 0)
        error = Conflict(text, target="working set", expected=expected, current=current)
        status = 412 if "if-match" in request.headers else 409
        return AsRefused(error, status, words.format(text))
    if result.code == LimitExceeded.code:
        error = PagefileError(text)
        return AsRefused(_coded(error, LimitExceeded.code), 413, text)
    error = Invalid("patch", text, "mend it as schema ws_patch 2.1 says")
    return AsRefused(error, status_of(error), text)


def _coded(error: PagefileError, code: str) -> PagefileError:
    error.code = code  # type: ignore[misc]
    return error
