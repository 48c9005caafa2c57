"""What a server of the chat API answers, taken apart."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from pagefile.errors import shown
from pagefile.memory.extraction.errors import Malformed

#: Statuses that another attempt may not meet.
BUSY = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})


class Completion(msgspec.Struct, frozen=True):
    """What the model said, why it stopped, and what that cost."""

    text: str
    finish: str
    tokens: int


class Busy(Exception):
    """One attempt failed in a way that another may not."""

    def __init__(
        self, fact: str, retry_after: float | None = None, *, billed: bool = False
    ) -> None:
        super().__init__(fact)
        self.retry_after = retry_after
        #: The question may have been read, and is paid for then.
        self.billed = billed


def completion_of(answer: Any, safe: Callable[[str], str]) -> Completion:
    tokens = _usage(answer)
    failure = answer.get("error") if isinstance(answer, dict) else None
    if failure:  # Some gateways put the failure of what stands behind them into a 200.
        code = failure.get("code") if isinstance(failure, dict) else None
        if code in BUSY:
            raise Busy(f"error {code} {shown(safe(str(failure)))}")
        raise Malformed(
            f"the server answered {shown(safe(str(failure)))}", "see to it", tokens=tokens
        )
    try:
        choice = answer["choices"][0]
        content = choice["message"]["content"]
        finish = choice.get("finish_reason") or ""
    except (LookupError, TypeError, AttributeError):
        raise Malformed(
            "the answer has no choice with a message", "look what the URL serves", tokens=tokens
        ) from None
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        content = "".join(part for part in parts if isinstance(part, str))
    if not isinstance(content, str):
        raise Malformed(
            f"the message has no text (it stopped by {shown(finish)})", "try again", tokens=tokens
        )
    return Completion(content, str(finish), tokens)


def _usage(answer: Any) -> int:
    usage = answer.get("usage") if isinstance(answer, dict) else None
    total = usage.get("total_tokens") if isinstance(usage, dict) else None
    if isinstance(usage, dict) and not isinstance(total, int):
        parts = (usage.get("prompt_tokens"), usage.get("completion_tokens"))
        total = sum(part for part in parts if isinstance(part, int))
    return total if isinstance(total, int) and 0 <= total < 2**53 else 0
