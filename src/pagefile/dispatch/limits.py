"""What bounds an organism; every number here has an effect."""

from __future__ import annotations

from typing import Literal

import msgspec

from pagefile.errors import Invalid, shown
from pagefile.store.arguments import require_count, require_seconds

Scheduling = Literal["breadth-first", "depth-first"]
_MOST = 1_000_000


class DispatchLimits(msgspec.Struct, frozen=True):
    """The bounds of one organism.

    `max_depth` bounds how deep calls nest, `max_messages` how many messages one
    request may cause, `max_tokens` what its handlers may spend together.
    `max_conversations` is how many this process works on at a time; what comes
    beyond waits in the store for any process, up to `max_waiting`.
    """

    max_concurrent_handlers: int = 20
    max_concurrent_per_agent: int = 5
    max_conversations: int = 1_000
    max_waiting: int = 10_000
    max_depth: int = 50
    max_messages: int = 10_000
    max_tokens: int = 100_000
    max_slots_per_thread: int = 10_000
    max_deaths: int = 5
    #: How many messages one handler may send at a time, and how many effects it may have.
    max_sent: int = 1_000
    lease_seconds: float = 10.0
    retention_seconds: float = 86_400.0
    thread_scheduling: Scheduling = "breadth-first"


def require_limits(limits: DispatchLimits) -> DispatchLimits:
    """Refuse what would bound nothing, or everything."""
    if not isinstance(limits, DispatchLimits):
        raise Invalid("limits", f"{shown(limits)} is no DispatchLimits", "give DispatchLimits(…)")
    for field in limits.__struct_fields__:
        value = getattr(limits, field)
        if field == "thread_scheduling":
            if value not in ("breadth-first", "depth-first"):
                raise Invalid(field, shown(value), "use 'breadth-first' or 'depth-first'")
        elif field.endswith("_seconds"):
            require_seconds(value, field)
            if value <= 0:
                raise Invalid(field, f"{shown(value)} seconds", "give more than 0")
        else:
            require_count(value, field, least=1, most=_MOST)
    return limits
