"""Taking turns, so that many processes that write to one tenant all get on.

A commit that was computed on an old head is refused by the script, and whoever is
refused gets the turn: for the length of a lease nobody else may commit. Others who
come meanwhile stand in a queue, and each commit hands the turn to the first of
them. Safety does not depend on any of this: the script compares the head. A holder
that dies loses the turn when its lease is over, so the first lease is short; one that
was too slow for its lease gets twice as long the next time.
"""

from __future__ import annotations

import itertools
import time
import uuid
from typing import Any

from pagefile.engines.redis.connection import Link
from pagefile.engines.redis.rows import commit_from
from pagefile.engines.redis.tenant_cache import MOST_TOLD, Known
from pagefile.errors import Unavailable

LEASE_MS = 250
_MOST_LEASE_MS = 8_000
#: Tells this process from all others; a forked child cannot use its parent's engine.
_PROCESS = uuid.uuid4().int >> 64
_NUMBERS = itertools.count()


class Turn:
    """One group's place in the queue of one tenant."""

    def __init__(self, link: Link, known: Known, seconds: float) -> None:
        self._link = link
        self._known = known
        self.deadline = time.monotonic() + seconds
        self.token = b"%x-%x" % (_PROCESS, next(_NUMBERS))
        self.is_queued = False
        self.is_held = False
        self.lease_ms = LEASE_MS

    def receive(self) -> None:
        """Have the turn, for others came first: who had it already has been too slow for its lease.

        Raises:
            Unavailable: others came first for too long; nothing was written.
        """
        if self.is_held:
            self.lease_ms = min(2 * self.lease_ms, _MOST_LEASE_MS)
        self.is_held, self.is_queued = True, False
        if time.monotonic() > self.deadline:
            self.pass_on()
            raise _waited_too_long()

    @property
    def queued(self) -> bytes:
        return b"1" if self.is_queued else b"0"

    def take(self) -> None:
        """Wait until nobody else may commit.

        Raises:
            Unavailable: others kept the turn for too long; nothing was written.
        """
        while not self.is_held:
            answer = self._call(b"take")
            if answer[0] == b"wait":
                self.wait(answer[1])
            else:
                self.is_held, self.is_queued = True, False

    def wait(self, last: bytes) -> None:
        """Sleep until the turn may have come, and learn what is committed meanwhile.

        Raises:
            Unavailable: others kept the turn for too long; nothing was written.
        """
        self.is_queued, self.is_held = True, False
        known, keys = self._known, self._known.keys
        until = time.monotonic() + LEASE_MS / 1_000
        while True:
            now = time.monotonic()
            if now > self.deadline:
                self.pass_on()
                raise _waited_too_long()
            if now >= until:
                return  # Whoever has the turn may have died: ask.
            answer = self._link.block(
                "XREAD",
                "COUNT",
                MOST_TOLD,
                "BLOCK",
                max(1, int((min(until, self.deadline) - now) * 1_000)),
                "STREAMS",
                keys.commits,
                keys.turns,
                f"{known.head.position}-0",
                last,
            )
            called = False
            for stream, entries in answer or ():
                if stream == keys.commits:
                    for entry in entries:
                        known.absorb(*commit_from(entry))
                else:
                    last = entries[-1][0]
                    called = called or entries[-1][1][1] == self.token
            if called:
                self.is_queued, self.is_held = False, True
                return

    def pass_on(self) -> None:
        """Let the next one have the turn, or leave the queue."""
        if self.is_held or self.is_queued:
            self.is_held = self.is_queued = False
            self._call(b"pass")

    def _call(self, what: bytes) -> Any:
        keys = self._known.keys
        return self._link.run(
            "turn",
            (keys.queue, keys.turn, keys.turns),
            (what, self.token, self.queued, self.lease_ms),
        )


def _waited_too_long() -> Unavailable:
    return Unavailable(
        "other processes kept the turn to commit for too long",
        "look for a stopped or debugged process on this tenant, then retry",
    )
