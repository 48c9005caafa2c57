"""What is read of a request: its body, its version, its file, its key, and who asks."""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Scope

from pagefile import operations
from pagefile.aio import AsyncPagefile
from pagefile.errors import Conflict, Invalid, LimitExceeded, PagefileError, Unavailable
from pagefile.operations.answer import encoded
from pagefile.operations.caller import Host
from pagefile.store.codec.decoder import json_decoder
from pagefile.store.records import Document
from pagefile.surfaces.access.identity import Identity
from pagefile.surfaces.http.call import Call, call_of
from pagefile.surfaces.http.config import ServerConfig
from pagefile.surfaces.http.problems import AsRefused, Refused

if TYPE_CHECKING:
    from pagefile.surfaces.http.app import Server

Shape = TypeVar("Shape")

JSON = "application/json"
#: Larger bodies are decoded, and stored, by a worker thread.
LARGE_BYTES = 131_072
#: How much is looked through, a millisecond or less, before other threads have their turn.
_PAUSE_BYTES = 4_096
_PAUSE_SECONDS = 5e-5
#: Whatever a value can stand behind, and where a text begins.
_MARK = re.compile(rb'["\[{,]')
#: The rest of a text, or much of it: no call may take long, other threads wait meanwhile.
_TEXT = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+){0,10000}+("?)', re.DOTALL)
_QUOTE = ord('"')
_decoders: dict[Any, Callable[[bytes], Any]] = {}


async def body_of(request: Request, shape: type[Shape], *, may_be_empty: bool = False) -> Shape:
    """The request's body as a value of that shape.

    Raises:
        Refused: it is no JSON, or says that it is something else.
        Invalid: it is JSON of another shape; names the field.
    """
    raw = await request.body()
    if not raw and may_be_empty:
        return decoded(b"{}", shape)
    require_json(request.headers.get("content-type", ""))
    return await decoded_aside(raw, shape, call_of(request).config.max_body_values)


async def decoded_aside(raw: bytes, shape: type[Shape], most_values: int) -> Shape:
    """JSON as a value of that shape; a large body does not hold up the loop.

    Raises:
        LimitExceeded: it has more values. Refused, Invalid: see `decoded`.
    """
    if len(raw) <= LARGE_BYTES:
        return decoded(raw, shape)

    def decode() -> Shape:
        require_few_values(raw, most_values)
        return decoded(raw, shape)

    return await asyncio.to_thread(decode)


def require_few_values(raw: bytes, most: int) -> None:
    """Refuse JSON of more values, before anything is made of them.

    While they are decoded, no other thread runs: that must be over soon.

    Raises:
        LimitExceeded: there are more.
    """
    # Every value but the first stands behind one of these; those in texts count for nothing.
    marks = 0
    for start in range(0, len(raw), LARGE_BYTES):
        marks += sum(raw.count(mark, start, start + LARGE_BYTES) for mark in (b",", b"[", b"{"))
        if marks >= most:
            break
        _let_others_run()
    else:
        return
    count, at, paused = 1, 0, 0
    while (found := _MARK.search(raw, at)) is not None:
        at = found.end()
        if at - paused > _PAUSE_BYTES:
            paused = at
            _let_others_run()
        if raw[at - 1] == _QUOTE:
            at = _after_text(raw, at)
            continue
        count += 1
        if count > most:
            raise LimitExceeded(
                "the number of values in the body",
                limit=most,
                wanted=count,
                next_step="send them in several requests, or raise max_body_values",
            )


def _let_others_run() -> None:
    """Give other threads the interpreter: one that computes keeps it for 5 ms at a time."""
    time.sleep(_PAUSE_SECONDS)


def _after_text(raw: bytes, at: int) -> int:
    """Where a text ends that begins here; the end of all if it does not."""
    while (part := _TEXT.match(raw, at)) is not None and part.end() > at:
        at = part.end()
        if part[1]:
            return at
    return len(raw)


def require_json(content_type: str) -> None:
    """Refuse a body that says it is something else."""
    media = content_type.partition(";")[0].strip().lower()
    if media != JSON and not (media.startswith("application/") and media.endswith("+json")):
        raise Refused(415, f"the body is {media or 'of no type'}: send {JSON}")


def decoded(raw: bytes, shape: type[Shape]) -> Shape:
    """JSON as a value of that shape."""
    decode = _decoders.get(shape)
    if decode is None:
        decode = _decoders[shape] = json_decoder(shape).decode
    try:
        value: Shape = decode(raw)
    except msgspec.ValidationError as error:
        # The library's own rules speak for themselves.
        if isinstance(error.__cause__, PagefileError):
            raise error.__cause__ from None
        fact, _, place = str(error).partition(" - at `$")
        raise Invalid(place.strip(".`") or "body", fact, "see the schema at /docs") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, f"the body is no JSON ({error})") from None
    return value


def reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer in JSON."""
    return Response(encoded(value), status, headers, JSON)


def raw_reply(raw: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer that is JSON already."""
    return Response(raw, status, headers, JSON)


_TAG = re.compile(r'(?:W/)?"(\d{1,18})"')


def version_tag(version: int) -> dict[str, str]:
    """The header that says which version an answer shows."""
    return {"etag": f'"{version}"'}


def is_known(request: Request, version: int) -> bool:
    """Whether the client says that it has this version already."""
    given = request.headers.get("if-none-match")
    if given is None:
        return False
    return any(part.strip().removeprefix("W/") == f'"{version}"' for part in given.split(","))


def not_modified(version: int) -> Response:
    return Response(status_code=304, headers=version_tag(version))


def expected_version(request: Request, given: int | None = None) -> int | None:
    """The version that the caller believes to change, from `If-Match` or the body.

    `If-None-Match: *` is version 0: there must be none yet.

    Raises:
        Refused: the two differ, or the header names no single version.
    """
    header = request.headers.get("if-match")
    if header is None:
        if request.headers.get("if-none-match", "").strip() == "*":
            return _agreed(0, given)
        return given
    found = _TAG.fullmatch(header.strip())
    if found is None:
        raise Refused(400, 'If-Match: give one version, such as "7"')
    return _agreed(int(found[1]), given)


def as_failed_precondition(request: Request, error: Conflict) -> Exception:
    """A conflict, as a failed precondition where the caller spoke of one."""
    if "if-match" in request.headers or "if-none-match" in request.headers:
        return AsRefused(error, 412)
    return error


def _agreed(named: int, given: int | None) -> int:
    if given is not None and given != named:
        raise Refused(400, "If-Match and the body expect different versions")
    return named


_ANY = "application/octet-stream"
#: What else some media types are called.
_ALSO = {
    "application/zip": "application/x-zip-compressed",
    "application/x-ndjson": "application/jsonl",
}


@asynccontextmanager
async def uploaded(request: Request, media: str) -> AsyncIterator[Path]:
    """The request's body in a private file, which goes when the block ends.

    It is written as it comes, so that a large one takes no memory.
    """
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given not in (media, _ANY, _ALSO.get(media)):
        raise Refused(415, f"the body is {given or 'of no type'}: send {media}")
    with tempfile.TemporaryDirectory(prefix="pagefile-upload-") as folder:
        path = Path(folder) / "body"
        try:
            with path.open("xb") as file:
                async for chunk in request.stream():
                    await asyncio.to_thread(file.write, chunk)
        except OSError as error:
            raise Unavailable(
                f"the upload could not be kept ({error.strerror})", "look at the server's disk"
            ) from error
        yield path


_KEY = re.compile(r"[\x21-\x7e]{1,200}")


class Caller(operations.Caller):
    """An authenticated request, as operations see it that are served over HTTP alone."""

    __slots__ = ("request",)

    identity: Identity

    def __init__(self, request: Request, call: Call, identity: Identity, pf: AsyncPagefile) -> None:
        super().__init__(identity, pf, call)
        self.request = request

    async def document(self, name: str) -> Document | None:
        reads = call_of(self.request).reads
        assert reads is not None
        return await reads.get(name)

    @property
    def key(self) -> str:
        return store_key(self.identity, key_in(self.request.scope))

    @property
    def is_large(self) -> bool:
        length = call_of(self.request).heads.get(b"content-length", b"")
        return not length.isdigit() or int(length) > LARGE_BYTES

    @property
    def host(self) -> Host:
        return self.server

    @property
    def server(self) -> Server:
        """The process that answers."""
        server: Server = self.request.app.state.server
        return server

    @property
    def request_id(self) -> str:
        return call_of(self.request).request_id

    @property
    def config(self) -> ServerConfig:
        return call_of(self.request).config


def caller_of(request: Request) -> Caller:
    """Who asks. The front lets nobody through without an identity and a handle."""
    call = call_of(request)
    assert call.identity is not None
    assert call.pf is not None
    return Caller(request, call, call.identity, call.pf)


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


def store_key(identity: Identity, key: str | None) -> str:
    """A caller's key as the store's: two callers who choose the same never meet."""
    return "" if key is None else f"http:{identity.principal}:{key}"
