"""The connections to one Redis or Valkey server.

The client library's connections are used directly, not its commands: those send a
command again by themselves when a connection breaks, and here it must be known
whether a commit may have been sent.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import redis
from redis.connection import parse_url
from redis.exceptions import BusyLoadingError, NoScriptError, RedisError, ResponseError

from pagefile.engines.redis.connection import (
    FAILURES,
    Address,
    Command,
    Link,
    NotSent,
    in_full,
    pack,
    unfit,
)
from pagefile.engines.redis.errors import ANSWERS, lost, refused
from pagefile.errors import Forbidden

_CONNECT_SECONDS = 5.0
_IDLE_CONNECTIONS = 16
#: Between two questions to a server that loads its data.
_LOADING_PAUSE_SECONDS = 0.05


class Server(Link):
    """Connections that are made when needed and kept for the next caller."""

    def __init__(self, address: Address, answer_seconds: float, patience: float) -> None:
        self.address = address
        self.where = address.where
        #: How many seconds a server that loads its data is waited for.
        self._patience = patience
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._idle: list[Any] = []
        self._waiting: set[Any] = set()
        self.closed = False
        #: Grows whenever a connection broke: the server may have been started anew.
        self.breaks = 0
        self._make = _maker(address, answer_seconds)

    def require_usable(self) -> None:
        if os.getpid() != self._pid:
            raise Forbidden(
                f"{self.where} was opened in process {self._pid}, not in its child",
                "open it again in the child",
            )
        if self.closed:
            raise Forbidden(f"{self.where} is closed on this handle", "call pagefile.open again")

    def node(self) -> Server:
        return self

    def follow(self, error: RedisError) -> bool:
        return False

    def renew(self) -> None:
        with self._lock:
            stale, self._idle = self._idle, []
        for connection in stale:
            connection.disconnect()

    def _take(self) -> Any:
        """A connection that stands, to a server that has loaded its data.

        Raises:
            NotSent: there is none to be had.
        """
        self.require_usable()
        with self._lock:
            if self._idle:
                return self._idle.pop()
        until = time.monotonic() + self._patience
        while True:
            try:
                return self._connect()
            except BusyLoadingError as error:
                if time.monotonic() >= until:
                    raise NotSent(error) from error
            except FAILURES as error:
                raise NotSent(error) from error
            time.sleep(_LOADING_PAUSE_SECONDS)
            self.require_usable()

    def _connect(self) -> Any:
        """A new connection. The server is asked once whether it is loading: a primary loads when
        it starts, so while the connection stands it will not.
        """
        connection = self._make()
        ready = False
        try:
            connection.connect()
            connection.send_command("PING")
            # Loading and refused credentials are raised; a user that may not say PING may go on.
            with suppress(ResponseError):
                connection.read_response()
            ready = True
        finally:
            if not ready:
                connection.disconnect()
        return connection

    def _give_back(self, connection: Any, *, whole: bool) -> None:
        with self._lock:
            self._waiting.discard(connection)
            kept = whole and not self.closed and len(self._idle) < _IDLE_CONNECTIONS
            if kept:
                self._idle.append(connection)
        if not kept:
            # Whatever it was: an answer may still come, and must not pass for another's.
            connection.disconnect()

    def exchange(self, commands: Sequence[Command], *, waits: bool = False) -> list[Any]:
        connection = self._take()
        whole = False
        try:
            if waits:
                with self._lock:
                    self._waiting.add(connection)
            answers = self._exchange(connection, commands)
            whole = True
        finally:
            self._give_back(connection, whole=whole)
        return answers

    def _exchange(self, connection: Any, commands: Sequence[Command]) -> list[Any]:
        parts: list[bytes] = []
        for command in commands:
            pack(command, parts)
        try:
            connection.send_packed_command([b"".join(parts)], check_health=False)
            return [_answer(connection) for _ in commands]
        except FAILURES:
            self.breaks += 1
            raise

    def send(self, commands: Sequence[Command], then: Sequence[Command] = ()) -> list[Any]:
        """Answers to commits, each sent once; a script that the server lacks is sent in full.

        `then` comes after them, on the same connection.

        Raises:
            Unavailable: no answer came, and the outcome is unknown.
            Forbidden: the credentials are refused.
        """
        answers: list[Any] = []
        try:
            answers = self.exchange([*commands, *then])
            missing = [at for at, a in enumerate(answers) if isinstance(a, NoScriptError)]
            if missing:
                again = self.exchange([*(in_full(commands[at]) for at in missing), *then])
                last = range(len(commands), len(answers))
                for at, answer in zip((*missing, *last), again, strict=True):
                    answers[at] = answer
        except NotSent as error:
            # With answers, it was only the scripts in full that were not sent.
            raise lost(error.reason, self.where, committing=bool(answers)) from error.reason
        except FAILURES as error:
            raise lost(error, self.where, committing=True) from error
        except RedisError as error:
            raise refused(error, self.where) from error
        return answers

    def close(self) -> None:
        """End all connections, and the waits on them."""
        if os.getpid() != self._pid:
            return  # The sockets are the parent's.
        with self._lock:
            self.closed = True
            waiting = list(self._waiting)
        for connection in waiting:
            connection.disconnect()
        self.renew()


def _maker(address: Address, answer_seconds: float) -> Callable[[], Any]:
    """Makes connections that belong to who asks for them.

    Not a pool of the client: it counts what it makes, and ends at a hundred for good
    where broken connections are not given back.

    Raises:
        Invalid: the URL has an option that the client does not know.
    """
    defaults = {
        "protocol": 2,
        "socket_connect_timeout": _CONNECT_SECONDS,
        "socket_timeout": answer_seconds,
        "health_check_interval": 0,
    }
    try:
        options: dict[str, Any] = defaults | parse_url(address.url)  # type: ignore[no-untyped-call]
        options.pop("max_connections", None)
        make = partial(options.pop("connection_class", redis.Connection), **options)
        # Made and thrown away: what it does not know shows now.
        make()
    except (TypeError, ValueError, RedisError):
        # Its words may repeat the URL, so they are not passed on.
        raise unfit("an option is unknown or unfit", "see docs/howto/redis.md") from None
    return make


def _answer(connection: Any) -> Any:
    try:
        return connection.read_response()
    except (ResponseError, *ANSWERS) as error:
        return error
