"""`Idempotency-Key`: a repeated request is answered as the first one was.

The key is claimed in a document before the request runs, and the answer is put
there afterwards, in the partition of the user it is about, so that forgetting
them takes it too. Appending slots does not pass here: the store itself knows
their keys, and a repeat is exact even when the server died in between.
"""

from __future__ import annotations

import hashlib
import re
import time
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pagefile.access.identity import digest_of
from pagefile.aio import AsyncPagefile
from pagefile.batch import Absent, Batch, Condition, Delete, Operation, Prune, Put, VersionIs
from pagefile.errors import Conflict, Invalid
from pagefile.query import Query
from pagefile.records import Document
from pagefile.surfaces.http.call import Call
from pagefile.surfaces.http.limits import UPLOADS, whole_body
from pagefile.surfaces.http.problems import Refused
from pagefile.typed import convert

_NAME = "http/once/"
_BY_TIME = "http.once"
_KEY = re.compile(r"[\x21-\x7e]{1,200}")
_SLOTS = re.compile(r"/v1/threads/[^/]+/slots(/batch)?")
_CHANGING = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_KEPT_HEADERS = frozenset({b"content-type", b"etag", b"location"})
_MOST_BODY = 65_536
_LIFETIME_US = 24 * 3_600 * 1_000_000
_SWEEP_EVERY = 200
_SWEPT_AT_ONCE = 50


class _Once(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is known of a key: what it was used for, and the answer when there is one."""

    fingerprint: str
    claimed_us: int
    status: int = 0
    headers: tuple[tuple[str, str], ...] = ()
    body: str | None = None


def key_in(scope: Scope) -> str | None:
    """The request's `Idempotency-Key`, if it has one.

    Raises:
        Refused: it is none.
    """
    given = [value for name, value in scope["headers"] if name == b"idempotency-key"]
    if not given:
        return None
    text = str(given[0].decode("latin-1"))
    if len(given) > 1 or _KEY.fullmatch(text) is None:
        raise Refused(400, "Idempotency-Key: give 1 to 200 visible ASCII characters, once")
    return text


class Idempotent:
    """Wraps the routes; requests without a key pass through."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._count = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_changing = scope["type"] == "http" and scope["method"] in _CHANGING
        key = key_in(scope) if is_changing else None
        call: Call | None = scope.get("pagefile")
        if key is None or call is None or call.pf is None or _passes(scope["path"]):
            await self._app(scope, receive, send)
            return
        assert call.identity is not None
        body = await whole_body(receive, call.config.max_body_bytes)
        document = _NAME + digest_of(call.identity.principal, key)
        fingerprint = _fingerprint(scope, body)
        found = await call.pf.store.get(document)
        version = 0 if found is None else found.version
        if found is not None and not found.erased:
            response = _repeated(_of(found), fingerprint, call)
            if response is not None:
                await response(scope, receive, send)
                return
        await _claim(call.pf, document, fingerprint, version, found is None)
        kept = _Keeping(send)
        await self._app(scope, _replayed(body), kept)
        await self._keep(call, document, fingerprint, kept)

    async def _keep(self, call: Call, document: str, fingerprint: str, kept: _Keeping) -> None:
        assert call.pf is not None
        if kept.status >= 500 or kept.status in (408, 429):
            # Nothing was settled: the same key may try again.
            await call.pf.store.commit(Batch([Delete(document)]))
            return
        body = b"".join(kept.parts)
        once = _Once(
            fingerprint,
            _now_us(),
            kept.status,
            kept.headers,
            body.decode() if len(body) <= _MOST_BODY else None,
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


async def _claim(
    pf: AsyncPagefile, document: str, fingerprint: str, version: int, is_new: bool
) -> None:
    when: list[Condition] = [Absent(document) if is_new else VersionIs(document, version)]
    try:
        await pf.store.commit(Batch([_put(document, _Once(fingerprint, _now_us()), None)], when))
    except Conflict:
        raise Refused(409, "a request with this Idempotency-Key is under way") from None


def _repeated(once: _Once, fingerprint: str, call: Call) -> Response | None:
    if once.fingerprint != fingerprint:
        rule = "use a new key for another request"
        raise Invalid("Idempotency-Key", "was used for another request", rule)
    if once.status == 0:
        seconds = call.config.request_seconds + call.config.body_seconds
        if _now_us() - once.claimed_us < seconds * 1_000_000:
            raise Refused(409, "a request with this Idempotency-Key is under way")
        return None  # Whoever had it is gone.
    if once.body is None:
        raise Refused(409, "it was done; the answer was too long to be kept")
    headers = dict(once.headers) | {"idempotent-replayed": "true"}
    return Response(once.body.encode(), once.status, headers)


class _Keeping:
    """Passes an answer on and keeps it, as long as it is short."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0
        self.headers: tuple[tuple[str, str], ...] = ()
        self.parts: list[bytes] = []
        self._size = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = tuple(
                (name.decode(), value.decode("latin-1"))
                for name, value in message["headers"]
                if name in _KEPT_HEADERS
            )
        elif self._size <= _MOST_BODY:
            part = message.get("body", b"")
            self._size += len(part)
            self.parts.append(part)
        await self._send(message)


def _passes(path: str) -> bool:
    return path in UPLOADS or _SLOTS.fullmatch(path) is not None or path.startswith("/mcp")


def _replayed(body: bytes) -> Receive:
    given = False

    async def receive() -> Message:
        nonlocal given
        if given:
            return {"type": "http.disconnect"}
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


def _fingerprint(scope: Scope, body: bytes) -> str:
    what = (scope["method"], scope["path"], scope.get("query_string", b"").decode("latin-1"))
    return hashlib.sha256(repr(what).encode() + body).hexdigest()


def _put(document: str, once: _Once, user: str | None) -> Put:
    value: dict[str, Any] = msgspec.to_builtins(once)
    return Put(document, value, user, "http.once", tenant_keys={_BY_TIME: once.claimed_us})


def _of(document: Document) -> _Once:
    return convert(document.value, _Once)


def _now_us() -> int:
    return time.time_ns() // 1_000
