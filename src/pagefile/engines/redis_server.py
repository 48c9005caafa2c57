"""The connections to one Redis or Valkey server: commands out, answers or typed errors back.

The client library's connections are used directly, not its commands: those send a
command again by themselves when a connection breaks, and here it must be known
whether a commit may have been sent.
"""

from __future__ import annotations

import functools
import hashlib
import os
import threading
from collections.abc import Sequence
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import msgspec
import redis
from redis.exceptions import ConnectionError as Broken
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as TimedOut

from pagefile.engines.redis_errors import ANSWERS, lost, refused
from pagefile.errors import Forbidden, Invalid, PagefileError, shown

Command = tuple[Any, ...]

_CONNECT_SECONDS = 5.0
_IDLE_CONNECTIONS = 16
_SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss"}
_FAILURES = (Broken, TimedOut, OSError)


class Address(msgspec.Struct, frozen=True):
    """What a URL says. It is never shown: it may hold a password."""

    url: str
    #: The server without credentials, for messages.
    where: str
    prefix: str
    #: Wait after each commit until the server's own append-only file has it on disk.
    waitaof: bool
    #: Wait after each commit for this many replicas.
    replicas: int

    def __repr__(self) -> str:
        return f"<Address of {self.where}>"


def address_of(url: str) -> Address:
    """The parts of a `redis://`, `rediss://`, `valkey://` or `valkeys://` URL.

    Raises:
        Invalid: a part is not usable.
    """
    parts = urlsplit(url)
    try:
        port = parts.port or 6379
    except ValueError:
        raise _unfit("the port is no number", "write redis://host:port/0") from None
    host = parts.hostname or "localhost"
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    prefix = options.pop("prefix", "pagefile")
    if not prefix:
        raise _unfit("the prefix is empty", "leave it out, or give at least one character")
    waitaof, replicas = options.pop("waitaof", "0"), options.pop("replicas", "0")
    if waitaof not in ("0", "1"):
        raise _unfit(f"waitaof is {shown(waitaof)}", "give waitaof=0 or waitaof=1")
    if not replicas.isdecimal() or len(replicas) > 4:
        raise _unfit(f"replicas is {shown(replicas)}", "give a whole number")
    database = unquote(parts.path).removeprefix("/") or "0"
    if not database.isdecimal():
        raise _unfit(f"the database is {shown(database)}", "give its number, as in /0")
    plain = urlunsplit(
        (_SCHEMES[parts.scheme], parts.netloc, f"/{database}", urlencode(options), "")
    )
    where = f"{parts.scheme}://{host}:{port}/{database}"
    return Address(plain, where, prefix, waitaof == "1", int(replicas))


def _unfit(fact: str, rule: str) -> Invalid:
    return Invalid("url", fact, rule)


@functools.cache
def script(name: str) -> tuple[bytes, str]:
    """A script from its file: its text, and the digest by which the server knows it."""
    if name == "release":
        # What lets content go must run on a full server too, and is otherwise the same.
        text = script("commit")[0].replace(b"#!lua\n", b"#!lua flags=allow-oom\n", 1)
    elif name == "append":
        start, rest = script("commit")[0].split(b"-- The commands.\n")
        text = start + _text(name) + rest[rest.index(b"-- The head") :]
    else:
        text = _text(name)
    # What Redis names it by; nothing secret is digested.
    return text, hashlib.sha1(text, usedforsecurity=False).hexdigest()


def _text(name: str) -> bytes:
    return (files(__package__) / "lua" / f"{name}.lua").read_bytes()


class NotSent(Exception):
    """There was no connection, so nothing was sent."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Server:
    """Connections that are made when needed and kept for the next caller."""

    def __init__(self, address: Address, answer_seconds: float) -> None:
        self.where = address.where
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._idle: list[Any] = []
        self._blocked: set[Any] = set()
        self.closed = False
        #: Grows whenever a connection broke: the server may have been started anew.
        self.breaks = 0
        try:
            self._pool = redis.ConnectionPool.from_url(
                address.url,
                protocol=2,
                socket_connect_timeout=_CONNECT_SECONDS,
                socket_timeout=answer_seconds,
                health_check_interval=0,
            )
            # Made and thrown away: what it does not know shows now.
            self._pool.make_connection()
        except (TypeError, ValueError):
            # Its words may repeat the URL, so they are not passed on.
            raise _unfit("an option is unknown or unfit", "see docs/howto/redis.md") from None

    def require_usable(self) -> None:
        """Refuse a handle that was closed, or belongs to the parent process."""
        if os.getpid() != self._pid:
            raise Forbidden(
                f"{self.where} was opened in process {self._pid}, not in its child",
                "open it again in the child",
            )
        if self.closed:
            raise Forbidden(f"{self.where} is closed on this handle", "call pagefile.open again")

    def _take(self) -> Any:
        """A connection that stands.

        Raises:
            NotSent: there is none to be had.
        """
        self.require_usable()
        with self._lock:
            if self._idle:
                return self._idle.pop()
        connection: Any = self._pool.make_connection()
        try:
            connection.connect()
        except _FAILURES as error:
            raise NotSent(error) from error
        return connection

    def _give_back(self, connection: Any, *, whole: bool) -> None:
        with self._lock:
            kept = whole and not self.closed and len(self._idle) < _IDLE_CONNECTIONS
            if kept:
                self._idle.append(connection)
        if not kept:
            # Whatever it was: an answer may still come, and must not pass for another's.
            connection.disconnect()

    def exchange(self, commands: Sequence[Command]) -> list[Any]:
        """Send all, then read all answers; an answer that is an error is among them.

        Raises:
            NotSent: there is no connection.
            redis.exceptions.ConnectionError, TimeoutError, OSError: no answer came.
        """
        connection = self._take()
        whole = False
        try:
            answers = self._exchange(connection, commands)
            whole = True
        finally:
            self._give_back(connection, whole=whole)
        return answers

    def _exchange(self, connection: Any, commands: Sequence[Command]) -> list[Any]:
        parts: list[bytes] = []
        for command in commands:
            _pack(command, parts)
        try:
            connection.send_packed_command([b"".join(parts)], check_health=False)
            return [_answer(connection) for _ in commands]
        except _FAILURES:
            self.breaks += 1
            raise

    def ask(self, *commands: Command) -> list[Any]:
        """Answers to commands that only read, sent once more when the connection was stale.

        Raises:
            Unavailable: the server does not answer.
        """
        try:
            try:
                answers = self.exchange(commands)
            except _FAILURES:
                self._drop_idle()
                answers = self.exchange(commands)
        except NotSent as error:
            raise lost(error.reason, self.where) from error.reason
        except _FAILURES as error:
            raise lost(error, self.where) from error
        except RedisError as error:
            raise refused(error, self.where) from error
        for answer in answers:
            if isinstance(answer, RedisError):
                raise refused(answer, self.where) from answer
        return answers

    def ask_one(self, *command: Any) -> Any:
        """The answer to one command that only reads."""
        return self.ask(command)[0]

    def run(self, name: str, keys: Sequence[bytes], arguments: Sequence[Any]) -> Any:
        """The answer of a script that only reads, or may run twice without harm."""
        text, digest = script(name)
        command = ("EVALSHA", digest, len(keys), *keys, *arguments)
        try:
            return self.ask(command)[0]
        except PagefileError as error:
            if not isinstance(error.__cause__, NoScriptError):
                raise
        return self.ask(("EVAL", text, *command[2:]))[0]

    def send(self, commands: Sequence[Command], then: Sequence[Command] = ()) -> list[Any]:
        """Answers to commits, each sent once; a script that the server lacks is sent in full.

        `then` comes after them, on the same connection.

        Raises:
            Unavailable: no answer came, and the outcome is unknown.
            Forbidden: the credentials are refused.
        """
        try:
            answers = self.exchange([*commands, *then])
            missing = [at for at, a in enumerate(answers) if isinstance(a, NoScriptError)]
            if missing:
                again = self.exchange([*(_in_full(commands[at]) for at in missing), *then])
                last = range(len(commands), len(answers))
                for at, answer in zip((*missing, *last), again, strict=True):
                    answers[at] = answer
        except NotSent as error:
            raise lost(error.reason, self.where) from error.reason
        except _FAILURES as error:
            raise lost(error, self.where, committing=True) from error
        except RedisError as error:
            raise refused(error, self.where) from error
        return answers

    def block(self, *command: Any) -> Any:
        """The answer to a command that waits; `close` ends the wait.

        Raises:
            Unavailable: the server does not answer. Forbidden: the handle was closed.
        """
        try:
            connection, whole = self._take(), False
            with self._lock:
                self._blocked.add(connection)
            try:
                answer = self._exchange(connection, (command,))[0]
                whole = True
            finally:
                with self._lock:
                    self._blocked.discard(connection)
                self._give_back(connection, whole=whole)
        except NotSent as error:
            raise lost(error.reason, self.where) from error.reason
        except (*_FAILURES, ValueError, AttributeError) as error:
            # A connection that is taken away while it is read fails in many ways.
            self.require_usable()
            if isinstance(error, (ValueError, AttributeError)):
                raise
            raise lost(error, self.where) from error
        if isinstance(answer, RedisError):
            raise refused(answer, self.where) from answer
        return answer

    def _drop_idle(self) -> None:
        with self._lock:
            stale, self._idle = self._idle, []
        for connection in stale:
            connection.disconnect()

    def close(self) -> None:
        """End all connections, and the waits on them."""
        if os.getpid() != self._pid:
            return  # The sockets are the parent's.
        with self._lock:
            self.closed = True
            blocked = list(self._blocked)
        for connection in blocked:
            connection.disconnect()
        self._drop_idle()


class Ready:
    """The last parts of a command, as they go over the wire."""

    __slots__ = ("count", "raw")

    def __init__(self, raw: bytes, count: int) -> None:
        self.raw = raw
        self.count = count


def packed(parts: Sequence[Any]) -> bytes:
    """Parts of a command as they go over the wire."""
    found = bytearray()
    for part in parts:
        if type(part) is not bytes:
            part = part.encode() if type(part) is str else b"%d" % part
        found += b"$%d\r\n%b\r\n" % (len(part), part)
    return bytes(found)


def _pack(command: Command, parts: list[bytes]) -> None:
    """A command as it goes over the wire; the client's own packing takes three times as long."""
    last = command[-1]
    if type(last) is Ready:
        parts += (
            b"*%d\r\n" % (len(command) - 1 + last.count),
            packed(command[:-1]),
            last.raw,
        )
    else:
        parts += (b"*%d\r\n" % len(command), packed(command))


def _answer(connection: Any) -> Any:
    try:
        return connection.read_response()
    except (ResponseError, *ANSWERS) as error:
        return error


def _in_full(command: Command) -> Command:
    """The same script by its text instead of its digest."""
    for name in ("append", "commit", "release"):
        text, digest = script(name)
        if command[1] == digest:
            return ("EVAL", text, *command[2:])
    return command
