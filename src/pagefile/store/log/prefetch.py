"""What an audit reads of a tenant: asked for one by one, fetched many at a time.

On a server each question is a journey, and an audit has as many as there are records.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from pagefile.errors import Corrupt
from pagefile.store.engine import Engine, Gathers, Row, Stream

#: A stream's number and a row's.
Place = tuple[int, int]
_ROWS_AT_ONCE = 256
_STREAMS_AT_ONCE = 512


class Gathering:
    """Streams and rows of one tenant."""

    def __init__(self, engine: Engine, tenant: str) -> None:
        self._engine = engine
        self._tenant = tenant
        self._many: Gathers | None = engine if isinstance(engine, Gathers) else None
        self._streams: dict[int, Stream | None] = {}
        self._expected: deque[Place] = deque()
        self._rows: dict[Place, Row | None] = {}
        #: Those that could not be had together, and are asked for one by one.
        self._alone: set[Place] = set()

    @property
    def looks_ahead(self) -> bool:
        """Whether saying what will be asked for saves anything."""
        return self._many is not None

    def expect(self, places: Sequence[Place]) -> None:
        """These rows will be asked for, in this order."""
        self._expected = deque(places)
        self._rows.clear()
        unknown = sorted({oid for oid, _ in places} - self._streams.keys())
        self._streams.update(self.streams(unknown))

    def stream(self, oid: int) -> Stream | None:
        """The stream, as it was when first asked for."""
        if oid not in self._streams:
            self._streams[oid] = self._engine.stream_number(self._tenant, oid)
        return self._streams[oid]

    def stream_now(self, oid: int) -> Stream | None:
        """The stream, as it is now."""
        self._streams.pop(oid, None)
        return self.stream(oid)

    def streams(self, oids: Iterable[int]) -> Iterator[tuple[int, Stream | None]]:
        """The streams as they are now."""
        wanted = list(oids)
        for start in range(0, len(wanted), _STREAMS_AT_ONCE):
            some = wanted[start : start + _STREAMS_AT_ONCE]
            if self._many is not None:
                found = self._many.streams(self._tenant, some)
                yield from ((oid, found.get(oid)) for oid in some)
            else:
                yield from ((oid, self._engine.stream_number(self._tenant, oid)) for oid in some)

    def row(self, stream: Stream, number: int) -> Row | None:
        """One row, or None.

        Raises:
            Corrupt: it cannot be read.
        """
        place = (stream.oid, number)
        if place not in self._rows and place not in self._alone and self._many is not None:
            self._fetch(self._many, place)
        if place in self._rows:
            return self._rows.pop(place)
        rows = self._engine.rows(self._tenant, stream, number, number, 1)
        return rows[0] if rows else None

    def _fetch(self, many: Gathers, place: Place) -> None:
        """This row and those expected after it."""
        while self._expected and self._expected[0] != place:
            self._expected.popleft()
        count = min(_ROWS_AT_ONCE, len(self._expected))
        some = [self._expected.popleft() for _ in range(count)]
        if not some:
            return
        try:
            found = many.gather(self._tenant, some)
        except Corrupt:
            # Each by itself will tell which.
            self._alone = set(some)
            return
        self._rows = {one: found.get(one) for one in some}
