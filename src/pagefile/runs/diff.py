"""How two working sets differ, in JSON that people can read and that can be applied.

    {"status": {"from": "BUSY", "to": "DONE"},
     "sliding_context": {"removed": [{…}], "changed": [{"from": {…}, "to": {…}}],
                         "added": [{…}], "order": ["b", "a"]}}

A field that only one side has lacks "from" or "to". "order", the keys of the
result, is there only when removing, changing in place and adding at the end
do not give it already.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from pagefile.errors import Invalid, shown
from pagefile.runs.fields import LISTS, by_key, key_of

#: Not a value that any field can have.
_ABSENT: Final[Any] = object()


def diff(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """What makes `b` of `a`: `apply_diff(a, diff(a, b)) == b`. Empty when they are equal."""
    found = {}
    for field in [*a, *(field for field in b if field not in a)]:
        old, new = a.get(field, _ABSENT), b.get(field, _ABSENT)
        if not _same(old, new):
            found[field] = _list_change(field, old, new) or _whole(old, new)
    return found


def apply_diff(a: Mapping[str, Any], d: Mapping[str, Any]) -> dict[str, Any]:
    """The other working set. `a` stays as it is.

    Raises:
        Invalid: `a` is not what the difference was taken from.
    """
    result = dict(a)
    for field, change in d.items():
        if change.keys() & {"from", "to"}:
            if not _same(result.get(field, _ABSENT), change.get("from", _ABSENT)):
                raise _another_base(field)
            if "to" in change:
                result[field] = change["to"]
            else:
                del result[field]
        else:
            result[field] = _changed_list(field, result.get(field, []), change)
    return result


class Merged(msgspec.Struct, frozen=True):
    """Two changes of one working set brought together.

    `conflicts` has the dotted paths that both changed in different ways; there
    `ws` has what `theirs` has.
    """

    ws: dict[str, Any]
    conflicts: list[str]


def merge(base: Mapping[str, Any], mine: Mapping[str, Any], theirs: Mapping[str, Any]) -> Merged:
    """`theirs` with what `mine` changed since `base`; lists are merged item by item.

    A list that both changed has the order of `theirs`, then what `mine` added.
    `_update_seq` is taken from `theirs`, which is what a retry is written on.
    """
    result: dict[str, Any] = dict(theirs)
    conflicts: list[str] = []
    for field in [*theirs, *(field for field in mine if field not in theirs)]:
        was, own = base.get(field, _ABSENT), mine.get(field, _ABSENT)
        if field != "_update_seq" and own is not _ABSENT and not _same(was, own):
            result[field] = _merged(field, was, own, theirs.get(field, _ABSENT), conflicts)
    return Merged(result, conflicts)


def _same(one: Any, other: Any) -> bool:
    # True == 1 in Python; in a stored document they are two things.
    if one is other:
        return True
    if one is _ABSENT or other is _ABSENT or one != other:
        return False
    return bool(_encode(one) == _encode(other))


_encode = msgspec.json.Encoder(order="sorted").encode


def _whole(old: Any, new: Any) -> dict[str, Any]:
    sides = {"from": old, "to": new}
    return {name: value for name, value in sides.items() if value is not _ABSENT}


def _keyed(field: str, value: Any) -> dict[str, Any] | None:
    """The items by key; None for what is no list of items with keys of their own."""
    if field not in LISTS or type(value) is not list:
        return None
    try:
        items = by_key(field, value)
    except (KeyError, TypeError):
        return None
    return items if len(items) == len(value) else None


def _list_change(field: str, old: Any, new: Any) -> dict[str, Any] | None:
    before, after = _keyed(field, old), _keyed(field, new)
    if before is None or after is None:
        return None
    change: dict[str, Any] = {}
    if removed := [item for key, item in before.items() if key not in after]:
        change["removed"] = removed
    changed = [
        {"from": item, "to": after[key]}
        for key, item in before.items()
        if key in after and not _same(item, after[key])
    ]
    if changed:
        change["changed"] = changed
    if added := [item for key, item in after.items() if key not in before]:
        change["added"] = added
    natural = [key for key in before if key in after] + [key for key in after if key not in before]
    if natural != list(after):
        change["order"] = list(after)
    return change


def _changed_list(field: str, now: list[Any], change: Mapping[str, Any]) -> list[Any]:
    items = _keyed(field, now)
    if items is None:
        raise _another_base(field)
    for item in change.get("removed", ()):
        if not _same(items.pop(key_of(field, item), _ABSENT), item):
            raise _another_base(field)
    for pair in change.get("changed", ()):
        key = key_of(field, pair["from"])
        if not _same(items.get(key, _ABSENT), pair["from"]):
            raise _another_base(field)
        items[key] = pair["to"]
    for item in change.get("added", ()):
        if key_of(field, item) in items:
            raise _another_base(field)
        items[key_of(field, item)] = item
    if "order" not in change:
        return list(items.values())
    order = change["order"]
    if len(order) != len(items) or set(order) != set(items):
        raise _another_base(field)
    return [items[key] for key in order]


def _another_base(field: str) -> Invalid:
    fact = f"{shown(field)} is not what the difference was taken from"
    return Invalid(field, fact, "apply it to the version that `diff` was given first")


def _merged(field: str, base: Any, mine: Any, theirs: Any, conflicts: list[str]) -> Any:
    if _same(base, theirs) or _same(mine, theirs):
        return mine
    was, ours, others = _keyed(field, base), _keyed(field, mine), _keyed(field, theirs)
    if was is None or ours is None or others is None:
        conflicts.append(field)
        return theirs
    result = dict(others)
    for key in [*was, *(key for key in ours if key not in was)]:
        before, own = was.get(key, _ABSENT), ours.get(key, _ABSENT)
        other = others.get(key, _ABSENT)
        if _same(before, own) or _same(own, other):
            continue
        if not _same(before, other):
            conflicts.append(f"{field}.{key}")
        elif own is _ABSENT:
            del result[key]
        else:
            result[key] = own
    return list(result.values())
