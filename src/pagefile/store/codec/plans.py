"""How each class is written: closed (plain fields, C both ways) or open (tagged).

A class is closed when JSON and its annotations together bring back the exact
value and nothing of the class's own code runs on the way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Generic

import msgspec

from pagefile.store.codec.decoder import json_decoder
from pagefile.store.codec.registry import shape_for
from pagefile.store.codec.shapes import (
    HINT_ERRORS,
    Shape,
    is_lossless,
    is_pydantic_model,
    resolved_hints,
)


@dataclasses.dataclass(frozen=True, slots=True)
class Plan:
    """A class's shape, and its C decoder when the class is closed."""

    shape: Shape
    decode: Callable[[bytes], Any] | None


_plans: dict[type[Any], Plan | None] = {}


def plan_for(cls: type[Any]) -> Plan | None:
    """The plan of a class, compiled once; None when it is no typed value's class."""
    try:
        return _plans[cls]
    except KeyError:
        plan = _plans[cls] = _compiled(cls)
        return plan


def _compiled(cls: type[Any]) -> Plan | None:
    shape = shape_for(cls)
    return None if shape is None else Plan(shape, _closed_decoder(shape))


def _closed_decoder(shape: Shape) -> Callable[[bytes], Any] | None:
    if not _is_closed(shape.cls, frozenset()):
        return None
    try:
        return json_decoder(shape.cls).decode
    except HINT_ERRORS:
        # msgspec refuses a union that JSON cannot tell apart.
        return None


def _is_closed(cls: type[Any], seen: frozenset[type[Any]]) -> bool:
    if cls in seen:
        return True
    shape = shape_for(cls)
    if shape is None or not shape.inert or Generic in cls.__mro__ or is_pydantic_model(cls):
        return False
    plain = _is_plain_struct if issubclass(cls, msgspec.Struct) else _is_plain_dataclass
    hints = resolved_hints(shape) if plain(cls) else None
    inside = seen | {cls}
    return hints is not None and all(
        is_lossless(hint, lambda nested: _is_closed(nested, inside)) for hint in hints.values()
    )


def _is_plain_struct(cls: type[Any]) -> bool:
    config = cls.__struct_config__
    unusual = (
        config.tag_field
        or config.array_like
        or config.omit_defaults
        or config.forbid_unknown_fields
    )
    renamed = cls.__struct_encode_fields__ != cls.__struct_fields__
    return (
        config.eq and not _overrides(cls, msgspec.Struct, "__eq__") and not unusual and not renamed
    )


def _is_plain_dataclass(cls: type[Any]) -> bool:
    return (
        not _overrides(cls, object, "__new__")
        and cls.__dataclass_params__.eq
        and _is_generated(cls.__eq__)
        and all(field.init and field.compare for field in dataclasses.fields(cls))
    )


def _overrides(cls: type[Any], base: type[Any], method: str) -> bool:
    return getattr(cls, method) is not getattr(base, method)


def _is_generated(method: Any) -> bool:
    # dataclass leaves an __eq__ of the user's alone, and marks its own in no other way.
    code = getattr(method, "__code__", None)
    return code is not None and code.co_filename == "<string>"
