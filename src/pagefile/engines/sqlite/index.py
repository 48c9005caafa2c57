"""The secondary keys of one tenant in an SQLite file, as a write transaction sees them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import apsw

from pagefile.engines.sqlite.rows import (
    Users,
    fetch,
    row_from,
    space_of_log,
    space_of_tenant,
    space_of_user,
)
from pagefile.store.engine import DOCUMENT, IndexKey, Row, Scope, Stream, index_keys


class KeyIndex:
    """Counts, retires and removes keys. Reads the file, so what was collected goes in first."""

    def __init__(self, writer: apsw.Connection, sql: dict[str, str], users: Users) -> None:
        self._writer = writer
        self._sql = sql
        self._users = users
        #: Documents' versions of the commit under way: stream id to row, partition, record id.
        self.open_versions: dict[int, tuple[Row, int, int]] = {}

    def _all(self, query: str, *bindings: Any) -> list[Any]:
        return fetch(self._writer, self._sql[query], *bindings)

    def count(self, key: IndexKey, user: str | None, most: int) -> int:
        """How many records the key finds now, at most `most`."""
        space = self._space(key, user)
        if space is None:
            return 0
        return int(self._all("count_key", space, key.field, key.value, most)[0][0])

    def last_change(self, key: IndexKey, user: str | None) -> int:
        """The last position that changed what the key finds."""
        space = self._space(key, user)
        if space is None:
            return 0
        return int(self._all("last_key_change", space, key.field, key.value)[0][0])

    def _space(self, key: IndexKey, user: str | None) -> int | None:
        if key.scope == "tenant":
            return space_of_tenant(self._users.tenant)
        partition = self._users.find(user)
        return None if partition is None else space_of_user(partition)

    def spaces(self, stream_id: int, partition: int) -> dict[Scope, int]:
        """Where keys of a record in the stream belong, by their scope."""
        return {
            "log": space_of_log(stream_id),
            "user": space_of_user(partition),
            "tenant": space_of_tenant(self._users.tenant),
        }

    def retire(self, stream: Stream, version: int, until: int) -> None:
        """The keys of the version that `until` replaces lead to it only in the past."""
        if stream.id in self.open_versions:
            row, partition, record = self.open_versions[stream.id]
        else:
            found = self._all("rows", stream.id, version, version, 1)
            if not found:
                return
            row = row_from(found[0], self._users.name)
            partition, record = found[0][5], found[0][15]
        if row.content is None:
            return
        spaces = self.spaces(stream.id, partition)
        for key in index_keys(stream.kind, row.content):
            place = (spaces[key.scope], key.field, key.value)
            self._all("remove_key", *place, row.position, row.ordinal)
            self._all("add_past_key", *place, until, row.position, row.ordinal, record)

    def remove(self, stream: Stream, rows: Sequence[Row]) -> None:
        """The rows' keys lead nowhere any more, in the present and in the past."""
        for row in rows:
            if row.content is None or not (row.content.keys or row.content.tenant_keys):
                continue
            partition = self._users.number(row.content.user)
            until = 0
            if stream.kind == DOCUMENT and row.number < stream.length:
                until = self._all("next_position", stream.id, row.number + 1)[0][0]
            spaces = self.spaces(stream.id, partition)
            for key in index_keys(stream.kind, row.content):
                place = (spaces[key.scope], key.field, key.value)
                self._all("remove_key", *place, row.position, row.ordinal)
                if until:
                    self._all("remove_past_key", *place, until, row.position, row.ordinal)
