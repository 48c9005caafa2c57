"""What a handler did through its handle: buffered, and committed with the acknowledgement."""

from __future__ import annotations

from typing import Any

import msgspec


class SlotEffect(msgspec.Struct, frozen=True):
    """A slot in the handler's own thread."""

    payload: Any
    to: str


class StateEffect(msgspec.Struct, frozen=True):
    """A document of the handler's own thread."""

    name: str
    value: Any


class WatchEffect(msgspec.Struct, frozen=True):
    """A watcher on the handler's own thread."""

    id: str
    wait_for: str
    from_listener: str
    description: str


class CloseEffect(msgspec.Struct, frozen=True):
    """The end of a watcher."""

    id: str


Effect = SlotEffect | StateEffect | WatchEffect | CloseEffect


class Effects:
    """The effects of one run of a handler, in their order."""

    __slots__ = ("made", "sent", "spent")

    def __init__(self) -> None:
        self.made: list[Effect] = []
        #: Payload and listener (or None for whoever takes it) of what it emitted.
        self.sent: list[tuple[Any, str | None]] = []
        self.spent = 0
