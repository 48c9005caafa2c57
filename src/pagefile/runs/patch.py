"""A patch applied to a working set: `set` replaces whole fields, `ops` change lists.

    {"set": {"status": "BUSY"},
     "ops": [{"op": "append", "field": "sliding_context", "items": [{…}]},
             {"op": "upsert", "field": "artifact_refs", "items": [{…}]},
             {"op": "remove", "field": "blockers", "ids": ["no access"]}]}

Items are known by `id`, strings by their value. Sequence numbers and budgets
are not this module's business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pagefile.errors import Invalid, shown
from pagefile.runs.diff import Merged, apply_diff, diff, merge
from pagefile.runs.fields import ITEM_LISTS, LISTS, PATCHED, STRING_LISTS, by_key, keys_of

__all__ = ["Merged", "apply_diff", "apply_patch", "diff", "merge"]

_Step = Callable[[list[Any], Mapping[str, Any], str, str], list[Any]]


def apply_patch(ws: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """The working set that results; neither argument is changed.

    `set` comes first, then `ops` in order. What the patch brings is copied;
    items that it leaves alone are the same objects as in `ws`.

    Raises:
        Invalid: a field, operation or id is wrong; the error has its dotted path.
    """
    result = dict(ws)
    touched: dict[str, str] = {}
    for field, value in _mapping(patch.get("set", {}), "set").items():
        at = f"set.{field}"
        result[field] = _replacement(field, value, at)
        if field in LISTS:
            touched[field] = at
    for number, op in enumerate(_list(patch.get("ops", []), "ops")):
        at = f"ops.{number}"
        field = _apply(result, _mapping(op, at), at)
        touched[field] = f"{at}.items"
    for field, at in touched.items():
        _refuse_duplicates(field, result[field], at)
    return result


def _replacement(field: object, value: Any, at: str) -> Any:
    if field not in PATCHED or not isinstance(field, str):
        rule = f"patch only {', '.join(sorted(PATCHED))}"
        raise Invalid(at, "a patch cannot change this field", rule)
    if field in LISTS:
        return _items(field, value, at)
    if not isinstance(value, str):
        raise Invalid(at, f"{shown(value)} is no text", "give a str")
    return value


def _apply(ws: dict[str, Any], op: Mapping[str, Any], at: str) -> str:
    """Change one list of `ws`, which is ours, and say which."""
    name, field = op.get("op"), op.get("field")
    step = _STEPS.get(name) if isinstance(name, str) else None
    if step is None:
        raise Invalid(f"{at}.op", f"{shown(name)} is no operation", f"use {', '.join(_STEPS)}")
    if not isinstance(field, str) or field not in LISTS:
        rule = f"name one of {', '.join(sorted(LISTS))}"
        raise Invalid(f"{at}.field", f"{shown(field)} is no list of a working set", rule)
    takes = "ids" if name == "remove" else "items"
    for key in op:
        if key not in ("op", "field", takes):
            raise Invalid(f"{at}.{key}", f"{name} has no such part", f"give op, field, {takes}")
    if takes not in op:
        raise Invalid(f"{at}.{takes}", "it is missing", f"give a list of {takes}")
    ws[field] = step(ws[field], op, field, at)
    return field


def _append(now: list[Any], op: Mapping[str, Any], field: str, at: str) -> list[Any]:
    return [*now, *_items(field, op["items"], f"{at}.items")]


def _upsert(now: list[Any], op: Mapping[str, Any], field: str, at: str) -> list[Any]:
    """Items with a known key take the place of the old one; the others come last."""
    items = _items(field, op["items"], f"{at}.items")
    new = by_key(field, items)
    if field not in STRING_LISTS and len(new) < len(items):
        _refuse_duplicates(field, items, f"{at}.items")
    kept = [new.pop(key, item) for key, item in zip(keys_of(field, now), now, strict=True)]
    return [*kept, *new.values()]


def _remove(now: list[Any], op: Mapping[str, Any], field: str, at: str) -> list[Any]:
    gone = {
        _key(value, f"{at}.ids.{number}"): number
        for number, value in enumerate(_list(op["ids"], f"{at}.ids"))
    }
    keys = keys_of(field, now)
    unknown = gone.keys() - set(keys)
    if unknown:
        first = min(gone[key] for key in unknown)
        names = ", ".join(sorted(shown(key) for key in unknown))
        rule = "read the working set again and name only what is there"
        raise Invalid(f"{at}.ids.{first}", f"{field} has no {names}", rule)
    return [item for key, item in zip(keys, now, strict=True) if key not in gone]


_STEPS: Final[dict[str, _Step]] = {"append": _append, "upsert": _upsert, "remove": _remove}


def _key(value: Any, at: str) -> str:
    if not isinstance(value, str):
        raise Invalid(at, f"{shown(value)} is no id", "give a str")
    return value


def _items(field: str, value: Any, at: str) -> list[Any]:
    """A copy of a list of items; their other fields are checked with the whole working set."""
    items = _list(value, at)
    if field not in ITEM_LISTS:
        for number, item in enumerate(items):
            if not isinstance(item, str):
                raise Invalid(f"{at}.{number}", f"{shown(item)} is no text", "give a str")
        return list(items)
    copies = []
    for number, item in enumerate(items):
        copy = dict(_mapping(item, f"{at}.{number}"))
        if not isinstance(copy.get("id"), str):
            fact = f"{shown(copy['id'])} is no text" if "id" in copy else "it is missing"
            raise Invalid(f"{at}.{number}.id", fact, "give a str of its own to each item")
        copies.append(copy)
    return copies


def _refuse_duplicates(field: str, items: list[Any], at: str) -> None:
    if field in STRING_LISTS:
        return
    keys = keys_of(field, items)
    if len(set(keys)) == len(keys):
        return
    seen = set()
    for key in keys:
        if key in seen:
            fact = f"{field} would have {shown(key)} twice"
            raise Invalid(at, fact, "use upsert to replace an item, or give it another id")
        seen.add(key)


def _mapping(value: Any, at: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Invalid(at, f"{shown(value)} is no object", "give a dict")
    return value


def _list(value: Any, at: str) -> list[Any]:
    if not isinstance(value, list):
        raise Invalid(at, f"{shown(value)} is no list", "give a list")
    return value
