"""What follows for long-term items, and the batches that proposed them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from pagefile.errors import Corrupt
from pagefile.memory.items.change import Change
from pagefile.memory.items.item import Place, StoredItem, id_in, put_item
from pagefile.memory.items.proposal import OF_USER, ItemBatch, put_batch
from pagefile.memory.privacy.erasure_plan import Gone
from pagefile.memory.privacy.scope import Derived
from pagefile.memory.serializer import living, shaped
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


def derived_items(store: Store, user_id: str | None, gone: Gone, going: Gone) -> Derived:
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
    items = set(_names(store, Place("user", user_id).document("")))
    for document in _batches(store, user_id):
        for batch in sorting.sort(document.name, _batch_without):
            # Items for a project name their user too, and stand elsewhere.
            items |= {*batch.made, *batch.changed}
    for name in sorted(items):
        sorting.sort(name, _item_without)
    meanwhile = Unchanged(OF_USER, True, position, user=user_id)
    return msgspec.structs.replace(sorting.found(), conditions=[meanwhile])


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


def _batches(store: Store, user_id: str) -> Iterator[Document]:
    cursor: str | None = None
    while True:
        page = store.find(Query(OF_USER, True, user=user_id, cursor=cursor), limit=_PAGE)
        yield from living(page.items)
        cursor = page.cursor
        if cursor is None:
            return


def _names(store: Store, prefix: str) -> Iterator[str]:
    after = ""
    while names := store.names("document", prefix=prefix, after=after, limit=_PAGE):
        yield from names
        after = names[-1]
