"""Reading memory items: by id, through their history, and by the words they share with a query."""

from __future__ import annotations

from typing import Any, get_args

from pagefile.errors import Invalid, NotFound, shown
from pagefile.memory.items.change import ItemType, Scope, require_id, require_name_or_none
from pagefile.memory.items.item import (
    MemoryItem,
    Place,
    Revision,
    Status,
    place_of,
    revision_of,
    visible,
)
from pagefile.memory.items.text_search import Hit, candidates, ranked
from pagefile.store.arguments import require_count
from pagefile.store.store import Store

_MOST_TOP_K = 1_000
_MOST_QUERY = 10_000


class ItemReader:
    """What may be seen of the items in a store, for one user and project at a time."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def get(
        self, memory_id: str, *, user_id: str | None = None, project_id: str | None = None
    ) -> MemoryItem:
        """The item of that id, of the user, else of the project, else of everybody.

        Raises:
            NotFound: there is none to be seen with these; one that was undone is none.
        """
        for place in self._visible(memory_id, user_id, project_id):
            found = self._store.get(place.document(memory_id))
            if found is not None and not found.erased:
                item = revision_of(found).item
                if item.status != "rejected":
                    return item
        raise _unknown(memory_id)

    def history(
        self,
        memory_id: str,
        *,
        user_id: str | None = None,
        project_id: str | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> list[Revision]:
        """Every version of an item, oldest first, and what caused each.

        Raises:
            NotFound: there never was one to be seen with these.
        """
        for place in self._visible(memory_id, user_id, project_id):
            document = place.document(memory_id)
            if self._store.get(document) is not None:
                versions = self._store.history(document, after=after, limit=limit)
                return [revision_of(one) for one in versions if not one.erased and not one.deleted]
        raise _unknown(memory_id)

    def search(
        self,
        query: str,
        *,
        scope: Scope | None = None,
        user_id: str | None = None,
        project_id: str | None = None,
        status: Status | None = "active",
        type: ItemType | None = None,
        top_k: int = 8,
    ) -> list[Hit]:
        """Items that share a word with the query, best first, of what may be seen.

        `status=None` looks at every status. Of each place, the user's, the
        project's and everybody's, the 10,000 newest items are looked at.
        """
        if not isinstance(query, str) or len(query) > _MOST_QUERY:
            raise Invalid("query", shown(query), f"give text of at most {_MOST_QUERY} characters")
        _require_one_of("scope", scope, Scope)
        _require_one_of("status", status, Status)
        _require_one_of("type", type, ItemType)
        require_count(top_k, "top_k", least=1, most=_MOST_TOP_K)
        require_name_or_none("user_id", user_id)
        require_name_or_none("project_id", project_id)
        owner = {"user": user_id, "project": project_id}
        if scope is None:
            places = visible(user_id, project_id)
        elif scope in owner and owner[scope] is None:
            raise Invalid(f"{scope}_id", f"is missing, and scope is {scope}", f"give {scope}_id")
        else:
            places = [place_of(scope, user_id, project_id)]
        return ranked(query, candidates(self._store, places, status, type), top_k)

    def _visible(self, memory_id: str, user_id: str | None, project_id: str | None) -> list[Place]:
        require_id("memory_id", memory_id)
        require_name_or_none("user_id", user_id)
        require_name_or_none("project_id", project_id)
        return visible(user_id, project_id)


def _unknown(memory_id: str) -> NotFound:
    return NotFound(
        f"there is no memory item {shown(memory_id)} to be seen here",
        "give the user_id or project_id it belongs to",
    )


def _require_one_of(field: str, value: object, words: Any) -> None:
    if value is not None and value not in get_args(words):
        raise Invalid(field, shown(value), f"use one of {', '.join(get_args(words))}, or None")
