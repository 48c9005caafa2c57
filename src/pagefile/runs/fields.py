"""The fields of a working set that a patch may change, and what tells their items apart."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from operator import itemgetter
from typing import Any, Final

TEXTS: Final = frozenset({"status", "current_stage", "next_action", "last_action_summary"})
STRING_LISTS: Final = frozenset({"acceptance_criteria", "constraints", "blockers"})
ITEM_LISTS: Final = frozenset({"pinned_context", "sliding_context", "artifact_refs"})
LISTS: Final = STRING_LISTS | ITEM_LISTS
PATCHED: Final = TEXTS | LISTS

#: What an item of each list is known by. Strings are known by their value.
KEY_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "pinned_context": ("id",),
    "sliding_context": ("id",),
    "artifact_refs": ("type", "id"),
}


_KEY_OF: Final = {field: itemgetter(*names) for field, names in KEY_FIELDS.items()}


def key_of(field: str, item: Any) -> Hashable:
    """What tells an item of a list from the others: its id, type and id, or itself."""
    get = _KEY_OF.get(field)
    key: Hashable = item if get is None else get(item)
    return key


def keys_of(field: str, items: Iterable[Any]) -> list[Hashable]:
    """The keys of all the items, in order."""
    get = _KEY_OF.get(field)
    return list(items) if get is None else list(map(get, items))


def key_json(key: Hashable) -> Any:
    """The key in plain JSON."""
    return list(key) if isinstance(key, tuple) else key


def key_from_json(value: Any) -> Hashable:
    """The key that `key_json` wrote."""
    return tuple(value) if isinstance(value, list) else value


def key_shown(key: Hashable) -> str:
    """The key as a path or a message shows it."""
    return "/".join(key) if isinstance(key, tuple) else str(key)


def by_key(field: str, items: Iterable[Any]) -> dict[Hashable, Any]:
    """The items by their keys, in order; of two with one key the later."""
    items = list(items)
    return dict(zip(keys_of(field, items), items, strict=True))
