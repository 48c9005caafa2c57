"""Keys that make a repeat harmless.

A key that the caller gives is kept, as a digest, in an index of its own: a key may
name a person, and must not outlive an erasure of what it committed. A key that the store
makes says itself where to look: it carries a position that the tenant had
already reached when it was made, so its commit, if there is one, comes after.
Most keys are made and never asked for again; they cost no index entry.

Given keys expire by the times of the tenant's own commits, counted in steps, so that
one wrong clock does not end their lifetime (see `KeyExpiry`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

from pagefile.errors import Invalid

#: A lifetime is this many steps long; a key goes after one more.
_STEPS = 4
#: The share of a step after which it is worth looking again.
_LOOK_SHARE = 16

_MADE = re.compile(r"~([0-9a-f]{1,16})-[0-9a-f]{32}")


def made_key(reached: int, random: bytes) -> str:
    """A new key for a batch that will commit after position `reached`."""
    return f"~{reached:x}-{random.hex()}"


def stored_key(key: str) -> str:
    """A key as it is stored: made ones as they are, given ones as a digest."""
    if key[:1] == "~":
        return key
    return f"={hashlib.sha256(key.encode()).hexdigest()[:40]}"


def position_before(key: str) -> int:
    """The position after which a made key's commit is to be found; -1 for a given key.

    Raises:
        Invalid: it looks made, but was not: a repeat of it would not be found.
    """
    if key[:1] != "~":
        return -1
    match = _MADE.fullmatch(key)
    if match is None:
        raise implausible(key)
    return int(match[1], 16)


def implausible(key: str) -> Invalid:
    """The error for a key that begins like a made one and cannot be."""
    return Invalid("key", f"{key!r} was not made by this store", "do not begin a key with '~'")


class KeyExpiry:
    """Up to which position the keys that callers gave have expired.

    A machine whose clock is a year ahead commits once, and by the times of its commits
    every key is a year old. So time is counted in steps of a quarter of the
    lifetime, and between two neighbouring commits at most one step passes, however far
    apart their times are. A key goes after five steps: with one taken by a wrong
    clock, a whole lifetime is left.
    """

    def __init__(self) -> None:
        self._lifetime_us = -1
        self._looked_us = 0
        self._expired = 0

    def last_expired(
        self, lifetime_us: int, oldest: int, last: int, last_us: int, time_at: Callable[[int], int]
    ) -> int:
        """The last position whose key has expired; 0 for none.

        `oldest` is the first commit whose key is still kept, `last` the newest, with
        its time. `time_at` gives the time of a commit between the two. It is asked about a hundred
        times, and not again before a share of a step has passed.
        """
        step_us = max(lifetime_us // _STEPS, 1)
        if lifetime_us != self._lifetime_us:
            self._lifetime_us, self._looked_us, self._expired = lifetime_us, -step_us, 0
        if last_us - self._looked_us >= step_us // _LOOK_SHARE and oldest < last:
            self._looked_us = last_us
            if time_at(oldest) + (_STEPS + 1) * step_us <= last_us:
                self._expired = self._walk_back(oldest, last, last_us, step_us, time_at)
        return self._expired

    def _walk_back(
        self, oldest: int, place: int, time_us: int, step_us: int, time_at: Callable[[int], int]
    ) -> int:
        for _ in range(_STEPS + 1):
            # The last commit that is a step before this one, found by halving: times never go back.
            low, high, time_us = oldest - 1, place, time_us - step_us
            found_us = 0
            while high - low > 1:
                middle = (low + high) // 2
                middle_us = time_at(middle)
                if middle_us <= time_us:
                    low, found_us = middle, middle_us
                else:
                    high = middle
            if low < oldest:
                return 0
            place, time_us = low, found_us
        return place
