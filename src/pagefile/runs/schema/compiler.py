"""Fast checks, made once from a definition: they say yes or no, and not why.

What can be told by type and size alone is left to a msgspec type. The rest
(times, unique ids, free values, conditions) is tested column by column: all
timestamps of a list in one go, then all its ids. A yes is always right. A no
may be wrong for what is rare, such as 2.0 for a whole number; `mismatches` has
the last word then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

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
    When,
    Whole,
    Word,
)
from pagefile.runs.schema.timestamps import MOST_CHARACTERS, all_moments
from pagefile.store.codec.canonical_json import decode_json, depth_of
from pagefile.store.codec.decoder import convert

Test: TypeAlias = Callable[[Any], bool]
#: Tests many values of one shape that msgspec has passed already.
Column: TypeAlias = Callable[[list[Any]], bool]

_encode: Final = msgspec.json.Encoder().encode
_KINDS: Final[dict[str, type[Any]]] = {"object": dict, "array": list}


def compile_test(shape: Fields) -> Test:
    """A test for whole documents of this shape."""
    fits = _test_fields(shape)
    has_free = _has_free(shape)

    def test(instance: Any) -> bool:
        try:
            body = _encode(instance)  # Fails for text that is no Unicode, and for foreign types.
            return fits(instance) and (not has_free or _is_plain(instance, body))
        except (TypeError, ValueError, OverflowError, RecursionError):
            return False

    return test


def _is_plain(instance: Any, body: bytes) -> bool:
    """True for what JSON gives back as it was; tuples, sets, dates and NaN it does not."""
    back = decode_json(body)
    shallow = body.count(b"[") + body.count(b"{") <= DEPTH
    return bool(back == instance) and (shallow or depth_of(back) <= DEPTH)


def _has_free(shape: Shape | When) -> bool:
    match shape:
        case Free() | Either():
            return True
        case Items():
            return _has_free(shape.each)
        case Table():
            return _has_free(shape.values)
        case Fields():
            return any(map(_has_free, [*shape.shapes.values(), *shape.whens]))
        case When():
            return any(map(_has_free, shape.shapes.values()))
        case _:
            return False


def _test_fields(shape: Fields) -> Test:
    return _test_cases(shape) if shape.whens else _test_struct(shape)


def _test_struct(shape: Fields) -> Test:
    struct, column = _type_of(shape), _column_of(shape)

    def test(value: Any) -> bool:
        if type(value) is not dict:
            return False
        convert(value, struct)
        return column is None or column([value])

    return test


def _test_cases(shape: Fields) -> Test:
    """Each case is compiled when it first comes up; there are few, as words are from lists."""
    tests: dict[tuple[str, ...], Test] = {}
    words = {word for when in shape.whens for word in when.values}

    def test(value: Any) -> bool:
        if type(value) is not dict:
            return False
        case = shape.case_of(value)
        found = tests.get(case)
        if found is None:
            if not words.issuperset(case):
                case = tuple(word if word in words else "" for word in case)
            found = tests.setdefault(case, _test_struct(shape.resolve(case)))
        return found(value)

    return test


def _type_of(shape: Shape) -> Any:
    """The msgspec type that refuses most of what does not fit."""
    match shape:
        case Text():
            pattern = shape.pattern or None
            return Annotated[
                str, Meta(min_length=shape.least, max_length=shape.most, pattern=pattern)
            ]
        case Moment():
            return Annotated[str, Meta(max_length=MOST_CHARACTERS)]
        case Word():
            return Literal[shape.choices]
        case Whole():
            return Annotated[int, Meta(ge=shape.least, le=shape.most)]
        case Number():
            return Annotated[float, Meta(ge=shape.least, le=shape.most)]
        case Flag():
            return bool
        case Maybe():
            return _type_of(shape.shape) | None
        case Items():
            return Annotated[
                list[_type_of(shape.each)],  # type: ignore[misc]
                Meta(min_length=shape.least, max_length=shape.most),
            ]
        case Table():
            names, values = _type_of(shape.names), _type_of(shape.values)
            return Annotated[dict[names, values], Meta(max_length=shape.most)]  # type: ignore[valid-type]
        case Fields() if not shape.whens:
            return _struct_of(shape)
        case _:
            return Any


def _struct_of(shape: Fields) -> type[msgspec.Struct]:
    required = [(name, _type_of(each)) for name, each in shape.required.items()]
    optional = [
        # Of `Any` nothing else may be left over, and msgspec allows nothing beside it.
        (name, Any if (kind := _type_of(each)) is Any else kind | UnsetType, UNSET)
        for name, each in shape.optional.items()
        if not isinstance(each, Never)
    ]
    fields: list[Any] = [*required, *optional]
    return msgspec.defstruct(shape.name or "Object", fields, forbid_unknown_fields=True, gc=False)


def _column_of(shape: Shape) -> Column | None:
    """What the msgspec type leaves open, if anything."""
    match shape:
        case Moment():
            return all_moments
        case Free():
            return _free_column(shape)
        case Either():
            return _either_column(shape)
        case Items():
            return _items_column(shape)
        case Table():
            return _table_column(shape)
        case Fields() if shape.whens:
            test = _test_fields(shape)
            return lambda values: all(map(test, values))
        case Fields():
            return _fields_column(shape)
        case _:
            return None


def _free_column(shape: Free) -> Column | None:
    if not shape.kind:
        return None
    kind = _KINDS[shape.kind]
    return lambda values: all(type(value) is kind and len(value) <= ENTRIES for value in values)


def _either_column(shape: Either) -> Column:
    least, most = shape.text.least, shape.text.most
    return lambda values: all(
        least <= len(value) <= most if type(value) is str else type(value) is dict
        for value in values
    )


def _items_column(shape: Items) -> Column:
    inner = _column_of(shape.each)

    def column(values: list[Any]) -> bool:
        for value in values:
            if type(value) is not list:  # msgspec takes tuples and sets for lists.
                return False
            if shape.unique_ids and len({item["id"] for item in value}) != len(value):
                return False
            if inner is not None and not inner(value):
                return False
        return True

    return column


def _table_column(shape: Table) -> Column | None:
    inner = _column_of(shape.values)
    return None if inner is None else lambda values: all(inner([*v.values()]) for v in values)


def _fields_column(shape: Fields) -> Column | None:
    columns: list[Column] = [
        _field_column(name, inner, required=name in shape.required)
        for name, each in shape.shapes.items()
        if (inner := _column_of(each)) is not None
    ]
    if names := shape.any_of:
        columns.append(lambda values: all(any(n in value for n in names) for value in values))
    if not columns:
        return None
    return lambda values: all(column(values) for column in columns)


def _field_column(name: str, inner: Column, *, required: bool) -> Column:
    if required:
        return lambda values: inner([value[name] for value in values])
    return lambda values: inner([value[name] for value in values if name in value])
