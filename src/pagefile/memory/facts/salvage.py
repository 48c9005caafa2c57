"""Facts as far as they can be read: for who erases, and must not be stopped by what is odd."""

from __future__ import annotations

import msgspec

from pagefile.errors import Corrupt, Invalid
from pagefile.memory.facts.documents import (
    BY_PREDICATE,
    RETRACTION,
    Assertion,
    Retraction,
    assertion_in,
    documents_under,
    retraction_in,
)
from pagefile.memory.facts.fact import Fact
from pagefile.store.batch import Query
from pagefile.store.records import Document
from pagefile.store.store import Store


class Readable(msgspec.Struct, frozen=True):
    """What a user asserted and retracted, as far as it can be read, and what cannot."""

    facts: tuple[Fact, ...]
    retractions: tuple[Retraction, ...]
    odd: tuple[Document, ...]


def readable(store: Store, user_id: str | None) -> Readable:
    """All of a user's; a document that is no fact keeps nobody from the others."""
    found: list[Assertion] = []
    facts: dict[str, Fact] = {}
    retractions: list[Retraction] = []
    odd: list[Document] = []
    for document in documents_under(store, Query(BY_PREDICATE, user=user_id), None):
        assert document is not None
        try:
            if document.kind == RETRACTION:
                retractions.append(retraction_in(document))
            else:
                assertion = assertion_in(document)
                facts[assertion.id] = assertion.fact()
                found.append(assertion)
        except (Corrupt, Invalid, OverflowError):
            odd.append(document)
    ordered = tuple(facts[each.id] for each in sorted(found, key=lambda each: each.order))
    return Readable(ordered, tuple(retractions), tuple(odd))
