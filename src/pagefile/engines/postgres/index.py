"""The secondary keys of one tenant in PostgreSQL, as a write transaction sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pagefile.engines.postgres.rows import TENANT_SPACE, row_from, space_for, space_of_user
from pagefile.engines.postgres.transaction import Pending, Users
from pagefile.store.engine import IndexKey, Row, Stream, index_keys


class _Top(NamedTuple):
    """The keys that a document's newest version stands under."""

    number: int
    position: int
    ordinal: int
    user: int
    keys: Sequence[IndexKey]


class KeyIndex:
    """Adds, counts, retires and removes keys."""

    def __init__(self, pending: Pending, users: Users) -> None:
        self._pending = pending
        self._users = users
        #: By oid; what is here need not be read to be retired.
        self._tops: dict[int, _Top] = {}

    def __len__(self) -> int:
        return len(self._tops)

    def count(self, key: IndexKey, user: str | None, most: int) -> int:
        """How many records the key finds now, at most `most`."""
        space = self._space(key, user)
        if space is None:
            return 0
        found = self._pending.read_after("count_key", space, key.field, key.value, most)
        return int(found[0][0]) if found else 0

    def last_change(self, key: IndexKey, user: str | None) -> int:
        """The last position that changed what the key finds."""
        space = self._space(key, user)
        if space is None:
            return 0
        found = self._pending.read_after("last_key_change", space, key.field, key.value)
        return int(found[0][0]) if found else 0

    def _space(self, key: IndexKey, user: str | None) -> int | None:
        if key.scope == "tenant":
            return TENANT_SPACE
        number = self._users.find(user)
        return None if number is None else space_of_user(number)

    def add(self, oid: int, row: Row, user: int, keys: Sequence[IndexKey]) -> None:
        """The record stands under these keys from now on."""
        for key in keys:
            self._pending.add(
                "add_key",
                space_for(key, oid, user),
                key.field,
                key.value,
                row.position,
                row.ordinal,
                oid,
                row.number,
            )

    def set_top(self, oid: int, row: Row, user: int, keys: Sequence[IndexKey]) -> None:
        """This is a document's newest version now."""
        self._tops[oid] = _Top(row.number, row.position, row.ordinal, user, keys)

    def retire(self, stream: Stream, version: int, until: int) -> None:
        """The keys of the version that `until` replaces lead to it only in the past."""
        top = self._tops.get(stream.oid) or self._read_top(stream, version)
        if top is None:
            return
        for key in top.keys:
            place = (space_for(key, stream.oid, top.user), key.field, key.value)
            self._pending.add("remove_key", *place, top.position, top.ordinal)
            self._pending.add(
                "add_past_key", *place, top.position, top.ordinal, stream.oid, top.number, until
            )

    def _read_top(self, stream: Stream, version: int) -> _Top | None:
        found = self._pending.read_after("rows", stream.oid, version, version, 1)
        row = row_from(found[0]) if found else None
        if row is None or row.content is None:
            return None
        keys = index_keys(stream.kind, row.content)
        user = self._users.number(row.content.user) if keys else 0
        return _Top(version, row.position, row.ordinal, user, keys)

    def remove(self, stream: Stream, rows: Sequence[Row]) -> None:
        """The rows' keys lead nowhere any more, in the present and in the past."""
        self._tops.pop(stream.oid, None)
        for row in rows:
            if row.content is None or not (row.content.keys or row.content.tenant_keys):
                continue
            user = self._users.holder(row.content.user)
            for key in index_keys(stream.kind, row.content):
                place = (space_for(key, stream.oid, user), key.field, key.value)
                for name in ("remove_key", "remove_past_key"):
                    self._pending.add(name, *place, row.position, row.ordinal)
