"""Reading memory items: by id, through their history, and by words (BM25 over what is visible)."""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, get_args

import msgspec

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
from pagefile.store.arguments import require_count
from pagefile.store.batch import Query
from pagefile.store.codec.sort_key import KeyValue
from pagefile.store.records import Document
from pagefile.store.store import Store

# BM25 over a handful of texts that are at hand; the index of a user has its own, over arrays.


# The usual constants: how fast repetition saturates, how much length counts.
_K1, _B = 1.2, 0.75


def bm25(asked: Iterable[str], texts: Sequence[Sequence[str]]) -> list[float]:
    """A score for each text, 0 where it holds none of the words asked for."""
    # In order: sums of the same words come out the same.
    wanted = sorted(set(asked))
    counts = [Counter(text) for text in texts]
    lengths = [count.total() for count in counts]
    average = sum(lengths) / len(lengths) if any(lengths) else 1.0
    weights = {}
    for word in wanted:
        holding = sum(word in count for count in counts)
        weights[word] = math.log(1 + (len(texts) - holding + 0.5) / (holding + 0.5))
    scores = []
    for count, length in zip(counts, lengths, strict=True):
        damping = _K1 * (1 - _B + _B * length / average)
        scores.append(
            sum(
                weights[word] * count[word] * (_K1 + 1) / (count[word] + damping)
                for word in wanted
                if word in count
            )
        )
    return scores


# Which items share words with a query: BM25 over what the caller may see, and nothing else.
#
# Counts and lengths come from the candidates alone, so that what one user finds
# does not depend on what others stored. Candidates are read through secondary
# keys and scored here; at most the newest `MOST_CANDIDATES` of each place are.


MOST_CANDIDATES = 10_000
_PAGE = 1_000
_STATUSES = ("active", "superseded", "deprecated", "rejected")
_WORD = re.compile(r"\w+")


class Hit(msgspec.Struct, frozen=True):
    """An item that shares words with the query; a higher score is a better match."""

    item: MemoryItem
    score: float


def candidates(
    store: Store, places: Sequence[Place], status: str | None, item_type: str | None
) -> list[MemoryItem]:
    """The items of these places, newest first in each; every status when None."""
    found: list[MemoryItem] = []
    for place in places:
        room = MOST_CANDIDATES
        for one in _STATUSES if status is None else (status,):
            for revision in _newest(store, place, one, item_type, room):
                found.append(revision.item)
                room -= 1
    return found


def ranked(query: str, items: Sequence[MemoryItem], top_k: int) -> list[Hit]:
    """The best matches; equal scores by confidence, then by scope and id."""
    scores = bm25(words(query), [words(item.content) for item in items])
    hits = [Hit(item, score) for item, score in zip(items, scores, strict=True) if score]
    hits.sort(key=_rank)
    return hits[:top_k]


def words(text: str) -> list[str]:
    """The words of a text, whatever their case and form."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def _rank(hit: Hit) -> tuple[float, float, str, str]:
    return -hit.score, -hit.item.confidence, hit.item.scope, hit.item.memory_id


def _newest(
    store: Store, place: Place, status: str, item_type: str | None, most: int
) -> Iterator[Revision]:
    field, value = place.field, (*place.prefix, status)
    if item_type is not None:
        field, value = f"{field}.type", (*value, item_type)
    cursor: str | None = None
    while most > 0:
        page = store.find(_query(place, field, value, cursor), limit=min(most, _PAGE))
        for document in page.items:
            if isinstance(document, Document) and not document.erased:
                yield revision_of(document)
                most -= 1
        cursor = page.cursor
        if cursor is None:
            return


def _query(place: Place, field: str, value: KeyValue, cursor: str | None) -> Query:
    everyone = place.user is None
    return Query(field, value, user=place.user, everyone=everyone, cursor=cursor, reverse=True)


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
