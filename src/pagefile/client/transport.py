"""Sending: connections that are kept, attempts, files, streams; once blocking, once awaited.

What is to be sent is said by a talk: a generator that yields an `Exchange` for each
request and gets the answer, and returns the value that the caller asked for. A `Link`
sees a talk through, an `AsyncLink` awaits it; nothing else differs between them.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeAlias, TypeVar
from urllib.parse import urlsplit

import msgspec

from pagefile import tracing
from pagefile.client.follow import AsyncRemoteFollower, Following, RemoteFollower
from pagefile.client.request import Ask, Course, Lost, Reply, Wait, course, lost, require_header
from pagefile.errors import (
    Invalid,
    LimitExceeded,
    NotFound,
    PagefileError,
    Unavailable,
    Unsupported,
    shown,
)
from pagefile.settings import Settings
from pagefile.store.arguments import Naming, require_count, require_seconds
from pagefile.store.atomic_file import new_file
from pagefile.store.codec.decoder import json_decoder

Value = TypeVar("Value")
#: Where a download goes: a file that is made when all of it is there, or one that is open.
Target: TypeAlias = str | os.PathLike[str] | IO[bytes]
#: What is uploaded: bytes, a file by its path, or one that is open.
Upload: TypeAlias = bytes | str | os.PathLike[str] | IO[bytes]

_MOST_ANSWER_BYTES = 64 << 20
_MOST_DOWNLOAD_BYTES = 4 << 30
_MOST_RETRIES = 20
_CONNECT_SECONDS = 5.0
_PIECE_BYTES = 1 << 16
_USERS = Naming(512)


class Remote(msgspec.Struct, frozen=True, kw_only=True):
    """How a server is reached. The defaults suit most.

    `timeout` is the seconds that one attempt may take. A request that the server did
    not get, or was too busy for, is sent again up to `retries` times; one that may have
    arrived only if a repeat is stored once, for which every write has a key. `transport`
    is one of httpx, for proxies and certificates of your own.
    """

    timeout: float = 60.0
    retries: int = 4
    connections: int = 64
    max_answer_bytes: int = _MOST_ANSWER_BYTES
    max_download_bytes: int = _MOST_DOWNLOAD_BYTES
    transport: Any = None


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where a server is, and as whom it is asked; its text shows no key."""

    url: str
    key: str
    user_id: str | None
    options: Remote

    def __repr__(self) -> str:
        return f"Address(url={self.url!r}, user_id={self.user_id!r}, …)"

    @classmethod
    def of(cls, url: str, key: str | None, user_id: str | None, options: Remote) -> Address:
        """What was given, checked; the key is PAGEFILE_API_KEY where none is given.

        Raises:
            Invalid: something cannot be used.
        """
        if key is None:
            key = Settings.from_environment().api_key
        require_seconds(options.timeout)
        if options.timeout == 0:
            raise Invalid("timeout", "0 seconds", "give the server some time")
        require_count(options.retries, "retries", 0, _MOST_RETRIES)
        require_count(options.connections, "connections", 1, 10_000)
        require_count(options.max_answer_bytes, "max_answer_bytes", 1)
        require_count(options.max_download_bytes, "max_download_bytes", 1)
        if user_id is not None:
            _USERS.check_text("user", user_id)
        return cls(
            url=_checked(url), key=require_header("key", key), user_id=user_id, options=options
        )

    def opened_with(self, library: Any) -> dict[str, Any]:
        """How a client of httpx is opened: connections are kept, no proxy of the environment."""
        options = self.options
        headers = {"accept": "application/json", "user-agent": "pagefile-client"}
        if self.key:
            headers["authorization"] = f"Bearer {self.key}"
        return {
            "base_url": self.url,
            "headers": headers,
            "timeout": library.Timeout(
                options.timeout, connect=min(options.timeout, _CONNECT_SECONDS)
            ),
            "limits": library.Limits(
                max_connections=options.connections, max_keepalive_connections=options.connections
            ),
            "transport": options.transport,
            "trust_env": False,
            "follow_redirects": False,
        }


def _checked(url: str) -> str:
    rule = "give http://host:port or https://host, without a password"
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  A number that no port has shows when it is asked for.
    except ValueError as error:
        raise Invalid("url", f"{shown(url)} is not an address ({error})", rule) from None
    if parts.username is not None or parts.password is not None:
        raise Invalid("url", "has a password in it", rule)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise Invalid("url", f"{shown(url)} is not an address", rule)
    return url.rstrip("/")


def _httpx() -> Any:
    try:
        return importlib.import_module("httpx")
    except ImportError as error:
        raise Unavailable("httpx is not installed", "pip install 'pagefile[client]'") from error


# What a talk says


class Exchange(msgspec.Struct, frozen=True):
    """One request of a talk. The answer is a value of that shape, or None for a download."""

    ask: Ask
    shape: Any = None
    #: A file that is sent in pieces.
    content: Any = None
    #: A file that is written as it comes.
    target: Any = None

    @property
    def repeats(self) -> bool:
        """Whether its file can be gone through a second time."""
        content, target = self.content, self.target
        return (content is None or isinstance(content, (bytes, str, os.PathLike))) and (
            target is None or isinstance(target, (str, os.PathLike))
        )


#: Yields exchanges, and pauses, and is given the answers; returns the value.
Talk: TypeAlias = Generator[Exchange | Wait, Any, Value]
#: One page of a listing behind a place in it: the items, and the next place; None is the end.
Turn: TypeAlias = Callable[[Any], Talk[tuple[list[Any], Any]]]


def answered(ask: Ask, shape: type[Value], content: Any = None) -> Talk[Value]:
    """One request of a talk, and its answer as a value of that shape."""
    value: Value = yield Exchange(ask, shape, content)
    return value


class _Walk:
    """A talk on its way: what it says next, given what came of what it said last."""

    def __init__(self, talk: Talk[Any]) -> None:
        self._talk = talk
        self._outcome: Any = None
        self._error: PagefileError | None = None

    def step(self) -> Exchange | Wait:
        """The next one; StopIteration has the value at the end."""
        error, self._error = self._error, None
        outcome, self._outcome = self._outcome, None
        return self._talk.send(outcome) if error is None else self._talk.throw(error)

    def came(self, outcome: Any) -> None:
        self._outcome = outcome

    def failed(self, error: PagefileError) -> None:
        self._error = error


# Answers


_decoders: dict[Any, Callable[[bytes], Any]] = {}


def decoded(body: bytes, shape: Any) -> Any:
    """An answer as a value of that shape.

    Raises:
        Unsupported: it has another shape.
    """
    if shape is bytes:
        return body
    decode = _decoders.get(shape)
    if decode is None:
        decode = _decoders[shape] = json_decoder(shape).decode
    try:
        return decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unsupported(
            f"the answer is not as expected ({error})",
            "check the address, and that client and server are of one version",
        ) from None


class _Gathering:
    """The pieces of one answer, held to a size and a time."""

    def __init__(self, options: Remote) -> None:
        self._most = options.max_answer_bytes
        self._until = time.monotonic() + options.timeout
        self._pieces: list[bytes] = []
        self._size = 0

    def add(self, piece: bytes) -> None:
        """Keep a piece.

        Raises:
            LimitExceeded: it would be too much. TimeoutError: it took too long.
        """
        self._size += len(piece)
        _require_size(self._size, self._most)
        if time.monotonic() > self._until:
            raise TimeoutError("the answer took too long")
        self._pieces.append(piece)

    def reply(self, response: Any) -> Reply:
        return Reply(response.status_code, dict(response.headers), b"".join(self._pieces))


def _require_size(size: int, most: int) -> None:
    if size > most:
        raise LimitExceeded(
            "an answer",
            limit=most,
            wanted=size,
            next_step="ask for less, or open the handle with a larger limit",
        )


@contextmanager
def sink(target: Target) -> Iterator[IO[bytes]]:
    """Where a download is written; a file appears under its name when it is whole."""
    if not isinstance(target, (str, os.PathLike)):
        yield target
        return
    path = Path(target)
    if not path.name or path.is_dir():
        raise Invalid("path", f"{shown(str(path))} is not a file's name", "give another path")
    with contextlib.ExitStack() as held:
        with _in_our_words(path):
            file = held.enter_context(new_file(path, replaces=True))
        yield file


@contextmanager
def _source(upload: Upload) -> Iterator[IO[bytes] | bytes]:
    """What an upload is read from."""
    if not isinstance(upload, (str, os.PathLike)):
        if not isinstance(upload, bytes) and not callable(getattr(upload, "read", None)):
            rule = "give bytes, a path or an open file"
            raise Invalid("path", f"{shown(upload)} cannot be sent", rule)
        yield upload
        return
    with contextlib.ExitStack() as held:
        with _in_our_words(upload):
            file = held.enter_context(open(upload, "rb"))
        yield file


@contextmanager
def _in_our_words(path: str | os.PathLike[str]) -> Iterator[None]:
    """Why a file cannot be opened, as an error of ours."""
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound(f"there is no {shown(os.fspath(path))}", "check the path") from error
    except (OSError, ValueError) as error:
        fact = f"{shown(os.fspath(path))} cannot be opened ({error})"
        raise Invalid("path", fact, "give another path") from error


# Tracing


@contextmanager
def _span(ask: Ask, url: str) -> Iterator[Callable[[int], None]]:
    """A span around a request and all its attempts, where the program traces.

    It is given what says the status of the answer. Nothing in it names anybody: no
    path, no query, and of an error its code alone.
    """
    if not tracing.is_enabled():
        yield lambda status: None
        return
    from opentelemetry.trace import SpanKind

    from pagefile.tracing.spans import OPERATION, PROVIDER, failed

    server = urlsplit(url)
    said: dict[str, Any] = {"http.request.method": ask.method}
    said["server.address"] = server.hostname or ""
    if server.port is not None:
        said["server.port"] = server.port
    if ask.span:
        said |= {OPERATION: ask.span, PROVIDER: "pagefile"}
    with tracing.tracer().start_as_current_span(
        ask.span or ask.method,
        kind=SpanKind.CLIENT,
        attributes=said,
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield lambda status: span.set_attribute("http.response.status_code", status)
        except BaseException as error:
            failed(span, error)
            raise


def _traced(headers: dict[str, str]) -> dict[str, str]:
    """The headers, with `traceparent` when a span is open; nothing is imported for it."""
    if "opentelemetry.trace" not in sys.modules:
        return headers
    propagate: Any = sys.modules.get("opentelemetry.propagate")
    if propagate is None:
        from opentelemetry import propagate
    carried = dict(headers)
    propagate.inject(carried)
    return carried


# Blocking


class Link:
    """Sends requests over connections that are kept; opened by the first of them.

    Threads may share it.
    """

    is_awaited = False

    def __init__(self, address: Address) -> None:
        self.address = address
        self._opening = threading.Lock()
        self._http: Any = None
        self._library = _httpx()

    def close(self) -> None:
        """Give back the connections."""
        with self._opening:
            http, self._http = self._http, None
        if http is not None:
            http.close()

    def run(self, talk: Talk[Value]) -> Value:
        """See a talk through."""
        walk = _Walk(talk)
        while True:
            try:
                step = walk.step()
            except StopIteration as end:
                value: Value = end.value
                return value
            if isinstance(step, Wait):
                time.sleep(step.seconds)
                continue
            try:
                walk.came(self._exchanged(step))
            except PagefileError as error:
                walk.failed(error)

    def each(self, turn: Turn, place: Any = 0) -> Iterator[Any]:
        """All items of a listing, page after page."""
        while place is not None:
            items, place = self.run(turn(place))
            yield from items

    def follow(self, ask: Ask, after: int | None, made: Callable[[bytes], Any]) -> RemoteFollower:
        """Events as they come; a cut stream goes on behind the last event."""
        return RemoteFollower(self, Following(ask, after, self.address.options.retries), made)

    # Inside

    def _exchanged(self, exchange: Exchange) -> Any:
        ask, options = exchange.ask, self.address.options
        plan = course(ask, options.retries, repeatable=exchange.repeats)
        with _span(ask, self.address.url) as answered:
            reply = self._walked(plan, exchange)
            answered(reply.status)
        return None if exchange.shape is None else decoded(reply.body, exchange.shape)

    def _walked(self, plan: Course, exchange: Exchange) -> Reply:
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
                outcome = self._once(exchange)

    def _once(self, exchange: Exchange) -> Reply | Lost:
        ask = exchange.ask
        with contextlib.ExitStack() as held:
            body: Any = ask.body
            if exchange.content is not None:
                source = held.enter_context(_source(exchange.content))
                body = source if isinstance(source, bytes) else _pieces(source)
            try:
                with self._stream(ask, content=body) as response:
                    if exchange.target is None or response.status_code >= 300:
                        return self._gathered(response)
                    self._write(response, exchange.target)
                    return Reply(response.status_code, dict(response.headers), b"")
            except (self._library.TransportError, TimeoutError) as error:
                return lost(self._library, error)

    def _write(self, response: Any, target: Target) -> None:
        size = 0
        with sink(target) as file:
            for piece in response.iter_bytes():
                size += len(piece)
                _require_size(size, self.address.options.max_download_bytes)
                file.write(piece)

    def _gathered(self, response: Any) -> Reply:
        gathering = _Gathering(self.address.options)
        for piece in response.iter_bytes():
            gathering.add(piece)
        return gathering.reply(response)

    def _stream(self, ask: Ask, **more: Any) -> Any:
        headers = _traced(ask.headers)
        return self._opened().stream(
            ask.method, ask.path, params=ask.query, headers=headers, **more
        )

    def _opened(self) -> Any:
        if self._http is None:
            with self._opening:
                if self._http is None:
                    self._http = self._library.Client(**self.address.opened_with(self._library))
        return self._http


def _pieces(content: IO[bytes]) -> Iterator[bytes]:
    """A file in pieces."""
    while piece := content.read(_PIECE_BYTES):
        yield piece


# Awaited


class AsyncLink:
    """`Link`, awaited; of one event loop at a time."""

    is_awaited = True

    def __init__(self, address: Address) -> None:
        self.address = address
        self._http: Any = None
        self._library = _httpx()

    async def close(self) -> None:
        """Give back the connections."""
        http, self._http = self._http, None
        if http is not None:
            await http.aclose()

    async def run(self, talk: Talk[Value]) -> Value:
        """See a talk through."""
        walk = _Walk(talk)
        while True:
            try:
                step = walk.step()
            except StopIteration as end:
                value: Value = end.value
                return value
            if isinstance(step, Wait):
                await asyncio.sleep(step.seconds)
                continue
            try:
                walk.came(await self._exchanged(step))
            except PagefileError as error:
                walk.failed(error)

    async def each(self, turn: Turn, place: Any = 0) -> AsyncIterator[Any]:
        """All items of a listing, page after page."""
        while place is not None:
            items, place = await self.run(turn(place))
            for item in items:
                yield item

    def follow(
        self, ask: Ask, after: int | None, made: Callable[[bytes], Any]
    ) -> AsyncRemoteFollower:
        """Events as they come; a cut stream goes on behind the last event."""
        return AsyncRemoteFollower(self, Following(ask, after, self.address.options.retries), made)

    # Inside

    async def _exchanged(self, exchange: Exchange) -> Any:
        ask, options = exchange.ask, self.address.options
        plan = course(ask, options.retries, repeatable=exchange.repeats)
        with _span(ask, self.address.url) as answered:
            reply = await self._walked(plan, exchange)
            answered(reply.status)
        return None if exchange.shape is None else decoded(reply.body, exchange.shape)

    async def _walked(self, plan: Course, exchange: Exchange) -> Reply:
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
                outcome = await self._once(exchange)

    async def _once(self, exchange: Exchange) -> Reply | Lost:
        ask = exchange.ask
        with contextlib.ExitStack() as held:
            body: Any = ask.body
            if exchange.content is not None:
                source = held.enter_context(_source(exchange.content))
                body = source if isinstance(source, bytes) else _awaited_pieces(source)
            try:
                async with self._stream(ask, content=body) as response:
                    if exchange.target is None or response.status_code >= 300:
                        return await self._gathered(response)
                    await self._write(response, exchange.target)
                    return Reply(response.status_code, dict(response.headers), b"")
            except (self._library.TransportError, TimeoutError) as error:
                return lost(self._library, error)

    async def _write(self, response: Any, target: Target) -> None:
        size = 0
        with sink(target) as file:
            async for piece in response.aiter_bytes():
                size += len(piece)
                _require_size(size, self.address.options.max_download_bytes)
                await asyncio.to_thread(file.write, piece)

    async def _gathered(self, response: Any) -> Reply:
        gathering = _Gathering(self.address.options)
        async for piece in response.aiter_bytes():
            gathering.add(piece)
        return gathering.reply(response)

    def _stream(self, ask: Ask, **more: Any) -> Any:
        headers = _traced(ask.headers)
        return self._opened().stream(
            ask.method, ask.path, params=ask.query, headers=headers, **more
        )

    def _opened(self) -> Any:
        if self._http is None:
            self._http = self._library.AsyncClient(**self.address.opened_with(self._library))
        return self._http


async def _awaited_pieces(content: IO[bytes]) -> AsyncIterator[bytes]:
    """A file in pieces, read without blocking the loop."""
    while piece := await asyncio.to_thread(content.read, _PIECE_BYTES):
        yield piece
