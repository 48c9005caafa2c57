"""What a reader gets when it does not have the class."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn


class Record:
    """A stored typed value, read without its class; read-only all the way down.

    Fields are attributes and items: `record.title`, `record["title"]`. Lists
    inside are tuples, dicts are Records named "". A field called `type_name`
    or `to_dict` is reached as an item. It is no `Mapping`, so that fields
    called `items`, `keys` or `values` are reached as attributes.
    """

    __slots__ = ("_fields", "_type_name")

    _fields: dict[str, Any]
    _type_name: str

    def __init__(self, type_name: str, fields: Mapping[str, Any]) -> None:
        frozen = {name: _frozen(value) for name, value in fields.items()}
        object.__setattr__(self, "_type_name", type_name)
        object.__setattr__(self, "_fields", frozen)

    @property
    def type_name(self) -> str:
        """The name under which the class was stored; "" for a nested dict."""
        return self._type_name

    def to_dict(self) -> dict[str, Any]:
        """Plain mutable copies: Records as dicts, tuples as lists."""
        return {name: _thawed(value) for name, value in self._fields.items()}

    def __getattr__(self, name: str) -> Any:
        if name in Record.__slots__:
            # Only while an instance is half made; asking for the label would never end.
            raise AttributeError(name)
        if name in self._fields:
            return self._fields[name]
        raise AttributeError(f"{self._label()} has no field {name!r}", name=name, obj=self)

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __contains__(self, name: object) -> bool:
        return name in self._fields

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self._fields})

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record):
            return NotImplemented
        return self._type_name == other._type_name and self._fields == other._fields

    def __hash__(self) -> int:
        return hash((self._type_name, frozenset(self._fields.items())))

    def __repr__(self) -> str:
        return f"Record({self._type_name!r}, {self._fields!r})"

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        self._refuse_change(name)

    def __delattr__(self, name: str) -> NoReturn:
        self._refuse_change(name)

    def __reduce__(self) -> tuple[type[Record], tuple[str, dict[str, Any]]]:
        return Record, (self._type_name, self._fields)

    def _refuse_change(self, name: str) -> NoReturn:
        message = f"{self._label()} is read-only, so {name!r} cannot change: use to_dict()"
        raise AttributeError(message, name=name, obj=self)

    def _label(self) -> str:
        return f"Record of {self._type_name!r}" if self._type_name else "Record"


def _frozen(value: Any) -> Any:
    kind = type(value)
    if kind is dict:
        return Record("", value)
    if kind is list or kind is tuple:
        return tuple([_frozen(item) for item in value])
    return frozenset(value) if kind is set else value


def _thawed(value: Any) -> Any:
    kind = type(value)
    if kind is Record:
        return value.to_dict()
    return [_thawed(item) for item in value] if kind is tuple else value
