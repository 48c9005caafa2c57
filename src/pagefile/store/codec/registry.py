"""Names and classes: which class a stored type name means."""

from __future__ import annotations

import sys
from enum import Enum
from types import ModuleType
from typing import Any, Final, TypeVar

from pagefile.errors import Invalid
from pagefile.store.codec.aliases import MOVED
from pagefile.store.codec.shapes import shape_for

C = TypeVar("C", bound=type[Any])

OPEN_MARK: Final = "+"
"""Ends the stored type name of a body in tagged form."""

#: `MOVED` the other way round: what a class of this package is called in data.
_STORED_AS: Final[dict[str, str]] = {now: stored for stored, now in MOVED.items()}

_classes: dict[str, type[Any]] = {}
_names: dict[type[Any], str] = {}


def register(cls: C, name: str | None = None) -> C:
    """Let stored values called `name` be read as `cls`; the latest registration wins.

    For dataclasses, msgspec Structs, pydantic models and Enums. The default
    name is `module:Qualified.Name`, with the module it had at first if it is a class
    of this package. Also a decorator. Storing an instance
    registers its class.
    """
    _require_supported(cls)
    if name is None:
        name = _default_name(cls)
    elif not name or not name.isprintable() or name.endswith(OPEN_MARK):
        rule = f"choose a printable name that does not end in {OPEN_MARK!r}"
        raise Invalid("name", f"{name!r} cannot be a type name", rule)
    _names[cls] = name
    _classes[name] = cls
    return cls


def type_name(cls: type[Any]) -> str:
    """The name under which instances of `cls` are stored, without the open mark."""
    if cls not in _names:
        _require_supported(cls)
    return _names.get(cls) or _default_name(cls)


def is_typed(cls: type[Any]) -> bool:
    """Whether values of the class are stored under its name; plain values have none."""
    return cls in _names or _is_supported(cls)


def registered_name(cls: type[Any]) -> str:
    """The class's name, registering the class on first use."""
    name = _names.get(cls)
    if name is None:
        register(cls)
        name = _names[cls]
    return name


def find_class(name: str) -> type[Any] | None:
    """The class of a stored name, if this process has it. Nothing is imported or run."""
    registered = _classes.get(name)
    return _find_loaded(MOVED.get(name, name)) if registered is None else registered


def _find_loaded(name: str) -> type[Any] | None:
    module_name, _, qualname = name.partition(":")
    module = sys.modules.get(module_name)
    if not issubclass(type(module), ModuleType):
        return None
    # Past any __getattribute__: a lazy module would be imported by it.
    found: Any = ModuleType.__getattribute__(module, "__dict__")
    for part in qualname.split("."):
        found = found.get(part)
        if not isinstance(found, type):
            return None
        cls, found = found, type.__getattribute__(found, "__dict__")
    return cls if _is_supported(cls) else None


def _is_supported(cls: type[Any]) -> bool:
    return issubclass(cls, Enum) or shape_for(cls) is not None


def _require_supported(cls: Any) -> None:
    if not isinstance(cls, type) or not _is_supported(cls):
        rule = "use a dataclass, a msgspec Struct, a pydantic v2 model or an Enum"
        raise Invalid("cls", f"{cls!r} is not a class that can be stored", rule)


def _default_name(cls: type[Any]) -> str:
    name = f"{cls.__module__}:{cls.__qualname__}"
    return _STORED_AS.get(name, name)
