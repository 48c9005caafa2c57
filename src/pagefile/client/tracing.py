"""The trace that a request belongs to goes with it, where the program traces at all."""

from __future__ import annotations

import sys
from typing import Any


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
