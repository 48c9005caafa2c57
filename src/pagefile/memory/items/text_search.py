"""Which items share words with a query: BM25 over what the caller may see, and nothing else.

Counts and lengths come from the candidates alone, so that what one user finds
does not depend on what others stored. Candidates are read through secondary
keys and scored here; at most the newest `MOST_CANDIDATES` of each place are.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

import msgspec

from pagefile.memory.items.bm25 import bm25
from pagefile.memory.items.item import MemoryItem, Place, Revision, revision_of
from pagefile.store.batch import Query
from pagefile.store.codec.sort_key import KeyValue
from pagefile.store.records import Document
from pagefile.store.store import Store

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
