"""The cap on an answer: whole items or none of them, and a word about what was left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, TypeVar

import msgspec

from pagefile.errors import LimitExceeded
from pagefile.runs.tokens import TokenCounter

LEAST_TOKENS = 256
MOST_TOKENS = 100_000
USUAL_TOKENS = 4_000

_Item = TypeVar("_Item")
_Told = TypeVar("_Told")


class LeftOut(msgspec.Struct, frozen=True):
    """What did not fit: how many items, what the next of them would need, and what to do."""

    items: int
    tokens: int
    next_step: str


class Capped(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every tool takes."""

    max_tokens: Annotated[
        int,
        msgspec.Meta(
            ge=LEAST_TOKENS,
            le=MOST_TOKENS,
            description="How long the answer may be at most, in tokens.",
        ),
    ] = USUAL_TOKENS


def encoded(value: Any) -> str:
    """A value as the JSON that a client gets."""
    return msgspec.json.encode(value, enc_hook=str).decode()


class Budget:
    """So many tokens, by a counter, for the JSON of one answer."""

    def __init__(self, counter: TokenCounter, most: int) -> None:
        self.counter = counter
        self.most = most

    def cost(self, value: Any) -> int:
        """What a value takes."""
        return self.counter.count(encoded(value))

    def filled(
        self,
        items: Sequence[_Item],
        told: Callable[[Sequence[_Item], LeftOut | None], _Told],
        next_step: str,
    ) -> _Told:
        """The answer that `told` makes of as many of the first items as fit, whole."""
        kept, spare, needed = 0, self.most, 0
        spare -= self.cost(told((), LeftOut(len(items), MOST_TOKENS, next_step)))
        for item in items:
            needed = self.cost(item) + 1  # And the comma.
            if needed > spare:
                break
            spare -= needed
            kept += 1
        while True:
            rest = len(items) - kept
            left = LeftOut(rest, needed + self.most - max(spare, 0), next_step) if rest else None
            answer = told(items[:kept], left)
            # A vocabulary may give a text more tokens than its parts together.
            if not kept or self.cost(answer) <= self.most:
                return answer
            kept -= 1

    def require(self, answer: _Told) -> _Told:
        """The answer, if it fits; it is one thing that cannot be cut."""
        wanted = self.cost(answer)
        if wanted > self.most:
            raise LimitExceeded(
                "the answer in tokens",
                limit=self.most,
                wanted=wanted,
                next_step=f"ask again with max_tokens of {wanted}, at most {MOST_TOKENS}",
            )
        return answer
