"""What follows from what is forgotten: facts, candidates, items, and how far reading was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from pagefile.errors import Corrupt, Invalid
from pagefile.memory.consolidation.claims import state_name
from pagefile.memory.facts.documents import RETRACTION, Retraction, document_of, retraction_put
from pagefile.memory.facts.fact import Fact
from pagefile.memory.facts.index import FactIndexing
from pagefile.memory.facts.proposal import BY_STATUS, proposed_of, put_candidate
from pagefile.memory.facts.user_facts import Readable, readable
from pagefile.memory.names import new_id, owner_key
from pagefile.memory.privacy.dependent_items import derived_items
from pagefile.memory.privacy.erasure_plan import Gone
from pagefile.memory.privacy.scope import Derived
from pagefile.memory.serializer import living
from pagefile.recall.records import DOCUMENT
from pagefile.store.batch import Condition, Operation, Put, Query, VersionIs
from pagefile.store.records import Document
from pagefile.store.store import Store

_PAGE = 1_000


class DerivedFromEpisodes:
    """Finds what was derived from episodes and slots.

    What rests on them alone goes with them. An assertion that rests on others
    too is asserted again without them, under a new id, so that no id of what was
    forgotten is left in it.
    """

    def __init__(self, store: Store, indexing: FactIndexing) -> None:
        self._store = store
        self._indexing = indexing

    def __call__(self, user_id: str | None, gone: Gone, going: Gone) -> Derived:
        if not gone:
            return Derived()
        states = [state_name(episode, user_id) for episode in sorted(gone.episodes)]
        documents = [name for name, document in self._each(states) if document is not None]
        candidates = list(self._candidates(user_id))
        documents += [each.name for each in candidates if gone.touches(each.sources)]
        withdrawn = self._retractions(user_id, gone)
        documents += withdrawn
        known = readable(self._store, user_id)
        resting = [each for each in known.facts if gone.touches(each.sources)]
        documents += _documents(known, {each.id for each in resting}, user_id)
        # The envelope says what it rests on, whatever became of the rest of it.
        documents += [each.name for each in known.odd if gone.touches(each.sources)]
        beside: list[Operation] = []
        conditions: list[Condition] = []
        kept = {
            each.id: msgspec.structs.replace(
                each,
                id=new_id("fact"),
                sources=going.without(each.sources),
            )
            for each in resting
            if not going.covers(each.sources)
            and document_of(user_id, each.id) not in going.versions
        }
        counts: dict[str, int] = {}
        if kept:
            # The index is the eraser's to keep in step; what is asserted again is indexed here.
            beside, when = self._indexing.asserting(list(kept.values()))
            again = _taken_away_again(known, kept, user_id, frozenset(withdrawn))
            counts = {"facts": len(kept), "retractions": len(again)}
            beside += again
            # Only that it is indexed where it will be read: the eraser keeps the rest.
            conditions = [
                one for one in when if isinstance(one, VersionIs) and one.document == DOCUMENT
            ]
            staying = [
                each
                for each in candidates
                if not gone.touches(each.sources) and each.name not in going.versions
            ]
            for document, put in _ending_again(staying, kept):
                beside.append(put)
                conditions.append(VersionIs(document.name, document.version))
        items = derived_items(self._store, user_id, gone, going)
        documents += items.documents
        conditions += items.conditions
        return Derived(documents, items.parts, items.renewed, beside, conditions, counts)

    def _retractions(self, user_id: str | None, gone: Gone) -> list[str]:
        """What says, because of something that goes, that a fact is no longer so."""
        prefix = f"{RETRACTION}/{owner_key(user_id)}/"
        found: list[str] = []
        after = ""
        while names := self._store.names("document", prefix=prefix, after=after, limit=_PAGE):
            found += [
                name
                for name, document in self._each(names)
                if document is not None and not document.erased and gone.touches(document.sources)
            ]
            after = names[-1]
        return found

    def _each(self, names: Sequence[str]) -> Iterator[tuple[str, Document | None]]:
        """The documents of these names, many in one reading."""
        for start in range(0, len(names), _PAGE):
            some = names[start : start + _PAGE]
            yield from zip(some, self._store.get_many(some), strict=True)

    def recorded(self, user_id: str | None, before: datetime) -> list[str]:
        """The documents of facts that were recorded before a moment, wherever that was."""
        known = readable(self._store, user_id)
        early = {
            fact.id
            for fact in known.facts
            if fact.recorded_at is not None and fact.recorded_at < before
        }
        return _documents(known, early, user_id)

    def _candidates(self, user_id: str | None) -> Iterator[Document]:
        cursor: str | None = None
        while True:
            page = self._store.find(Query(BY_STATUS, user=user_id, cursor=cursor), limit=_PAGE)
            yield from living(page.items)
            cursor = page.cursor
            if cursor is None:
                return


def _taken_away_again(
    known: Readable, kept: Mapping[str, Fact], user_id: str | None, gone: frozenset[str]
) -> list[Put]:
    """What was no longer so is not so again because it got another id."""
    prefix = f"{RETRACTION}/{owner_key(user_id)}/"
    return [
        _resting_as(
            each,
            retraction_put(
                kept[each.target],
                place=len(kept) + place,
                since_us=each.since_us,
                reason=each.reason,
                actor=each.actor,
                recorded_us=each.order[0],
            ),
        )
        for place, each in enumerate(known.retractions)
        if each.target in kept and prefix + each.id not in gone
    ]


def _ending_again(
    candidates: Sequence[Document], kept: Mapping[str, Fact]
) -> Iterator[tuple[Document, Put]]:
    """Candidates that end a fact, with the id that it has from now on."""
    for document in candidates:
        try:
            candidate = proposed_of(document)
        except (Corrupt, Invalid):
            continue  # Something else wrote it: nobody can commit it either.
        if candidate.ends in kept:
            renewed = msgspec.structs.replace(candidate, ends=kept[candidate.ends].id)
            yield document, put_candidate(renewed)


def _resting_as(each: Retraction, put: Put) -> Put:
    """The retraction with what it rests on besides the fact, so that it goes with that later."""
    others = (source for source in each.sources if source != each.target)
    return msgspec.structs.replace(put, sources=(*put.sources, *others))


def _documents(known: Readable, fact_ids: set[str], user_id: str | None) -> list[str]:
    """The documents that these assertions and their retractions are."""
    if not fact_ids:
        return []
    retracted = f"{RETRACTION}/{owner_key(user_id)}/"
    return [
        *(document_of(user_id, fact_id) for fact_id in sorted(fact_ids)),
        *(retracted + each.id for each in known.retractions if each.target in fact_ids),
        *(each.name for each in known.odd if not fact_ids.isdisjoint(each.sources)),
    ]
