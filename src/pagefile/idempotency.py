"""Keys that make a repeat harmless.

A key that the caller gives is kept, as a digest, in an index of its own: a key may
name a person, and must not outlive an erasure of what it committed. A key that the store
makes says itself where to look: it carries a position that the tenant had
already reached when it was made, so its commit, if there is one, comes after.
Most keys are made and never asked for again; they cost no index entry.
"""

from __future__ import annotations

import hashlib
import re

from pagefile.errors import Invalid

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
