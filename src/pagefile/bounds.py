"""Numbers that callers give for reading, held within bounds."""

from __future__ import annotations

from pagefile.errors import Invalid

#: The most that one call returns; page on for more.
MOST_PER_READ = 10_000
_MOST_SECONDS = 86_400
#: Positions take 40 bits in the file; beyond half of that nobody asks by accident.
_MOST_POSITIONS = 2**39


def require_seconds(timeout: float) -> None:
    """Refuse what is no bounded time; NaN, which compares with nothing, too."""
    if not isinstance(timeout, (int, float)) or not 0 <= timeout <= _MOST_SECONDS:
        raise Invalid("timeout", f"{timeout!r} seconds", f"give 0 to {_MOST_SECONDS}")


def require_position(at: int | None, field: str = "at") -> int | None:
    """The position, or None for now."""
    if at is not None and (type(at) is not int or not 0 <= at < _MOST_POSITIONS):
        raise Invalid(field, f"{at!r} is no position", "give a whole number from 0 up")
    return at


def bounded(limit: int) -> int:
    """How many to return at most."""
    if type(limit) is not int or not 0 <= limit <= MOST_PER_READ:
        raise Invalid("limit", f"{limit!r}", f"give 0 to {MOST_PER_READ}, and page on for more")
    return limit
