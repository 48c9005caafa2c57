"""Secondary keys in Redis during a commit: what is stored, and what is about to be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pagefile.engines.redis import layout as layout
from pagefile.engines.redis.tenant_cache import Changes, Known
from pagefile.store.engine import DOCUMENT, IndexKey, Row, Stream, index_keys
from pagefile.store.records import StreamKind


class KeyIndex:
    """The sorted sets `k` and `p` of one tenant, seen through one transaction."""

    def __init__(self, known: Known, changes: Changes, ask: Callable[..., Any]) -> None:
        self._known = known
        self._keys = known.keys
        self._changes = changes
        self._ask = ask
        self._counted: dict[bytes, int] = {}
        self._changed: dict[bytes, int] = {}
        #: The members that lead to the current versions of documents touched here.
        self.current: dict[int, list[bytes]] = {}

    def count(self, key: IndexKey, user: str | None, most: int) -> int:
        """How many live records stand under the key, counted up to `most`."""
        start = layout.bucket(key, 0, user)
        stored = self._ask("ZLEXCOUNT", self._keys.live, b"[" + start, b"(" + start + layout.BEHIND)
        return min(most, int(stored) + self._counted.get(start, 0))

    def last_change(self, key: IndexKey, user: str | None) -> int:
        """The last position that changed what the key finds."""
        start = layout.bucket(key, 0, user)
        if start in self._changed:
            return self._changed[start]
        bounds = (b"(" + start + layout.BEHIND, b"[" + start, "BYLEX", "REV", "LIMIT", 0, 1)
        last = 0
        for index, is_past in ((self._keys.live, False), (self._keys.past, True)):
            for member in self._ask("ZRANGE", index, *bounds):
                place = layout.found_in(member, 0, past=is_past)
                last = max(last, place.until or place.position)
        return last

    def add(self, stream: Stream, row: Row, keys: Sequence[IndexKey]) -> None:
        """The record stands under these keys from now on."""
        assert row.content is not None
        place = layout.place(row, stream.oid)
        members = []
        for key in keys:
            start = layout.bucket(key, stream.oid, row.content.user)
            self._note(start, start + place, row.position, comes=True)
            members.append(start + place)
        if stream.kind == DOCUMENT:
            self.current[stream.oid] = members

    def retire(self, oid: int, row_before: Callable[[], Row | None], until: int) -> None:
        """The keys of a document's version before lead to it only in the past."""
        members = self.current.get(oid, self._known.current.get(oid))
        if members is None:
            row = row_before()
            members = [] if row is None else [m for _, m in _members_of(DOCUMENT, oid, row)]
        for member in members:
            start = member[: -layout.PLACE_BYTES]
            self._note(start, member, until, comes=False)
            self._changes.note(self._keys.past, _past(start, member, until), comes=True)
        self.current[oid] = []

    def remove(
        self, stream: Stream, doomed: Sequence[Row], rows: Sequence[Row], position: int
    ) -> None:
        """The keys of these records lead nowhere any more, in the present and in the past."""
        next_position = {row.number - 1: row.position for row in rows}
        for row in doomed:
            until = next_position.get(row.number) if stream.kind == DOCUMENT else None
            for start, member in _members_of(stream.kind, stream.oid, row):
                if until is None:
                    self._note(start, member, position, comes=False)
                else:
                    past = _past(start, member, until)
                    self._changes.note(self._keys.past, past, comes=False)
        if any(row.number == stream.length for row in doomed):
            self.current[stream.oid] = []

    def _note(self, start: bytes, member: bytes, position: int, *, comes: bool) -> None:
        self._changes.note(self._keys.live, member, comes=comes)
        self._counted[start] = self._counted.get(start, 0) + (1 if comes else -1)
        self._changed[start] = position


def _members_of(kind: StreamKind, oid: int, row: Row) -> list[tuple[bytes, bytes]]:
    """Where a record stands in the index: the beginnings, and the members whole."""
    content = row.content
    if content is None or not (content.keys or content.tenant_keys):
        return []
    place = layout.place(row, oid)
    starts = [layout.bucket(key, oid, content.user) for key in index_keys(kind, content)]
    return [(start, start + place) for start in starts]


def _past(start: bytes, member: bytes, until: int) -> bytes:
    return start + layout.until(until) + member[len(start) :]
