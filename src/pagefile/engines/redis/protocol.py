"""Commands as they go over the wire to Redis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Command = tuple[Any, ...]


class Ready:
    """The last parts of a command, as they go over the wire."""

    __slots__ = ("count", "raw")

    def __init__(self, raw: bytes, count: int) -> None:
        self.raw = raw
        self.count = count


def packed(parts: Sequence[Any]) -> bytes:
    """Parts of a command as they go over the wire."""
    found = bytearray()
    for part in parts:
        if type(part) is not bytes:
            part = part.encode() if type(part) is str else b"%d" % part
        found += b"$%d\r\n%b\r\n" % (len(part), part)
    return bytes(found)


def pack(command: Command, parts: list[bytes]) -> None:
    """A command as it goes over the wire; the client's own packing takes three times as long."""
    last = command[-1]
    if type(last) is Ready:
        parts += (
            b"*%d\r\n" % (len(command) - 1 + last.count),
            packed(command[:-1]),
            last.raw,
        )
    else:
        parts += (b"*%d\r\n" % len(command), packed(command))
