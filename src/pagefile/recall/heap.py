"""Memory that was let go, given back to the system."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache


def give_back() -> None:
    """Have the allocator return what nobody uses; only glibc's keeps it, and only it is asked.

    For after work that took much more than what it leaves, such as folding a long log.
    """
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Callable[[int], object] | None:
    try:
        found: Callable[[int], object] = ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
    return found
