"""Moments as text, quickly: most of them share their second with the one before."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

_MICRO = 1_000_000


def iso_of(time_us: int) -> str:
    """Microseconds since 1970 as `datetime.isoformat` writes them in UTC."""
    second, rest = divmod(time_us, _MICRO)
    return f"{_second(second)}.{rest:06d}+00:00" if rest else f"{_second(second)}+00:00"


def milliseconds_of(time_us: int) -> str:
    """The same with three digits behind the second, always."""
    second, rest = divmod(time_us, _MICRO)
    return f"{_second(second)}.{rest // 1_000:03d}+00:00"


@lru_cache(64)
def _second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).replace(tzinfo=None).isoformat()
