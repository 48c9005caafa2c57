"""What field annotations promise: immutability, and a lossless JSON form."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from enum import Enum, Flag
from types import NoneType, UnionType
from typing import Any, Final, Literal, NewType, Union, get_args, get_origin
from uuid import UUID

from pagefile.store.codec.registry import shape_for
from pagefile.store.codec.shapes import resolved_hints

JSON_SCALARS: Final = frozenset({str, int, float, bool, NoneType})
_IMMUTABLE_SCALARS: Final = JSON_SCALARS | {bytes, datetime, date, Decimal, UUID}
_UNIONS: Final = (Union, UnionType)


def is_deeply_immutable(cls: type[Any]) -> bool:
    """True for a frozen dataclass, Struct or pydantic model with immutable fields all through.

    Judged by the annotations; a class that is none of these is False.
    """
    return isinstance(cls, type) and _is_immutable_class(cls, frozenset())


def unwrapped(hint: Any) -> Any:
    """The hint below any NewType."""
    while isinstance(hint, NewType):
        hint = hint.__supertype__
    return hint


def members_of_union(hint: Any) -> tuple[Any, ...]:
    """The members of a union; the hint alone when it is none."""
    return get_args(hint) if get_origin(hint) in _UNIONS else (hint,)


def is_json_enum(cls: type[Enum]) -> bool:
    """True when msgspec reads the Enum's members back without running its code."""
    if issubclass(cls, Flag) or vars(Enum)["_missing_"].__func__ is not cls._missing_.__func__:  # type: ignore[attr-defined]
        return False
    kinds = {type(member._value_) for member in cls._member_map_.values()}
    return kinds in ({str}, {int})


def is_lossless(hint: Any, is_lossless_class: Callable[[type[Any]], bool]) -> bool:
    """True when JSON and the annotation together bring back the exact value."""
    hint = unwrapped(hint)
    if isinstance(hint, type) and get_origin(hint) is None:
        if issubclass(hint, Enum):
            return is_json_enum(hint)
        return hint in JSON_SCALARS or is_lossless_class(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return all(type(argument) in JSON_SCALARS for argument in arguments)
    if origin is dict:
        return arguments[:1] == (str,) and is_lossless(arguments[1], is_lossless_class)
    if origin not in (*_UNIONS, list, tuple) or not arguments:
        return False
    return all(arg is ... or is_lossless(arg, is_lossless_class) for arg in arguments)


def _is_immutable_class(cls: type[Any], seen: frozenset[type[Any]]) -> bool:
    if cls in seen:
        return True
    shape = shape_for(cls)
    if shape is None or not shape.frozen:
        return False
    hints = resolved_hints(shape)
    inside = seen | {cls}
    return hints is not None and all(_is_immutable(hint, inside) for hint in hints.values())


def _is_immutable(hint: Any, seen: frozenset[type[Any]]) -> bool:
    hint = unwrapped(hint)
    if isinstance(hint, type) and get_origin(hint) is None:
        return (
            hint in _IMMUTABLE_SCALARS or issubclass(hint, Enum) or _is_immutable_class(hint, seen)
        )
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return True
    if origin not in (*_UNIONS, tuple, frozenset) or not arguments:
        return False
    return all(arg is ... or _is_immutable(arg, seen) for arg in arguments)
