"""Long-term items without a question: the newest first, page by page."""

from __future__ import annotations

from collections.abc import Sequence

from pagefile.errors import Invalid
from pagefile.memory.items.change import ItemType, Scope
from pagefile.memory.items.item import MemoryItem, place_of, visible
from pagefile.memory.items.text_search import candidates
from pagefile.store.store import Store
from pagefile.surfaces.http.pagination import cursor_of, place_in

#: What is newer comes first; of equal moments the order is one that does not change.
_Order = tuple[int, str, str]


def newest_items(
    store: Store,
    *,
    statuses: Sequence[str | None] = ("active",),
    scope: Scope | None = None,
    user_id: str | None = None,
    project_id: str | None = None,
    item_type: ItemType | None = None,
    limit: int,
    cursor: str | None = None,
) -> tuple[list[MemoryItem], str | None]:
    """A page of what may be seen with this user and project, and where the next begins.

    Raises:
        Invalid: the cursor is none of this listing, or the scope's owner is missing.
    """
    places = visible(user_id, project_id)
    if scope is not None:
        if {"user": user_id, "project": project_id, "global": ""}[scope] is None:
            raise Invalid(f"{scope}_id", f"is missing, and scope is {scope}", f"give {scope}_id")
        places = [place_of(scope, user_id, project_id)]
    found = [one for status in statuses for one in candidates(store, places, status, item_type)]
    found.sort(key=_order)
    if cursor:
        behind = _order_in(cursor)
        found = [item for item in found if _order(item) > behind]
    page = found[:limit]
    more = cursor_of("{} {} {}".format(*_order(page[-1]))) if len(found) > limit else None
    return page, more


def _order(item: MemoryItem) -> _Order:
    return -round(item.updated_at.timestamp() * 1_000_000), item.scope, item.memory_id


def _order_in(cursor: str) -> _Order:
    when, _, rest = place_in(cursor).partition(" ")
    scope, mark, memory_id = rest.partition(" ")
    digits = when.removeprefix("-")
    if not mark or not digits.isdecimal() or not digits.isascii() or len(digits) > 18:
        raise Invalid("cursor", "is none of this listing", "give `cursor` of the page before")
    return int(when), scope, memory_id
