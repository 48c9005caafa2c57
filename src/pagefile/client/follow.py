"""Server-sent events out of bytes as they arrive, and where to go on after a cut."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import Any, Self

import msgspec

from pagefile.client.request import Ask, Lost, Reply, Wait, course, lost
from pagefile.errors import LimitExceeded, Unavailable

#: The server sends something every 15 seconds; three times that is silence.
_FOLLOW_SECONDS = 45.0
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
        """Whether more would have come, had the server not stopped."""
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
                next_step="check that the address is that of a Pagefile server",
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


class Following:
    """The last event that was seen; every event that comes begins the count of attempts again."""

    def __init__(self, ask: Ask, after: int | None, retries: int) -> None:
        self._ask = ask
        self._last = after
        self._retries = retries
        self._course = course(ask, retries)
        next(self._course)
        self._has_begun = False
        self.is_over = False
        self.pause = 0.0

    def begin(self) -> Ask:
        """The request that goes on where the stream stands."""
        self.pause = 0.0
        headers = self._ask.headers | {"accept": "text/event-stream"}
        query = dict(self._ask.query)
        if self._last is not None:
            query["after"] = str(self._last)
        return msgspec.structs.replace(self._ask, query=query, headers=headers)

    def seen(self, event: Event) -> bool:
        """Take note of an event; whether it is one to show."""
        if event.is_end:
            # One that stops is started again, or another one is in its place.
            self.is_over = not event.is_cut
            return False
        if event.number is not None:
            if self._last is not None and event.number <= self._last:
                return False
            self._last = event.number
        self._has_begun = True
        return True

    def lost(self, lost: Lost) -> None:
        """The stream was cut.

        Raises:
            Unavailable: nobody knows where it stood, or it was cut too often.
        """
        if self._last is None and lost.was_sent:
            raise cannot_resume(lost.error) from lost.error
        self._next(lost)

    def refused(self, reply: Reply) -> None:
        """The server said no, or not now.

        Raises:
            PagefileError: it said no, or not now too often.
        """
        self._next(reply)

    def ended(self) -> None:
        """The connection ended; without the server's word for it, that is a cut."""
        if not self.is_over and not self.pause:
            self.lost(Lost(EOFError("the stream ended"), was_sent=True))

    def _next(self, outcome: Lost | Reply) -> None:
        if self._has_begun:
            self._has_begun = False
            self._course = course(self._ask, self._retries)
            next(self._course)
        step = self._course.send(outcome)
        assert isinstance(step, Wait)
        self.pause = step.seconds
        next(self._course)


def cannot_resume(error: Exception) -> Unavailable:
    """A stream broke before it said where it stood."""
    return Unavailable(
        f"the stream was cut before its first event ({type(error).__name__})",
        "follow again, with `after` if nothing may be missed",
    )


# What callers go through


class RemoteFollower:
    """An iterator that waits for what comes; `close` ends it, from any thread."""

    def __init__(self, link: Any, following: Following, made: Callable[[bytes], Any]) -> None:
        self._link = link
        self._following = following
        self._made = made
        self._is_closed = threading.Event()
        self._response: Any = None
        self._coming = self._come()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        return next(self._coming)

    def close(self) -> None:
        """End the iteration; a `next` that waits in another thread ends too."""
        self._is_closed.set()
        response = self._response
        stream = None if response is None else response.extensions.get("network_stream")
        wire = None if stream is None else stream.get_extra_info("socket")
        if wire is not None:
            with contextlib.suppress(OSError):
                wire.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _come(self) -> Iterator[Any]:
        following, link = self._following, self._link
        library, options = link._library, link.address.options
        timeout = library.Timeout(_FOLLOW_SECONDS, connect=options.timeout)
        while not (following.is_over or self._is_closed.is_set()):
            reader = EventReader()
            try:
                with link._stream(following.begin(), timeout=timeout) as response:
                    if response.status_code >= 300:
                        following.refused(link._gathered(response))
                    else:
                        self._response = response
                        for piece in response.iter_bytes():
                            for event in reader.feed(piece):
                                if self._is_closed.is_set():
                                    return
                                if following.seen(event):
                                    yield self._made(event.data)
            except library.TransportError as error:
                if self._is_closed.is_set():
                    return
                following.lost(lost(library, error))
            else:
                if self._is_closed.is_set():
                    return
                following.ended()
            if following.pause:
                self._is_closed.wait(following.pause)


class AsyncRemoteFollower:
    """`RemoteFollower` for an event loop: `async for`, ended by `aclose` or cancellation."""

    def __init__(self, link: Any, following: Following, made: Callable[[bytes], Any]) -> None:
        self._link = link
        self._following = following
        self._made = made
        self._coming = self._come()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        return await anext(self._coming)

    async def aclose(self) -> None:
        await self._coming.aclose()  # type: ignore[attr-defined]

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def _come(self) -> AsyncIterator[Any]:
        following, link = self._following, self._link
        library, options = link._library, link.address.options
        timeout = library.Timeout(_FOLLOW_SECONDS, connect=options.timeout)
        while not following.is_over:
            reader = EventReader()
            try:
                async with link._stream(following.begin(), timeout=timeout) as response:
                    if response.status_code >= 300:
                        following.refused(await link._gathered(response))
                    else:
                        async for piece in response.aiter_bytes():
                            for event in reader.feed(piece):
                                if following.seen(event):
                                    yield self._made(event.data)
            except library.TransportError as error:
                following.lost(lost(library, error))
            else:
                following.ended()
            if following.pause:
                await asyncio.sleep(following.pause)
