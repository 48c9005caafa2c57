"""Ids that sort by the time they were made: a prefix and a ULID."""

from __future__ import annotations

import os
import threading
import time

from pagefile.errors import Invalid, shown

_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_RANDOM_BITS = 80
_LENGTH = 26

_lock = threading.Lock()
#: The last number handed out, and the process that did.
_last = [0, 0]


def new_id(prefix: str = "") -> str:
    """`prefix_` and 26 characters: 48 bits of milliseconds, 80 of chance.

    Each sorts after those that this process made before, within a millisecond
    and when the clock runs backwards too.
    """
    if type(prefix) is not str or (not prefix.isidentifier() and prefix):
        raise Invalid("prefix", shown(prefix), "give letters, digits and _, or nothing")
    number = _next()
    characters = [_ALPHABET[number >> 5 * place & 31] for place in reversed(range(_LENGTH))]
    text = "".join(characters)
    return f"{prefix}_{text}" if prefix else text


def _next() -> int:
    fresh = (time.time_ns() // 1_000_000 << _RANDOM_BITS) | int.from_bytes(os.urandom(10), "big")
    with _lock:
        # A child of a fork starts anew: counting on from the parent's last would meet it.
        if _last[1] == os.getpid() and fresh <= _last[0]:
            fresh = _last[0] + 1
        _last[:] = fresh, os.getpid()
    return fresh
