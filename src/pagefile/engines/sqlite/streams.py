"""The streams of one tenant that a write transaction has looked at."""

from __future__ import annotations

from pagefile.engines.sqlite.transaction import News
from pagefile.store.engine import DOCUMENT, LOG, Stream
from pagefile.store.records import StreamKind

_MOST_MISSING = 4_096


class KnownStreams:
    """Living streams, by name and by number; and names that were looked for in vain."""

    def __init__(self) -> None:
        self._logs: dict[str, Stream] = {}
        self._documents: dict[str, Stream] = {}
        self._by_number: dict[int, Stream] = {}
        #: A new name is asked about twice, and some are in every commit.
        self._missing: dict[StreamKind, set[str]] = {LOG: set(), DOCUMENT: set()}

    def __len__(self) -> int:
        return len(self._logs) + len(self._documents)

    def _of(self, kind: StreamKind) -> dict[str, Stream]:
        return self._documents if kind == DOCUMENT else self._logs

    def get(self, kind: StreamKind, name: str) -> Stream | None:
        """The living stream of that name, if it was looked at."""
        return (self._documents if kind == DOCUMENT else self._logs).get(name)

    def remember(self, stream: Stream) -> Stream:
        """Keep a living stream, or find the object that already stands for it."""
        if stream.dropped:
            return stream
        known = self._of(stream.kind).setdefault(stream.name, stream)
        self._by_number[known.oid] = known
        return known

    def create(self, stream: Stream) -> None:
        """Keep one that did not exist before."""
        self._of(stream.kind)[stream.name] = self._by_number[stream.oid] = stream
        self._missing[stream.kind].discard(stream.name)

    def let_go(self, stream: Stream) -> None:
        """It is gone, or to be read again."""
        self._of(stream.kind).pop(stream.name, None)
        self._by_number.pop(stream.oid, None)

    def miss(self, kind: StreamKind, name: str) -> None:
        """There is none of that name."""
        missing = self._missing[kind]
        if len(missing) >= _MOST_MISSING:
            missing.clear()
        missing.add(name)

    def is_missing(self, kind: StreamKind, name: str) -> bool:
        return name in self._missing[kind]

    def take_in(self, news: News) -> None:
        """Be as others' commits have left the streams."""
        for oid, length in news.lengths.items():
            if (stream := self._by_number.get(oid)) is not None:
                stream.length = length
        for oid in news.changed:
            if (stream := self._by_number.get(oid)) is not None:
                self.let_go(stream)
        for missing in self._missing.values():
            missing.clear()
