"""Plain values and bytes as values of a declared type, whichever thread asks first.

msgspec works out what a struct is made of when the struct is first used, and
shows the half-made answer to other threads meanwhile: a second thread that
uses the same struct at that moment reads through a null pointer, and the
process is gone. Here every type is worked out by one thread at a time, before
anybody uses it. The linter refuses the bare calls elsewhere.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar, overload

import msgspec

Value = TypeVar("Value")

_ready: set[Any] = set()
#: One for all types: the parts of a type are worked out together with it.
_working_out = threading.RLock()


def ready(shape: Any) -> Any:
    """The same type, safe from now on to be used by several threads."""
    if shape not in _ready:
        with _working_out:
            msgspec.json.Decoder(shape)
            _ready.add(shape)
    return shape


@overload
def convert(value: Any, shape: type[Value], *, strict: bool = True) -> Value: ...
@overload
def convert(value: Any, shape: Any, *, strict: bool = True) -> Any: ...
def convert(value: Any, shape: Any, *, strict: bool = True) -> Any:
    """Plain values (mappings, lists, texts) as a value of that type; see `msgspec.convert`.

    Without `strict` texts stand for numbers too, as they do in a query.

    Raises:
        msgspec.ValidationError: it is none, also where a text holds a lone surrogate.
    """
    try:
        return msgspec.convert(value, shape if shape in _ready else ready(shape), strict=strict)
    except UnicodeEncodeError as error:
        raise msgspec.ValidationError("a text in it holds a lone surrogate") from error


@overload
def json_decoder(shape: type[Value]) -> msgspec.json.Decoder[Value]: ...
@overload
def json_decoder(shape: Any) -> msgspec.json.Decoder[Any]: ...
def json_decoder(shape: Any) -> Any:
    """What reads JSON as that type."""
    with _working_out:
        return msgspec.json.Decoder(shape)


@overload
def msgpack_decoder(shape: type[Value]) -> msgspec.msgpack.Decoder[Value]: ...
@overload
def msgpack_decoder(shape: Any) -> msgspec.msgpack.Decoder[Any]: ...
def msgpack_decoder(shape: Any) -> Any:
    """What reads MessagePack as that type."""
    with _working_out:
        return msgspec.msgpack.Decoder(shape)


@overload
def from_json(raw: bytes, shape: type[Value]) -> Value: ...
@overload
def from_json(raw: bytes, shape: Any) -> Any: ...
def from_json(raw: bytes, shape: Any) -> Any:
    """JSON as a value of that type.

    Raises:
        msgspec.DecodeError: it is none, also where its bytes are no text or it is nested too deep.
    """
    try:
        return msgspec.json.decode(raw, type=shape if shape in _ready else ready(shape))
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error
