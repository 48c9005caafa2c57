"""What the server refuses, as the errors that the library raises for it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

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
    revive,
)
from pagefile.store.codec.decoder import json_decoder

_BY_CODE: Mapping[str, type[PagefileError]] = {
    cls.code: cls
    for cls in (
        Conflict,
        Corrupt,
        Forbidden,
        Invalid,
        LimitExceeded,
        NotFound,
        Unavailable,
        Unsupported,
    )
} | {
    # What only a server says.
    "bad_request": Invalid,
    "unauthenticated": Forbidden,
    "method_not_allowed": Unsupported,
    "not_acceptable": Unsupported,
    "too_slow": Unavailable,
    "already_done": Conflict,
    "precondition_failed": Conflict,
    "under_way": Conflict,
    "unsupported_media_type": Invalid,
    "too_many_requests": Unavailable,
}
#: What each class has besides its text, and what stands there when the server did not say.
_FIELDS: Mapping[type[PagefileError], Mapping[str, Any]] = {
    Conflict: {"target": "", "expected": -1, "current": -1},
    Invalid: {"field": "", "rule": ""},
    LimitExceeded: {"what": "", "limit": 0, "wanted": 0},
    Unavailable: {"outcome": "nothing", "key": ""},
}
_LONGEST_PAUSE = 30.0
_MOST_SHOWN = 200


class Problem(msgspec.Struct, frozen=True):
    """A refused request, as the server told of it."""

    status: int = 0
    code: str = ""
    detail: str = ""
    request_id: str = ""
    target: str | None = None
    expected: int | None = None
    current: int | None = None
    field: str | None = None
    rule: str | None = None
    limit: int | None = None
    wanted: int | None = None
    outcome: str | None = None
    key: str | None = None


_decoder = json_decoder(Problem)


def problem_in(status: int, body: bytes) -> Problem:
    """What an answer says of itself; one that is none of ours says its status."""
    try:
        return msgspec.structs.replace(_decoder.decode(body), status=status)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        text = " ".join(body[:_MOST_SHOWN].decode("utf-8", "replace").split())
        return Problem(status, detail=f"the server answered {status}: {text}".rstrip(": "))


def error_of(problem: Problem) -> PagefileError:
    """The error: its class by the code, with the fields that the library's has.

    `status` and `request_id` stand on it too.
    """
    cls = _BY_CODE.get(problem.code) or (Unavailable if problem.status >= 500 else PagefileError)
    text = problem.detail or f"the server answered {problem.status}"
    fact, _, next_step = text.partition(": ")
    state: dict[str, Any] = {"fact": fact, "next_step": next_step}
    for name, usual in _FIELDS.get(cls, {}).items():
        told = getattr(problem, name, None)
        state[name] = usual if told is None else told
    if cls is Unavailable and problem.outcome is None and problem.status not in (401, 429):
        state["outcome"] = "unknown"
    state |= {"status": problem.status, "request_id": problem.request_id}
    return revive(cls, (text,), state)


def pause_asked(headers: Mapping[str, str]) -> float:
    """The seconds that the server asks to wait; nonsense and dates count as nothing."""
    try:
        seconds = float(headers.get("retry-after", ""))
    except ValueError:
        return 0.0
    return min(seconds, _LONGEST_PAUSE) if math.isfinite(seconds) and seconds > 0 else 0.0
