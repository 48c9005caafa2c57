"""How much a buffer holds: limits that can be changed while it runs."""

from __future__ import annotations

import math
from collections.abc import Callable

from pagefile.context.residency import Eviction
from pagefile.errors import Invalid, shown

#: How many entries a log takes.
MOST_SLOTS = 2**32 - 2


class Policy:
    """The limits of one buffer, checked whenever they are set."""

    def __init__(
        self,
        max_slots_per_thread: int,
        max_threads: int,
        idle_seconds: float | None,
        on_evict: Callable[[Eviction], None] | None,
    ) -> None:
        self.max_slots_per_thread = _count("max_slots_per_thread", max_slots_per_thread)
        self.max_threads = _count("max_threads", max_threads)
        self.idle_seconds = _seconds("idle_seconds", idle_seconds)
        if on_evict is not None and not callable(on_evict):
            raise Invalid("on_evict", f"{shown(on_evict)} cannot be called", "give a function")
        self.on_evict = on_evict

    def change(self, name: str, value: object) -> None:
        """Set one limit; it holds from the next append on."""
        setattr(self, name, (_seconds if name == "idle_seconds" else _count)(name, value))

    def announce(self, evictions: list[Eviction]) -> None:
        """Tell whoever asked to be told. The append that made them leave is stored."""
        if self.on_evict is None:
            return
        for eviction in evictions:
            try:
                self.on_evict(eviction)
            except Exception:
                # Imported here: it takes longer to load than all of this package's own modules.
                import logging

                logging.getLogger("pagefile.context").exception(
                    "on_evict failed for thread %r", eviction.thread_id
                )


def _count(field: str, value: object) -> int:
    if type(value) is not int or not 0 < value <= MOST_SLOTS:
        raise Invalid(
            field, f"{shown(value)} is no limit", f"give a whole number from 1 to {MOST_SLOTS}"
        )
    return value


def _seconds(field: str, value: object) -> float | None:
    return None if value is None else require_time(field, value)


def require_time(field: str, value: object) -> float:
    """Seconds that are more than none and less than for ever."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise Invalid(field, f"{shown(value)} is no number of seconds", "give a number or None")
    if not math.isfinite(value) or value <= 0:
        raise Invalid(field, f"{shown(value)} is no time to wait", "give more than 0, or None")
    return float(value)
