"""Where an instance of a closed class departs from its annotations."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from types import NoneType
from typing import Any, get_args, get_origin

import msgspec

from pagefile.errors import Invalid
from pagefile.store.codec.canonical_json import encode_json
from pagefile.store.codec.decoder import json_decoder
from pagefile.store.codec.registry import shape_for
from pagefile.store.codec.shapes import members_of_union, resolved_hints, unwrapped
from pagefile.store.codec.writer import ROOT, Location, invalid


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
