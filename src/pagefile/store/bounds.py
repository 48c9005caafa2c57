"""Numbers that callers give, held within bounds."""

from __future__ import annotations

from pagefile.errors import Invalid, shown

#: The most that one call returns; page on for more.
MOST_PER_READ = 10_000
MOST_SECONDS = 86_400
#: Positions take 40 bits in the file; beyond half of that nobody asks by accident.
_MOST_POSITIONS = 2**39
_MOST_COUNT = 2**63 - 1


def require_seconds(timeout: float, field: str = "timeout") -> None:
    """Refuse what is no bounded time; NaN, which compares with nothing, too."""
    if type(timeout) not in (int, float) or not 0 <= timeout <= MOST_SECONDS:
        raise Invalid(field, f"{shown(timeout)} seconds", f"give 0 to {MOST_SECONDS}")


def require_position(at: int | None, field: str = "at") -> int | None:
    """The position, or None for now."""
    if at is not None and (type(at) is not int or not 0 <= at < _MOST_POSITIONS):
        raise Invalid(field, f"{shown(at)} is no position", "give a whole number from 0 up")
    return at


def require_index(index: int | None, field: str) -> None:
    """Refuse what is no place in a log; negative ones count from its end, None is the end."""
    if index is not None and type(index) is not int:
        raise Invalid(field, f"{shown(index)} is no index", "give a whole number")


def require_count(number: object, field: str, least: int = 0, most: int = _MOST_COUNT) -> int:
    """The number, if it is a whole one within bounds; a truth value is none."""
    if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
        bounds = f"from {least} up" if most == _MOST_COUNT else f"from {least} to {most}"
        raise Invalid(field, f"{shown(number)} is not a count", f"give a whole number {bounds}")
    return number


def bounded(limit: int) -> int:
    """How many to return at most."""
    if type(limit) is not int or not 0 <= limit <= MOST_PER_READ:
        raise Invalid("limit", shown(limit), f"give 0 to {MOST_PER_READ}, and page on for more")
    return limit
