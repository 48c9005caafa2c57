"""Watching a server: one line for each request, and counters for Prometheus."""

from __future__ import annotations

import asyncio
import sys
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, TextIO

import msgspec
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from pagefile.operations.answer import milliseconds_of
from pagefile.surfaces.http.call import Call

Level = Literal["debug", "info", "warning", "error"]
_RANKS: dict[str, int] = {"debug": 0, "info": 1, "warning": 2, "error": 3}
_COLLECT_SECONDS = 0.1
_MOST_LINES = 500
_encode_lines = msgspec.json.Encoder().encode_lines


class _Line(msgspec.Struct, omit_defaults=True):
    """What is told of a request; kept as it is until many are made JSON at once."""

    time: str
    level: Level
    event: str
    request_id: str
    method: str
    route: str
    status: int
    duration_ms: float
    who: str = ""
    tenant: str = ""
    code: str = ""
    error: str = ""


class Log:
    """Writes lines to a stream; used from one event loop."""

    def __init__(self, level: Level = "info", stream: TextIO | None = None) -> None:
        self._least = _RANKS[level]
        self._stream = stream
        self._lines: list[_Line | dict[str, object]] = []
        self._is_due = False

    def request(self, method: str, call: Call, seconds: float) -> None:
        """Tell of a request: the template of its route, not the path, which may name people."""
        level: Level = "info" if call.status < 500 and not call.error_kind else "error"
        if _RANKS[level] < self._least:
            return
        who = call.identity
        name, tenant = ("", "") if who is None else (who.name, who.tenant)
        self._add(
            _Line(
                milliseconds_of(time.time_ns() // 1_000),
                level,
                "request",
                call.request_id,
                method[:16],
                call.route,
                call.status,
                round(seconds * 1_000, 3),
                name,
                tenant,
                call.reason,
                call.error_kind,
            )
        )

    def tell(self, level: Level, event: str, told: dict[str, object]) -> None:
        """One line, soon."""
        if _RANKS[level] < self._least:
            return
        now = milliseconds_of(time.time_ns() // 1_000)
        self._add({"time": now, "level": level, "event": event, **told})

    def _add(self, line: _Line | dict[str, object]) -> None:
        self._lines.append(line)
        if len(self._lines) >= _MOST_LINES:
            self.flush()
        elif not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_later(_COLLECT_SECONDS, self._flush_due)

    def flush(self) -> None:
        """Write what waits."""
        lines, self._lines = self._lines, []
        if lines:
            stream = sys.stderr if self._stream is None else self._stream
            stream.write(_encode_lines(lines).decode())
            stream.flush()

    def _flush_due(self) -> None:
        self._is_due = False
        self.flush()


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


class CountedLine(msgspec.Struct, array_like=True):
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
    lines: list[CountedLine]


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
            CountedLine(*known, list(series.buckets), series.seconds)
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
