"""`Idempotency-Key`: a repeated request is answered as the first one was.

The key is claimed in a document before the request runs, and the answer is put
there afterwards, in the partition of the user it is about, so that forgetting
them takes it too; nothing that the request could be guessed from is kept
anywhere else. Once begun, a request is seen through, whoever stops waiting for it.
A claim without an answer, such as a server leaves that dies, is never taken for
one of nothing: a repeat is refused until somebody looked, or a day passed.

Questions do not pass here, for asking again does no harm. Neither does
appending slots: the store itself knows their keys, and a repeat is exact even
when the server died in between.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
import time
from typing import IO, Any, Protocol

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pagefile.aio import AsyncPagefile
from pagefile.errors import Conflict, Invalid, Unavailable
from pagefile.store import clock
from pagefile.store.batch import (
    Absent,
    Batch,
    Condition,
    Delete,
    Operation,
    Prune,
    Put,
    Query,
    VersionIs,
)
from pagefile.store.codec.decoder import convert
from pagefile.store.records import Document
from pagefile.surfaces.access.identity import digest_of
from pagefile.surfaces.http.call import Call
from pagefile.surfaces.http.gate import whole_body
from pagefile.surfaces.http.problems import AsRefused, Problem, Refused
from pagefile.surfaces.http.request import LARGE_BYTES, key_in
from pagefile.surfaces.http.table import EXACT, UNCHANGING, UPLOADS
from pagefile.surfaces.kinds import ONCE

#: What refusals are called, so that nobody has to know their words.
UNDER_WAY, ALREADY_DONE = "under_way", "already_done"
_BY_TIME = "http.once"
_CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_KEPT_HEADERS = frozenset({b"content-type", b"etag", b"location"})
_MOST_BODY = 65_536
_LIFETIME_US = 24 * 3_600 * 1_000_000
_SWEEP_EVERY = 200
_SWEPT_AT_ONCE = 50
#: Requests that are seen through though nobody waits for them: how many, how large, how long.
_MOST_LEFT_ALONE = 1_000
_MOST_BYTES_ALONE = 268_435_456
_MOST_SECONDS_ALONE = 600.0
_PIECE_BYTES = 1_048_576


class _Once(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a key: what it was used for, and the answer when there is one.

    The fingerprint is there with the answer alone, under a salt of its own: they
    go together. Without `has_body` it is one of the address.
    """

    fingerprint: str
    claimed_us: int
    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    body: str | None = None
    salt: str = ""
    has_body: bool = True


class Idempotent:
    """Wraps the routes; requests without a key pass through."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._count = 0
        #: How large the bodies are of requests that nobody waits for.
        self._left_alone: dict[asyncio.Task[None], int] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_kept = (
            scope["type"] == "http" and scope["method"] in _CHANGING and not _passes(scope["path"])
        )
        key = key_in(scope) if is_kept else None
        call: Call | None = scope.get("pagefile")
        if key is None or call is None or call.pf is None:
            await self._app(scope, receive, send)
            return
        assert call.identity is not None
        document = ONCE + digest_of(call.identity.principal, key)
        body = _Body(Spool() if scope["path"] in UPLOADS else None)
        try:
            await body.fill(receive, call.config.max_body_bytes)
            found = await call.pf.store.get(document)
            response = None if found is None else _repeated(found, scope, body, call)
        except BaseException:
            body.close()
            raise
        if response is not None:
            body.close()
            await response(scope, receive, send)
            return
        kept = _Keeping(send)
        task = asyncio.create_task(self._see_through(scope, body, document, found, kept))
        # It may outlive this call, and then still reads what was sent.
        task.add_done_callback(lambda _: body.close())
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            kept.let_go()
            self._leave_alone(task, len(body))
            raise

    def _leave_alone(self, task: asyncio.Task[None], size: int) -> None:
        """Let it go on by itself: that nobody waits any more does not undo what it did."""
        held = sum(self._left_alone.values())
        if len(self._left_alone) >= _MOST_LEFT_ALONE or held + size > _MOST_BYTES_ALONE:
            task.cancel()
        self._left_alone[task] = size
        timer = asyncio.get_running_loop().call_later(_MOST_SECONDS_ALONE, task.cancel)

        def ended(_: asyncio.Task[None]) -> None:
            timer.cancel()
            self._left_alone.pop(task, None)
            if not task.cancelled():
                task.exception()  # Its answer said so already.

        task.add_done_callback(ended)

    async def _see_through(
        self,
        scope: Scope,
        body: _Body,
        document: str,
        found: Document | None,
        kept: _Keeping,
    ) -> None:
        call: Call = scope["pagefile"]
        assert call.pf is not None
        assert call.lease is not None
        with call.lease.again():
            await _claim(call.pf, document, found)
            if kept.is_let_go:
                # It was not begun in time: it can be, with the same key.
                await call.pf.store.commit(Batch([Delete(document)]))
                return
            try:
                await self._app(scope, body.again(), kept)
            finally:
                if kept.is_whole:
                    try:
                        await self._keep(scope, body, document, kept)
                    finally:
                        # Also when it could not be kept: what it says was done.
                        await kept.finish()

    async def _keep(self, scope: Scope, body: _Body, document: str, kept: _Keeping) -> None:
        call: Call = scope["pagefile"]
        assert call.pf is not None
        answer = b"".join(kept.parts)
        if kept.status in (408, 429, 501) or (kept.status >= 500 and _says_nothing(answer)):
            # Nothing was done: the same key may try again.
            await call.pf.store.commit(Batch([Delete(document)]))
            return
        if kept.status >= 500:
            return  # What was done is not known, and that is what the claim says.
        if call.kept_answer is not None:
            answer = call.kept_answer
        salt = clock.token_hex(16)
        once = _Once(
            _fingerprint(scope, None if call.is_untraceable else body, salt),
            _now_us(),
            kept.status,
            kept.headers,
            answer.decode() if len(answer) <= _MOST_BODY else None,
            salt,
            not call.is_untraceable,
        )
        await call.pf.store.commit(Batch([_put(document, once, call.partition)]))
        self._count += 1
        if self._count % _SWEEP_EVERY == 0:
            await sweep(call.pf)


async def sweep(pf: AsyncPagefile) -> int:
    """Remove keys that are older than a day; how many."""
    old = Query(_BY_TIME, low=0, high=_now_us() - _LIFETIME_US, everyone=True)
    page = await pf.store.find(old, limit=_SWEPT_AT_ONCE)
    gone: list[Operation] = []
    for each in page.items:
        if isinstance(each, Document):
            gone += [Delete(each.name), Prune(None, document=each.name)]
    if gone:
        await pf.store.commit(Batch(gone))
    return len(gone) // 2


async def _claim(pf: AsyncPagefile, document: str, found: Document | None) -> None:
    when: list[Condition] = [Absent(document)]
    if found is not None:
        when = [VersionIs(document, found.version)]
    try:
        await pf.store.commit(Batch([_put(document, _Once("", _now_us()), None)], when))
    except Conflict:
        raise _under_way() from None


def _under_way() -> Refused:
    return Refused(409, "a request with this Idempotency-Key is under way", code=UNDER_WAY)


def _seconds_for(path: str, call: Call) -> float:
    """How long a request may be under way for somebody who waits."""
    config = call.config
    body = config.upload_seconds if path in UPLOADS else config.body_seconds
    return config.request_seconds + body


def _repeated(found: Document, scope: Scope, body: _Body, call: Call) -> Response | None:
    """The answer to a repeat; None when the key is free again."""
    if _now_us() - found.time_us >= _LIFETIME_US:
        return None
    if found.erased:
        fact = "it was done, and forgotten since: use a new key for a new request"
        raise Refused(409, fact, code=ALREADY_DONE)
    once = convert(found.value, _Once)
    if once.status == 0:
        if _now_us() - once.claimed_us < _seconds_for(scope["path"], call) * 1_000_000:
            raise _under_way()
        fact = "whether the request with this Idempotency-Key was done is not known"
        unknown = Unavailable(
            fact, "look whether it was, and if not, use a new key", outcome="unknown"
        )
        raise AsRefused(unknown, 409)
    if once.fingerprint != _fingerprint(scope, body if once.has_body else None, once.salt):
        rule = "use a new key for another request"
        raise Invalid("Idempotency-Key", "was used for another request", rule)
    if once.body is None:
        raise Refused(409, "it was done; the answer was too long to be kept", code=ALREADY_DONE)
    headers = dict(once.headers) | {"idempotent-replayed": "true"}
    return Response(once.body.encode(), once.status, headers)


class _Keeping:
    """Passes an answer on and keeps it, as long as it is short.

    The end of it is held back until it is kept: who has seen all of an answer may
    repeat the request at once, and must not be told that it is under way.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.headers: tuple[tuple[str, str], ...] = ()
        self.parts: list[bytes] = []
        self._size = 0
        self.is_whole = False
        #: Nobody waits for it any more, and nothing may be sent.
        self.is_let_go = False
        self._last: Message | None = None

    def let_go(self) -> None:
        self.is_let_go = True

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = tuple(
                (name.decode(), value.decode("latin-1"))
                for name, value in message["headers"]
                if name in _KEPT_HEADERS
            )
        else:
            if self._size <= _MOST_BODY:
                part = message.get("body", b"")
                self._size += len(part)
                self.parts.append(part)
            self.is_whole = not message.get("more_body", False)
            if self.is_whole:
                self._last = message
                return
        if not self.is_let_go:
            await self._send(message)

    async def finish(self) -> None:
        """Send the end of the answer."""
        if self._last is not None and not self.is_let_go:
            await self._send(self._last)


class Digest(Protocol):
    """What is told every byte; `hashlib` makes them."""

    def update(self, data: bytes, /) -> object: ...


class Spool:
    """One request's body, in a file without a name that goes when it is closed."""

    def __init__(self) -> None:
        self._file: IO[bytes] = tempfile.TemporaryFile(prefix="pagefile-upload-")  # noqa: SIM115
        self._is_given = False

    async def fill(self, receive: Receive, digest: Digest) -> None:
        """Take in the whole body. How large and slow it may be, the front sees to.

        Raises:
            Refused: the client went away. Unavailable: the disk takes no more.
        """
        while True:
            message = await receive()
            if message["type"] != "http.request":
                raise Refused(400, "the client went away")
            piece: bytes = message.get("body", b"")
            digest.update(piece)
            await asyncio.to_thread(self._write, piece)
            if not message.get("more_body", False):
                break
        self._file.seek(0)

    async def receive(self) -> Message:
        """The body again, piece by piece."""
        if self._is_given:
            return {"type": "http.disconnect"}
        piece = await asyncio.to_thread(self._file.read, _PIECE_BYTES)
        self._is_given = len(piece) < _PIECE_BYTES
        return {"type": "http.request", "body": piece, "more_body": not self._is_given}

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()

    def _write(self, piece: bytes) -> None:
        try:
            self._file.write(piece)
        except OSError as error:
            raise Unavailable(
                f"the upload could not be kept ({error.strerror})", "look at the server's disk"
            ) from error


class _Body:
    """What was sent, in memory or in a file, to be given again and told from others."""

    def __init__(self, spool: Spool | None) -> None:
        self._spool = spool
        self._whole = b""
        self._digest = hashlib.sha256()

    async def fill(self, receive: Receive, most: int) -> None:
        if self._spool is not None:
            await self._spool.fill(receive, self._digest)
            return
        self._whole = await whole_body(receive, most)
        if len(self._whole) > LARGE_BYTES:
            await asyncio.to_thread(self._digest.update, self._whole)
        else:
            self._digest.update(self._whole)

    def __len__(self) -> int:
        """How much of it is in memory."""
        return len(self._whole)

    @property
    def digest(self) -> bytes:
        return self._digest.digest()

    def again(self) -> Receive:
        return _replayed(self._whole) if self._spool is None else self._spool.receive

    def close(self) -> None:
        if self._spool is not None:
            self._spool.close()


def _says_nothing(answer: bytes) -> bool:
    """Whether a refusal says that nothing was stored for certain."""
    try:
        return convert(msgspec.json.decode(answer), Problem).outcome == "nothing"
    except msgspec.MsgspecError:
        return False


def _passes(path: str) -> bool:
    return path in UNCHANGING or path in EXACT or path.startswith("/mcp")


def _replayed(body: bytes) -> Receive:
    given = False

    async def receive() -> Message:
        nonlocal given
        if given:
            return {"type": "http.disconnect"}
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def _fingerprint(scope: Scope, body: _Body | None, salt: str) -> str:
    what = (scope["method"], scope["path"], scope.get("query_string", b"").decode("latin-1"))
    sent = b"" if body is None else body.digest
    return hashlib.sha256(salt.encode() + repr(what).encode() + sent).hexdigest()


def _put(document: str, once: _Once, user: str | None) -> Put:
    value: dict[str, Any] = msgspec.to_builtins(once)
    return Put(document, value, user, "http.once", tenant_keys={_BY_TIME: once.claimed_us})


def _now_us() -> int:
    return time.time_ns() // 1_000
