"""Patches and differences of a working set, and what became of a patch.

    {"set": {"status": "BUSY"},
     "ops": [{"op": "append", "field": "sliding_context", "items": [{…}]},
             {"op": "upsert", "field": "artifact_refs", "items": [{…}]},
             {"op": "remove", "field": "blockers", "ids": ["no access"]}]}

Items are known by `id`, strings by their value. Sequence numbers and budgets
are not this module's business.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

import msgspec

from pagefile.errors import Corrupt, Invalid, shown
from pagefile.store.records import Document

# The fields of a working set that a patch may change, and what tells their items apart.


TEXTS: Final = frozenset({"status", "current_stage", "next_action", "last_action_summary"})
STRING_LISTS: Final = frozenset({"acceptance_criteria", "constraints", "blockers"})
ITEM_LISTS: Final = frozenset({"pinned_context", "sliding_context", "artifact_refs"})
LISTS: Final = STRING_LISTS | ITEM_LISTS
PATCHED: Final = TEXTS | LISTS

_id_of = itemgetter("id")


def key_of(field: str, item: Any) -> str:
    """What tells an item of a list from the others: its id; a text is its own."""
    key: str = _id_of(item) if field in ITEM_LISTS else item
    return key


def keys_of(field: str, items: Iterable[Any]) -> list[str]:
    """The keys of all the items, in order."""
    return list(map(_id_of, items)) if field in ITEM_LISTS else list(items)


def by_key(field: str, items: Iterable[Any]) -> dict[str, Any]:
    """The items by their keys, in order; of two with one key the later."""
    items = list(items)
    return dict(zip(keys_of(field, items), items, strict=True))


# How two working sets differ, in JSON that people can read and that can be applied.
#
#     {"status": {"from": "BUSY", "to": "DONE"},
#      "sliding_context": {"removed": [{…}], "changed": [{"from": {…}, "to": {…}}],
#                          "added": [{…}], "order": ["b", "a"]}}
#
# A field that only one side has lacks "from" or "to". "order", the keys of the
# result, is there only when removing, changing in place and adding at the end
# do not give it already.


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


# What became of a patch.


WorkingSet = dict[str, Any]


class PatchResult:
    """`ok`, or why not; true when it is. `code` is the error's, the same on every surface."""

    __slots__ = ("_made", "_ws", "code", "error", "evicted", "ok")

    def __init__(
        self,
        ok: bool,
        ws: WorkingSet | None = None,
        evicted: Sequence[dict[str, Any]] = (),
        error: str | None = None,
        code: str | None = None,
    ) -> None:
        self.ok = ok
        self.evicted = tuple(copy_of(item) for item in evicted)
        self.error = error
        self.code = code
        self._made = ws
        self._ws: WorkingSet | None = None

    def __bool__(self) -> bool:
        return self.ok

    @property
    def new_ws(self) -> WorkingSet | None:
        """The working set that resulted: a copy of your own, made when you ask for it."""
        if self._ws is None and self._made is not None:
            self._ws = copy_of(self._made)
        return self._ws

    def __repr__(self) -> str:
        if self.ok:
            return f"<PatchResult ok, {len(self.evicted)} evicted>"
        return f"<PatchResult refused, {self.code}: {self.error}>"


_TEXTS = ("task_id", "thread_id", "run_id", "status", "objective")
_LISTS = ("acceptance_criteria", "constraints", "blockers", "pinned_context", "sliding_context")


def working_set_in(document: Document) -> WorkingSet:
    """The working set that a document holds, as it is stored.

    Raises:
        Corrupt: it holds none.
    """
    try:
        value: WorkingSet = document.value
    except Corrupt as error:
        raise _unreadable(document, error.fact) from error
    if (
        type(value) is not dict
        or type(value.get("_update_seq")) is not int
        or any(type(value.get(name)) is not str for name in _TEXTS)
        or any(type(value.get(name)) is not list for name in _LISTS)
    ):
        raise _unreadable(document, "fields of one are missing")
    return value


def _unreadable(document: Document, why: str) -> Corrupt:
    return Corrupt(
        f"document {document.name!r}, version {document.version}, is no working set ({why})",
        "if it is the newest, repair() the run: the ledger tells it; or restore a copy",
    )


def copy_of(value: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of plain JSON values; much faster than copying object by object."""
    copied: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return copied
