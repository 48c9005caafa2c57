"""Names of streams that keep users apart, by a digest of the id; and ids that sort by time."""

from __future__ import annotations

import functools
import hashlib
import os
import threading
from functools import lru_cache

from pagefile.errors import Invalid, shown
from pagefile.store import clock
from pagefile.store.arguments import OF_TENANT, Naming
from pagefile.store.batch import Unchanged
from pagefile.store.codec.sort_key import KeyValue

_NAMING = Naming(512)
#: Under these keys, of the whole tenant, stands everything that memory keeps for somebody,
#: and for nobody.
USERS = "memory.user"
NOBODY = "memory.nobody"


@lru_cache(maxsize=8_192)
def owner_key(user_id: str | None) -> str:
    """What stands for a user in the name of a stream; nobody has a bucket of their own."""
    return "anon" if user_id is None else hashlib.sha256(user_id.encode()).hexdigest()[:32]


def users_key(user_id: str | None) -> dict[str, KeyValue]:
    """The tenant's key under which all that memory keeps for this user stands."""
    return {NOBODY: True} if user_id is None else {USERS: user_id}


def unchanged_since(user_id: str | None, position: int) -> Unchanged:
    """The condition that nothing was remembered or forgotten for this user since."""
    ((field, value),) = users_key(user_id).items()
    return Unchanged(field, value, position, everyone=True)


def require_user(user_id: object) -> None:
    """None is the bucket of nobody; the empty string would look like it and is refused.

    So is the name of what belongs to the tenant and to no user.
    """
    if user_id == OF_TENANT:
        raise Invalid("user_id", f"{OF_TENANT!r} is reserved", "give another name")
    if user_id is not None and (type(user_id) is not str or user_id not in _NAMING.known_good):
        _NAMING.check_text("user_id", user_id)


# Ids that sort by the time they were made: a prefix and a ULID.


_ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_RANDOM_BITS = 80
_RANDOM_BYTES = _RANDOM_BITS // 8
#: For how many ids bytes are drawn at once: asking the system for each takes longer than the rest.
_DRAWN_AT_ONCE = 128
#: Two characters at a time, from the first of 26 on.
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_SHIFTS = range(120, -1, -10)


class _Last:
    """The last number handed out, and what its source gave and is still to be used."""

    def __init__(self) -> None:
        self.begin_anew()

    def begin_anew(self) -> None:
        """As if nothing had been handed out."""
        self.number = 0
        self.drawn = b""
        #: Which source; ids of another do not go on from its last.
        self.era = -1
        #: One that a signal handler which makes an id can take too.
        self.lock = threading.RLock()


_last = _Last()


@functools.cache
def _watch_forks() -> None:
    # Once, and not on import. A child starts anew: counting on from its parent's last would meet
    # it, and its lock may have been taken when it was forked.
    os.register_at_fork(after_in_child=_last.begin_anew)


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
    milliseconds = clock.now_us() // 1_000
    _watch_forks()
    with _last.lock:
        era = clock.era()
        if _last.era != era:
            _last.number, _last.drawn, _last.era = 0, b"", era
        if not _last.drawn:
            _last.drawn = clock.random_bytes(_RANDOM_BYTES * _DRAWN_AT_ONCE)
        drawn, _last.drawn = _last.drawn[:_RANDOM_BYTES], _last.drawn[_RANDOM_BYTES:]
        fresh = (milliseconds << _RANDOM_BITS) | int.from_bytes(drawn, "big")
        if fresh <= _last.number:
            fresh = _last.number + 1
        _last.number = fresh
    return fresh
