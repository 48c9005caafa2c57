"""Who is let in, and how much they may ask: keys and tokens, rates, sizes, deadlines."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any

from starlette.types import Message, Receive, Send

from pagefile.errors import Unavailable
from pagefile.surfaces.access.identity import RIGHTS, Identity, Right, is_loopback
from pagefile.surfaces.access.keys import KeyStore
from pagefile.surfaces.access.tokens import TokenVerifier
from pagefile.surfaces.http.call import Call
from pagefile.surfaces.http.config import ServerConfig
from pagefile.surfaces.http.openapi import ASSETS_SERVED
from pagefile.surfaces.http.problems import Refused
from pagefile.surfaces.http.table import ASKING

_MOST_BUCKETS = 10_000
_LOOK_SECONDS = 0.5
#: Bodies that are files: larger, and allowed to take longer.


class Rates:
    """A bucket of tokens for each name: `per_second` flow in, twice that may be saved up."""

    def __init__(self, per_second: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._most = max(1.0, 2 * per_second)
        self._clock = clock
        self._buckets: OrderedDict[str, list[float]] = OrderedDict()

    def take(self, name: str) -> None:
        """Take one token.

        Raises:
            Refused: there is none left.
        """
        if not self.has(name, take=True):
            wait = max(1, round(1 / self._per_second))
            raise Refused(
                429, f"more than {self._per_second:g} a second", headers={"retry-after": str(wait)}
            )

    def has(self, name: str, *, take: bool = False) -> bool:
        """Whether there is a token left; with `take` it is taken."""
        if not self._per_second:
            return True
        now = self._clock()
        bucket = self._buckets.get(name)
        if bucket is None:
            if len(self._buckets) >= _MOST_BUCKETS:
                self._buckets.popitem(last=False)
            bucket = self._buckets[name] = [self._most, now]
        else:
            bucket[0] = min(self._most, bucket[0] + (now - bucket[1]) * self._per_second)
            bucket[1] = now
        if bucket[0] < 1:
            return False
        if take:
            bucket[0] -= 1
        return True


class Streams:
    """How many answers without an end are under way."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._open = 0
        #: Set when the process is to end: streams end too, or they would hold it up.
        self.stopping = asyncio.Event()

    def require_room(self) -> None:
        """Refuse when there are as many as there may be.

        Raises:
            Refused: there are.
        """
        if self._open >= self._most:
            raise Refused(503, f"{self._most} streams are open", headers={"retry-after": "10"})

    def enter(self) -> None:
        self._open += 1

    def leave(self) -> None:
        self._open -= 1


class BoundedBody:
    """A request's body that is neither larger nor slower than allowed.

    Until the body is whole, a wait for a part of it ends at the body's deadline; after
    that nothing is bounded, because what is waited for then is that the client goes.
    """

    __slots__ = ("_deadline", "_ends", "_is_whole", "_left", "_most", "_receive", "is_coming")

    def __init__(
        self, receive: Receive, most_bytes: int, deadline: Deadline, seconds: float
    ) -> None:
        self._receive = receive
        self._most = most_bytes
        self._left = most_bytes
        self._deadline = deadline
        self._ends = time.monotonic() + seconds
        self._is_whole = False
        #: Whether a part of it is being waited for, or was when the deadline came.
        self.is_coming = False

    async def __call__(self) -> Message:
        if self._is_whole:
            return await self._receive()
        deadline = self._deadline
        before = deadline.at
        if before is not None:
            deadline.at = min(before, self._ends)
        self.is_coming = True
        message = await self._receive()
        self.is_coming = False
        if deadline.at is not None:
            # An answer that has begun meanwhile has none any more.
            deadline.at = before
        if message["type"] != "http.request":
            self._is_whole = True
            raise Refused(400, "the body ended before it was whole")
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise too_large(self._most)
        self._is_whole = not message.get("more_body", False)
        return message


def too_large(most: int) -> Refused:
    """What is answered to a body of more bytes."""
    return Refused(413, f"the body has more than {most} bytes")


async def whole_body(receive: Receive, most: int) -> bytes:
    """All of a request's body.

    Raises:
        Refused: it is larger than allowed, or the client went away.
    """
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise Refused(400, "the client went away")
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > most:
            raise too_large(most)
        if not message.get("more_body", False):
            return part if not parts else b"".join((*parts, part))
        parts.append(part)


def is_packed(call: Call) -> bool:
    """Whether a body is said to be compressed."""
    return call.heads.get(b"content-encoding", b"identity").strip().lower() != b"identity"


def packed_body() -> Refused:
    """What is answered to one: unpacked, it could be larger than anything that is allowed."""
    told = {"accept-encoding": "identity"}
    return Refused(415, "the body is compressed: send it as it is", headers=told)


def without_body(send: Send) -> Send:
    """Passes on what an answer begins with, and nothing of its body."""

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            await send(message)
        elif not message.get("more_body", False):
            await send({"type": "http.response.body", "body": b""})

    return sending


class Deadline:
    """Ends the block it is entered for when it is over; a context manager.

    `TimeoutError` is raised from the block then, and `is_over` is true.
    """

    __slots__ = ("_deadlines", "_task", "at", "is_over")

    def __init__(self, deadlines: Deadlines, seconds: float) -> None:
        self._deadlines = deadlines
        self.at: float | None = time.monotonic() + seconds
        self.is_over = False
        self._task: asyncio.Task[Any] | None = None

    def set(self, seconds: float | None) -> None:
        """So long from now; None is no limit."""
        self.at = None if seconds is None else time.monotonic() + seconds

    def end(self) -> None:
        """Interrupt the block."""
        self.is_over = True
        if self._task is not None:
            self._task.cancel()

    def __enter__(self) -> Deadline:
        self._task = asyncio.current_task()
        self._deadlines.running.add(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._deadlines.running.discard(self)
        if self.is_over and self._task is not None:
            others = self._task.uncancel()
            if kind is asyncio.CancelledError and not others:
                raise TimeoutError from error


def too_long(seconds: float) -> Unavailable:
    """What is answered when it is not known what becomes of a request."""
    return Unavailable(
        f"it was not done within {seconds:g} seconds",
        "look whether it happened before you send it again",
        outcome="unknown",
    )


class Deadlines:
    """All deadlines of one event loop."""

    def __init__(self) -> None:
        self.running: set[Deadline] = set()
        self._is_looking = False

    def after(self, seconds: float) -> Deadline:
        """A deadline so long from now."""
        if not self._is_looking:
            self._is_looking = True
            asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)
        return Deadline(self, seconds)

    def _look(self) -> None:
        self._is_looking = bool(self.running)
        if not self._is_looking:
            return
        now = time.monotonic()
        for deadline in [each for each in self.running if each.at is not None]:
            if deadline.at is not None and deadline.at <= now and not deadline.is_over:
                deadline.end()
        asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look)


Headers = Iterable[tuple[bytes, bytes]]

#: What answers without a key: it says nothing about anybody's data.
PUBLIC = ASSETS_SERVED | {"/health", "/ready", "/docs", "/redoc", "/openapi.json", "/"}
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_CHALLENGE = {"www-authenticate": 'Bearer realm="pagefile"'}
_MOST_CREDENTIAL = 16_384


def right_for(method: str, path: str) -> Right:
    """The least right that a request needs; a route may ask for more."""
    return "read" if method in _READING or path in ASKING else "write"


class Gate:
    """Tells who a request is from, or refuses it."""

    def __init__(self, config: ServerConfig, keys: KeyStore, tokens: TokenVerifier | None) -> None:
        self._keys = keys
        self._tokens = tokens
        self._fetcher = ThreadPoolExecutor(1, "pagefile-issuer")
        self._fetching: asyncio.Future[None] | None = None
        self._failures = Rates(config.failures_per_second)
        self._local: Identity | None = None
        if config.local:
            self._local = Identity("local", config.tenant, frozenset(RIGHTS))

    def known(self, heads: dict[bytes, bytes], count: int) -> Identity | None:
        """Whose request it is, if the same key was looked up moments ago.

        `count` is how many headers there were: where one came twice, `identify` looks closer.
        """
        given = heads.get(b"authorization")
        if (
            given is None
            or given[:7] != b"Bearer "
            or b"x-api-key" in heads
            or len(heads) != count
            or self._local is not None
        ):
            return None
        return self._keys.remembered(given[7:].decode("latin-1"))

    async def identify(self, headers: Headers, client: str) -> Identity:
        """Whose request it is.

        Raises:
            Refused: nobody's that we know; or too many such from this address.
        """
        if self._local is not None:
            _require_loopback(headers)
            return self._local
        given = _credentials(headers)
        if len(given) != 1 or len(given[0]) > _MOST_CREDENTIAL:
            many = "several keys were sent" if len(given) > 1 else "no key was sent"
            raise self._failed(client, f"{many}: send 'Authorization: Bearer pf_…'")
        # Looked up whatever came from that address before: many may share it, and a wrong key of
        # one must not shut out the others. 256 bits are not guessed, however often it is tried.
        found = await self._look(given[0])
        if found is None:
            raise self._failed(client, "the key is unknown, revoked or expired")
        return found

    async def _look(self, text: str) -> Identity | None:
        if text.startswith("pf_"):
            return await asyncio.to_thread(self._keys.authenticate, text)
        if self._tokens is None:
            return None
        if self._tokens.lacks_keys_for(text):
            await self._fetch_keys(self._tokens, text)
        return await asyncio.to_thread(self._tokens.verify, text)

    async def _fetch_keys(self, tokens: TokenVerifier, text: str) -> None:
        """Wait for the issuer with whoever else does; the threads that others need are not held."""
        if self._fetching is None or self._fetching.done():
            loop = asyncio.get_running_loop()
            self._fetching = loop.run_in_executor(self._fetcher, tokens.fetch_for, text)
            # Everybody who waits may have gone by the time it fails.
            self._fetching.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(self._fetching)

    def _failed(self, client: str, detail: str) -> Refused:
        if not self._failures.has(client, take=True):
            return Refused(429, "too many wrong keys", headers={"retry-after": "1"})
        return Refused(401, detail, headers=dict(_CHALLENGE))


def _credentials(headers: Headers) -> list[str]:
    found = []
    for name, value in headers:
        if name == b"x-api-key":
            found.append(value.decode("latin-1").strip())
        elif name == b"authorization":
            scheme, _, rest = value.decode("latin-1").strip().partition(" ")
            known = scheme.lower() in ("bearer", "token")
            found.append(rest.strip() if known else "")
    return found


def _require_loopback(headers: Headers) -> None:
    """Refuse what a web page elsewhere makes a browser send to a server without keys."""
    for name, value in headers:
        if name == b"host" and not is_loopback(_host_of(value.decode("latin-1"))):
            raise Refused(403, "a local server answers to 127.0.0.1 and localhost alone")
        if name == b"origin":
            _, _, place = value.decode("latin-1").partition("://")
            if not is_loopback(_host_of(place)):
                raise Refused(403, "a local server answers no page from elsewhere")


def _host_of(place: str) -> str:
    """The host in `host:port`; IPv6 addresses stand in brackets."""
    if place.startswith("["):
        return place.partition("]")[0] + "]"
    return place.partition(":")[0]
