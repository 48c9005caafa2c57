"""What Prometheus is told. Labels are bounded: templates of routes, never ids or tenants."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from pagefile.surfaces.http.call import Call

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_NAMES = (*(str(bound) for bound in _BOUNDS), "+Inf")


class _Series:
    """How many requests took how long."""

    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * len(_NAMES)
        self.seconds = 0.0

    def add(self, buckets: Iterable[int], seconds: float) -> None:
        self.buckets = [mine + more for mine, more in zip(self.buckets, buckets, strict=True)]
        self.seconds += seconds


class _Line(msgspec.Struct, array_like=True):
    method: str
    route: str
    status: int
    buckets: list[int]
    seconds: float


class Counted(msgspec.Struct, frozen=True):
    """What one process has counted, as others of the same server read it."""

    pid: int
    in_flight: int
    refusals: dict[str, int]
    lines: list[_Line]


class Metrics:
    """The counters of one process; written from its event loop alone, so nothing is locked.

    `others` gives what the other processes of the server have counted: whichever is
    asked answers for all.
    """

    def __init__(self, others: Callable[[], Iterable[Counted]] = tuple) -> None:
        self.in_flight = 0
        self._others = others
        self._series: dict[tuple[str, str, int], _Series] = {}
        self._refusals: Counter[str] = Counter()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def observe(self, method: str, call: Call, seconds: float) -> None:
        """Count a request that has been answered."""
        known = (method if method in _METHODS else "other", call.route, call.status)
        series = self._series.get(known)
        if series is None:
            series = self._series[known] = _Series()
        series.buckets[bisect_left(_BOUNDS, seconds)] += 1
        series.seconds += seconds
        if call.reason:
            self._refusals[call.reason] += 1

    def counted(self, pid: int) -> Counted:
        """What this process has counted so far."""
        lines = [
            _Line(*known, list(series.buckets), series.seconds)
            for known, series in self._series.items()
        ]
        return Counted(pid, self.in_flight, dict(self._refusals), lines)

    def collect(self) -> Iterator[Metric]:
        """The families, for Prometheus's own collector."""
        all_series: dict[tuple[str, str, int], _Series] = {}
        refusals: Counter[str] = Counter()
        in_flight = 0
        for one in (self.counted(0), *self._others()):
            in_flight += one.in_flight
            refusals.update(one.refusals)
            for line in one.lines:
                known = (line.method, line.route, line.status)
                all_series.setdefault(known, _Series()).add(line.buckets, line.seconds)
        took = HistogramMetricFamily(
            "pagefile_http_request_duration_seconds",
            "From the first byte asked to the last byte answered; its count is the requests.",
            labels=("method", "route", "status"),
        )
        for (method, route, status), series in all_series.items():
            total, buckets = 0, []
            for name, count in zip(_NAMES, series.buckets, strict=True):
                total += count
                buckets.append((name, float(total)))
            took.add_metric((method, route, str(status)), buckets, series.seconds)
        yield took
        refused = CounterMetricFamily(
            "pagefile_http_refusals",
            "Requests that were refused, by the code of the problem.",
            labels=("code",),
        )
        for code, count in sorted(refusals.items()):
            refused.add_metric((code,), count)
        yield refused
        yield GaugeMetricFamily(
            "pagefile_http_requests_in_flight", "Requests under way.", in_flight
        )

    def shown(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self._registry)
