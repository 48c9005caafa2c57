"""What is asked, what a refusal means, and when it is asked again.

A request is sent, lost, sent again after a pause, answered or given up. That course is
written once, as a generator that says what to do next; a handle that blocks and one
that is awaited each do it their way.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from datetime import datetime
from typing import Any, TypeAlias
from urllib.parse import quote

import msgspec

from pagefile.errors import (
    CARRIED,
    CLASSES,
    Conflict,
    Forbidden,
    Invalid,
    PagefileError,
    Unavailable,
    Unsupported,
    revive,
    shown,
)
from pagefile.store import clock
from pagefile.store.arguments import require_count
from pagefile.store.codec.decoder import json_decoder

JSON = "application/json"
_encode = msgspec.json.Encoder(decimal_format="string").encode


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A request. `is_safe` changes nothing; `is_exact` is known by its key in the store itself."""

    method: str
    path: str
    query: dict[str, str] = {}
    headers: dict[str, str] = {}
    body: bytes | None = None
    is_safe: bool = False
    is_exact: bool = False
    #: The memory operation that it is, for spans; empty for any other.
    span: str = ""

    @property
    def has_key(self) -> bool:
        """Whether a repeat is answered as the first one was."""
        return "idempotency-key" in self.headers


def asked(
    method: str,
    path: str,
    *,
    query: Mapping[str, Any] | None = None,
    body: Any = None,
    media: str = "",
    key: str | None = None,
    if_match: int | None = None,
    is_safe: bool = False,
    is_exact: bool = False,
    span: str = "",
) -> Ask:
    """A request; one that changes something gets a key, so that a repeat is stored once."""
    headers: dict[str, str] = {}
    if body is not None or media:
        headers["content-type"] = media or JSON
    if not is_safe:
        headers["idempotency-key"] = clock.token_hex(16) if key is None else _key(key)
    if if_match is not None:
        number = require_count(if_match, "expected_version")
        headers["if-match"] = f'"{number}"'
    return Ask(
        method=method,
        path=path,
        query=_texts(query or {}),
        headers=headers,
        body=None if body is None else encoded(body),
        is_safe=is_safe,
        is_exact=is_exact,
        span=span,
    )


def encoded(value: Any) -> bytes:
    """A value as JSON.

    Raises:
        Invalid: JSON has no word for something in it.
    """
    _require_words(value)
    try:
        return _encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Invalid("body", f"cannot be written as JSON ({error})", "send plain values") from None


def _require_words(value: Any) -> None:
    """Refuse what JSON would silently write as something else: bytes as text, NaN as null."""
    kind = type(value)
    if kind is dict:
        for each in value.values():
            _require_words(each)
    elif kind is list or kind is tuple:
        for each in value:
            _require_words(each)
    elif kind is float:
        if not math.isfinite(value):
            raise Invalid("body", f"{value} is not a number of JSON", "give a finite number")
    elif kind in (bytes, bytearray, memoryview):
        raise Invalid("body", f"{shown(value)} is bytes", "give a text")


def place(template: str, **values: Any) -> str:
    """A path with its names filled in.

    Raises:
        Invalid: a name cannot stand in a path.
    """
    return template.format(**{name: _segment(name, value) for name, value in values.items()})


def _segment(name: str, value: Any) -> str:
    text = str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""
    if not text or "/" in text or text in (".", ".."):
        raise Invalid(name, f"{shown(value)} cannot stand in a path", "give a name without a slash")
    try:
        return quote(text, safe="")
    except UnicodeEncodeError:
        raise Invalid(name, f"{shown(value)} is not text", "give whole characters") from None


def _key(key: object) -> str:
    if not isinstance(key, str) or not 1 <= len(key) <= 200 or not _is_visible(key):
        rule = "give 1 to 200 visible ASCII characters"
        raise Invalid("key", shown(key), rule)
    return key


def _is_visible(text: str) -> bool:
    return all("\x21" <= sign <= "\x7e" for sign in text)


def require_header(name: str, text: object) -> str:
    """A text that can be sent in a header; it is not shown when it cannot, it may be a secret."""
    if not isinstance(text, str) or not _is_visible(text):
        raise Invalid(name, "has signs that no header can have", "give visible ASCII characters")
    return text


def _texts(query: Mapping[str, Any]) -> dict[str, str]:
    texts = {name: _text(value) for name, value in query.items() if value is not None}
    for name, text in texts.items():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Invalid(name, f"{shown(text)} is not text", "give whole characters") from None
    return texts


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, datetime) else str(value)


# Refusals

#: What only a server says.
_BY_CODE: Mapping[str, type[PagefileError]] = {
    **CLASSES,
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
_MOST_ASKED_PAUSE = 30.0
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
    for name, usual in CARRIED.get(cls, {}).items():
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
    return min(seconds, _MOST_ASKED_PAUSE) if math.isfinite(seconds) and seconds > 0 else 0.0


# When it is asked again

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0
_BUSY = frozenset({408, 429, 502, 503, 504})
_UNDER_WAY = "under_way"


class Reply(msgspec.Struct, frozen=True):
    """An answer, whole."""

    status: int
    headers: dict[str, str]
    body: bytes


class Lost(msgspec.Struct, frozen=True):
    """No answer; `was_sent` when the server may have seen the request."""

    error: Exception
    was_sent: bool


class Send(msgspec.Struct, frozen=True):
    """Next: send the request."""


class Wait(msgspec.Struct, frozen=True):
    """Next: let so many seconds pass."""

    seconds: float


Step: TypeAlias = Send | Wait
Course: TypeAlias = Generator[Step, Reply | Lost | None, Reply]


def course(ask: Ask, retries: int, *, repeatable: bool = True) -> Course:
    """Ask until there is an answer; `repeatable` says that the body can be sent again.

    Raises:
        PagefileError: the server refused, or did not answer.
    """
    waited = False
    for left in range(retries, -1, -1):
        outcome = yield Send()
        assert outcome is not None
        if isinstance(outcome, Reply) and outcome.status < 300:
            return outcome
        may_repeat = left > 0 and repeatable
        pause = _pause(retries - left)
        if isinstance(outcome, Lost):
            if not (may_repeat and _repeats(ask, outcome)):
                raise no_answer(ask, outcome, waited) from outcome.error
            waited = waited or outcome.was_sent
        else:
            problem = problem_in(outcome.status, outcome.body)
            if not (may_repeat and _is_busy(ask, problem, waited)):
                raise error_of(problem)
            pause = max(pause, pause_asked(outcome.headers))
        yield Wait(pause)
    raise AssertionError("the last attempt returns or raises")


def no_answer(ask: Ask, lost: Lost, was_sent: bool = False) -> Unavailable:
    """What a caller is told; never an address's password, or a key."""
    is_unknown = not ask.is_safe and (lost.was_sent or was_sent)
    return Unavailable(
        f"the server did not answer ({type(lost.error).__name__})",
        "look whether it happened, or send it again with the same key"
        if is_unknown
        else "check the address, and whether the server is up",
        outcome="unknown" if is_unknown else "nothing",
        key=ask.headers.get("idempotency-key", ""),
    )


def _repeats(ask: Ask, lost: Lost) -> bool:
    return not lost.was_sent or ask.is_safe or ask.has_key


def _is_busy(ask: Ask, problem: Problem, was_lost: bool) -> bool:
    if problem.status == 409:
        # The first attempt still runs; its answer is what this one is about to get.
        return was_lost and problem.code == _UNDER_WAY
    if problem.status not in _BUSY:
        return False
    if problem.status == 429 or ask.is_safe or ask.is_exact:
        return True
    # A server that does not know whether it was done may still be at it; the caller may ask later.
    return problem.outcome == "nothing"


def _pause(attempt: int) -> float:
    """Twice as long each time, and never for two clients the same."""
    share = int.from_bytes(clock.random_bytes(2)) / 65_535
    return float(min(_FIRST_PAUSE * 2**attempt, _LONGEST_PAUSE) * (0.5 + share / 2))


def lost(library: Any, error: Exception) -> Lost:
    """What a failure of the network means."""
    before = (library.ConnectError, library.ConnectTimeout, library.PoolTimeout)
    return Lost(error, was_sent=not isinstance(error, before))
