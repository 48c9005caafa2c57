"""What a class looks like in XML: a tree of forms, made from its annotations."""

from __future__ import annotations

import base64
import dataclasses
import math
import types
import typing
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin
from uuid import UUID

import msgspec

from pagefile.errors import Invalid, PagefileError
from pagefile.store.codec.decoder import convert
from pagefile.store.codec.shapes import HINT_ERRORS, Shape, is_pydantic_model, shape_of

# Plain values as text, in the forms that XML Schema knows.


_MOST_EXPONENT = 1_000
#: XML Schema knows no zone further from UTC.
_MOST_OFFSET = timedelta(hours=14)


class Scalar(msgspec.Struct, frozen=True):
    """How values of one type are written and read; both raise ValueError when they cannot be."""

    xsd: str
    write: Callable[[Any], str]
    read: Callable[[str], Any]
    #: Whether white space around it belongs to it.
    exact: bool = False


def _float_text(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "INF" if value > 0 else "-INF"
    return repr(float(value))


def _decimal_text(value: Decimal) -> str:
    if not value.is_finite():
        raise ValueError(f"{value} is no finite number")
    if value and abs(value.adjusted()) > _MOST_EXPONENT:
        raise ValueError("its exponent is too large")
    return format(value, "f")


def _moment_text(value: datetime) -> str:
    offset = value.utcoffset()
    if offset is not None and (abs(offset) > _MOST_OFFSET or offset % timedelta(minutes=1)):
        value = value.astimezone(UTC)
    return value.isoformat()


def _time_text(value: time) -> str:
    offset = value.utcoffset()
    if offset is not None and (abs(offset) > _MOST_OFFSET or offset % timedelta(minutes=1)):
        raise ValueError("XML Schema does not know its time zone")
    return value.isoformat()


def _duration_text(value: timedelta) -> str:
    text: str = msgspec.to_builtins(value)
    return text


def _duration(text: str) -> timedelta:
    return convert(text, timedelta)


def _truth(text: str) -> bool:
    if text not in ("true", "false", "1", "0"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text in ("true", "1")


SCALARS: dict[type[Any], Scalar] = {
    str: Scalar("string", str, str, exact=True),
    bool: Scalar("boolean", lambda value: "true" if value else "false", _truth),
    int: Scalar("integer", lambda value: str(int(value)), int),
    float: Scalar("double", _float_text, float),
    bytes: Scalar(
        "base64Binary",
        lambda value: base64.b64encode(value).decode("ascii"),
        lambda text: base64.b64decode("".join(text.split()), validate=True),
    ),
    Decimal: Scalar("decimal", _decimal_text, Decimal),
    datetime: Scalar("dateTime", _moment_text, datetime.fromisoformat),
    date: Scalar("date", date.isoformat, date.fromisoformat),
    time: Scalar("time", _time_text, time.fromisoformat),
    timedelta: Scalar("duration", _duration_text, _duration),
    UUID: Scalar("string", str, UUID),
}


_MOST_CLASSES = 1_000
_LISTS: dict[Any, Callable[[list[Any]], Any]] = {
    list: list,
    tuple: tuple,
    set: set,
    frozenset: frozenset,
}


class Form:
    """Anything that an element can hold. `checks` are bounds that annotations state."""

    nillable = False
    checks: tuple[Any, ...] = ()


class Plain(Form):
    """Text: a scalar, or one of a few values. `choices` are values by their text."""

    def __init__(self, scalar: Scalar, cls: type[Any], choices: dict[str, Any] | None) -> None:
        self.scalar = scalar
        self.cls = cls
        self.choices = choices


class Listing(Form):
    """Elements named Item, all of one form."""

    def __init__(self, item: Form, make: Callable[[list[Any]], Any], cls: type[Any]) -> None:
        self.item = item
        self.make = make
        self.cls = cls


class Row(Form):
    """A tuple of fixed length: elements Item1, Item2 and so on."""

    def __init__(self, items: list[Form]) -> None:
        self.items = items


class Mapping(Form):
    """Elements named Entry, each with a Key and a Value."""

    def __init__(self, key: Plain, value: Form) -> None:
        self.key = key
        self.value = value


class Choice(Form):
    """A class, whose fields are the content; or one of several, as an element named like it."""

    def __init__(self, records: list[RecordForm]) -> None:
        self.records = records
        self.several = len(records) > 1


class Field(msgspec.Struct, frozen=True):
    """A field of a class, and its element. `given` is the name the class is made with."""

    name: str
    element: str
    form: Form
    required: bool
    given: str
    none_is_default: bool = False


class RecordForm(Form):
    """A class with fields: one element for each, in any order."""

    def __init__(self, shape: Shape, type_name: str) -> None:
        self.cls = shape.cls
        self.read = shape.read
        self.type_name = type_name
        self.element = shape.cls.__name__
        self.fields: dict[str, Field] = {}
        self.is_model = is_pydantic_model(shape.cls)


class Forms:
    """The forms of some classes, and of all that they refer to."""

    def __init__(self) -> None:
        self._records: dict[type[Any], RecordForm] = {}
        self._type_names: set[str] = set()

    def record(self, cls: type[Any]) -> RecordForm:
        """The form of a class.

        Raises:
            Invalid: something in it has no form in XML.
        """
        if cls in self._records:
            return self._records[cls]
        shape = shape_of(cls) if isinstance(cls, type) else None
        if shape is None:
            raise Invalid(str(cls), "is no class with fields", "use a dataclass, Struct or model")
        if len(self._records) >= _MOST_CLASSES:
            raise Invalid(cls.__name__, "is one class too many", f"use at most {_MOST_CLASSES}")
        if not _is_element_name(cls.__name__):
            raise Invalid(cls.__name__, "is no name of an element", "rename the class")
        made = RecordForm(shape, self._type_name(cls.__name__))
        # Known before its fields are, which may lead back to it.
        self._records[cls] = made
        try:
            self._fill(made, shape)
        except PagefileError:
            del self._records[cls]
            raise
        return made

    def _fill(self, made: RecordForm, shape: Shape) -> None:
        cls = shape.cls
        try:
            hints = typing.get_type_hints(cls, include_extras=True)
        except HINT_ERRORS as error:
            raise Invalid(
                cls.__name__, f"its annotations cannot be resolved ({error})", "define them"
            ) from error
        required = _required(cls)
        unset = _never_given(cls)
        for name in shape.fields:
            place = f"{cls.__name__}.{name}"
            if name in unset:
                raise Invalid(place, "is not given when it is made", "let the class take it")
            form = self._form(hints[name], place)
            element = pascal(name)
            if not _is_element_name(element) or element in made.fields:
                raise Invalid(
                    place, f"its element would be {element!r}, as another's", "rename the field"
                )
            made.fields[element] = Field(
                name,
                element,
                form,
                name in required,
                _given_name(cls, name),
                name in shape.defaults and shape.defaults[name]() is None,
            )

    def _form(self, hint: Any, place: str) -> Form:
        checks: tuple[Any, ...] = ()
        while True:
            if isinstance(hint, typing.NewType):
                hint = hint.__supertype__
            elif get_origin(hint) is typing.Annotated:
                checks += tuple(one for one in hint.__metadata__ if isinstance(one, msgspec.Meta))
                hint = hint.__origin__
            else:
                break
        form = self._bare(hint, place)
        if checks:
            form.checks = checks
        return form

    def _bare(self, hint: Any, place: str) -> Form:
        origin, arguments = get_origin(hint), get_args(hint)
        if origin in (Union, types.UnionType):
            return self._union(arguments, place)
        if origin is Literal:
            return _choices({value: value for value in arguments}, place)
        if origin in _LISTS and arguments:
            if origin is tuple and arguments[-1] is not ...:
                return Row([self._form(one, place) for one in arguments])
            return Listing(self._form(arguments[0], place), _LISTS[origin], origin)
        if origin is dict:
            key = self._form(arguments[0], place)
            if not isinstance(key, Plain) or key.nillable:
                raise _no_form(hint, place)
            return Mapping(key, self._form(arguments[1], place))
        if isinstance(hint, type):
            if issubclass(hint, Enum):
                return _choices({member.value: member for member in hint}, place)
            if hint in SCALARS:
                return Plain(SCALARS[hint], hint, None)
            if shape_of(hint) is not None:
                # A form of its own: whether it may be nil is not the class's affair.
                return Choice([self.record(hint)])
        raise _no_form(hint, place)

    def _union(self, members: tuple[Any, ...], place: str) -> Form:
        some = [member for member in members if member is not types.NoneType]
        if len(some) == 1:
            form = self._form(some[0], place)
        else:
            forms = [self._form(member, place) for member in some]
            records = [each for form in forms if isinstance(form, Choice) for each in form.records]
            names = {record.element.lower() for record in records}
            if len(records) != len(forms) or len(names) != len(records):
                raise _no_form("a union of anything but classes", place)
            form = Choice(records)
        form.nillable = len(some) < len(members) or form.nillable
        return form

    def _type_name(self, name: str) -> str:
        found, number = name, 2
        while found in self._type_names:
            found, number = f"{name}.{number}", number + 1
        self._type_names.add(found)
        return found


def pascal(name: str) -> str:
    """The element of a field: retry_allowed is RetryAllowed."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) or name


def _is_element_name(name: str) -> bool:
    return name.isascii() and name.isidentifier() and not name.lower().startswith("xml")


def _choices(values: dict[Any, Any], place: str) -> Plain:
    """Values, and what each stands for."""
    kinds = {type(value) for value in values}
    if len(kinds) != 1 or not kinds <= {str, int, bool}:
        raise _no_form("values of several types", place)
    (kind,) = kinds
    scalar = SCALARS[kind]
    return Plain(scalar, kind, {scalar.write(value): meant for value, meant in values.items()})


def _required(cls: type[Any]) -> set[str]:
    """The fields that have no default at all, not even one that the class's code makes."""
    if is_pydantic_model(cls):
        fields: dict[str, Any] = cls.model_fields
        return {name for name, field in fields.items() if field.is_required()}
    if issubclass(cls, msgspec.Struct):
        return {field.name for field in msgspec.structs.fields(cls) if field.required}
    return {
        field.name
        for field in dataclasses.fields(cls)
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    }


def _never_given(cls: type[Any]) -> set[str]:
    if is_pydantic_model(cls) or not dataclasses.is_dataclass(cls):
        return set()
    return {field.name for field in dataclasses.fields(cls) if not field.init}


def _given_name(cls: type[Any], name: str) -> str:
    if not is_pydantic_model(cls):
        return name
    field: Any = cls.model_fields[name]
    alias = field.validation_alias or field.alias
    return alias if isinstance(alias, str) else name


def _no_form(hint: Any, place: str) -> Invalid:
    return Invalid(
        place, f"{hint} has no form in XML", "use one plain type, one container, or classes"
    )
