"""The streams that one transaction touches, and the names that lead to them.

The streams that had one name form a chain: the name leads to the newest, and the
`id` of each is the number of the one before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pagefile.engines.redis.layout import name_field
from pagefile.engines.redis.rows import copy_of, pack_stream, stream_from
from pagefile.engines.redis.tenant_cache import Commands, Known
from pagefile.store.engine import Stream
from pagefile.store.records import StreamKind

Name = tuple[StreamKind, str]


class Moved(Exception):
    """Others have committed since what a transaction builds on was read."""


class Streams:
    """Copies of what is known, to be changed by batches that may yet fail."""

    def __init__(
        self, known: Known, look: Callable[[Iterable[Name]], None], ask: Callable[..., Any]
    ) -> None:
        self._known = known
        self._look = look
        self._ask = ask
        self._all: dict[int, Stream] = {}
        #: The newest stream of a name, living or dropped; None when there was never one.
        self._named: dict[Name, Stream | None] = {}
        #: Whether a name was listed before.
        self._was_shown: dict[Name, bool] = {}
        self._ended: set[int] = set()
        self._renamed: set[Name] = set()
        #: The numbers of streams to be stored.
        self.written: set[int] = set()

    def miss(self, name: Name) -> None:
        """There is no stream of that name, and never was."""
        self._named[name] = None

    def living(self, kind: StreamKind, name: str) -> Stream | None:
        """The living stream of that name; one that a batch is about to drop is still there."""
        stream = self._newest((kind, name))
        return None if stream is None or stream.oid in self._ended else stream

    def numbered(self, oid: int) -> Stream:
        """The stream with that number, living or dropped."""
        own = self._all.get(oid)
        if own is not None:
            return own
        stream = self._known.streams.get(oid)
        if stream is None:
            stream = stream_from(self._ask("HGET", self._known.keys.streams, oid))
        return self._own(stream)

    def incarnations(self, kind: StreamKind, name: str) -> list[Stream]:
        """Every stream that has had this name, oldest first."""
        found: list[Stream] = []
        stream = self._newest((kind, name))
        while stream is not None:
            found.append(stream)
            stream = self.numbered(stream.id) if stream.id else None
        found.reverse()
        return found

    def _newest(self, name: Name) -> Stream | None:
        if name in self._named:
            return self._named[name]
        if name not in self._known.named:
            self._look([name])
        if name in self._named:
            return self._named[name]
        stream = self._named[name] = self._own(self._known.named[name])
        self._was_shown[name] = self._is_shown(stream)
        return stream

    def _own(self, stream: Stream) -> Stream:
        own = self._all.get(stream.oid)
        if own is None:
            own = self._all[stream.oid] = copy_of(stream)
            if own.dropped:
                self._ended.add(own.oid)
        return own

    def _is_shown(self, stream: Stream | None) -> bool:
        return stream is not None and stream.oid not in self._ended and not stream.deleted

    def has_ended(self, stream: Stream) -> bool:
        """Whether it was dropped, and not only is about to be."""
        return stream.oid in self._ended

    def create(self, stream: Stream) -> None:
        """Make the stream known under its name."""
        name = stream.kind, stream.name
        before = self._newest(name)
        stream.id = 0 if before is None else before.oid
        self._all[stream.oid] = self._named[name] = stream
        self._was_shown.setdefault(name, False)
        self._renamed.add(name)
        self.written.add(stream.oid)

    def discard(self, stream: Stream) -> None:
        """Undo `create`."""
        del self._all[stream.oid]
        self.written.discard(stream.oid)
        self._named[stream.kind, stream.name] = self._all.get(stream.id)

    def drop(self, stream: Stream, *, forget_name: bool) -> None:
        """Free the name of a stream whose `dropped` is set; `forget_name` erases it too."""
        name = stream.kind, stream.name
        if stream.name:
            # Before it ends: whether it was listed is known from the newest of its name.
            self._newest(name)
            self._renamed.add(name)
        self._ended.add(stream.oid)
        self.written.add(stream.oid)
        if forget_name and stream.name:
            self._unlink(stream)
            stream.name = ""

    def _unlink(self, stream: Stream) -> None:
        """Take a stream out of the chain of those that had its name."""
        later = [s for s in self.incarnations(stream.kind, stream.name) if s.id == stream.oid]
        for other in later:
            other.id = stream.id
            self.written.add(other.oid)
        if not later:
            before = self.numbered(stream.id) if stream.id else None
            self._named[stream.kind, stream.name] = before
        stream.id = 0

    def write(self, out: Commands) -> None:
        """As commands: the streams, their names, and whether those are listed."""
        keys, written = self._known.keys, list[Any]()
        for oid in self.written:
            written += (oid, pack_stream(self._all[oid]))
        out.add("HSET", keys.streams, written, 2)
        for name in self._renamed:
            stream, field = self._named.get(name), name_field(*name)
            if stream is None:
                out.add("HDEL", keys.names, (field,))
            else:
                out.add("HSET", keys.names, (field, stream.oid))
        for name, was_shown in self._was_shown.items():
            is_shown = self._is_shown(self._named.get(name))
            if is_shown != was_shown:
                out.members(keys.shown[name[0]], {name[1].encode(): is_shown})

    def settle(self) -> None:
        """It is stored: what was changed here is known from now on."""
        known = self._known
        for oid in self.written:
            known.streams[oid] = self._all[oid]
        for name, stream in self._named.items():
            if stream is not None and stream.oid in known.streams:
                known.named[name] = known.streams[stream.oid]
