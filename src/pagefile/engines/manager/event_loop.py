"""The loop of a manager: many connections, one thread, a bound on everything."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from pagefile.engines.manager import protocol as wire
from pagefile.engines.manager.protocol import (
    CLIENT_BYTES,
    HEADER,
    HEADER_BYTES,
    NONCE_BYTES,
    Hello,
    is_proved,
    refusal_of,
    server_digest,
)
from pagefile.engines.manager.service import Host
from pagefile.errors import Forbidden, Invalid, LimitExceeded, PagefileError, Unavailable

_LEAST_READ, _MOST_READ = 64 * 1024, 1024 * 1024


class Greeting(msgspec.Struct, frozen=True):
    """What a client that has not proved the key yet was told."""

    hello: Hello


class Connection:
    """A socket that never blocks, at most one frame in and one frame out."""

    __slots__ = (
        "_inbox",
        "client",
        "greeting",
        "host",
        "is_ending",
        "is_pending",
        "outbox",
        "sock",
        "turn",
        "waits_for",
    )

    host: Host

    def __init__(self, sock: socket.socket, greeting: Greeting) -> None:
        self.sock = sock
        #: Until the key is proved.
        self.greeting: Greeting | None = greeting
        self.client = b""
        self._inbox = bytearray()
        self.outbox = memoryview(b"")
        #: Whether the rest of an answer waits for room.
        self.is_pending = False
        #: Whether it closes when its last answer is out.
        self.is_ending = False
        self.waits_for: tuple[Host, str] | None = None
        #: Grows whenever what is to happen next changes; old plans are known by it.
        self.turn = 0

    def enter(self, host: Host, client: bytes) -> None:
        """The key is proved."""
        self.greeting, self.host, self.client = None, host, client

    @property
    def is_busy(self) -> bool:
        """Whether its last request is still to be answered."""
        return self.is_pending or self.is_ending or self.waits_for is not None

    @property
    def is_in_frame(self) -> bool:
        return bool(self._inbox)

    @property
    def has_more(self) -> bool:
        """Whether another whole frame is here already."""
        return len(self._inbox) >= HEADER_BYTES and len(self._inbox) >= self._frame_end()

    def receive(self, most_bytes: int) -> bool:
        """Take what came; False when the client is gone.

        Raises:
            LimitExceeded: its frame is longer than it may be. Nothing of that size is kept.
        """
        inbox = self._inbox
        wanted = _LEAST_READ
        if len(inbox) >= HEADER_BYTES:
            wanted = min(max(self._frame_end() - len(inbox), _LEAST_READ), _MOST_READ)
        came = self.sock.recv(wanted)
        if not came:
            return False
        inbox += came
        if len(inbox) >= HEADER_BYTES:
            size = self._frame_end() - HEADER_BYTES
            # More than a frame may come while one is answered, but not without end.
            held = len(inbox) - HEADER_BYTES
            if size > most_bytes or held > most_bytes + _MOST_READ:
                inbox.clear()
                raise LimitExceeded(
                    "the bytes of one frame",
                    limit=most_bytes,
                    wanted=max(size, held),
                    next_step="commit in smaller batches",
                )
        return True

    def take_frame(self) -> bytes | None:
        """The next whole frame."""
        if not self.has_more:
            return None
        end = self._frame_end()
        frame = bytes(memoryview(self._inbox)[HEADER_BYTES:end])
        del self._inbox[:end]
        return frame

    def _frame_end(self) -> int:
        size: int = HEADER.unpack_from(self._inbox)[0]
        return HEADER_BYTES + size

    def flush(self) -> bool:
        """Send what fits; True when all of it is out."""
        while self.outbox:
            try:
                sent = self.sock.send(self.outbox)
            except BlockingIOError:
                return False
            self.outbox = self.outbox[sent:]
        return True


_ACCEPTED_AT_ONCE = 16
#: How long one who is full looks away from those who knock.
_PAUSE_SECONDS = 0.05
#: How many plans that no longer hold are kept before they are swept out.
_MOST_STALE = 1_000


class Bounds(msgspec.Struct, frozen=True):
    """What clients may take of a manager."""

    connections: int = 512
    #: Connections that have not proved the key yet; the oldest leaves for a new one.
    greetings: int = 64
    greeting_seconds: float = 5.0
    #: How long a client may pause in the middle of a frame, its own or one for it.
    stall_seconds: float = 30.0
    frame_bytes: int = 256 * 1024 * 1024
    spaces: int = 1_024


class Loop:
    """Listens, greets, serves, until it is stopped."""

    def __init__(self, listener: socket.socket, authkey: bytes, bounds: Bounds) -> None:
        self._listener = listener
        self._authkey = authkey
        self._bounds = bounds
        self._instance = os.urandom(CLIENT_BYTES)
        self._selector = selectors.DefaultSelector()
        self._hosts: dict[str, Host] = {}
        self._connections: dict[Connection, None] = {}
        self._greeting: dict[Connection, None] = {}
        #: Connections with a request that came along with the one before.
        self._ready: deque[Connection] = deque()
        #: Who waits for a position of a tenant of a store.
        self._waiting: dict[tuple[Host, str], dict[Connection, int]] = {}
        #: When to look at a connection again; what it is no longer due for is passed over.
        self._due: list[tuple[float, int, int, Connection]] = []
        self._numbers = itertools.count()
        self._wake, self._woken = socket.socketpair()
        self._stopping = False
        #: How many requests were answered; for tests and benchmarks.
        self.requests = 0

    def run(
        self, *, ends_with: Callable[[], bool] | None = None, watched: Sequence[int] = ()
    ) -> None:
        """Serve until `stop`, until a `watched` file becomes readable, or `ends_with` says so."""
        listener, selector = self._listener, self._selector
        listener.setblocking(False)
        self._woken.setblocking(False)
        selector.register(listener, selectors.EVENT_READ)
        selector.register(self._woken, selectors.EVENT_READ)
        for file in watched:
            selector.register(file, selectors.EVENT_READ)
        try:
            while not self._stopping:
                for key, events in selector.select(self._patience(ends_with)):
                    if isinstance(key.data, Connection):
                        self._attend(key.data, events)
                    elif key.fileobj is listener:
                        self._accept()
                    else:
                        return
                for _ in range(len(self._ready)):
                    self._serve(self._ready.popleft())
                self._expire()
                if ends_with is not None and ends_with():
                    return
        finally:
            self._close()

    def stop(self) -> None:
        """End `run`; from any thread, or from a signal's handler."""
        self._stopping = True
        with contextlib.suppress(OSError):
            self._wake.send(b"\x00")

    def _patience(self, ends_with: Callable[[], bool] | None) -> float | None:
        if self._ready:
            return 0.0
        most = 1.0 if ends_with is not None else None
        if not self._due:
            return most
        left = max(0.0, self._due[0][0] - time.monotonic())
        return left if most is None else min(left, most)

    def _close(self) -> None:
        for connection in list(self._connections):
            self._drop(connection)
        self._selector.close()
        for one in (self._listener, self._wake, self._woken):
            one.close()

    # Connections

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                sock, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:
                # No descriptor is left, or the client is gone already. Not at full speed.
                time.sleep(_PAUSE_SECONDS)
                return
            self._greet(sock)

    def _greet(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        if sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        hello = wire.Hello(
            wire.MAGIC,
            wire.VERSION,
            os.urandom(NONCE_BYTES),
            self._instance,
            self._bounds.frame_bytes,
        )
        connection = Connection(sock, Greeting(hello))
        self._connections[connection] = None
        self._greeting[connection] = None
        self._selector.register(sock, selectors.EVENT_READ, connection)
        if len(self._connections) > self._bounds.connections:
            most = self._bounds.connections
            full = Unavailable(f"the manager has its {most} connections", "close some, then retry")
            self._refuse(connection, full)
            return
        if len(self._greeting) > self._bounds.greetings:
            self._drop(next(iter(self._greeting)))
        self._watch(connection, self._bounds.greeting_seconds)
        self._send(connection, wire.GOOD + wire.encode(hello))

    def _drop(self, connection: Connection) -> None:
        """Forget a connection. Nothing waits for it, and nothing was held for it."""
        if self._connections.pop(connection, self) is self:
            return
        self._greeting.pop(connection, None)
        self._stop_waiting(connection)
        connection.turn += 1
        with contextlib.suppress(KeyError, ValueError, OSError):
            self._selector.unregister(connection.sock)
        connection.sock.close()

    def _attend(self, connection: Connection, events: int) -> None:
        if connection not in self._connections:
            return  # It was dropped a moment ago, in this very round.
        if events & selectors.EVENT_WRITE:
            self._flush(connection)
        if events & selectors.EVENT_READ and connection in self._connections:
            self._receive(connection)

    def _receive(self, connection: Connection) -> None:
        try:
            alive = connection.receive(self._most_bytes(connection))
        except LimitExceeded as error:
            self._refuse(connection, error)
            return
        except BlockingIOError:
            return
        except OSError:
            alive = False
        if not alive:
            self._drop(connection)
        elif not connection.is_busy:
            self._serve(connection)

    def _most_bytes(self, connection: Connection) -> int:
        if connection.greeting is not None:
            return wire.MOST_GREETING_BYTES
        return self._bounds.frame_bytes

    # Requests

    def _serve(self, connection: Connection) -> None:
        """Answer one request, if a whole one is there."""
        if connection not in self._connections or connection.is_busy:
            return
        frame = connection.take_frame()
        if frame is None:
            if connection.greeting is None:
                stalls = connection.is_in_frame
                self._watch(connection, self._bounds.stall_seconds if stalls else None)
            return
        try:
            if connection.greeting is not None:
                self._examine(connection, connection.greeting, frame)
            else:
                connection.turn += 1  # It came whole, in time.
                self._answer(connection, wire.decode_request(frame))
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            self._refuse(connection, Invalid("frame", "it cannot be read", "speak version 1"))
        except PagefileError as error:
            self._send(connection, _refusal(error))
        except Exception:  # noqa: BLE001 - one client's trouble must not end the others' store
            self._report()
            failed = Unavailable(
                "the manager met an unexpected error", "look at its log", outcome="unknown"
            )
            self._refuse(connection, failed)

    def _examine(self, connection: Connection, greeting: Greeting, frame: bytes) -> None:
        """Let a client in that knows the key."""
        proof = wire.decode_proof(frame)
        if not is_proved(self._authkey, greeting.hello, proof):
            denied = Forbidden(
                "the manager does not know this key", "give the key it was started with"
            )
            self._refuse(connection, denied)
            return
        host = self._hosts.get(proof.space)
        if host is None:
            if len(self._hosts) >= self._bounds.spaces:
                most = self._bounds.spaces
                full = LimitExceeded(
                    "the number of stores in the manager",
                    limit=most,
                    wanted=most + 1,
                    next_step="use one of them",
                )
                self._refuse(connection, full)
                return
            host = self._hosts[proof.space] = Host()
        del self._greeting[connection]
        connection.enter(host, proof.client)
        self._watch(connection, None)
        digest = server_digest(self._authkey, greeting.hello, proof.nonce)
        self._send(connection, wire.GOOD + wire.encode(digest))

    def _answer(self, connection: Connection, request: wire.Request) -> None:
        self.requests += 1
        host = connection.host
        if isinstance(request, wire.Apply):
            answer, moved = host.apply(connection.client, request)
            self._send(connection, wire.GOOD + answer)
            for tenant in moved:
                self._tell(host, tenant)
        elif isinstance(request, wire.Wait):
            self._wait(connection, request)
        else:
            self._send(connection, wire.GOOD + host.answer(request))

    # Waiting for commits

    def _wait(self, connection: Connection, request: wire.Wait) -> None:
        if connection.host.position(request.tenant) >= request.position:
            self._send(connection, _YES)
            return
        seconds = min(max(request.seconds, 0.0), wire.MOST_WAIT_SECONDS)
        place = connection.host, request.tenant
        connection.waits_for = place
        self._waiting.setdefault(place, {})[connection] = request.position
        self._watch(connection, seconds)

    def _stop_waiting(self, connection: Connection) -> None:
        place, connection.waits_for = connection.waits_for, None
        if place is not None:
            waiting = self._waiting[place]
            del waiting[connection]
            if not waiting:
                del self._waiting[place]

    def _tell(self, host: Host, tenant: str) -> None:
        """Answer those who waited for what was just committed, and nobody else."""
        waiting = self._waiting.get((host, tenant))
        if waiting:
            position = host.position(tenant)
            for connection in [one for one, wanted in waiting.items() if wanted <= position]:
                self._end_wait(connection, _YES)

    def _end_wait(self, connection: Connection, answer: bytes) -> None:
        self._stop_waiting(connection)
        self._watch(connection, None)
        self._send(connection, answer)

    # Answers

    def _refuse(self, connection: Connection, error: PagefileError) -> None:
        """Say why, and end the connection."""
        connection.is_ending = True
        self._send(connection, _refusal(error))

    def _send(self, connection: Connection, payload: bytes) -> None:
        connection.outbox = memoryview(wire.framed(payload))
        self._flush(connection)

    def _flush(self, connection: Connection) -> None:
        was_pending = connection.is_pending
        try:
            done = connection.flush()
        except OSError:
            self._drop(connection)
            return
        if not done:
            self._watch(connection, self._bounds.stall_seconds)
        elif connection.is_ending:
            self._drop(connection)
            return
        if was_pending == done:
            connection.is_pending = not done
            wanted = selectors.EVENT_READ if done else selectors.EVENT_WRITE
            self._selector.modify(connection.sock, wanted, connection)
            if done and connection.greeting is None:
                self._watch(connection, None)
        if done and connection.has_more:
            self._ready.append(connection)

    # Time

    def _watch(self, connection: Connection, seconds: float | None) -> None:
        """Look at the connection again after so long, unless something else is said first."""
        connection.turn += 1
        if seconds is not None:
            if len(self._due) > _MOST_STALE + 4 * len(self._connections):
                self._due = [one for one in self._due if one[2] == one[3].turn]
                heapq.heapify(self._due)
            due = time.monotonic() + seconds
            heapq.heappush(self._due, (due, next(self._numbers), connection.turn, connection))

    def _expire(self) -> None:
        now = time.monotonic()
        while self._due and (self._due[0][0] <= now or self._due[0][2] != self._due[0][3].turn):
            _, _, turn, connection = heapq.heappop(self._due)
            if turn != connection.turn:
                continue
            if connection.waits_for is not None:
                self._end_wait(connection, _NO)
            else:
                self._drop(connection)

    def _report(self) -> None:
        # Imported here: it takes longer to load than all of this package's own modules.
        import logging

        logging.getLogger("pagefile.manager").exception("a request failed")


def _refusal(error: PagefileError) -> bytes:
    return wire.REFUSED + wire.encode(refusal_of(error))


_YES, _NO = wire.GOOD + wire.encode(True), wire.GOOD + wire.encode(False)
