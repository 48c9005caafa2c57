"""Connections to one Redis or Valkey server: its URL, commands and answers, scripts."""

from __future__ import annotations

import functools
import hashlib
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import msgspec
import redis
from redis.connection import parse_url
from redis.exceptions import BusyLoadingError, NoScriptError, RedisError, ResponseError
from redis.exceptions import ConnectionError as Broken
from redis.exceptions import TimeoutError as TimedOut

from pagefile.engines.redis.errors import ANSWERS, lost, refused
from pagefile.errors import Forbidden, Invalid, PagefileError, shown

Command = tuple[Any, ...]


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


def pack(command: Command, parts: list[bytes]) -> None:
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


_SCHEMES = {"redis": "redis", "rediss": "rediss", "valkey": "redis", "valkeys": "rediss"}
_PORT = 6379
_MOST_NODES = 100
_FILES = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")


class Address(msgspec.Struct, frozen=True):
    """What a URL says. It is never shown: it may hold a password."""

    #: As it was given.
    given: str
    #: For the client library.
    url: str
    #: The server without credentials, for messages.
    where: str
    host: str
    port: int
    prefix: str
    #: Wait after each commit until the server's own append-only file has it on disk.
    waitaof: bool
    #: Wait after each commit for this many replicas.
    replicas: int
    #: Whether it is a cluster; None asks the server.
    cluster: bool | None
    #: Further nodes to ask where the first does not answer.
    nodes: tuple[tuple[str, int], ...]

    def __repr__(self) -> str:
        return f"<Address of {self.where}>"

    def at(self, host: str, port: int) -> Address:
        """The same of another server: its credentials and options."""
        parts = urlsplit(self.url)
        who, mark, _ = parts.netloc.rpartition("@")
        there = parts._replace(netloc=f"{who}{mark}{_joined(host, port)}")
        before = f"://{_joined(self.host, self.port)}/"
        where = self.where.replace(before, f"://{_joined(host, port)}/", 1)
        return msgspec.structs.replace(
            self, url=urlunsplit(there), where=where, host=host, port=port
        )


def address_of(url: str) -> Address:
    """The parts of a `redis://`, `rediss://`, `valkey://` or `valkeys://` URL.

    Raises:
        Invalid: a part is not usable.
    """
    parts = urlsplit(url)
    try:
        port = parts.port or _PORT
    except ValueError:
        raise unfit("the port is no number", "write redis://host:port/0") from None
    host = parts.hostname or "localhost"
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    prefix = options.pop("prefix", "pagefile")
    if not prefix:
        raise unfit("the prefix is empty", "leave it out, or give at least one character")
    waitaof, replicas = options.pop("waitaof", "0"), options.pop("replicas", "0")
    if waitaof not in ("0", "1"):
        raise unfit(f"waitaof is {shown(waitaof)}", "give waitaof=0 or waitaof=1")
    if not replicas.isdecimal() or len(replicas) > 4:
        raise unfit(f"replicas is {shown(replicas)}", "give a whole number")
    cluster = options.pop("cluster", "")
    if cluster not in ("", "0", "1"):
        raise unfit(f"cluster is {shown(cluster)}", "give cluster=0 or cluster=1, or leave it out")
    nodes = _nodes(options.pop("nodes", ""))
    database = unquote(parts.path).removeprefix("/") or "0"
    if not database.isdecimal():
        raise unfit(f"the database is {shown(database)}", "give its number, as in /0")
    if _SCHEMES[parts.scheme] == "rediss":
        if options.get("ssl_cert_reqs") != "none":
            # Older clients compare no names unless told to.
            options.setdefault("ssl_check_hostname", "true")
        for name in _FILES:
            if name in options and not os.access(options[name], os.R_OK):
                raise unfit(f"{name} names nothing that can be read", "give the path of a PEM file")
    elif any(name.startswith("ssl_") for name in options):
        raise unfit("it has options for TLS, and asks for none", f"write {parts.scheme}s://…")
    plain = urlunsplit(
        (_SCHEMES[parts.scheme], parts.netloc, f"/{database}", urlencode(options), "")
    )
    return Address(
        given=url,
        url=plain,
        where=f"{parts.scheme}://{_joined(host, port)}/{database}",
        host=host,
        port=port,
        prefix=prefix,
        waitaof=waitaof == "1",
        replicas=int(replicas),
        cluster=None if not cluster else cluster == "1",
        nodes=nodes,
    )


def _nodes(text: str) -> tuple[tuple[str, int], ...]:
    """`host:port,host:port`."""
    found: list[tuple[str, int]] = []
    for one in filter(None, text.split(",")):
        try:
            parts = urlsplit(f"//{one}")
            host, port = parts.hostname, parts.port or _PORT
        except ValueError:
            host, port = None, 0
        if not host or "@" in one or "/" in one or len(found) == _MOST_NODES:
            raise unfit("nodes are no addresses", "write nodes=host:port,host:port")
        found.append((host, port))
    return tuple(found)


def _joined(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def unfit(fact: str, rule: str) -> Invalid:
    """The error for a URL that cannot be used; never with its words, which may hold a password."""
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


def in_full(command: Command) -> Command:
    """The same script by its text instead of its digest."""
    for name in ("append", "commit", "release"):
        text, digest = script(name)
        if command[1] == digest:
            return ("EVAL", text, *command[2:])
    return command


#: What is raised when no answer came.
FAILURES = (Broken, TimedOut, OSError)


class NotSent(Exception):
    """There was no connection, so nothing was sent."""

    def __init__(self, reason: Exception) -> None:
        super().__init__(str(reason))
        self.reason = reason


class Link(ABC):
    """A way to whoever has some keys: one server, or the shard of a cluster that has them now."""

    #: The server without credentials, for messages.
    where: str

    @abstractmethod
    def require_usable(self) -> None:
        """Refuse a handle that was closed, or belongs to the parent process."""

    @abstractmethod
    def node(self) -> Server:
        """The server itself."""

    @abstractmethod
    def renew(self) -> None:
        """A connection broke: let go of what may be stale."""

    @abstractmethod
    def follow(self, error: RedisError) -> bool:
        """Whether a refusal says where, or that later, it would be none; then ask again."""

    @abstractmethod
    def exchange(self, commands: Sequence[Command], *, waits: bool = False) -> list[Any]:
        """Send all, then read all answers; an answer that is an error is among them.

        Commands that wait in the server are ended by closing.

        Raises:
            NotSent: there is no connection.
            redis.exceptions.ConnectionError, TimeoutError, OSError: no answer came.
        """

    def ask(self, *commands: Command) -> list[Any]:
        """Answers to commands that only read, sent once more when the connection was stale.

        Raises:
            Unavailable: the server does not answer.
        """
        try:
            try:
                answers = self.exchange(commands)
            except FAILURES:
                self.renew()
                answers = self.exchange(commands)
        except NotSent as error:
            raise lost(error.reason, self.where) from error.reason
        except FAILURES as error:
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

    def block(self, *command: Any) -> Any:
        """The answer to a command that waits; `close` ends the wait.

        Raises:
            Unavailable: the server does not answer. Forbidden: the handle was closed.
        """
        try:
            answer = self.exchange((command,), waits=True)[0]
        except NotSent as error:
            raise lost(error.reason, self.where) from error.reason
        except (*FAILURES, ValueError, AttributeError) as error:
            # A connection that is taken away while it is read fails in many ways: by `close`,
            # or because a shard's server is another one now.
            self.require_usable()
            gone = error if isinstance(error, FAILURES) else ConnectionError("it was closed")
            raise lost(gone, self.where) from error
        if isinstance(answer, RedisError):
            raise refused(answer, self.where) from answer
        return answer


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
