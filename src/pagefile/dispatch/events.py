"""What happens in an organism, told to whoever listens, while it happens."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, Literal

import msgspec

#: A listener that does not keep up loses the oldest events, and is told how many.
_MOST_KEPT = 1_000


class MessageReceivedEvent(msgspec.Struct, frozen=True):
    """A handler begins with a message."""

    thread_id: str
    from_id: str
    to_id: str
    payload_type: str
    payload: Any


class MessageSentEvent(msgspec.Struct, frozen=True):
    """A message is recorded and on its way."""

    thread_id: str
    from_id: str
    to_id: str
    payload_type: str
    payload: Any


class AgentStateEvent(msgspec.Struct, frozen=True):
    """A listener begins or ends a run."""

    agent_name: str
    state: Literal["running", "idle", "waiting"]
    thread_id: str


class ThreadEvent(msgspec.Struct, frozen=True):
    """A conversation or activation started, ended, failed, or moved to another process."""

    thread_id: str
    status: Literal["started", "answered", "released", "retried", "dead", "lost", "recovered"]
    participants: tuple[str, ...] = ()
    error: str = ""


class MissedEvent(msgspec.Struct, frozen=True):
    """So many events were dropped, because they were not fetched in time."""

    count: int


Event = MessageReceivedEvent | MessageSentEvent | AgentStateEvent | ThreadEvent | MissedEvent


class Events:
    """The subscribers of one organism. Without any, nothing is even made."""

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Event], None]] = []
        self.wanted = False

    def subscribe(self, callback: Callable[[Event], None]) -> None:
        """Call with each event, in the loop; what it raises is logged and goes no further."""
        self._callbacks.append(callback)
        self.wanted = True

    def unsubscribe(self, callback: Callable[[Event], None]) -> None:
        """Call it no more."""
        if callback in self._callbacks:
            self._callbacks.remove(callback)
        self.wanted = bool(self._callbacks)

    def tell(self, event: Event) -> None:
        """Let everybody know."""
        for callback in tuple(self._callbacks):
            try:
                callback(event)
            except Exception:
                import logging

                logging.getLogger("pagefile.dispatch").exception("an event listener failed")

    async def stream(self) -> AsyncIterator[Event]:
        """Events from now on, until the iterator is closed."""
        kept: deque[Event] = deque()
        arrived = asyncio.Event()
        missed = 0

        def keep(event: Event) -> None:
            nonlocal missed
            if len(kept) >= _MOST_KEPT:
                kept.popleft()
                missed += 1
            kept.append(event)
            arrived.set()

        self.subscribe(keep)
        try:
            while True:
                await arrived.wait()
                if missed:
                    told, missed = missed, 0
                    yield MissedEvent(told)
                while kept:
                    yield kept.popleft()
                arrived.clear()
        finally:
            self.unsubscribe(keep)
