"""Ids that sort by the time they were made: a prefix and a ULID."""

from __future__ import annotations

import os
import threading

from pagefile import chance
from pagefile.errors import Invalid, shown

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_RANDOM_BITS = 80
#: Two characters at a time, from the first of 26 on.
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_SHIFTS = range(120, -1, -10)

_lock = threading.Lock()


class _Last:
    """The last number handed out, and by whom: which process, from which source."""

    number = 0
    maker = (0, 0)


_last = _Last()


def new_id(prefix: str = "") -> str:
    """`prefix_` and 26 characters: 48 bits of milliseconds, 80 of chance.

    Each sorts after those that this process made before, within a millisecond
    and when the clock runs backwards too.
    """
    if type(prefix) is not str or (not prefix.isidentifier() and prefix):
        raise Invalid("prefix", shown(prefix), "give letters, digits and _, or nothing")
    number = _next()
    text = "".join([_PAIRS[number >> shift & 1023] for shift in _SHIFTS])
    return f"{prefix}_{text}" if prefix else text


def _next() -> int:
    milliseconds = chance.now_us() // 1_000
    fresh = (milliseconds << _RANDOM_BITS) | int.from_bytes(chance.random_bytes(10), "big")
    maker = os.getpid(), chance.era()
    with _lock:
        # A child of a fork starts anew: counting on from the parent's last would meet it.
        if _last.maker == maker and fresh <= _last.number:
            fresh = _last.number + 1
        _last.number, _last.maker = fresh, maker
    return fresh
