"""Enum members by their value, without running `_missing_`."""

from __future__ import annotations

from enum import Enum, Flag
from typing import Any

# The standard library's own, which makes combinations such as READ | WRITE.
_combine = vars(Flag)["_missing_"].__func__


def find_member(cls: type[Enum], value: Any) -> Enum | None:
    """The member with this value, or None."""
    try:
        member = cls._value2member_map_.get(value)
    except TypeError:
        return next((m for m in cls._member_map_.values() if m._value_ == value), None)
    if member is None and issubclass(cls, Flag) and type(value) is int:
        return _combination(cls, value)
    return member


def _combination(cls: type[Flag], value: int) -> Enum | None:
    try:
        member: Flag = _combine(cls, value)
    except ValueError:
        return None
    # Some boundaries drop unknown bits.
    return member if isinstance(member, cls) and member._value_ == value else None
