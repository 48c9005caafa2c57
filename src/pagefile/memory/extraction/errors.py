"""What can go wrong with a model, beside what can go wrong with a store.

    Malformed    (Unavailable)    it answered, but not with facts: a few more tries may help
    Cancelled    (Unavailable)    the caller stopped it: no fault of the exchange, count no try
    NoApi        (Malformed)      what answered is no chat API, as far as can be seen
    BudgetSpent  (LimitExceeded)  the tokens of this round are used up: go on in another
    Oversized    (BudgetSpent)    this call alone may cost more than the whole budget
    Misdirected  (Invalid)        there is no such model, or no chat API at this place
    Refused      (Invalid)        the server does not take this request

A server that does not answer, answers 429 or fails is `Silent`, after the retries that
the client makes itself. A key it does not take is `Forbidden`: this and `Misdirected`
come again until somebody mends the settings. Of `Refused`, `NoApi` and `Oversized` nobody can
tell from one exchange whether it is the text or the settings: others show it.
"""

from __future__ import annotations

from pagefile.errors import Invalid, LimitExceeded, PagefileError, Unavailable


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


class NoApi(Malformed):
    """What answered sent no JSON: another site, or a proxy's page. No model was asked."""


class Misdirected(Invalid):
    """The server knows no such model, or no chat API at this place."""


class Refused(Invalid):
    """The server does not take this request: for what is in it, or for how it is asked."""


class Cancelled(Unavailable):
    """The caller stopped the work. Nothing was extracted."""


class BudgetSpent(LimitExceeded):
    """The next call could cost more tokens than are left."""


class Oversized(BudgetSpent):
    """One call could cost more tokens than the whole budget has: no other round helps."""


def worth_a_retry(error: PagefileError) -> bool:
    """Whether the same exchange may succeed later, with nothing mended in between."""
    return isinstance(error, Unavailable | BudgetSpent) and not isinstance(error, Oversized)
