"""What can go wrong with a model, beside what can go wrong with a store.

    Malformed    (Unavailable)    it answered, but not with facts: a few more tries may help
    Cancelled    (Unavailable)    the caller stopped it: no fault of the exchange, count no try
    BudgetSpent  (LimitExceeded)  the tokens of this round are used up: go on in another

A server that does not answer, answers 429 or fails is plain `Unavailable`, after the
retries that the client makes itself. A key it does not take is `Forbidden`, a request
it does not understand `Invalid`: these two come again until somebody mends the settings.
"""

from __future__ import annotations

from pagefile.errors import LimitExceeded, PagefileError, Unavailable


class Silent(Unavailable):
    """The model's server did not answer, was busy or failed, as often as it was asked.

    `retry_after` is how many seconds it asked to be left alone, or None.
    """

    def __init__(self, fact: str, next_step: str, *, retry_after: float | None = None) -> None:
        super().__init__(fact, next_step)
        self.retry_after = retry_after


class Malformed(Unavailable):
    """The model answered with something that holds no list of facts.

    That is not "no facts": the exchange is not done. `tokens` is what it cost.
    """

    def __init__(self, fact: str, next_step: str, *, tokens: int = 0) -> None:
        super().__init__(fact, next_step)
        self.tokens = tokens


class Cancelled(Unavailable):
    """The caller stopped the work. Nothing was extracted."""


class BudgetSpent(LimitExceeded):
    """The next call could cost more tokens than are left."""


def worth_a_retry(error: PagefileError) -> bool:
    """Whether the same exchange may succeed later, with nothing mended in between."""
    return isinstance(error, Unavailable | BudgetSpent)
