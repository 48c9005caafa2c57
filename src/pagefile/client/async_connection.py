"""The connection of a client that awaits; what it does is what `connection.py` does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import IO, Any, TypeVar

from pagefile.client import responses
from pagefile.client.config import FOLLOW_SECONDS, ClientConfig, httpx, options_of
from pagefile.client.events import EventReader
from pagefile.client.request import Ask
from pagefile.client.responses import Target, Upload
from pagefile.client.retry import Course, Lost, Reply, Wait, course
from pagefile.client.stream_position import Following
from pagefile.client.tracing import client_span, traced_headers

Shape = TypeVar("Shape")


class AsyncLink:
    """Sends requests over connections that are kept; opened by the first of them."""

    def __init__(self, config: ClientConfig, transport: Any = None) -> None:
        self.config = config
        self._transport = transport
        self._http: Any = None
        self._library = httpx()

    async def close(self) -> None:
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    def user(self, user_id: str | None) -> str | None:
        return self.config.user(user_id)

    def owned(self, things: Any) -> Any:
        return self.config.owned(things)

    async def send(self, ask: Ask, shape: type[Shape]) -> Shape:
        """Ask, and give the answer as a value."""
        reply = await self._run(ask, lambda: self._once(ask))
        return responses.decoded(reply.body, shape)

    async def text(self, ask: Ask) -> str:
        """Ask, and give the answer as it is."""
        reply = await self._run(ask, lambda: self._once(ask))
        return reply.body.decode("utf-8", "replace")

    async def upload(self, ask: Ask, content: Upload, shape: type[Shape]) -> Shape:
        """Send a file in pieces."""
        again = responses.may_send_again(content)
        return responses.decoded(
            (await self._run(ask, lambda: self._uploaded(ask, content), repeatable=again)).body,
            shape,
        )

    async def download(self, ask: Ask, target: Target) -> int:
        """Write an answer to a file as it comes; how many bytes."""
        again = isinstance(target, (str, os.PathLike))
        written = 0

        async def once() -> Reply | Lost:
            nonlocal written
            try:
                async with self._stream(ask) as response:
                    if response.status_code >= 300:
                        return await self._gathered(response)
                    written = await self._written(response, target)
                    return Reply(response.status_code, dict(response.headers), b"")
            except (self._library.TransportError, TimeoutError) as error:
                return responses.lost(self._library, error)

        await self._run(ask, once, repeatable=again)
        return written

    async def follow(self, ask: Ask, after: int | None, shape: type[Shape]) -> AsyncIterator[Shape]:
        """Events as they come; a cut stream goes on behind the last event."""
        following = Following(ask, after, self.config.retries)
        timeout = self._library.Timeout(FOLLOW_SECONDS, connect=self.config.timeout)
        while not following.is_over:
            reader = EventReader()
            try:
                async with self._stream(following.begin(), timeout=timeout) as response:
                    if response.status_code >= 300:
                        following.refused(await self._gathered(response))
                    else:
                        async for piece in response.aiter_bytes():
                            for event in reader.feed(piece):
                                if following.seen(event):
                                    yield responses.decoded(event.data, shape)
            except self._library.TransportError as error:
                following.lost(responses.lost(self._library, error))
            else:
                following.ended()
            if following.pause:
                await asyncio.sleep(following.pause)

    # Inside

    async def _run(
        self, ask: Ask, once: Callable[[], Awaitable[Reply | Lost]], *, repeatable: bool = True
    ) -> Reply:
        plan = course(ask, self.config.retries, repeatable=repeatable)
        with client_span(ask, self.config.base_url) as answered:
            reply = await self._walked(plan, once)
            answered(reply.status)
            return reply

    async def _walked(self, plan: Course, once: Callable[[], Awaitable[Reply | Lost]]) -> Reply:
        outcome: Reply | Lost | None = None
        while True:
            try:
                step = plan.send(outcome)
            except StopIteration as end:
                reply: Reply = end.value
                return reply
            if isinstance(step, Wait):
                outcome = None
                await asyncio.sleep(step.seconds)
            else:
                outcome = await once()

    async def _once(self, ask: Ask) -> Reply | Lost:
        try:
            async with self._stream(ask, content=ask.body) as response:
                return await self._gathered(response)
        except (self._library.TransportError, TimeoutError) as error:
            return responses.lost(self._library, error)

    async def _uploaded(self, ask: Ask, content: Upload) -> Reply | Lost:
        with responses.source(content) as body:
            sent = body if isinstance(body, bytes) else _pieces(body)
            try:
                async with self._stream(ask, content=sent) as response:
                    return await self._gathered(response)
            except (self._library.TransportError, TimeoutError) as error:
                return responses.lost(self._library, error)

    async def _written(self, response: Any, target: Target) -> int:
        size = 0
        with responses.sink(target) as file:
            async for piece in response.aiter_bytes():
                size += len(piece)
                responses.require_size(size, self.config.max_download_bytes)
                await asyncio.to_thread(file.write, piece)
        return size

    async def _gathered(self, response: Any) -> Reply:
        gathering = responses.Gathering(self.config.max_answer_bytes, self.config.timeout)
        async for piece in response.aiter_bytes():
            gathering.add(piece)
        return Reply(response.status_code, dict(response.headers), gathering.body)

    def _stream(self, ask: Ask, **more: Any) -> Any:
        headers = traced_headers(ask.headers)
        return self._opened().stream(
            ask.method, ask.path, params=ask.query, headers=headers, **more
        )

    def _opened(self) -> Any:
        if self._http is None:
            self._http = self._library.AsyncClient(**options_of(self.config, self._transport))
        return self._http


async def _pieces(content: IO[bytes]) -> AsyncIterator[bytes]:
    """A file in pieces, read without blocking the loop."""
    while piece := await asyncio.to_thread(content.read, responses.PIECE_BYTES):
        yield piece
