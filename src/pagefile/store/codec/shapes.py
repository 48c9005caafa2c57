"""What a class stores, how it is written, and how it is rebuilt without running its code."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import sys
import typing
from collections.abc import Callable, Collection
from datetime import date, datetime
from decimal import Decimal
from enum import Enum, Flag
from types import MemberDescriptorType, NoneType, UnionType
from typing import Any, Final, Generic, Literal, NewType, Union, get_args, get_origin
from uuid import UUID

import msgspec

from pagefile.store.codec.decoder import json_decoder

#: Compiled so far.
_shapes: dict[type[Any], Shape | None] = {}

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


Default = Callable[[], Any]
Make = Callable[[type[Any], dict[str, Any], set[str]], Any]

# Whatever evaluating a class's own annotations may raise.
HINT_ERRORS: Final = (NameError, TypeError, AttributeError, SyntaxError, ValueError, LookupError)

_SAFE_FACTORIES: Final = frozenset(
    {list, dict, set, tuple, frozenset, str, bytes, int, float, bool, bytearray}
)


@dataclasses.dataclass(frozen=True, slots=True)
class Shape:
    """The stored fields of one class.

    `defaults` has only those that can be made without running the class's
    code. `inert` says that no default and no hook of the class needs running.
    `make` is None when an instance cannot be made without running its code.
    """

    cls: type[Any]
    fields: tuple[str, ...]
    defaults: dict[str, Default]
    frozen: bool
    inert: bool
    allows_extra: bool
    read: Callable[[Any], dict[str, Any]]
    make: Make | None

    def accepts(self, names: Collection[str]) -> bool:
        """True when an instance can be rebuilt from exactly these stored fields."""
        if self.make is None or not (self.allows_extra or set(self.fields).issuperset(names)):
            return False
        return all(field in names or field in self.defaults for field in self.fields)

    def rebuild(self, stored: dict[str, Any]) -> Any:
        """An instance; TypeError or AttributeError when the class has no room for it."""
        if self.make is None:
            raise TypeError(f"{self.cls.__qualname__} cannot be rebuilt without running its code")
        values = {
            field: stored[field] if field in stored else self.defaults[field]()
            for field in self.fields
        }
        extra = {name: value for name, value in stored.items() if name not in values}
        return self.make(self.cls, {**values, **extra}, set(stored))


def shape_for(cls: type[Any]) -> Shape | None:
    """The shape of a class, compiled once."""
    if cls not in _shapes:
        _shapes[cls] = shape_of(cls)
    return _shapes[cls]


def shape_of(cls: type[Any]) -> Shape | None:
    """The shape of a dataclass, Struct or pydantic model; None for any other class."""
    if issubclass(cls, Enum):
        return None  # members are stored by value, even those of a dataclass mix-in
    if issubclass(cls, msgspec.Struct):
        return _struct_shape(cls)
    if is_pydantic_model(cls):
        return _model_shape(cls)
    return _dataclass_shape(cls) if dataclasses.is_dataclass(cls) else None


def is_pydantic_model(cls: type[Any]) -> bool:
    """True for pydantic v2 models; pydantic is never imported for the answer."""
    pydantic_main = sys.modules.get("pydantic.main")
    base = None if pydantic_main is None else vars(pydantic_main).get("BaseModel")
    return base is not None and issubclass(cls, base)


def resolved_hints(shape: Shape) -> dict[str, Any] | None:
    """The field annotations as types; None when they cannot be resolved."""
    try:
        hints = typing.get_type_hints(shape.cls)
    except HINT_ERRORS:
        return None
    return (
        {field: hints[field] for field in shape.fields}
        if hints.keys() >= set(shape.fields)
        else None
    )


def _default(value: Any, absent: Any, factory: Any, no_factory: Any) -> Default | None:
    """What makes the default, or None when there is none or it is the user's code."""
    if factory is not no_factory:
        return factory if isinstance(factory, type) and factory in _SAFE_FACTORIES else None
    if value is absent:
        return None
    if type(value) in (list, dict, set):
        return lambda: copy.deepcopy(value)
    return lambda: value


def _dataclass_shape(cls: type[Any]) -> Shape:
    missing = dataclasses.MISSING
    fields = dataclasses.fields(cls)
    names = tuple(field.name for field in fields)
    made = {f.name: _default(f.default, missing, f.default_factory, missing) for f in fields}
    factories = {f.name for f in fields if f.default_factory is not missing}
    defaults = {name: default for name, default in made.items() if default is not None}
    settable = not any(_has_setter(cls, name) for name in names)
    return Shape(
        cls=cls,
        fields=names,
        defaults=defaults,
        frozen=cls.__dataclass_params__.frozen,
        inert=settable and factories <= defaults.keys() and not hasattr(cls, "__post_init__"),
        allows_extra=False,
        read=lambda value: _attributes(value, names),
        make=_make_dataclass if settable else None,
    )


def _struct_shape(cls: type[Any]) -> Shape:
    names: tuple[str, ...] = cls.__struct_fields__
    defaults, all_safe = _struct_defaults(cls)
    has_hook = hasattr(cls, "__post_init__")
    return Shape(
        cls=cls,
        fields=names,
        defaults=defaults,
        frozen=cls.__struct_config__.frozen,
        inert=all_safe and not has_hook,
        allows_extra=False,
        read=lambda value: _attributes(value, names),
        # A Struct cannot be allocated without its constructor, which runs the hook.
        make=None if has_hook else _make_struct,
    )


def _struct_defaults(cls: type[Any]) -> tuple[dict[str, Default], bool]:
    try:
        fields = msgspec.structs.fields(cls)
    except HINT_ERRORS:
        return {}, False
    absent = msgspec.NODEFAULT
    made = {f.name: _default(f.default, absent, f.default_factory, absent) for f in fields}
    defaults = {name: default for name, default in made.items() if default is not None}
    return defaults, all(f.default_factory is absent or f.name in defaults for f in fields)


def _model_shape(cls: type[Any]) -> Shape:
    fields: dict[str, Any] = cls.model_fields
    made = {
        name: None
        if field.is_required()
        else _default(field.default, object(), field.default_factory, None)
        for name, field in fields.items()
    }
    allows_extra = cls.model_config.get("extra") == "allow"
    frozen = bool(cls.model_config.get("frozen"))
    return Shape(
        cls=cls,
        fields=tuple(fields),
        defaults={name: default for name, default in made.items() if default is not None},
        frozen=frozen and not allows_extra and not cls.__private_attributes__,
        inert=False,
        allows_extra=allows_extra,
        read=lambda value: _model_values(value, tuple(fields)),
        make=_make_model,
    )


def _has_setter(cls: type[Any], name: str) -> bool:
    """True when setting the field would run a descriptor of the user's."""
    attribute = inspect.getattr_static(cls, name, None)
    return hasattr(type(attribute), "__set__") and not isinstance(attribute, MemberDescriptorType)


def _attributes(value: Any, names: tuple[str, ...]) -> dict[str, Any]:
    absent = object()
    found = ((name, getattr(value, name, absent)) for name in names)
    return {name: item for name, item in found if item is not absent}


def _model_values(model: Any, names: tuple[str, ...]) -> dict[str, Any]:
    # Not getattr: reading a field marked deprecated would warn.
    values = vars(model)
    stored = {name: values[name] for name in names if name in values}
    return {**stored, **(getattr(model, "__pydantic_extra__", None) or {})}


def _make_dataclass(cls: type[Any], values: dict[str, Any], given: set[str]) -> Any:
    made = object.__new__(cls)
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def _make_struct(cls: type[Any], values: dict[str, Any], given: set[str]) -> Any:
    return cls(**values)


def _make_model(cls: type[Any], values: dict[str, Any], given: set[str]) -> Any:
    # model_construct would do the same, but calls model_post_init and every
    # default_factory, and reads aliases before names.
    made = object.__new__(cls)
    fields = cls.model_fields
    extra = {name: value for name, value in values.items() if name not in fields}
    own = {name: value for name, value in values.items() if name in fields}
    object.__setattr__(made, "__dict__", own)
    object.__setattr__(made, "__pydantic_fields_set__", given)
    if not cls.__pydantic_root_model__:
        allows_extra = cls.model_config.get("extra") == "allow"
        object.__setattr__(made, "__pydantic_extra__", extra if allows_extra else None)
        object.__setattr__(made, "__pydantic_private__", _private_values(cls))
    return made


def _private_values(cls: type[Any]) -> dict[str, Any] | None:
    """Private attributes are not stored; those whose default is the user's code stay unset."""
    undefined = object()
    private: dict[str, Any] = cls.__private_attributes__
    if not private:
        return None
    made: dict[str, Any] = {}
    for name, attribute in private.items():
        if attribute.default_factory is None and _is_undefined(attribute.default):
            continue
        default = _default(attribute.default, undefined, attribute.default_factory, None)
        if default is not None:
            made[name] = default()
    return made


def _is_undefined(value: Any) -> bool:
    return type(value).__name__ == "PydanticUndefinedType"


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
