"""What Prometheus is told. Labels are bounded: templates of routes, never ids or tenants."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

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


class Metrics:
    """The counters of one process; written from its event loop alone, so nothing is locked."""

    def __init__(self) -> None:
        self.in_flight = 0
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

    def collect(self) -> Iterator[Metric]:
        """The families, for Prometheus's own collector."""
        took = HistogramMetricFamily(
            "pagefile_http_request_duration_seconds",
            "From the first byte asked to the last byte answered; its count is the requests.",
            labels=("method", "route", "status"),
        )
        for (method, route, status), series in list(self._series.items()):
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
        for code, count in sorted(self._refusals.items()):
            refused.add_metric((code,), count)
        yield refused
        yield GaugeMetricFamily(
            "pagefile_http_requests_in_flight", "Requests under way.", self.in_flight
        )

    def shown(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self._registry)
