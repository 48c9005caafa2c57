"""The long-term items of a run, on their way into a pack and out of it.

A pack has each item as the store has it: the item, and what caused its last
change. An item that the other store knows already stays as it is there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from pagefile.errors import Invalid, NotFound
from pagefile.memory.items.change import require_id
from pagefile.memory.items.item import OF_USERS, Cause, MemoryItem, place_of, put_item
from pagefile.memory.items.proposal import read_batch
from pagefile.memory.serializer import plain
from pagefile.runs.names import BROUGHT
from pagefile.runs.packs.errors import WrongContent
from pagefile.runs.packs.format import ITEMS, checked, parse_object, placed
from pagefile.store import codec
from pagefile.store.batch import Put
from pagefile.store.codec.decoder import convert
from pagefile.store.store import Store


class PackedItem(msgspec.Struct, frozen=True):
    """One line of `memory_items.jsonl`."""

    item: MemoryItem
    cause: Cause

    @property
    def document(self) -> str:
        """Where it is stored."""
        item = self.item
        return place_of(item.scope, item.user_id, item.project_id).document(item.memory_id)

    def put(self) -> Put:
        """What stores it."""
        return put_item(self.document, self.item, self.cause)


def item_documents(store: Store, run_id: str, batch_ids: Iterable[str], at: int) -> list[str]:
    """The documents of all items that a run's batches made or changed, and of those it brought."""
    found: dict[str, None] = {}
    brought = store.get(BROUGHT + run_id, at=at)
    if brought is not None and not brought.erased:
        found.update(dict.fromkeys(brought.value))
    for batch_id in batch_ids:
        try:
            batch = read_batch(store, batch_id, 0).batch
        except (NotFound, Invalid):
            continue  # Erased, or committed in another store before this run was restored here.
        if batch.run_id != run_id:
            continue  # Another run's: an event that came from elsewhere may name any batch.
        found.update(dict.fromkeys((*batch.made, *batch.changed)))
    return sorted(found)


def item_lines(
    store: Store, documents: Iterable[str], at: int, user_id: str | None
) -> Iterator[Any]:
    """The items as they were at a position, without those that are gone.

    Nor are those that other users have for themselves in a pack of a user's run,
    whatever its events say.
    """
    for name in documents:
        document = store.get(name, at=at)
        if document is None or document.erased or document.deleted:
            continue
        if user_id is None or document.user == user_id or not name.startswith(OF_USERS):
            yield document.value


def read_item(raw: bytes, number: int) -> PackedItem:
    """The item in a line, checked.

    Raises:
        WrongContent: it is none, or would not be stored as it stands there.
    """
    value = parse_object(ITEMS, raw, number)
    at = placed(ITEMS, number)
    try:
        packed = convert(value, PackedItem)
        require_id("memory_id", packed.item.memory_id)
    except (msgspec.ValidationError, Invalid) as error:
        raise WrongContent(at, f"is no memory item ({error})") from error
    item = packed.item
    owner = {"user": item.user_id, "project": item.project_id, "global": ""}[item.scope]
    if owner is None:
        raise WrongContent(at, f"is an item of a {item.scope}, and does not say which")
    checked(ITEMS, "memory_item", item.to_v21(), number)
    if codec.encode(plain(packed)) != codec.encode(value):
        raise WrongContent(at, "is no memory item as it is stored")
    return packed
