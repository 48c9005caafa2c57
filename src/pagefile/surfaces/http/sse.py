"""Server-sent events: what is appended, as it is appended, for as long as somebody listens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol, TypeVar

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Send

from pagefile.surfaces.http.limits import Streams

MEDIA_TYPE = "text/event-stream"
#: Proxies close what is silent; a comment now and then keeps it open.
_BEAT_SECONDS = 15.0
_END = b"event: end\ndata: {}\n\n"
#: Whoever follows may ask again, behind the last event.
_STOPPING = b'event: end\ndata: {"stopping":true}\n\n'

Item = TypeVar("Item", covariant=True)


class Followed(Protocol[Item]):
    """What can be followed: an async iterator that can be closed."""

    async def __anext__(self) -> Item: ...
    async def aclose(self) -> None: ...


def after_of(request: Request, after: int | None) -> int | None:
    """Where to begin: behind the last event that a browser says it saw, else as asked."""
    seen = request.headers.get("last-event-id", "")
    if seen.isdecimal() and seen.isascii() and len(seen) < 19:
        return int(seen)
    return after


def event_stream(
    followed: Followed[Item],
    told: Callable[[Item], tuple[int, bytes] | None],
    name: str,
    streams: Streams,
) -> StreamingResponse:
    """An answer that has one event for each item; `told` gives its number and JSON."""
    streams.require_room()
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    body = _events(followed, told, name, streams)
    return _EventStream(body, 200, headers, MEDIA_TYPE)


class _EventStream(StreamingResponse):
    """One whose events end with it: a client may be gone when the next is sent."""

    async def stream_response(self, send: Send) -> None:
        try:
            await super().stream_response(send)
        finally:
            # Left to the collector, it would hold its place among the streams until then.
            ends = getattr(self.body_iterator, "aclose", None)
            if ends is not None:
                await ends()


async def _events(
    followed: Followed[Item],
    told: Callable[[Item], tuple[int, bytes] | None],
    name: str,
    streams: Streams,
) -> AsyncIterator[bytes]:
    coming: asyncio.Task[Item] | None = None
    stopping = asyncio.ensure_future(streams.stopping.wait())
    streams.enter()
    try:
        yield b": following\n\n"
        while True:
            coming = coming or asyncio.ensure_future(_next(followed))
            await asyncio.wait(
                {coming, stopping}, timeout=_BEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED
            )
            if not coming.done():
                if stopping.done():
                    yield _STOPPING
                    return
                yield b": beat\n\n"
                continue
            try:
                item = coming.result()
            except StopAsyncIteration:
                yield _END
                return
            finally:
                coming = None
            made = told(item)
            if made is not None:
                number, data = made
                yield b"event: %b\nid: %d\ndata: %b\n\n" % (name.encode(), number, data)
    finally:
        streams.leave()
        stopping.cancel()
        if coming is not None:
            coming.cancel()
        await followed.aclose()


async def _next(followed: Followed[Item]) -> Item:
    return await followed.__anext__()
