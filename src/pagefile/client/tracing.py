"""The trace that a request belongs to goes with it, where the program traces at all."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from pagefile import tracing
from pagefile.client.request import Ask

#: Requests that are memory operations, by OpenTelemetry's names for them.
_OPERATIONS = tuple(
    (method, re.compile(path), operation)
    for method, path, operation in (
        ("POST", r"/v1/(recall|recall/facts|search)", "search_memory"),
        ("POST", r"/v1/(episodes|episodes/batch|facts)", "create_memory"),
        ("PUT", r"/v1/blocks/[^/]+", "upsert_memory"),
        ("POST", r"/v1/batches/[^/]+/commit", "upsert_memory"),
        ("POST", r"/v1/blocks/[^/]+/append", "update_memory"),
        ("DELETE", r"/v1/blocks/[^/]+", "delete_memory"),
        ("POST", r"/v1/(forget|facts/[^/]+/retract)", "delete_memory"),
    )
)


def operation_of(ask: Ask) -> str:
    """The memory operation that a request is; "" for any other."""
    for method, path, operation in _OPERATIONS:
        if method == ask.method and path.fullmatch(ask.path):
            return operation
    return ""


@contextmanager
def client_span(ask: Ask, base_url: str) -> Iterator[Callable[[int], None]]:
    """A span around a call and all its attempts, where the program traces.

    It is given what tells it the status of the answer. Nothing in it names anybody:
    no path, no query, and of an error its code alone.
    """
    if not tracing.is_enabled():
        yield lambda status: None
        return
    from opentelemetry.trace import SpanKind

    from pagefile.tracing.spans import OPERATION, PROVIDER, failed

    operation, server = operation_of(ask), urlsplit(base_url)
    told: dict[str, Any] = {"http.request.method": ask.method}
    told["server.address"] = server.hostname or ""
    if server.port is not None:
        told["server.port"] = server.port
    if operation:
        told |= {OPERATION: operation, PROVIDER: "pagefile"}
    with tracing.tracer().start_as_current_span(
        operation or ask.method,
        kind=SpanKind.CLIENT,
        attributes=told,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield lambda status: span.set_attribute("http.response.status_code", status)
        except BaseException as error:
            failed(span, error)
            raise


def traced_headers(headers: dict[str, str]) -> dict[str, str]:
    """The headers, with `traceparent` when a span is open; nothing is imported for it."""
    if "opentelemetry.trace" not in sys.modules:
        return headers
    propagate: Any = sys.modules.get("opentelemetry.propagate")
    if propagate is None:
        from opentelemetry import propagate
    carried = dict(headers)
    propagate.inject(carried)
    return carried
