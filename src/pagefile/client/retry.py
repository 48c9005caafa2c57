"""The course of a request: sent, lost, sent again after a pause, answered or given up.

It is written once, as a generator that says what to do next; a client that
blocks and one that awaits each do it their way.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias

import msgspec

from pagefile.client.errors import Problem, error_of, pause_asked, problem_in
from pagefile.client.request import Ask
from pagefile.errors import Unavailable
from pagefile.store import clock

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
        "look whether it happened, or send it again with the same idempotency_key"
        if is_unknown
        else "check base_url, and whether the server is up",
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
