"""Moments as text, quickly: most of them share their second with the one before."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

_MICRO = 1_000_000


@lru_cache(64)
def iso_of(time_us: int) -> str:
    """Microseconds since 1970 as `datetime.isoformat` writes them in UTC.

    Those of one commit group are all the same.
    """
    second, rest = divmod(time_us, _MICRO)
    return f"{_second(second)}.{rest:06d}+00:00" if rest else f"{_second(second)}+00:00"


def milliseconds_of(time_us: int) -> str:
    """The same with three digits behind the second, always."""
    return _milliseconds(time_us // 1_000)


@lru_cache(64)
def _milliseconds(time_ms: int) -> str:
    second, rest = divmod(time_ms, 1_000)
    return f"{_second(second)}.{rest:03d}+00:00"


@lru_cache(64)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).replace(tzinfo=None).isoformat()
