"""Values to canonical bytes and back.

A value is encoded once, when it is committed, and the bytes are the truth:
JSON with sorted keys and no white space, so that people can read it. Decoding
imports nothing and runs nothing: no `__init__`, no `__post_init__`, no
validator, no `_missing_`, no module `__getattr__`.

A stored type name is "" for plain values, `module:Class` for a closed class
(plain fields, read verbatim), and `module:Class+` for an open one (fields in
tagged form, such as `{"$bytes": "…"}`).
"""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType
from typing import Any, Final

import msgspec

from pagefile.errors import Invalid
from pagefile.store.codec.canonical_json import (
    MAX_DEPTH,
    decode_json,
    depth_of,
    encode_json,
    may_be_too_deep,
    may_have_tags,
    parse,
    parse_object,
    too_deep,
)
from pagefile.store.codec.reader import Record, typed_value_of, value_of
from pagefile.store.codec.registry import (
    OPEN_MARK,
    find_class,
    is_typed,
    register,
    registered_name,
    type_name,
)
from pagefile.store.codec.shapes import is_deeply_immutable, plan_for
from pagefile.store.codec.writer import Encoded, encode_fields, encode_tagged, misfit

__all__ = [
    "MAX_DEPTH",
    "Record",
    "decode",
    "encode",
    "is_deeply_immutable",
    "is_typed",
    "register",
    "type_name",
]

_DOLLAR: Final = ord("$")
_PLAIN: Final = frozenset({dict, list, str, int, float, bool, NoneType})


def encode(value: Any) -> tuple[str, bytes]:
    """The stored type name and the canonical body of a value.

    StrEnum and IntEnum members inside plain dicts and lists, and subclasses of
    dict and list there, may read back as the equal plain value.
    """
    cls = type(value)
    if cls in _PLAIN:
        # Whatever JSON would change silently (NaN, tuples, dates) does not
        # compare equal after the trip, and the walk then tags it or refuses it.
        try:
            body = encode_json(value)
            back = decode_json(body)
            if (
                back == value
                and (_DOLLAR not in body or not may_have_tags(body))
                and (not may_be_too_deep(body) or depth_of(back) <= MAX_DEPTH)
            ):
                return "", body
        except (TypeError, ValueError, RecursionError):
            pass
        return "", encode_tagged(value)
    if cls is Encoded:
        return "", value.body
    plan = plan_for(cls)
    if plan is None:
        return "", encode_tagged(value)
    name = registered_name(cls)
    if plan.decode is None:
        return name + OPEN_MARK, encode_fields(plan.shape, value)
    return name, _closed_body(plan.decode, value)


def decode(type_name: str, body: bytes) -> Any:
    """The value, as a fresh object; a Record when its class is absent or no longer fits."""
    if not type_name:
        node = parse(body)
        return value_of(node) if may_have_tags(body) else node
    if type_name.endswith(OPEN_MARK):
        return typed_value_of(type_name[: -len(OPEN_MARK)], parse_object(body))
    return _closed_value(type_name, body)


def _closed_body(decode_class: Callable[[bytes], Any], value: Any) -> bytes:
    try:
        body = encode_json(value)
        if decode_class(body) == value and (
            not may_be_too_deep(body) or depth_of(decode_json(body)) <= MAX_DEPTH
        ):
            return body
    except (TypeError, ValueError, RecursionError):
        pass
    raise _refusal(value)


def _refusal(value: Any) -> Invalid:
    # The walk names NaN, depth and foreign types at their place; what passes
    # it can only disagree with the annotations.
    encode_tagged(value)
    return misfit(value)


def _closed_value(name: str, body: bytes) -> Any:
    cls = find_class(name)
    plan = None if cls is None else plan_for(cls)
    if plan is not None and plan.decode is not None:
        try:
            value = plan.decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            # A body that is no JSON at all is reported by parse_object below.
            pass
        else:
            if _nothing_lost(value, body):
                return value
    return _verbatim_record(name, body)


def _nothing_lost(value: Any, body: bytes) -> bool:
    """False when the stored body has fields that the class no longer has."""
    again = encode_json(value)
    if again == body:
        return True
    # Not decode_json: the class decoder skips unknown fields without checking them.
    stored = parse(body)
    return depth_of(stored) <= MAX_DEPTH and _has_all(decode_json(again), stored)


def _has_all(kept: Any, stored: Any) -> bool:
    if type(stored) is dict:
        return all(key in kept and _has_all(kept[key], item) for key, item in stored.items())
    if type(stored) is list:
        return all(_has_all(*pair) for pair in zip(kept, stored, strict=True))
    return True


def _verbatim_record(name: str, body: bytes) -> Record:
    fields = parse_object(body)
    if may_be_too_deep(body) and depth_of(fields) > MAX_DEPTH:
        raise too_deep()
    return Record(name, fields)
