"""A client's connections to a manager: questions out, answers or typed errors back.

A connection carries one question at a time and is kept for the next caller. One
that breaks is replaced, and its question asked once more: every question may be
asked twice, also a commit, which the manager knows by its number.
"""

from __future__ import annotations

import hmac
import os
import socket
import threading
import weakref

import msgspec

from pagefile.engines.manager import protocol as wire
from pagefile.engines.manager.protocol import (
    CLIENT_BYTES,
    NONCE_BYTES,
    Address,
    client_digest,
    error_of,
    lost,
    not_reached,
    server_digest,
    started_anew,
)
from pagefile.errors import Forbidden, PagefileError, Unavailable

_CONNECT_SECONDS = 5.0
_IDLE_CONNECTIONS = 16
_READ_BYTES = 64 * 1024
#: An answer holds at most one record more than a question can.
_SPARE_BYTES = 64 * 1024 * 1024


class _NotSent(Exception):
    """There was no connection, so nothing was sent."""

    def __init__(self, error: PagefileError) -> None:
        super().__init__(str(error))
        self.error = error


class Link:
    """Connections to one manager, for one engine."""

    def __init__(self, address: Address, answer_seconds: float) -> None:
        self._address = address
        self.where = address.where
        self._answer_seconds = answer_seconds
        self._client = os.urandom(CLIENT_BYTES)
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._idle: list[socket.socket] = []
        self._waiting: set[socket.socket] = set()
        self._instance = b""
        self._is_anew = False
        self._closed = False
        #: What the manager takes in one frame.
        self.most_bytes = 0
        # A handle may be dropped without closing.
        weakref.finalize(self, _close_all, self._idle)
        self._give_back(self._first_connection())

    def _first_connection(self) -> socket.socket:
        try:
            return self._connect()
        except _NotSent as failure:
            raise failure.error from failure.error.__cause__

    def require_usable(self) -> None:
        """Refuse a handle that was closed, or belongs to the parent process."""
        if os.getpid() != self._pid:
            raise Forbidden(
                f"{self.where} was joined in process {self._pid}, not in its child",
                "open it again in the child",
            )
        if self._closed:
            raise Forbidden(f"{self.where} is closed on this handle", "call pagefile.open again")

    # Asking

    def ask(self, request: bytes, *, committing: bool = False) -> memoryview:
        """The answer to a question.

        Raises:
            Unavailable: there is no answer; for a commit, `outcome` says what that means.
            PagefileError: the manager refuses.
        """
        return self._ask(request, self._answer_seconds, committing=committing, waits=False)

    def wait(self, request: bytes, seconds: float) -> memoryview:
        """The answer to a question that may take so long; `close` ends it."""
        return self._ask(request, self._answer_seconds + seconds, committing=False, waits=True)

    def _ask(self, request: bytes, seconds: float, *, committing: bool, waits: bool) -> memoryview:
        sent = False
        failure: Exception = ConnectionResetError()
        for attempt in (1, 2):
            try:
                sock = self._take(fresh=attempt > 1)
            except _NotSent as refused:
                # Of a manager that was started anew it is known: nothing is stored there.
                if sent and not self._is_anew:
                    raise lost(self.where, failure, committing=committing) from failure
                raise refused.error from refused.error.__cause__
            try:
                sent = True
                answer = self._exchange(sock, request, seconds, waits=waits)
            except TimeoutError as error:
                self._require_open_again()
                raise lost(self.where, error, committing=committing) from error
            except OSError as error:
                self._require_open_again()
                failure = error
            else:
                if answer[:1] == wire.GOOD:
                    return answer[1:]
                raise error_of(wire.decode_refusal(answer[1:]))
        raise lost(self.where, failure, committing=committing) from failure

    def _require_open_again(self) -> None:
        if self._closed:
            self.require_usable()

    def _exchange(
        self, sock: socket.socket, request: bytes, seconds: float, *, waits: bool
    ) -> memoryview:
        whole = False
        if waits:
            with self._lock:
                self._waiting.add(sock)
                if self._closed:
                    sock.close()
        try:
            if sock.gettimeout() != seconds:
                sock.settimeout(seconds)
            sock.sendall(wire.framed(request))
            answer = _receive(sock, self.most_bytes + _SPARE_BYTES)
            whole = True
        finally:
            if waits:
                with self._lock:
                    self._waiting.discard(sock)
            # A socket with half an answer in it must not serve another.
            self._give_back(sock, whole=whole)
        return answer

    # Connections

    def _take(self, *, fresh: bool) -> socket.socket:
        """A connection on which the key is proved.

        Raises:
            _NotSent: there is none to be had.
        """
        self.require_usable()
        if fresh:
            # What broke one has probably broken them all.
            self._drop_idle()
        with self._lock:
            if self._idle:
                return self._idle.pop()
        return self._connect()

    def _give_back(self, sock: socket.socket, *, whole: bool = True) -> None:
        with self._lock:
            kept = whole and not self._closed and len(self._idle) < _IDLE_CONNECTIONS
            if kept:
                self._idle.append(sock)
        if not kept:
            sock.close()

    def _connect(self) -> socket.socket:
        place = self._address.host, self._address.port
        try:
            sock = socket.create_connection(place, timeout=_CONNECT_SECONDS)
        except (OSError, UnicodeError) as error:
            raise _not_sent(not_reached(self.where, error), error) from error
        proved = False
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            self._greet(sock)
            proved = True
        except OSError as error:
            raise _not_sent(not_reached(self.where, error), error) from error
        except msgspec.MsgspecError as error:
            raise _not_sent(self._stranger(), error) from error
        except PagefileError as error:
            raise _not_sent(error, None) from error
        finally:
            if not proved:
                sock.close()
        return sock

    def _greet(self, sock: socket.socket) -> None:
        """Prove the key, and have the manager prove that it knows it too."""
        key = self._address.authkey
        hello = wire.decode_hello(self._greeting(sock))
        if hello.magic != wire.MAGIC or len(hello.nonce) != NONCE_BYTES:
            raise self._stranger()
        if hello.version != wire.VERSION:
            raise Unavailable(
                f"{self.where} speaks version {hello.version}, not {wire.VERSION}",
                "use the same version of Pagefile on both sides",
            )
        nonce = os.urandom(NONCE_BYTES)
        space = self._address.space
        digest = client_digest(key, hello, nonce, self._client, space)
        proof = wire.Proof(nonce, self._client, space, digest)
        sock.sendall(wire.framed(wire.encode(proof)))
        answer = wire.decode_bytes(self._greeting(sock))
        if not hmac.compare_digest(answer, server_digest(key, hello, nonce)):
            raise Forbidden(
                f"who listens at {self.where} does not know the key", "check host and port"
            )
        with self._lock:
            if not self._instance:
                self._instance, self.most_bytes = hello.instance, hello.most_bytes
            self._is_anew = self._instance != hello.instance
        if self._is_anew:
            raise started_anew(self.where)

    def _greeting(self, sock: socket.socket) -> memoryview:
        try:
            answer = _receive(sock, wire.MOST_GREETING_BYTES)
        except _TooLong:
            raise self._stranger() from None
        if answer[:1] == wire.GOOD:
            return answer[1:]
        error = error_of(wire.decode_refusal(answer[1:]))
        if isinstance(error, Forbidden):
            raise Forbidden(
                f"{self.where} refuses the key",
                "give the one it was started with: manager://:key@host:port,"
                " or PAGEFILE_MANAGER_AUTHKEY",
            )
        raise error

    def _stranger(self) -> Unavailable:
        return Unavailable(f"who listens at {self.where} is no manager", "check host and port")

    def _drop_idle(self) -> None:
        with self._lock:
            _close_all(self._idle)

    def close(self) -> None:
        """End all connections, and the waits on them."""
        if os.getpid() != self._pid:
            return  # The sockets are the parent's.
        with self._lock:
            self._closed = True
            for sock in self._waiting:
                # Closing alone does not wake a thread that reads.
                _shut(sock)
        self._drop_idle()


class _TooLong(ConnectionError):
    """A frame that nobody on the other side would send."""


def _not_sent(error: PagefileError, cause: Exception | None) -> _NotSent:
    error.__cause__ = cause
    return _NotSent(error)


def _receive(sock: socket.socket, most_bytes: int) -> memoryview:
    """The next frame."""
    came = sock.recv(_READ_BYTES)
    frame = bytearray(came)
    while came and len(frame) < wire.HEADER_BYTES:
        came = sock.recv(_READ_BYTES)
        frame += came
    if not came:
        raise ConnectionResetError("it closed the connection")
    size = wire.HEADER.unpack_from(frame)[0]
    if size > most_bytes:
        raise _TooLong(f"it announced {size} bytes")
    end, filled = wire.HEADER_BYTES + size, len(frame)
    if filled < end:
        frame.extend(bytes(end - filled))
        with memoryview(frame) as view:
            while filled < end:
                count = sock.recv_into(view[filled:])
                if not count:
                    raise ConnectionResetError("it closed the connection")
                filled += count
    return memoryview(frame)[wire.HEADER_BYTES : end]


def _close_all(socks: list[socket.socket]) -> None:
    while socks:
        socks.pop().close()


def _shut(sock: socket.socket) -> None:
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
