"""What follows from what is forgotten: facts, candidates, items, and how far reading was."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TypeVar

import msgspec

from pagefile.errors import Corrupt, Invalid
from pagefile.memory.consolidation.claims import state_name
from pagefile.memory.documents import living, new_id, owner_key, shaped
from pagefile.memory.facts.documents import (
    RETRACTIONS,
    Retraction,
    document_of,
    retraction_put,
)
from pagefile.memory.facts.fact import Fact
from pagefile.memory.facts.index import FactIndexing
from pagefile.memory.facts.proposal import BY_STATUS, proposed_of, put_candidate
from pagefile.memory.facts.user_facts import Readable, readable
from pagefile.memory.items.change import Change
from pagefile.memory.items.item import Place, StoredItem, id_in, put_item
from pagefile.memory.items.proposal import OF_USER, ItemBatch, put_batch
from pagefile.memory.privacy.erasure_plan import Gone, names_of
from pagefile.recall.records import DOCUMENT
from pagefile.store.batch import (
    Batch,
    Condition,
    Operation,
    Put,
    Query,
    Selector,
    Unchanged,
    VersionIs,
)
from pagefile.store.records import Document
from pagefile.store.store import Store

replace = msgspec.structs.replace

_PAGE = 1_000

Stored = TypeVar("Stored", bound=msgspec.Struct)
#: From a version to what it holds, and what stays of it: itself, a part, or nothing.
_Without = Callable[[Document, Gone, Gone], tuple[Stored, Document | Put | None]]


class Derived(msgspec.Struct, frozen=True):
    """What follows from what is to go: documents that go too, and what stands in for them.

    `parts` are versions of documents that stay without them; `renewed` is what has
    to be committed before, so that no newest version is among them. `kept` is how
    many documents something stands in for, by kind.
    """

    documents: Sequence[str] = ()
    parts: Sequence[Selector] = ()
    renewed: Batch | None = None
    beside: Sequence[Operation] = ()
    conditions: Sequence[Condition] = ()
    kept: Mapping[str, int] = {}


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
            each.id: replace(
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
        items = _derived_items(self._store, user_id, gone, going)
        documents += items.documents
        conditions += items.conditions
        return Derived(documents, items.parts, items.renewed, beside, conditions, counts)

    def _retractions(self, user_id: str | None, gone: Gone) -> list[str]:
        """What says, because of something that goes, that a fact is no longer so."""
        prefix = f"{RETRACTIONS}{owner_key(user_id)}/"
        names = list(names_of(self._store, prefix))
        return [
            name
            for name, document in self._each(names)
            if document is not None and not document.erased and gone.touches(document.sources)
        ]

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
        return _found(self._store, Query(BY_STATUS, user=user_id))


def _taken_away_again(
    known: Readable, kept: Mapping[str, Fact], user_id: str | None, gone: frozenset[str]
) -> list[Put]:
    """What was no longer so is not so again because it got another id."""
    prefix = f"{RETRACTIONS}{owner_key(user_id)}/"
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
            renewed = replace(candidate, ends=kept[candidate.ends].id)
            yield document, put_candidate(renewed)


def _resting_as(each: Retraction, put: Put) -> Put:
    """The retraction with what it rests on besides the fact, so that it goes with that later."""
    others = (source for source in each.sources if source != each.target)
    return replace(put, sources=(*put.sources, *others))


def _documents(known: Readable, fact_ids: set[str], user_id: str | None) -> list[str]:
    """The documents that these assertions and their retractions are."""
    if not fact_ids:
        return []
    retracted = f"{RETRACTIONS}{owner_key(user_id)}/"
    return [
        *(document_of(user_id, fact_id) for fact_id in sorted(fact_ids)),
        *(retracted + each.id for each in known.retractions if each.target in fact_ids),
        *(each.name for each in known.odd if not fact_ids.isdisjoint(each.sources)),
    ]


def _derived_items(store: Store, user_id: str | None, gone: Gone, going: Gone) -> Derived:
    """What goes of a named user's items; nobody's say not whose episodes they rest on.

    Each version rests on what the request that made it names. One that rests on
    `going` alone goes, and what was so before it is so again: an item that was
    superseded or deprecated because of it is active. One that rests on something
    else too stays without them. Batches lose the requests that go. One that is proposed
    or decided meanwhile, and every change of an item comes from one, has it done again.
    """
    if user_id is None:
        return Derived()
    position = store.head().position
    sorting = _Sorting(store, user_id, gone, going)
    items = set(names_of(store, Place("user", user_id).document("")))
    for document in _found(store, Query(OF_USER, True, user=user_id)):
        for batch in sorting.sort(document.name, _batch_without):
            # Items for a project name their user too, and stand elsewhere.
            items |= {*batch.made, *batch.changed}
    for name in sorted(items):
        sorting.sort(name, _item_without)
    meanwhile = Unchanged(OF_USER, True, position, user=user_id)
    return replace(sorting.found(), conditions=[meanwhile])


class _Sorting:
    """Goes through the versions of documents, and says which of them stay."""

    def __init__(self, store: Store, user_id: str, gone: Gone, going: Gone) -> None:
        self._store = store
        self._user_id = user_id
        self._gone = gone
        self._going = going
        self._documents: list[str] = []
        self._parts: list[Selector] = []
        self._puts: list[Operation] = []
        self._conditions: list[Condition] = []

    def sort(self, name: str, without: _Without[Stored]) -> list[Stored]:
        """Sort one document; what its versions held."""
        newest: Document | None = None
        former: Document | None = None
        staying: list[tuple[int, Document | Put]] = []
        touched: set[int] = set()
        held: list[Stored] = []
        for newest in _versions(self._store, name):
            if self._going.has_version(name, newest.version):
                continue
            if newest.user != self._user_id:
                # Ids of episodes count within a user: it names another's.
                former, staying = newest, []
                continue
            try:
                content, left = without(newest, self._gone, self._going)
            except Corrupt:
                continue  # Something else wrote it: it rests on nothing that is known.
            held.append(content)
            if left is not newest:
                touched.add(newest.version)
            if left is not None:
                # What is written again further on goes where it stood first.
                twice = {version for version, each in staying if each.value == left.value}
                touched |= twice
                staying = [each for each in staying if each[0] not in twice]
                staying.append((newest.version, left))
        if newest is None or not touched:
            return held
        again = [each for _, each in staying] or ([] if former is None else [former])
        if not again:
            self._documents.append(name)
            return held
        if newest.version in touched:
            # All that stays, in order: what ended it may go later, and what was so is so again.
            self._puts += [each if isinstance(each, Put) else _again(each) for each in again]
            self._conditions.append(VersionIs(name, newest.version))
            touched.update(version for version, _ in staying)
        self._parts.append(Selector(document=name, numbers=frozenset(touched)))
        return held

    def found(self) -> Derived:
        """All that was sorted."""
        renewed = Batch(self._puts, self._conditions) if self._puts else None
        return Derived(self._documents, self._parts, renewed)


def _item_without(
    version: Document, gone: Gone, going: Gone
) -> tuple[StoredItem, Document | Put | None]:
    stored = shaped(version, StoredItem)
    item, cause = stored.item, stored.cause
    named = (*item.source_refs, *cause.source_refs)
    if not gone.touches(named):
        return stored, version
    if going.covers(item.source_refs) or going.covers(cause.source_refs):
        return stored, None
    item = replace(item, source_refs=going.without(item.source_refs))
    cause = replace(cause, source_refs=going.without(cause.source_refs))
    return stored, put_item(version.name, item, cause)


def _batch_without(
    version: Document, gone: Gone, going: Gone
) -> tuple[ItemBatch, Document | Put | None]:
    batch = shaped(version, ItemBatch)
    if not any(gone.touches(change.source_refs) for change in batch.changes):
        return batch, version
    staying = [change for change in batch.changes if not going.covers(change.source_refs)]
    if not staying:
        return batch, None
    left = {each for change in staying for each in _ids_in(change)}
    lost = {each for change in batch.changes for each in _ids_in(change)} - left
    part = replace(
        batch,
        changes=tuple(
            replace(change, source_refs=going.without(change.source_refs)) for change in staying
        ),
        memory_ids=tuple(each for each in batch.memory_ids if each not in lost),
        made=tuple(name for name in batch.made if id_in(name) not in lost),
        changed=tuple(name for name in batch.changed if id_in(name) not in lost),
    )
    return batch, put_batch(part)


def _ids_in(change: Change) -> tuple[str, ...]:
    return (change.memory_id, change.target_memory_id, *change.supersedes)


def _again(version: Document) -> Put:
    """A version as it was stored, to be stored once more."""
    return Put(
        version.name,
        version.value,
        user=version.user,
        kind=version.kind,
        actor=version.actor,
        sources=version.sources,
        keys=version.keys,
        tenant_keys=version.tenant_keys,
        notes=version.notes,
    )


def _versions(store: Store, name: str) -> Iterator[Document]:
    """What is still there of a document, oldest first."""
    after = 0
    while versions := store.history(name, after=after, limit=_PAGE):
        yield from (each for each in versions if not each.erased and not each.deleted)
        after = versions[-1].version


def _found(store: Store, query: Query) -> Iterator[Document]:
    """The documents that a query finds, page by page."""
    while True:
        page = store.find(query, limit=_PAGE)
        yield from living(page.items)
        if page.cursor is None:
            return
        query = replace(query, cursor=page.cursor)
