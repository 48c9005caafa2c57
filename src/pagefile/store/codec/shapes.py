"""What a class stores, and how an instance is rebuilt without running its code."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import sys
import typing
from collections.abc import Callable, Collection
from enum import Enum
from types import MemberDescriptorType
from typing import Any, Final

import msgspec

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
