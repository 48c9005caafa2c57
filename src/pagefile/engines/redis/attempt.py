"""One tenant's part of a group commit: compute, compare and set, and again if others came first."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from redis.exceptions import RedisError

from pagefile.engines.redis.connection import Command, script
from pagefile.engines.redis.errors import refused
from pagefile.engines.redis.tenant_cache import MOST_TOLD, Known, Moved
from pagefile.engines.redis.transaction import RedisTransaction
from pagefile.engines.redis.writer import LoneAppend, Turn, lone_append
from pagefile.errors import Corrupt, Forbidden, Invalid, PagefileError, Unavailable, Unsupported
from pagefile.store.commit.committer import own_copy
from pagefile.store.commit.rules import apply
from pagefile.store.engine import Prepared, RawCommit, Sealed

#: How often others may come in between before the turn is waited for.
_MOST_HURRIED = 2
#: What no rule of a commit raises: the server failed while the batch was looked at.
_NOT_RULES = (Unavailable, Corrupt, Forbidden, Unsupported)


class Attempt:
    """The batches of one tenant on their way into one script call."""

    def __init__(
        self,
        known: Known,
        batches: Sequence[Prepared],
        *,
        now_us: int,
        key_lifetime_us: int,
        seconds: float,
    ) -> None:
        self.link = link = known.link
        self.known = known
        self._batches = batches
        self._now_us = now_us
        self._key_lifetime_us = key_lifetime_us
        self._turn = Turn(link, known, seconds)
        self._transaction: RedisTransaction | LoneAppend | None = None
        #: What a script was to store whose answer never came, by the digest of its commit.
        self._unanswered: dict[bytes, Sealed] = {}
        self.outcomes: list[Sealed | PagefileError] = []
        self.is_done = False
        #: Whether it was sent once without an answer.
        self.was_lost = False
        #: Whether a commit of an earlier call is among the answers.
        self.found_stored = False

    def compute(self) -> Command | None:
        """The script call that stores the group; None, and done, when there is nothing to store.

        Raises:
            Unavailable: the server failed or others were in the way; nothing was stored.
        """
        if (lone := lone_append(self.known, self._batches)) is not None:
            try:
                self.outcomes = [lone.apply(self._batches[0], self._now_us)]
            except PagefileError:
                pass  # Refused for what is known here; the general way looks whether it is true.
            else:
                self._transaction = lone
                return lone.command(self._turn)
        hurried = 0
        while True:
            transaction = RedisTransaction(self.link, self.known, self._key_lifetime_us)
            try:
                transaction.prefetch(self._batches)
                outcomes = [self._outcome(transaction, batch) for batch in self._batches]
                if not transaction.is_sure and any(isinstance(o, PagefileError) for o in outcomes):
                    # Refused for what is known here; it must be what is true there.
                    transaction.look()
                break
            except Moved:
                hurried += 1
                if hurried > _MOST_HURRIED:
                    self._turn.take()
        self.outcomes = [
            self._answered(outcome, batch)
            for outcome, batch in zip(outcomes, self._batches, strict=True)
        ]
        last = transaction.last
        if last is None:
            self.is_done = True
            self._turn.pass_on()
            return None
        self._transaction = transaction
        return self._command(transaction, last)

    def _outcome(self, transaction: RedisTransaction, batch: Prepared) -> Sealed | PagefileError:
        try:
            return apply(transaction, batch, self._now_us)
        except _NOT_RULES:
            raise
        except PagefileError as refusal:
            return refusal

    def _answered(self, outcome: Sealed | PagefileError, batch: Prepared) -> Sealed | PagefileError:
        """Our own commit, found again after its answer was lost, is no repeat."""
        if (
            isinstance(outcome, Invalid)
            and self.known.head.position < batch.after <= self.known.most
        ):
            return Corrupt(
                f"{self.link.where} is at position {self.known.head.position} of tenant "
                f"{self.known.tenant!r}, and was at {batch.after}: it has lost commits",
                "look at its files and replicas; to go on from what is left, open the store anew",
            )
        if isinstance(outcome, Sealed) and outcome.repeated:
            self.found_stored = True
            return self._unanswered.get(outcome.commit.digest, outcome)
        return outcome

    def _command(self, transaction: RedisTransaction, last: RawCommit) -> Command:
        commands, turn, known = transaction.commands(), self._turn, self.known
        digest = script("release" if transaction.lets_go else "commit")[1]
        return (
            "EVALSHA",
            digest,
            len(commands.keys),
            *commands.keys,
            known.digest,
            last.digest,
            turn.token,
            turn.queued,
            turn.lease_ms,
            known.head.position,
            MOST_TOLD,
            *commands.arguments,
        )

    def settle(self, answer: Any) -> None:
        """Take the script's answer; unless `is_done` then, compute again."""
        transaction, turn = self._transaction, self._turn
        assert transaction is not None
        if isinstance(answer, RedisError) and self._is_elsewhere(answer):
            return
        if isinstance(answer, RedisError):
            failure = refused(answer, self.link.where)
            failure.__cause__ = answer
            self.outcomes = [failure if _is_new(o) else o for o in self.outcomes]
            self.is_done = True
            turn.pass_on()
        elif answer == b"OK":
            transaction.settle()
            self.is_done = True
        elif answer[0] == b"moved":
            turn.receive()
            if not self.known.catch_up(answer[1], answer[2]):
                self._start_anew()
        else:
            turn.wait(answer[1])

    def _is_elsewhere(self, answer: RedisError) -> bool:
        """Whether another server has the keys, or will have: nothing was stored, try there."""
        return time.monotonic() < self._turn.deadline and self.link.follow(answer)

    def fail(self, failure: PagefileError) -> None:
        """What was not answered yet ends like this."""
        self.outcomes = [own_copy(failure) for _ in self._batches]
        # What the cache believes may not be what is stored.
        self.known.clear()
        self.is_done = True

    def _start_anew(self) -> None:
        last = self.link.ask_one("XREVRANGE", self.known.keys.commits, "+", "-", "COUNT", 1)
        self.known.start_at(last[0] if last else None)

    def lose(self) -> None:
        """No answer came: what was sent may be stored or not, and is looked for."""
        if self._transaction is not None:
            for outcome in self.outcomes:
                if isinstance(outcome, Sealed) and not outcome.repeated:
                    self._unanswered[outcome.commit.digest] = outcome
        self.known.clear()
        self.was_lost = True


def _is_new(outcome: Sealed | PagefileError) -> bool:
    return isinstance(outcome, Sealed) and not outcome.repeated
