"""A value to its tagged JSON form; what cannot be stored is refused at its place."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from itertools import repeat
from math import isfinite
from types import NoneType
from typing import Any, Final, NoReturn, TypeAlias, get_args, get_origin
from uuid import UUID

import msgspec

from pagefile.errors import Invalid, shown
from pagefile.store.codec import tags
from pagefile.store.codec.canonical_json import MAX_DEPTH, decode_json, encode_json
from pagefile.store.codec.decoder import json_decoder
from pagefile.store.codec.reader import Record, find_member
from pagefile.store.codec.registry import registered_name
from pagefile.store.codec.shapes import (
    Shape,
    members_of_union,
    resolved_hints,
    shape_for,
    unwrapped,
)

# A linked list costs nothing to extend; it is written out only for an error.
Location: TypeAlias = "tuple[Location, str | int] | None"

ROOT: Location = None


def written(location: Location) -> str:
    """The location as text."""
    parts: list[str] = []
    while location is not None:
        location, step = location
        parts.append(_written_step(step))
    return "$" + "".join(reversed(parts))


def _written_step(step: str | int) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    return f".{step}" if step.isidentifier() and step.isascii() else f"[{json.dumps(step)}]"


def invalid(location: Location, fact: str, rule: str) -> Invalid:
    """The error for a value that cannot be stored, at its place."""
    return Invalid(written(location), fact, rule)


def misfit(value: Any) -> Invalid:
    """The error for an instance that would not be read back equal."""
    found = _find(value, type(value), ROOT)
    if found is not None:
        return found
    rule = "give its fields values of the annotated types"
    return invalid(ROOT, f"this {type(value).__name__} would not be read back equal", rule)


def _find(value: Any, hint: Any, at: Location) -> Invalid | None:
    fact = _problem(value, hint)
    if fact is None:
        return None
    for child, child_hint, child_at in _children(value, hint, at):
        deeper = _find(child, child_hint, child_at)
        if deeper is not None:
            return deeper
    return invalid(at, fact, f"give a value of the annotated type, {_written(hint)}")


def _problem(value: Any, hint: Any) -> str | None:
    try:
        back = json_decoder(hint).decode(encode_json(value))
    except msgspec.ValidationError as error:
        return str(error).partition(" - at ")[0]
    except TypeError as error:
        return str(error)
    if back == value:
        return None
    return f"this {type(value).__name__} would be read back as a different {type(back).__name__}"


def _children(value: Any, hint: Any, at: Location) -> Iterator[tuple[Any, Any, Location]]:
    hint = _only_candidate(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is dict and isinstance(value, dict):
        for key, item in value.items():
            yield item, arguments[1], (at, key)
    elif origin in (list, tuple) and isinstance(value, (list, tuple)):
        repeated = origin is list or arguments[-1] is ...
        hints = repeat(arguments[0]) if repeated else arguments
        for index, (item, item_hint) in enumerate(zip(value, hints, strict=False)):
            yield item, item_hint, (at, index)
    elif isinstance(hint, type) and type(value) is hint:
        yield from _field_children(value, at)


def _field_children(value: Any, at: Location) -> Iterator[tuple[Any, Any, Location]]:
    shape = shape_for(type(value))
    if shape is None:
        return
    hints = resolved_hints(shape) or {}
    for field, item in shape.read(value).items():
        yield item, hints[field], (at, field)


def _only_candidate(hint: Any) -> Any:
    """The one type in an Optional; other unions stay whole."""
    members = [member for member in members_of_union(unwrapped(hint)) if member is not NoneType]
    return unwrapped(members[0]) if len(members) == 1 else hint


def _written(hint: Any) -> str:
    return hint.__qualname__ if type(hint) is type else str(hint)


class Encoded(msgspec.Struct, frozen=True, gc=False):
    """A plain value in canonical JSON already; made by `encoded`, and stored as it is."""

    body: bytes


def encoded(fields: Any) -> Encoded:
    """A struct or dict of text, whole numbers, truth values and bytes, under names of ours.

    Nothing in it may be a number that is not finite, a dict whose keys others
    chose, or deep: `codec.encode` looks for these, which takes longer than encoding.
    """
    return Encoded(encode_json(fields))


Writer: TypeAlias = Callable[[Any, Location, int], Any]

_SUPPORTED: Final = (
    "dict, list, str, int, float, bool, None, bytes, datetime, date, Decimal, UUID, tuple, set, "
    "frozenset, Enum members, dataclasses, msgspec Structs or pydantic models"
)


def encode_tagged(value: Any) -> bytes:
    """Any storable value's canonical body in tagged form."""
    try:
        return encode_json(_tagged(value, ROOT, 1))
    except RecursionError:
        raise _out_of_stack() from None


def encode_fields(shape: Shape, value: Any) -> bytes:
    """The body of an open class's instance: its fields in tagged form."""
    try:
        return encode_json(_tagged_fields(shape, value, ROOT, 1))
    except RecursionError:
        raise _out_of_stack() from None


def _out_of_stack() -> Exception:
    rule = "store from a shallower call, or flatten the value"
    return invalid(ROOT, "there is no stack left to walk the value", rule)


def _tagged(value: Any, at: Location, depth: int) -> Any:
    write: Writer = _WRITERS.get(type(value), _tagged_other)
    return write(value, at, depth)


def _check_depth(at: Location, depth: int) -> None:
    if depth > MAX_DEPTH:
        rule = "flatten it, and make sure that it does not contain itself"
        raise invalid(at, f"the value is nested deeper than {MAX_DEPTH} levels", rule)


def _same(value: Any, at: Location, depth: int) -> Any:
    return value


def _checked_text(value: str, at: Location, depth: int) -> str:
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            rule = "replace it, for example with text.encode(errors='replace').decode()"
            raise invalid(at, "the text holds a lone surrogate", rule) from None
    return value


def _checked_int(value: int, at: Location, depth: int) -> int:
    if value.bit_length() > 64:
        # Python limits how many digits it reads; what it cannot read must not be written.
        try:
            decode_json(encode_json(value))
        except ValueError:
            rule = "store it as bytes or hexadecimal text"
            raise invalid(at, "the int has too many digits to be read back", rule) from None
    return value


def _checked_float(value: float, at: Location, depth: int) -> float:
    if not isfinite(value):
        raise invalid(at, f"{value} has no JSON form", "store None or leave it out")
    return value


def _tagged_dict(value: dict[Any, Any], at: Location, depth: int) -> dict[str, Any]:
    _check_depth(at, depth)
    node = {}
    for key, item in value.items():
        if type(key) is not str:
            rule = "use str keys, for example str(key)"
            raise invalid(at, f"the key {shown(key)} is of type {type(key).__name__}", rule)
        _checked_text(key, (at, key), depth)
        node[tags.escaped(key)] = _tagged(item, (at, key), depth + 1)
    return node


def _tagged_list(value: list[Any] | tuple[Any, ...], at: Location, depth: int) -> list[Any]:
    _check_depth(at, depth)
    return [_tagged(item, (at, index), depth + 1) for index, item in enumerate(value)]


def _tagged_tuple(value: tuple[Any, ...], at: Location, depth: int) -> dict[str, Any]:
    return {tags.TUPLE: _tagged_list(value, at, depth)}


def _sorted_members(value: set[Any] | frozenset[Any], at: Location, depth: int) -> list[Any]:
    _check_depth(at, depth)
    return sorted((_tagged(member, at, depth + 1) for member in value), key=encode_json)


def _tagged_set(value: set[Any], at: Location, depth: int) -> dict[str, Any]:
    return {tags.SET: _sorted_members(value, at, depth)}


def _tagged_frozenset(value: frozenset[Any], at: Location, depth: int) -> dict[str, Any]:
    return {tags.FROZENSET: _sorted_members(value, at, depth)}


def _tagged_bytes(value: bytes, at: Location, depth: int) -> dict[str, str]:
    return {"$bytes": tags.bytes_text(value)}


def _tagged_datetime(value: datetime, at: Location, depth: int) -> dict[str, str]:
    if value.utcoffset() is None:
        rule = "attach a time zone, for example .replace(tzinfo=UTC)"
        raise invalid(at, "the datetime has no time zone", rule)
    try:
        return {"$datetime": tags.datetime_text(value)}
    except OverflowError:
        rule = "use a moment between the years 1 and 9999"
        raise invalid(at, "the datetime has no equal in UTC", rule) from None


def _tagged_date(value: date, at: Location, depth: int) -> dict[str, str]:
    return {"$date": value.isoformat()}


def _tagged_decimal(value: Decimal, at: Location, depth: int) -> dict[str, str]:
    if not value.is_finite():
        raise invalid(at, f"Decimal {value} is not a number", "store None or leave it out")
    return {"$decimal": str(value)}


def _tagged_uuid(value: UUID, at: Location, depth: int) -> dict[str, str]:
    return {"$uuid": str(value)}


def _tagged_other(value: Any, at: Location, depth: int) -> dict[str, Any]:
    if isinstance(value, Enum):
        return _tagged_enum(value, at, depth)
    shape = shape_for(type(value))
    if shape is None:
        _refuse(value, at)
    fields = _tagged_fields(shape, value, at, depth)
    return {tags.TYPE: registered_name(type(value)), **fields}


def _tagged_enum(value: Enum, at: Location, depth: int) -> dict[str, Any]:
    _check_depth(at, depth)
    cls = type(value)
    if find_member(cls, value._value_) is not value:
        rule = f"store a declared member of {cls.__name__}"
        raise invalid(at, f"no member of {cls.__name__} has the value {value._value_!r}", rule)
    node = _tagged(value._value_, (at, tags.ENUM_VALUE), depth + 1)
    return {tags.ENUM: registered_name(cls), tags.ENUM_VALUE: node}


def _tagged_fields(shape: Shape, value: Any, at: Location, depth: int) -> dict[str, Any]:
    _check_depth(at, depth)
    stored = shape.read(value)
    for field in shape.fields:
        if field not in stored:
            rule = "set it before storing"
            raise invalid((at, field), f"the field of {shape.cls.__name__} is not set", rule)
    node = {}
    for field, item in stored.items():
        _checked_text(field, (at, field), depth)
        node[tags.escaped(field)] = _tagged(item, (at, field), depth + 1)
    return node


def _refuse(value: Any, at: Location) -> NoReturn:
    name = type(value).__name__
    if isinstance(value, Record):
        rule = "store record.to_dict(), or load the class"
        raise invalid(at, "a Record is a view for reading", rule)
    if isinstance(value, (bytearray, memoryview)):
        raise invalid(at, f"a {name} can change after it is stored", "use bytes(...)")
    for base in _WRITERS:
        if isinstance(value, base):
            rule = f"convert it, for example with {base.__name__}(...)"
            if base in _NOT_CONVERTIBLE:
                rule = f"convert it to a plain {base.__name__}"
            raise invalid(at, f"{name} is a subclass of {base.__name__}", rule)
    raise invalid(at, f"a value of type {name} cannot be stored", f"use {_SUPPORTED}")


_NOT_CONVERTIBLE: Final = frozenset({datetime, date, UUID})

_WRITERS: Final[dict[type[Any], Writer]] = {
    NoneType: _same,
    bool: _same,
    str: _checked_text,
    int: _checked_int,
    float: _checked_float,
    dict: _tagged_dict,
    list: _tagged_list,
    tuple: _tagged_tuple,
    set: _tagged_set,
    frozenset: _tagged_frozenset,
    bytes: _tagged_bytes,
    datetime: _tagged_datetime,
    date: _tagged_date,
    Decimal: _tagged_decimal,
    UUID: _tagged_uuid,
}
