"""The fields of a working set that a patch may change, and what tells their items apart."""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from typing import Any, Final

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
