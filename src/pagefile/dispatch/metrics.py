"""Counters and latencies of an organism, in bounded memory."""

from __future__ import annotations

from typing import Any

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
