"""How many tokens a round of extraction may cost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pagefile.memory.extraction.errors import BudgetSpent, Cancelled, Oversized
from pagefile.store.arguments import require_count

_GLANCE_SECONDS = 0.05


class Call:
    """One call's share. `cost` is set to what it really cost, else all of it is spent."""

    def __init__(self, reserved: int) -> None:
        self.reserved = reserved
        self.cost = reserved


class TokenBudget:
    """Tokens for all calls of one round, from any number of threads.

    A call takes what it may cost at most before it starts, and gives back what it did not
    use. So calls in flight together cannot pass the limit, unless the server counts more
    than was asked of it.
    """

    def __init__(self, limit: int) -> None:
        self._limit = require_count(limit, "limit", least=1)
        self._spent = 0
        self._reserved = 0
        self._changed = threading.Condition()

    @property
    def limit(self) -> int:
        return self._limit

    @property
    def spent(self) -> int:
        """What finished calls cost."""
        with self._changed:
            return self._spent

    @contextmanager
    def call(self, most: int, cancel: threading.Event | None = None) -> Iterator[Call]:
        """A share of `most` tokens for one call; waits for calls that may give some back.

        Raises:
            BudgetSpent: so many are not left; `Oversized` when they never were.
            Cancelled: while it waited.
        """
        if most > self._limit:
            raise Oversized(
                "a single call against the token budget",
                limit=self._limit,
                wanted=most,
                next_step="give a larger budget",
            )
        with self._changed:
            while self._spent + self._reserved + most > self._limit:
                if self._reserved == 0 or self._spent + most > self._limit:
                    raise BudgetSpent(
                        "the token budget",
                        limit=self._limit,
                        wanted=self._spent + most,
                        next_step="go on in another round, or give a larger budget",
                    )
                self._changed.wait(_GLANCE_SECONDS)
                if cancel is not None and cancel.is_set():
                    raise Cancelled("the extraction was cancelled", "start it again")
            self._reserved += most
        share = Call(most)
        try:
            yield share
        finally:
            with self._changed:
                self._reserved -= most
                self._spent += share.cost
                self._changed.notify_all()
