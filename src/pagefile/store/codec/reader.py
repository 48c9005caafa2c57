"""A tagged JSON form back to its value. Nothing is imported; no class's code is run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum, Flag
from typing import Any, NoReturn

from pagefile.store.codec import tags
from pagefile.store.codec.canonical_json import MAX_DEPTH, corrupt, too_deep
from pagefile.store.codec.registry import find_class
from pagefile.store.codec.shapes import shape_for

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


def value_of(node: Any) -> Any:
    """The value that a tagged body means."""
    return _value(node, False, 1)


def typed_value_of(name: str, node: dict[str, Any]) -> Any:
    """The instance, or Record, whose tagged fields are `node`."""
    return _assembled(name, _plain_keys(node), False, 1)


# `frozen` asks for what may stand inside a Record or, failing all else, a
# set: Records in place of typed objects. Record itself freezes lists and dicts.


def _value(node: Any, frozen: bool, depth: int) -> Any:
    kind = type(node)
    if kind is dict:
        return _dict_value(node, frozen, depth)
    return _items(node, frozen, depth) if kind is list else node


def _items(nodes: list[Any], frozen: bool, depth: int) -> list[Any]:
    if depth > MAX_DEPTH:
        raise too_deep()
    return [_value(node, frozen, depth + 1) for node in nodes]


def _dict_value(node: dict[str, Any], frozen: bool, depth: int) -> Any:
    tag = next((key for key in node if tags.is_tag(key)), None)
    if tag is not None:
        return _tag_value(tag, node, frozen, depth)
    if depth > MAX_DEPTH:
        raise too_deep()
    return {tags.unescaped(key): _value(item, frozen, depth + 1) for key, item in node.items()}


def _tag_value(tag: str, node: dict[str, Any], frozen: bool, depth: int) -> Any:
    if tag == tags.TYPE:
        return _typed(node, frozen, depth)
    if tag == tags.ENUM:
        return _enum_value(node, frozen, depth)
    content = node[tag]
    if len(node) == 1 and tags.is_scalar(tag):
        return tags.scalar_from(tag, content)
    if len(node) != 1 or type(content) is not list:
        raise corrupt(f"the shape of a stored {tag} is damaged")
    if tag == tags.TUPLE:
        return tuple(_items(content, frozen, depth))
    if tag in (tags.SET, tags.FROZENSET):
        return _set_value(tag, content, frozen, depth)
    raise corrupt(f"the stored tag {tag} is unknown")


def _set_value(tag: str, nodes: list[Any], frozen: bool, depth: int) -> Any:
    kind = set if tag == tags.SET and not frozen else frozenset
    members = _items(nodes, frozen, depth)
    try:
        return kind(members)
    except TypeError:
        if frozen:
            raise corrupt(f"a member of a stored {tag} cannot be in a set") from None
    # Its class may have lost its hash since; a Record has one.
    frozen_members: Any = _set_value(tag, nodes, True, depth)
    return kind(frozen_members)


def _enum_value(node: dict[str, Any], frozen: bool, depth: int) -> Any:
    name = node[tags.ENUM]
    if node.keys() != {tags.ENUM, tags.ENUM_VALUE} or type(name) is not str:
        raise corrupt(f"the shape of a stored {tags.ENUM} is damaged")
    if depth > MAX_DEPTH:
        raise too_deep()
    value = _value(node[tags.ENUM_VALUE], frozen, depth + 1)
    cls = find_class(name)
    member = find_member(cls, value) if cls is not None and issubclass(cls, Enum) else None
    return value if member is None else member


def _typed(node: dict[str, Any], frozen: bool, depth: int) -> Any:
    fields = dict(node)
    name = fields.pop(tags.TYPE)
    if type(name) is not str:
        raise corrupt(f"the shape of a stored {tags.TYPE} is damaged")
    return _assembled(name, _plain_keys(fields), frozen, depth)


def _plain_keys(fields: dict[str, Any]) -> dict[str, Any]:
    if any(tags.is_tag(key) for key in fields):
        raise corrupt("a stored typed value has a tag among its fields")
    return {tags.unescaped(key): item for key, item in fields.items()}


def _assembled(name: str, fields: dict[str, Any], frozen: bool, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise too_deep()
    cls = None if frozen else find_class(name)
    shape = None if cls is None else shape_for(cls)
    if shape is not None and shape.accepts(fields):
        stored = {field: _value(item, False, depth + 1) for field, item in fields.items()}
        try:
            return shape.rebuild(stored)
        except (TypeError, AttributeError):
            # The class has no room for these fields, so the Record stands in.
            pass
    return Record(name, {field: _value(item, True, depth + 1) for field, item in fields.items()})
