"""The connection of a client that blocks."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from pagefile.client import responses
from pagefile.client.config import FOLLOW_SECONDS, ClientConfig, httpx, options_of
from pagefile.client.events import EventReader
from pagefile.client.request import Ask
from pagefile.client.responses import Target, Upload
from pagefile.client.retry import Course, Lost, Reply, Wait, course
from pagefile.client.stream_position import Following
from pagefile.client.tracing import client_span, traced_headers

Shape = TypeVar("Shape")


class Link:
    """Sends requests over connections that are kept; opened by the first of them."""

    def __init__(self, config: ClientConfig, transport: Any = None) -> None:
        self.config = config
        self._transport = transport
        self._opening = threading.Lock()
        self._http: Any = None
        self._library = httpx()

    def close(self) -> None:
        with self._opening:
            http, self._http = self._http, None
        if http is not None:
            http.close()

    def user(self, user_id: str | None) -> str | None:
        return self.config.user(user_id)

    def owned(self, things: Any) -> Any:
        return self.config.owned(things)

    def send(self, ask: Ask, shape: type[Shape]) -> Shape:
        """Ask, and give the answer as a value."""
        reply = self._run(ask, lambda: self._once(ask))
        return responses.decoded(reply.body, shape)

    def text(self, ask: Ask) -> str:
        """Ask, and give the answer as it is."""
        reply = self._run(ask, lambda: self._once(ask))
        return reply.body.decode("utf-8", "replace")

    def upload(self, ask: Ask, content: Upload, shape: type[Shape]) -> Shape:
        """Send a file in pieces."""
        again = responses.may_send_again(content)
        return responses.decoded(
            self._run(ask, lambda: self._uploaded(ask, content), repeatable=again).body, shape
        )

    def download(self, ask: Ask, target: Target) -> int:
        """Write an answer to a file as it comes; how many bytes."""
        again = isinstance(target, (str, os.PathLike))
        written = 0

        def once() -> Reply | Lost:
            nonlocal written
            try:
                with self._stream(ask) as response:
                    if response.status_code >= 300:
                        return self._gathered(response)
                    written = self._written(response, target)
                    return Reply(response.status_code, dict(response.headers), b"")
            except (self._library.TransportError, TimeoutError) as error:
                return responses.lost(self._library, error)

        self._run(ask, once, repeatable=again)
        return written

    def follow(self, ask: Ask, after: int | None, shape: type[Shape]) -> Iterator[Shape]:
        """Events as they come; a cut stream goes on behind the last event."""
        following = Following(ask, after, self.config.retries)
        timeout = self._library.Timeout(FOLLOW_SECONDS, connect=self.config.timeout)
        while not following.is_over:
            reader = EventReader()
            try:
                with self._stream(following.begin(), timeout=timeout) as response:
                    if response.status_code >= 300:
                        following.refused(self._gathered(response))
                    else:
                        for piece in response.iter_bytes():
                            for event in reader.feed(piece):
                                if following.seen(event):
                                    yield responses.decoded(event.data, shape)
            except self._library.TransportError as error:
                following.lost(responses.lost(self._library, error))
            else:
                following.ended()
            if following.pause:
                time.sleep(following.pause)

    # Inside

    def _run(self, ask: Ask, once: Callable[[], Reply | Lost], *, repeatable: bool = True) -> Reply:
        plan = course(ask, self.config.retries, repeatable=repeatable)
        with client_span(ask, self.config.base_url) as answered:
            reply = self._walked(plan, once)
            answered(reply.status)
            return reply

    def _walked(self, plan: Course, once: Callable[[], Reply | Lost]) -> Reply:
        outcome: Reply | Lost | None = None
        while True:
            try:
                step = plan.send(outcome)
            except StopIteration as end:
                reply: Reply = end.value
                return reply
            if isinstance(step, Wait):
                outcome = None
                time.sleep(step.seconds)
            else:
                outcome = once()

    def _once(self, ask: Ask) -> Reply | Lost:
        try:
            with self._stream(ask, content=ask.body) as response:
                return self._gathered(response)
        except (self._library.TransportError, TimeoutError) as error:
            return responses.lost(self._library, error)

    def _uploaded(self, ask: Ask, content: Upload) -> Reply | Lost:
        with responses.source(content) as body:
            sent = body if isinstance(body, bytes) else responses.pieces(body)
            try:
                with self._stream(ask, content=sent) as response:
                    return self._gathered(response)
            except (self._library.TransportError, TimeoutError) as error:
                return responses.lost(self._library, error)

    def _written(self, response: Any, target: Target) -> int:
        size = 0
        with responses.sink(target) as file:
            for piece in response.iter_bytes():
                size += len(piece)
                responses.require_size(size, self.config.max_download_bytes)
                file.write(piece)
        return size

    def _gathered(self, response: Any) -> Reply:
        gathering = responses.Gathering(self.config.max_answer_bytes, self.config.timeout)
        for piece in response.iter_bytes():
            gathering.add(piece)
        return Reply(response.status_code, dict(response.headers), gathering.body)

    def _stream(self, ask: Ask, **more: Any) -> Any:
        headers = traced_headers(ask.headers)
        return self._opened().stream(
            ask.method, ask.path, params=ask.query, headers=headers, **more
        )

    def _opened(self) -> Any:
        if self._http is None:
            with self._opening:
                if self._http is None:
                    self._http = self._library.Client(**options_of(self.config, self._transport))
        return self._http
