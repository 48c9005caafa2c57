"""Where rooms take the moment and the random bytes of what they make up themselves.

The store has a clock and a source of bytes of its own (`Options`). Ids, tokens and
moments that are made above it come from here, so that one place can be given a
script's, and the same story leaves the same bytes on every engine.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _machine_us() -> int:
    return time.time_ns() // 1_000


class _Source:
    def __init__(self) -> None:
        self.clock: Callable[[], int] = _machine_us
        self.entropy: Callable[[int], bytes] = os.urandom
        #: Counts replacements: what is remembered of one source says nothing about the next.
        self.era = 0


_source = _Source()


def now_us() -> int:
    """Microseconds since 1970 UTC."""
    return _source.clock()


def now() -> datetime:
    """The moment, in UTC."""
    return _EPOCH + timedelta(microseconds=_source.clock())


def random_bytes(count: int) -> bytes:
    """As many bytes that nobody can guess."""
    return _source.entropy(count)


def token_hex(count: int) -> str:
    """As many of them, as text."""
    return _source.entropy(count).hex()


def uuid4() -> uuid.UUID:
    """A random UUID."""
    return uuid.UUID(bytes=_source.entropy(16), version=4)


def era() -> int:
    """Changes whenever the source does."""
    return _source.era


@contextmanager
def scripted(clock: Callable[[], int], entropy: Callable[[int], bytes]) -> Iterator[None]:
    """Use a script's clock (microseconds) and bytes in this whole process, for tests."""
    before = _source.clock, _source.entropy
    _source.clock, _source.entropy = clock, entropy
    _source.era += 1
    try:
        yield
    finally:
        _source.clock, _source.entropy = before
        _source.era += 1
