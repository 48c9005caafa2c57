"""The streams of one tenant that a write transaction has looked at."""

from __future__ import annotations

from pagefile.engine import Stream
from pagefile.engines.sqlite_news import News
from pagefile.records import StreamKind

_MOST_MISSING = 4_096


class KnownStreams:
    """Living streams, by name and by number; and names that were looked for in vain."""

    def __init__(self) -> None:
        self._by_name: dict[tuple[StreamKind, str], Stream] = {}
        self._by_number: dict[int, Stream] = {}
        #: A new name is asked about twice, and some are in every commit.
        self._missing: set[tuple[StreamKind, str]] = set()
        self.get = self._by_name.get

    def __len__(self) -> int:
        return len(self._by_name)

    def remember(self, stream: Stream) -> Stream:
        """Keep a living stream, or find the object that already stands for it."""
        if stream.dropped:
            return stream
        known = self._by_name.setdefault((stream.kind, stream.name), stream)
        self._by_number[known.oid] = known
        return known

    def create(self, stream: Stream) -> None:
        """Keep one that did not exist before."""
        self._by_name[stream.kind, stream.name] = self._by_number[stream.oid] = stream
        self._missing.discard((stream.kind, stream.name))

    def let_go(self, stream: Stream) -> None:
        """It is gone, or to be read again."""
        self._by_name.pop((stream.kind, stream.name), None)
        self._by_number.pop(stream.oid, None)

    def miss(self, kind: StreamKind, name: str) -> None:
        """There is none of that name."""
        if len(self._missing) >= _MOST_MISSING:
            self._missing.clear()
        self._missing.add((kind, name))

    def is_missing(self, kind: StreamKind, name: str) -> bool:
        return (kind, name) in self._missing

    def take_in(self, news: News) -> None:
        """Be as others' commits have left the streams."""
        for oid, length in news.lengths.items():
            if (stream := self._by_number.get(oid)) is not None:
                stream.length = length
        for oid in news.changed:
            if (stream := self._by_number.get(oid)) is not None:
                self.let_go(stream)
        self._missing.clear()
