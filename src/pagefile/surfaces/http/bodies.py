"""Bodies of requests and answers, through the compiled codec."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from pagefile.errors import Invalid, LimitExceeded, PagefileError
from pagefile.store.codec import Record
from pagefile.store.codec.decoder import json_decoder
from pagefile.surfaces.http.call import call_of
from pagefile.surfaces.http.problems import Refused

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
    """A thread that computes is asked for the interpreter after 5 ms: nobody shall wait so long."""
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


def encoded(value: Any) -> bytes:
    """A value as JSON."""
    return _encode(value)


def reply(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer in JSON."""
    return Response(_encode(value), status, headers, JSON)


def raw_reply(raw: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """An answer that is JSON already."""
    return Response(raw, status, headers, JSON)


def _plain(value: Any) -> Any:
    """Values of the library that JSON has no word for."""
    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=str)
    raise NotImplementedError(type(value).__name__)


_encode = msgspec.json.Encoder(enc_hook=_plain, decimal_format="string").encode
