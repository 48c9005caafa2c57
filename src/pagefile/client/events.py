"""Server-sent events out of bytes as they arrive, and where to go on after a cut."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pagefile.errors import LimitExceeded

MOST_EVENT_BYTES = 64 << 20
_END = "end"
_STOPPING = b'{"stopping":true}'


class Event(msgspec.Struct, frozen=True):
    """One event; `number` is None when it has no id."""

    name: str
    number: int | None
    data: bytes

    @property
    def is_end(self) -> bool:
        """Whether the server says that no more will come."""
        return self.name == _END

    @property
    def is_cut(self) -> bool:
        """Whether more would have come, had the server not been told to stop."""
        return self.name == _END and self.data == _STOPPING


class EventReader:
    """Takes bytes in any pieces and gives whole events."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> Iterator[Event]:
        """The events that are whole now.

        Raises:
            LimitExceeded: one event is longer than anything the server sends.
        """
        self._rest += piece
        while (end := self._rest.find(b"\n\n")) >= 0:
            block, self._rest = self._rest[:end], self._rest[end + 2 :]
            event = _event(block)
            if event is not None:
                yield event
        if len(self._rest) > MOST_EVENT_BYTES:
            raise LimitExceeded(
                "an event",
                limit=MOST_EVENT_BYTES,
                wanted=len(self._rest),
                next_step="check that base_url is a Pagefile server",
            )


def _event(block: bytes) -> Event | None:
    name, number, data = "message", None, []
    for line in block.split(b"\n"):
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"event":
            name = value.decode("utf-8", "replace")
        elif field == b"id" and value.isdigit():
            number = int(value)
        elif field == b"data":
            data.append(value)
    return Event(name, number, b"\n".join(data)) if data else None
