"""Keys that make a repeat harmless, and what a second commit of one means."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable

import msgspec

from pagefile.errors import Invalid
from pagefile.store.engine import Engine, Prepared, RawCommit, Sealed, Write
from pagefile.store.records import Action, Content, digest_of, read_manifest

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


def repeat_of(commit: RawCommit) -> Sealed:
    """What the first commit of a key answered, read back from its manifest."""
    indexes: list[int] = []
    versions: list[int] = []
    for entry in read_manifest(commit.position, commit.manifest):
        if entry[0] in (Action.APPEND, Action.FORK):
            indexes.append(int(entry[2]))
        elif entry[0] in (Action.PUT, Action.DELETE):
            versions.append(int(entry[2]))
    return Sealed(commit, tuple(indexes), tuple(versions), True)


def require_same_content(engine: Engine, tenant: str, batch: Prepared, first: RawCommit) -> None:
    """Refuse a batch that reuses a key for something else.

    The first commit's salts are in its records, so its digests can be made
    again from the new content. Where the records were erased since, nothing is
    left to compare, and the repeat is answered: a replay must not resurrect.
    """
    entries = read_manifest(first.position, first.manifest)
    asked = [(write, content) for write in batch.writes for content in (write.contents or (None,))]
    # A dropped fork may have let go of more than it asked for.
    while len(entries) > len(asked) and entries[-1][0] == Action.PRUNE:
        entries.pop()
    if len(entries) != len(asked):
        raise _other_content(first)
    for (write, content), entry in zip(asked, entries, strict=True):
        if not _agrees(engine, tenant, write, content, entry):
            raise _other_content(first)


def _agrees(
    engine: Engine,
    tenant: str,
    write: Write,
    content: Content | None,
    entry: tuple[int | bytes, ...],
) -> bool:
    if write.action != entry[0]:
        return False
    stream = engine.stream_number(tenant, int(entry[1]))
    if stream is None or not stream.name:
        return True
    if stream.name != write.name:
        return False
    if content is None:
        return write.number is None or write.number == entry[2]
    rows = engine.rows(tenant, stream, int(entry[2]), int(entry[2]), 1)
    if not rows or rows[0].content is None:
        return True
    salted_alike = msgspec.structs.replace(content, salt=rows[0].content.salt)
    return digest_of(write.name, salted_alike) == entry[3]


def _other_content(first: RawCommit) -> Invalid:
    return Invalid(
        "key",
        f"it already committed something else at position {first.position}",
        "use a new key for new content",
    )
