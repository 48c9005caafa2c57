"""What a group of batches is about to write, as Redis commands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pagefile.engines.redis.layout import Keys
from pagefile.engines.redis.rows import pack_row
from pagefile.store.engine import Row

#: Lua hands on a few thousand arguments at once and no more.
_MOST_ARGUMENTS = 2_000


class Commands:
    """Commands for `commit.lua`: each names its key by number."""

    def __init__(self, keys: Keys) -> None:
        self.keys: list[bytes] = [keys.head, keys.queue, keys.turn, keys.turns, keys.commits]
        self._numbers = {key: at for at, key in enumerate(self.keys, 1)}
        self.arguments: list[Any] = []

    def add(self, command: str, key: bytes, arguments: Sequence[Any], step: int = 1) -> None:
        """One command, or several when it has many arguments; `step` of them stay together."""
        if not arguments:
            return
        number = self._numbers.get(key)
        if number is None:
            self.keys.append(key)
            number = self._numbers[key] = len(self.keys)
        if len(arguments) <= _MOST_ARGUMENTS:
            self.arguments += (command, number, len(arguments), *arguments)
            return
        size = _MOST_ARGUMENTS - _MOST_ARGUMENTS % step
        for start in range(0, len(arguments), size):
            part = arguments[start : start + size]
            self.arguments += (command, number, len(part), *part)

    def members(self, key: bytes, changes: dict[bytes, bool]) -> None:
        """Members of a sorted set that come (true) and go (false)."""
        gone = [member for member, comes in changes.items() if not comes]
        self.add("ZREM", key, gone)
        come: list[Any] = []
        for member, comes in changes.items():
            if comes:
                come += (0, member)
        self.add("ZADD", key, come, 2)

    def rows(self, key: bytes, rows: dict[int, Row | None]) -> None:
        """Records that are written, and numbers that are let go."""
        self.add("HDEL", key, [number for number, row in rows.items() if row is None])
        written: list[Any] = []
        for number, row in rows.items():
            if row is not None:
                written += (number, pack_row(row))
        self.add("HSET", key, written, 2)


class Changes:
    """Members of sorted sets that come and go; the last word on each counts."""

    def __init__(self) -> None:
        self._sets: dict[bytes, dict[bytes, bool]] = {}

    def note(self, key: bytes, member: bytes, *, comes: bool) -> None:
        """The member comes into the set, or leaves it."""
        self._sets.setdefault(key, {})[member] = comes

    def forget(self, key: bytes, member: bytes) -> None:
        """Undo a note."""
        del self._sets[key][member]

    def of(self, key: bytes) -> dict[bytes, bool]:
        """What is noted about one set."""
        return self._sets.get(key, {})

    def write(self, out: Commands) -> None:
        """As commands."""
        for key, members in self._sets.items():
            out.members(key, members)
