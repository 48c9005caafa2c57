"""A tagged JSON form back to its value. Nothing is imported; no class's code is run.

(A member of a set must be hashed to be put there, so a typed member's
`__hash__` and `__eq__` are the one exception.)
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from pagefile.store.codec import tags
from pagefile.store.codec.canonical_json import MAX_DEPTH, corrupt, too_deep
from pagefile.store.codec.reader import Record, find_member
from pagefile.store.codec.registry import find_class, shape_for


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
