"""Why a document does not fit its definition: every misfit, with its path."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from pagefile.errors import Invalid, shown
from pagefile.runs.schema import timestamps
from pagefile.runs.schema.shapes import (
    DEPTH,
    ENTRIES,
    Either,
    Fields,
    Flag,
    Free,
    Items,
    Maybe,
    Moment,
    Never,
    Number,
    Shape,
    Table,
    Text,
    Whole,
    Word,
)

ROOT = "<root>"


class Misfit(NamedTuple):
    """One fault. A missing or unknown field is a fault of the object that it is missing in."""

    path: tuple[str | int, ...]
    fact: str
    rule: str

    def to_error(self) -> Invalid:
        return Invalid(".".join(map(str, self.path)) or ROOT, self.fact, self.rule)


def first_misfit(shape: Shape, value: object) -> Misfit | None:
    """The first by path: an object before its fields, these by name, entries by number."""
    return min(_misfits(shape, value, ()), key=lambda misfit: misfit.path, default=None)


_Found = Iterator[Misfit]
_Path = tuple[str | int, ...]


def _misfits(shape: Shape, value: Any, path: _Path) -> _Found:
    match shape:
        case Text():
            yield from _in_text(shape, value, path)
        case Moment():
            if not timestamps.is_moment(value):
                yield Misfit(path, f"{shown(value)} is no date-time", timestamps.RULE)
        case Word():
            if not isinstance(value, str) or value not in shape.choices:
                rule = f"give {' or '.join(shape.choices)}"
                yield Misfit(path, f"{shown(value)} is not one of the words", rule)
        case Whole():
            if not _is_whole(value) or not shape.least <= value <= shape.most:
                rule = f"give a whole number from {shape.least} to {shape.most}"
                yield Misfit(path, f"{shown(value)} is no such number", rule)
        case Number():
            if not _is_number(value) or not shape.least <= value <= shape.most:
                rule = f"give a number from {shape.least} to {shape.most}"
                yield Misfit(path, f"{shown(value)} is no such number", rule)
        case Flag():
            if not isinstance(value, bool):
                yield Misfit(path, f"{shown(value)} is no truth value", "give true or false")
        case Maybe():
            if value is not None:
                yield from _misfits(shape.shape, value, path)
        case Either():
            inner = shape.text if isinstance(value, str) else shape.free
            yield from _misfits(inner, value, path)
        case Free():
            yield from _in_free(shape, value, path)
        case Never():
            yield Misfit(path, "does not belong here", "leave it out")
        case Items():
            yield from _in_items(shape, value, path)
        case Table():
            yield from _in_table(shape, value, path)
        case Fields():
            yield from _in_fields(shape, value, path)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_whole(value: Any) -> bool:
    return _is_number(value) and (isinstance(value, int) or value.is_integer())


def _in_text(shape: Text, value: Any, path: _Path) -> _Found:
    if not isinstance(value, str):
        yield Misfit(path, f"{shown(value)} is no text", "give a string")
    elif len(value) < shape.least:
        fact = f"has {len(value)} characters" if value else "is empty"
        yield Misfit(path, fact, f"give at least {shape.least}")
    elif len(value) > shape.most:
        yield Misfit(path, f"has {len(value)} characters", f"give at most {shape.most}")
    elif shape.pattern and not _pattern(shape.pattern).search(value):
        yield Misfit(path, f"{shown(value)} does not match", shape.rule)
    elif not _is_unicode(value):
        yield Misfit(path, "holds half of a surrogate pair", "give valid Unicode")


_pattern = lru_cache(re.compile)


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _in_items(shape: Items, value: Any, path: _Path) -> _Found:
    if not isinstance(value, list):
        yield Misfit(path, f"{shown(value)} is no list", "give a list")
    elif not shape.least <= len(value) <= shape.most:
        rule = f"give {shape.least} to {shape.most}"
        yield Misfit(path, f"has {len(value)} entries", rule)
    else:
        for number, item in enumerate(value):
            yield from _misfits(shape.each, item, (*path, number))
        if shape.unique_ids:
            yield from _repeated_ids(value, path)


def _repeated_ids(items: list[Any], path: _Path) -> _Found:
    seen: set[str] = set()
    for number, item in enumerate(items):
        found = item.get("id") if isinstance(item, dict) else None
        if isinstance(found, str):
            if found in seen:
                at = (*path, number, "id")
                yield Misfit(at, f"{shown(found)} is there already", "give every item its own id")
            seen.add(found)


def _in_table(shape: Table, value: Any, path: _Path) -> _Found:
    if not isinstance(value, dict):
        yield Misfit(path, f"{shown(value)} is no object", "give an object")
    elif len(value) > shape.most:
        yield Misfit(path, f"has {len(value)} entries", f"give at most {shape.most}")
    else:
        for name, each in value.items():
            for fault in _misfits(shape.names, name, path):
                yield Misfit(path, f"the name {shown(name)} {fault.fact}", fault.rule)
            if isinstance(name, str):
                yield from _misfits(shape.values, each, (*path, name))


def _in_fields(shape: Fields, value: Any, path: _Path) -> _Found:
    if not isinstance(value, dict):
        yield Misfit(path, f"{shown(value)} is no object", "give an object")
        return
    if shape.whens:
        shape = shape.resolve(shape.case_of(value))
    shapes = shape.shapes
    for name in shape.required:
        if name not in value:
            yield Misfit(path, f"{name} is missing", f"give {name}")
    if shape.any_of and not any(name in value for name in shape.any_of):
        names = " or ".join(shape.any_of)
        yield Misfit(path, f"{names} is missing", f"give {names}")
    for name, each in value.items():
        if name in shapes:
            yield from _misfits(shapes[name], each, (*path, name))
        else:
            allowed = ", ".join(n for n, s in shapes.items() if not isinstance(s, Never))
            yield Misfit(path, f"{shown(name)} is not a field here", f"give only {allowed}")


def _in_free(shape: Free, value: Any, path: _Path) -> _Found:
    if shape.kind == "object" and not isinstance(value, dict):
        yield Misfit(path, f"{shown(value)} is no object", "give an object")
    elif shape.kind == "array" and not isinstance(value, list):
        yield Misfit(path, f"{shown(value)} is no list", "give a list")
    elif shape.kind and len(value) > ENTRIES:
        yield Misfit(path, f"has {len(value)} entries", f"give at most {ENTRIES}")
    else:
        yield from _not_plain(value, path, DEPTH)


def _not_plain(value: Any, path: _Path, depth: int) -> _Found:
    if isinstance(value, str):
        if not _is_unicode(value):
            yield Misfit(path, "holds half of a surrogate pair", "give valid Unicode")
    elif isinstance(value, dict | list):
        if not depth:
            yield Misfit(path, f"is nested deeper than {DEPTH} levels", "make it flatter")
            return
        entries: Iterable[tuple[Any, Any]] = (
            value.items() if isinstance(value, dict) else enumerate(value)
        )
        for name, each in entries:
            if isinstance(value, list) or (isinstance(name, str) and _is_unicode(name)):
                yield from _not_plain(each, (*path, name), depth - 1)
            else:
                yield Misfit(path, f"has the name {shown(name)}", "name fields in valid Unicode")
    elif isinstance(value, float):
        if not math.isfinite(value):
            yield Misfit(path, f"{shown(value)} is not in JSON", "give a finite number")
    elif value is not None and not isinstance(value, int):
        fact = f"is of type {type(value).__name__}, which is not in JSON"
        yield Misfit(path, fact, "give a string, number, truth value, null, list or object")
