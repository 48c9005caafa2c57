"""Connections: what is read from them, within which bounds, and the short way of a whole request.

The server program parses requests and runs the application, a task with messages
for each. What is added here: a head has a size and a time, connections have a
number, and a request that came in one piece, for a route that answers in one
piece, is handed to the front and written back without any of that. All others
go the program's own way; both meet the same front.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, cast

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from pagefile.surfaces.http import hot_routes

if TYPE_CHECKING:
    from starlette.types import Message, Scope
    from uvicorn._types import ASGIVersions
    from uvicorn.config import Config
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
    from uvicorn.server import ServerState

#: From when a connection waits for a request until the head of one is whole.
HEAD_SECONDS = 10.0
MOST_HEAD_BYTES = 65_536
#: Beyond so many, connections wait unread until others are closed.
MOST_CONNECTIONS = 2_048
#: With so many requests behind one that is not answered yet, the rest stays as it came: each
#: takes a hundred times its bytes once it is parsed. So much is parsed between two looks.
MOST_PIPELINED = 32
PIECE_BYTES = 16_384
#: A client that reads nothing of its answers for so long is let go.
WRITE_SECONDS = 30.0
_LOOK_SECONDS = 1.0
#: What is heard of a connection whose turn it is not.
_MOST_HEARD_BYTES = 65_536
#: What may stand around a byte of a body that is sent in chunks of one.
_MOST_AROUND_A_BYTE = 16
_CLOSE = (b"connection", b"close")

AtOnce = Callable[["Scope", hot_routes.Route, bytes, "Once"], None]
_ASGI: ASGIVersions = {"version": "3.0", "spec_version": "2.3"}
_NEVER = float("inf")
_UPGRADE = re.compile(rb"\r\nupgrade:", re.IGNORECASE)
_OF_CONNECTIONS = frozenset({b"connection", b"expect", b"upgrade", b"transfer-encoding"})


class Listener:
    """What all connections of a process share. Called for each, as a class would be."""

    def __init__(self) -> None:
        self._open: set[Wire] = set()
        self._without_room: deque[Wire] = deque()
        self._is_looking = False
        #: What the program adds to every head, and the same as bytes: it changes once a second.
        self._added: list[tuple[bytes, bytes]] = []
        self._added_bytes = b""

    def __call__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> Wire:
        return Wire(self, config, server_state, app_state, _loop)

    def added(self, headers: list[tuple[bytes, bytes]]) -> bytes:
        """The headers that the program adds to every answer, as they are written."""
        if headers is not self._added:
            self._added = headers
            self._added_bytes = b"".join(map(b"%b: %b\r\n".__mod__, headers))
        return self._added_bytes

    def enter(self, wire: Wire) -> bool:
        """Whether there is room for one more; if not, it is called when there is."""
        if not self._is_looking:
            self._is_looking = True
            asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)
        if len(self._open) >= MOST_CONNECTIONS:
            self._without_room.append(wire)
            return False
        self._open.add(wire)
        return True

    def leave(self, wire: Wire) -> None:
        """A connection is closed: another may come in."""
        self._open.discard(wire)
        while self._without_room and len(self._open) < MOST_CONNECTIONS:
            waiting = self._without_room.popleft()
            if not waiting.transport.is_closing():
                self._open.add(waiting)
                waiting.come_in()

    def _look(self) -> None:
        """Close those that took too long: one look at all, because a timer for each costs more."""
        loop = asyncio.get_running_loop()
        too_old = loop.time() - HEAD_SECONDS
        too_slow = loop.time() - WRITE_SECONDS
        for wire in [each for each in self._open if each.waits_since < too_old]:
            wire.transport.close()
        for wire in [each for each in self._open if each.unread_since < too_slow]:
            wire.transport.abort()
        self._is_looking = bool(self._open)
        if self._is_looking:
            loop.call_later(_LOOK_SECONDS, self._look)


class Wire(HttpToolsProtocol):
    """One connection."""

    def __init__(
        self,
        listener: Listener,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._listener = listener
        # An application around the front, such as one that traces, must see every request.
        self._at_once: AtOnce | None = getattr(self.app, "at_once", None)
        #: When it began to wait for the head of a request; never, while it does not.
        self.waits_since = _NEVER
        #: Since when a client has not read what was written for it; never, while it does.
        self.unread_since = _NEVER
        #: Whether it is among those that are read, and what came that is not parsed yet.
        self._has_room = False
        self._rest = b""
        #: The request that is being answered; behind it, others may wait.
        self._running: RequestResponseCycle | None = None
        #: Which request is being read, or was last, and how far that has come.
        self._number = 0
        self._is_in_head = False
        self._is_whole = True
        #: The piece that is being read: the request that it began in, its size, and of that how
        #: much is in bodies.
        self._began_in = 0
        self._size = 0
        self._of_body = 0
        #: How much came of one request, piece by piece, that is in no body.
        self._loose = 0
        self._status = 400
        #: Nothing else is read: what came last was no request, or the last one.
        self._is_deaf = False
        #: No header says anything about the connection.
        self._is_plain = True
        #: How often it said whom it is for.
        self._hosts = 0
        #: The request that is being read, while it may still be answered at once.
        self._held: hot_routes.Route | None = None
        self._held_body: list[bytes] = []

    # The connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._has_room = self._listener.enter(self)
        if self._has_room:
            self.waits_since = self.loop.time()
        else:
            # Not here: the transport begins to read after this.
            self.loop.call_soon(self._pause_without_room)

    def _pause_without_room(self) -> None:
        if not self._has_room:
            self.flow.pause_reading()

    def come_in(self) -> None:
        """There is room now."""
        self._has_room = True
        self.waits_since = self.loop.time()
        self.flow.resume_reading()
        self._go_on()

    def added(self) -> bytes:
        """What is added to the head of every answer."""
        return self._listener.added(self.server_state.default_headers)

    def _go_on(self) -> None:
        """Parse what had to wait."""
        rest, self._rest = self._rest, b""
        if rest:
            self.data_received(rest)

    def connection_lost(self, exc: Exception | None) -> None:
        self.waits_since = self.unread_since = _NEVER
        self.pipeline.clear()
        running = self._running
        if running is not None and running is not self.cycle and not running.response_complete:
            # The program tells only the one that came last.
            running.disconnected = True
            running.message_event.set()
        super().connection_lost(exc)
        self._listener.leave(self)

    def eof_received(self) -> bool:  # type: ignore[override]
        """A client may say that it asks for nothing more, and still wait for an answer.

        Not for more of one that has begun: whoever follows a stream and goes away says no more.
        """
        under_way = self._running if self.pipeline else self.cycle
        if (
            under_way is None
            or under_way.response_complete
            or getattr(under_way, "response_started", False)
            or _has_more(self.cycle)
        ):
            return False
        self.cycle.keep_alive = False
        return True

    def pause_writing(self) -> None:
        self.unread_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self.unread_since = _NEVER
        super().resume_writing()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def data_received(self, data: bytes) -> None:
        if self._is_deaf or self.transport.is_closing():
            return
        if not self._has_room or self._rest or self.pipeline:
            self._rest += data
            if len(self._rest) > _MOST_HEARD_BYTES:
                self.flow.pause_reading()
            return
        while len(data) > PIECE_BYTES and not (self._is_deaf or self.transport.is_closing()):
            self._parse(data[:PIECE_BYTES])
            data = data[PIECE_BYTES:]
            if len(self.pipeline) >= MOST_PIPELINED:
                self._rest = data
                break
        else:
            self._parse(data)
        if self.pipeline and len(self._rest) <= _MOST_HEARD_BYTES:
            # Heard on, though not parsed: who does not read never learns that a client has gone.
            self.flow.resume_reading()

    def _parse(self, data: bytes) -> None:
        if self._is_deaf or self.transport.is_closing():
            return
        if self._is_whole and b"pgrade:" in data:
            data = _without_upgrade(data)
        self._began_in, self._size, self._of_body = self._number, len(data), 0
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Nothing else is spoken here: it is answered as it is, and that is all.
            self._is_deaf = True
            if self.cycle is not None:
                self.cycle.keep_alive = False
        except httptools.HttpParserError:
            self._refuse(self._status)
            return
        if self._held is not None:
            self._take_the_long_way()
        if not self._is_whole:
            self._require_measure()

    def _require_measure(self) -> None:
        """Refuse a head that does not end, and what is sent around a body for its own sake."""
        if self._began_in != self._number:
            return  # The first piece; what is before it was another request's.
        credit = 0 if self._is_in_head else _MOST_AROUND_A_BYTE * self._of_body
        self._loose = max(0, self._loose + self._size - credit)
        if self._loose > MOST_HEAD_BYTES:
            self._refuse(431 if self._is_in_head else 400)

    def _refuse(self, status: int) -> None:
        """What is no request is answered with a status alone, and nothing else is read."""
        if self.transport.is_closing():
            return
        if self.cycle is None or self.cycle.response_complete:
            self.transport.write(
                STATUS_LINE[status] + b"content-length: 0\r\nconnection: close\r\n\r\n"
            )
        elif not self.pipeline and not _has_more(self.cycle):
            # What was asked before it is answered, and that is all.
            self._is_deaf = True
            self.cycle.keep_alive = False
            return
        self.transport.close()

    # The keep-alive timer of the program is one for each request: `Listener` looks instead.

    def _unset_keepalive_if_required(self) -> None:
        pass

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self.waits_since = self.loop.time()
        if not self.pipeline:
            self.flow.resume_reading()
            if self._rest:
                # Not here: what is behind may be answered at once, and so on.
                self.loop.call_soon(self._go_on)

    # The parser

    def on_message_begin(self) -> None:
        self.url = b""
        self.headers = []
        self.expect_100_continue = False
        self._is_plain = True
        self._hosts = 0
        self._number += 1
        self._is_in_head, self._is_whole, self._loose = True, False, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_in_head:
            return  # Behind a body: who asks was checked by then.
        name = name.lower()
        if name == b"host":
            self._hosts += 1
        elif name in _OF_CONNECTIONS:
            self._is_plain = False
            self.expect_100_continue |= name == b"expect" and value.lower() == b"100-continue"
            if name == b"transfer-encoding" and value.strip().lower() != b"chunked":
                # Packed as well: it would be taken for what it is not.
                self._status = 501
                raise ValueError("the transfer coding is none that is understood here")
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self.transport.is_closing():
            raise ConnectionAbortedError("the last answer said that it was the last")
        self._is_in_head = False
        if self._size > MOST_HEAD_BYTES or self._began_in == self._number:
            self._require_small_head()
        if self._hosts != 1:
            self._require_one_host()
        self.waits_since = _NEVER
        self._loose = 0
        self.scope = {
            "type": "http",
            "asgi": _ASGI,
            "http_version": "1.1",
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme or "http",
            "root_path": "",
            "headers": self.headers,
            "state": {},
            "method": self.parser.get_method().decode("ascii"),
            "path": "",
            "raw_path": self.url,
            "query_string": b"",
        }
        self._held = self._answered_at_once()
        if self._held is None:
            super().on_headers_complete()
        else:
            self._held_body.clear()

    def _require_one_host(self) -> None:
        """Two hosts are one to us and another to whatever passed the request on."""
        if self._hosts or self.parser.get_http_version() != "1.0":
            raise ValueError("the request says not once whom it is for")

    def _require_small_head(self) -> None:
        size = len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)
        if size > MOST_HEAD_BYTES:
            self._status = 431
            raise ValueError("the head is too large")

    def _answered_at_once(self) -> hot_routes.Route | None:
        """What answers this request, if all that is special about it is that it is asked most."""
        url, parser = self.url, self.parser
        if (
            self._at_once is None
            or url[:1] != b"/"
            or b"%" in url
            or b"?" in url
            or b"#" in url
            or not url.isascii()
            or (self.cycle is not None and not self.cycle.response_complete)
            # Without a header about it, a connection is kept from HTTP/1.1 on.
            or not parser.should_keep_alive()
            or (not self._is_plain and not self._is_usual())
        ):
            return None
        path = self.scope["path"] = url.decode()
        return hot_routes.route_of(self.scope["method"], path, b"")

    def _is_usual(self) -> bool:
        """Whether all that is said about the connection is that it goes on."""
        parser = self.parser
        return not (
            self.expect_100_continue
            or parser.should_upgrade()
            or parser.get_http_version() != "1.1"
        )

    def _take_the_long_way(self) -> None:
        """The rest of the body has yet to come, which the application waits for."""
        self._held = None
        super().on_headers_complete()
        for body in self._held_body:
            super().on_body(body)

    def on_body(self, body: bytes) -> None:
        self._of_body += len(body)
        if self._held is not None:
            self._held_body.append(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_whole = True
        route = self._held
        if route is None:
            super().on_message_complete()
            return
        self._held = None
        assert self._at_once is not None
        once = Once(self)
        self.cycle = cast("RequestResponseCycle", once)
        body = b"".join(self._held_body)
        self._at_once(cast("Scope", self.scope), route, body, once)


def _without_upgrade(data: bytes) -> bytes:
    """A request that offers to speak something else as well, as if it did not."""
    head, mark, rest = data.partition(b"\r\n\r\n")
    return _UPGRADE.sub(rb"\r\nx-not-upgraded:", head) + mark + rest


def _has_more(cycle: RequestResponseCycle) -> bool:
    """Whether a part of the request's body is still to come; one answered at once is whole."""
    return getattr(cycle, "more_body", False)


class Once:
    """A request that is answered at once; to the program it looks like its own cycle."""

    __slots__ = (
        "_is_written",
        "_start",
        "_wire",
        "disconnected",
        "keep_alive",
        "response_complete",
        "task",
    )

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._start: Message | None = None
        self.task: asyncio.Task[None] | None = None
        self._is_written = False
        self.response_complete = False
        self.disconnected = False
        self.keep_alive = True

    @property
    def message_event(self) -> Once:
        return self

    def set(self) -> None:
        """Nobody waits for the end of a connection here."""

    def begin(self, answering: Coroutine[Any, Any, None]) -> None:
        """See the request through, also when its connection ends before."""
        self.task = self._wire.loop.create_task(answering)
        self._wire.tasks.add(self.task)

    async def send(self, message: Message) -> None:
        """The two messages of an answer that is known as a whole."""
        if self._start is None:
            self._start = message
        else:
            start = self._start
            self.whole(start["status"], start["headers"], message.get("body", b""))

    def whole(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Write the answer."""
        if _CLOSE in headers:
            self.keep_alive = False
            headers = [each for each in headers if each != _CLOSE]
        self.write(STATUS_LINE[status] + b"".join(map(b"%b: %b\r\n".__mod__, headers)), body)

    def write(self, head: bytes, body: bytes) -> None:
        """Write an answer whose head lacks nothing but what is added to every one."""
        wire = self._wire
        self._is_written = True
        if self.disconnected or wire.transport.is_closing():
            return
        last = b"" if self.keep_alive else b"connection: close\r\n"
        added = wire.added()
        wire.transport.write(b"%b%b%b\r\n%b" % (head, added, last, body))
        if not wire.flow.write_paused:
            self._finish()

    def _finish(self) -> None:
        wire = self._wire
        self.response_complete = True
        if not self.keep_alive:
            wire.transport.close()
        wire.on_response_complete()

    def end(self) -> None:
        """Whatever became of it, it is over."""
        wire = self._wire
        if self.task is not None:
            wire.tasks.discard(self.task)
        if not self._is_written:
            wire.transport.close()  # It was cancelled: there is no answer.
        elif not self.response_complete and not self.disconnected:
            # The client reads more slowly than it asks: it is heard again when it has caught up.
            self.begin(self._when_read())

    async def _when_read(self) -> None:
        try:
            await self._wire.flow.drain()
            self._finish()
        finally:
            if self.task is not None:
                self._wire.tasks.discard(self.task)
