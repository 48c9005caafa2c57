"""Ids of threads: random, and drawn many at a time, because each draw is a system call."""

from __future__ import annotations

import os
from collections.abc import Callable

_ID_BYTES = 16
_AT_ONCE = 256


def thread_ids() -> Callable[[], str]:
    """What makes ids that nobody can guess, 32 characters each."""
    drawn: list[str] = []

    def new_id() -> str:
        if not drawn:
            text = os.urandom(_ID_BYTES * _AT_ONCE).hex()
            size = 2 * _ID_BYTES
            drawn.extend(text[at : at + size] for at in range(0, len(text), size))
        return drawn.pop()

    return new_id
