"""What happens in an organism: events for subscribers, and counters."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

import msgspec

#: A listener that does not keep up loses the oldest events, and is told how many.
_MOST_KEPT = 1_000


class MessageReceivedEvent(msgspec.Struct, frozen=True):
    """A handler begins with a message."""

    thread_id: str
    from_id: str
    to_id: str
    payload_type: str
    payload: Any


class MessageSentEvent(msgspec.Struct, frozen=True):
    """A message is recorded and on its way."""

    thread_id: str
    from_id: str
    to_id: str
    payload_type: str
    payload: Any


class AgentStateEvent(msgspec.Struct, frozen=True):
    """A listener begins or ends a run."""

    agent_name: str
    state: Literal["running", "idle", "waiting"]
    thread_id: str


class ThreadEvent(msgspec.Struct, frozen=True):
    """A conversation or activation started, ended, failed, or moved to another process."""

    thread_id: str
    status: Literal["started", "answered", "released", "retried", "dead", "lost", "recovered"]
    participants: tuple[str, ...] = ()
    error: str = ""


class MissedEvent(msgspec.Struct, frozen=True):
    """So many events were dropped, because they were not fetched in time."""

    count: int


Event = MessageReceivedEvent | MessageSentEvent | AgentStateEvent | ThreadEvent | MissedEvent


class Events:
    """The subscribers of one organism. Without any, nothing is even made."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Event], None]] = []
        self.wanted = False

    def subscribe(self, callback: Callable[[Event], None]) -> None:
        """Call with each event, in the loop; what it raises is logged and goes no further."""
        self._callbacks.append(callback)
        self.wanted = True

    def unsubscribe(self, callback: Callable[[Event], None]) -> None:
        """Call it no more."""
        if callback in self._callbacks:
            self._callbacks.remove(callback)
        self.wanted = bool(self._callbacks)

    def tell(self, event: Event) -> None:
        """Let everybody know."""
        for callback in tuple(self._callbacks):
            try:
                callback(event)
            except Exception:
                import logging

                logging.getLogger("pagefile.dispatch").exception("an event listener failed")

    async def stream(self) -> AsyncIterator[Event]:
        """Events from now on, until the iterator is closed."""
        kept: deque[Event] = deque()
        arrived = asyncio.Event()
        missed = 0

        def keep(event: Event) -> None:
            nonlocal missed
            if len(kept) >= _MOST_KEPT:
                kept.popleft()
                missed += 1
            kept.append(event)
            arrived.set()

        self.subscribe(keep)
        try:
            while True:
                await arrived.wait()
                if missed:
                    told, missed = missed, 0
                    yield MissedEvent(told)
                while kept:
                    yield kept.popleft()
                arrived.clear()
        finally:
            self.unsubscribe(keep)


# Counters and latencies of an organism, in bounded memory.


#: Upper bounds of the buckets, in seconds: each twice the one before, from 10 µs to 5.6 hours.
_BOUNDS: tuple[float, ...] = tuple(0.00001 * 2**i for i in range(32))
_MOST_LISTENERS = 10_000


class Latency:
    """How long the runs of one listener took."""

    __slots__ = ("buckets", "count", "errors", "most", "seconds", "timeouts")

    def __init__(self) -> None:
        self.buckets = [0] * (len(_BOUNDS) + 1)
        self.count = 0
        self.errors = 0
        self.timeouts = 0
        self.seconds = 0.0
        self.most = 0.0

    def add(self, seconds: float) -> None:
        """Note one run."""
        self.count += 1
        self.seconds += seconds
        if seconds > self.most:
            self.most = seconds
        # The number of the bucket is the number of doublings from the smallest bound.
        doublings = int(seconds / _BOUNDS[0]).bit_length()
        self.buckets[min(doublings, len(_BOUNDS))] += 1

    def quantile(self, share: float) -> float:
        """The seconds within which that share of all runs ended, to within a factor of two."""
        wanted = share * self.count
        reached = 0
        for at, count in enumerate(self.buckets):
            reached += count
            if reached >= wanted and count:
                return min(self.most, _BOUNDS[min(at, len(_BOUNDS) - 1)])
        return self.most

    def snapshot(self) -> dict[str, Any]:
        """The numbers as plain values."""
        return {
            "count": self.count,
            "errors": self.errors,
            "timeouts": self.timeouts,
            "mean": self.seconds / self.count if self.count else 0.0,
            "p50": self.quantile(0.5),
            "p95": self.quantile(0.95),
            "p99": self.quantile(0.99),
            "max": self.most,
        }


class Metrics:
    """What one process counted since it began."""

    __slots__ = (
        "answered",
        "claimed",
        "commits",
        "dead",
        "discarded",
        "errors",
        "hops",
        "injected",
        "listeners",
        "lost",
        "retried",
        "sent",
        "timeouts",
    )

    def __init__(self) -> None:
        self.injected = 0
        self.hops = 0
        self.sent = 0
        self.answered = 0
        self.errors = 0
        self.timeouts = 0
        self.retried = 0
        self.dead = 0
        self.discarded = 0
        self.claimed = 0
        self.lost = 0
        self.commits = 0
        self.listeners: dict[str, Latency] = {}

    def of(self, listener: str) -> Latency:
        """The latency of one listener."""
        found = self.listeners.get(listener)
        if found is None:
            found = self.listeners[listener] = Latency()
        return found

    def snapshot(self) -> dict[str, Any]:
        """All numbers as plain values."""
        counters = {name: getattr(self, name) for name in self.__slots__ if name != "listeners"}
        return {
            **counters,
            "listeners": {name: latency.snapshot() for name, latency in self.listeners.items()},
        }
