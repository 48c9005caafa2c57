"""Reading ahead of an erasure in PostgreSQL: its streams and rows, many in one question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pagefile.engines.postgres.connection import whole
from pagefile.engines.postgres.rows import row_from
from pagefile.engines.postgres.transaction import Pending
from pagefile.store.engine import Row, Stream
from pagefile.store.records import StreamKind

#: How many rows are held at once, as far as the lengths of their streams tell.
_ROWS_AT_ONCE = 1_000
_NAMES_AT_ONCE = 1_000

Name = tuple[StreamKind, str]


class Ahead:
    """What was announced and not asked for yet. Any write makes it void."""

    def __init__(self, pending: Pending) -> None:
        self._pending = pending
        self._streams: dict[Name, list[tuple[Any, ...]]] = {}
        self._expected: dict[int, Stream] = {}
        self._rows: dict[int, list[Row]] = {}

    def forget(self) -> None:
        """Something was written: what was read may no longer be so."""
        if self._streams or self._expected or self._rows:
            self._streams, self._expected, self._rows = {}, {}, {}

    def expect_names(self, names: Sequence[Name]) -> None:
        """Read every stream of these names."""
        self._streams = {name: [] for name in names}
        for kind in {kind for kind, _ in names}:
            wanted = [name for of, name in self._streams if of == kind]
            for start in range(0, len(wanted), _NAMES_AT_ONCE):
                some = wanted[start : start + _NAMES_AT_ONCE]
                for columns in self._pending.read_after("streams_of_names", kind, some):
                    self._streams[kind, columns[2]].append(columns)

    def named(self, kind: StreamKind, name: str) -> list[tuple[Any, ...]] | None:
        """The columns of every stream that had the name; None when that was not announced."""
        return self._streams.pop((kind, name), None)

    def expect_rows(self, streams: Sequence[Stream]) -> None:
        """The rows of these will be asked for, in this order."""
        self._expected = {stream.oid: stream for stream in streams}

    def rows(self, stream: Stream) -> list[Row] | None:
        """All rows of a stream; None when it was not announced."""
        if stream.oid in self._expected:
            self._fetch(stream)
        return self._rows.pop(stream.oid, None)

    def _fetch(self, stream: Stream) -> None:
        count, oids = stream.length, [stream.oid]
        del self._expected[stream.oid]
        for oid, other in self._expected.items():
            count += other.length
            if count > _ROWS_AT_ONCE:
                break
            oids.append(oid)
        self._rows = {oid: [] for oid in oids}
        for oid in oids[1:]:
            del self._expected[oid]
        for columns in self._pending.read_after("rows_of_streams", whole(oids)):
            self._rows[columns[15]].append(row_from(columns))
