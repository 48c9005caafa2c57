"""Items that left a run's working set: kept in a log of their own, to be found again."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from pagefile.errors import Invalid, NotFound, shown
from pagefile.runs.ledger import Ledger, body_of
from pagefile.runs.names import EVICTED
from pagefile.store.arguments import bounded
from pagefile.store.batch import Append, Query
from pagefile.store.store import Store

_ITEM = "item"
_PAGE = 500
Item = dict[str, Any]


class Archive:
    """What left one run's working set, in the order in which it left."""

    def __init__(self, store: Store, run_id: str, user_id: str | None) -> None:
        self._store = store
        self._user_id = user_id
        self.log = EVICTED + run_id

    def keep(self, item: Mapping[str, Any], writer_id: str) -> Append:
        """The operation that keeps an item, for the batch that makes it leave."""
        keys = {_ITEM: _key(item["id"])}
        return Append(self.log, item, self._user_id, "evicted", writer_id, (), keys)

    def length_at(self, ledger: Ledger, seq: int) -> int:
        """How many items had left when the working set was at a sequence number.

        Counted from the end: what a fork or a restored run began with has no events in it.
        """
        at = self._store.head().position
        length, stop = (self._store.length(log, at=at) for log in (self.log, ledger.log))
        for entry in ledger.of_type("WS_UPDATE_APPLIED", reverse=True):
            if entry.erased or entry.index >= stop:
                continue
            payload = body_of(entry)["payload"]
            if payload["new_seq"] <= seq:
                break
            length -= len(payload.get("evicted", ())) + len(payload.get("unpinned", ()))
        return max(0, length)

    def newest(self, limit: int) -> list[Item]:
        """The items that left last, newest first."""
        found = self._store.read(self.log, -limit) if bounded(limit) else []
        return [entry.value for entry in reversed(found) if not entry.erased]

    def search(self, text: str, limit: int) -> list[Item]:
        """Items that hold every word of the text, newest first."""
        if not isinstance(text, str):
            raise Invalid("text", f"{shown(text)} is no text", "give words to look for")
        bounded(limit)
        words = text.lower().split()
        stop = self._store.length(self.log)
        found: list[Item] = []
        while stop > 0:
            start = max(0, stop - _PAGE)
            for entry in reversed(self._store.read(self.log, start, stop)):
                if len(found) == limit:
                    return found
                if not entry.erased and _holds(entry.value, words):
                    found.append(entry.value)
            stop = start
        return found

    def get(self, item_id: str) -> Item:
        """The item of that id that left last.

        Raises:
            NotFound: none has left.
        """
        query = Query(_ITEM, value=_key(item_id), log=self.log, reverse=True)
        for entry in self._store.find(query, limit=1).items:
            if not entry.erased:
                item: Item = entry.value
                return item
        raise NotFound(f"no item {shown(item_id)} has left", "look at `evicted`")


def _holds(item: Any, words: list[str]) -> bool:
    """Whether an item has all the words; what is no item has none."""
    content = item.get("content") if isinstance(item, dict) else None
    return isinstance(content, str) and all(word in content.lower() for word in words)


def is_sliding(item: Mapping[str, Any]) -> bool:
    """Pinned items have no priority."""
    return "priority" in item


def _key(item_id: object) -> str:
    """What an item is found by: of one length, whatever its id."""
    if not isinstance(item_id, str):
        raise Invalid("item_id", f"{shown(item_id)} is no id", "give a str")
    return hashlib.sha256(item_id.encode(errors="surrogatepass")).hexdigest()
