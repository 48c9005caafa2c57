"""What this process knows of one tenant and its streams: a writer alone needs no reading."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from pagefile.engines.redis.connection import Link
from pagefile.engines.redis.layout import Keys, name_field
from pagefile.engines.redis.rows import (
    Counted,
    commit_from,
    copy_of,
    head_from,
    move,
    pack_row,
    pack_stream,
    stream_from,
)
from pagefile.errors import Corrupt
from pagefile.store.commit.idempotency import KeyExpiry
from pagefile.store.engine import Row, Stream, TenantHead
from pagefile.store.records import Action, StreamKind, unpack

#: Lua hands on a few thousand arguments at once and no more.
_MOST_ARGUMENTS = 2_000


class Commands:
    """Commands for `commit.lua`: each names its key by number."""

    def __init__(self, keys: Keys) -> None:
        self.keys: list[bytes] = [keys.head, keys.queue, keys.turn, keys.turns, keys.commits]
        self._numbers = {key: at for at, key in enumerate(self.keys, 1)}
        self.arguments: list[Any] = []

    def add(self, command: str, key: bytes, arguments: Sequence[Any], step: int = 1) -> None:
        """One command, or several when it has many arguments; `step` of them stay together."""
        if not arguments:
            return
        number = self._numbers.get(key)
        if number is None:
            self.keys.append(key)
            number = self._numbers[key] = len(self.keys)
        if len(arguments) <= _MOST_ARGUMENTS:
            self.arguments += (command, number, len(arguments), *arguments)
            return
        size = _MOST_ARGUMENTS - _MOST_ARGUMENTS % step
        for start in range(0, len(arguments), size):
            part = arguments[start : start + size]
            self.arguments += (command, number, len(part), *part)

    def members(self, key: bytes, changes: dict[bytes, bool]) -> None:
        """Members of a sorted set that come (true) and go (false)."""
        gone = [member for member, comes in changes.items() if not comes]
        self.add("ZREM", key, gone)
        come: list[Any] = []
        for member, comes in changes.items():
            if comes:
                come += (0, member)
        self.add("ZADD", key, come, 2)

    def rows(self, key: bytes, rows: dict[int, Row | None]) -> None:
        """Records that are written, and numbers that are let go."""
        self.add("HDEL", key, [number for number, row in rows.items() if row is None])
        written: list[Any] = []
        for number, row in rows.items():
            if row is not None:
                written += (number, pack_row(row))
        self.add("HSET", key, written, 2)


class Changes:
    """Members of sorted sets that come and go; the last word on each counts."""

    def __init__(self) -> None:
        self._sets: dict[bytes, dict[bytes, bool]] = {}

    def note(self, key: bytes, member: bytes, *, comes: bool) -> None:
        """The member comes into the set, or leaves it."""
        self._sets.setdefault(key, {})[member] = comes

    def forget(self, key: bytes, member: bytes) -> None:
        """Undo a note."""
        del self._sets[key][member]

    def of(self, key: bytes) -> dict[bytes, bool]:
        """What is noted about one set."""
        return self._sets.get(key, {})

    def write(self, out: Commands) -> None:
        """As commands."""
        for key, members in self._sets.items():
            out.members(key, members)


#: How many commits of others are told in one answer; more than that is read anew.
MOST_TOLD = 512
_MOST_CACHED = 100_000
#: How many made keys are remembered, so that looking for one needs no query.
_RECENT_KEYS = 4_096


class Known:
    """The cached state of one tenant."""

    def __init__(self, tenant: str, keys: Keys, link: Link) -> None:
        self.tenant = tenant
        self.keys = keys
        #: The way to whoever has these keys.
        self.link = link
        #: How far the tenant was known to be before it was read anew.
        self.most = 0
        self.head = TenantHead(tenant)
        #: Which keys have expired: about commits that are stored, whatever else is let go.
        self.expiry = KeyExpiry()
        self.clear()

    def clear(self) -> None:
        """Start again from nothing, as if before the first commit."""
        self.most = max(self.most, self.head.position)
        self.head = TenantHead(self.tenant)
        #: The newest stream of each name, dropped ones included.
        self.named: dict[tuple[StreamKind, str], Stream] = {}
        self.streams: dict[int, Stream] = {}
        self.held: set[tuple[str | None, int]] = set()
        #: The members of `k` that lead to the current version of a document.
        self.current: dict[int, list[bytes]] = {}
        #: Where the made keys of all commits after a position are.
        self.recent: dict[str, int] = {}
        self.recent_from = 0
        #: Whether anything was read yet.
        self.is_fresh = False
        #: Whether the last commit was just read: if the head still differs, one of them is wrong.
        self._is_anew = False

    @property
    def digest(self) -> bytes:
        """What the key `h` must hold; empty before the first commit."""
        return self.head.digest if self.head.position else b""

    @property
    def is_large(self) -> bool:
        return len(self.streams) + len(self.held) + len(self.current) > _MOST_CACHED

    def remember(self, stream: Stream) -> None:
        """Keep a stream that was read."""
        self.streams[stream.oid] = stream

    def start_at(self, entry: Any) -> None:
        """Know nothing but the last commit."""
        self.clear()
        self.head = head_from(self.tenant, entry)
        self.recent_from = self.head.position
        self.is_fresh = self._is_anew = True

    def catch_up(self, digest: bytes, entries: list[Any]) -> bool:
        """Take in what others committed; False when that is not all, and reading must start anew.

        Raises:
            Corrupt: the commits do not lead to the head.
        """
        if len(entries) >= MOST_TOLD or (not entries and not self._is_anew):
            self.clear()
            return False
        for entry in entries:
            self.absorb(*commit_from(entry))
        self._is_anew = False
        if digest != self.digest:
            self.clear()
            raise Corrupt(
                f"the last commit of tenant {self.tenant!r} is not the one its head names",
                "stop writing and restore a copy",
            )
        self.is_fresh = True
        return True

    def absorb(self, position: int, commit: Counted) -> None:
        """Let everything known show one commit more."""
        if position <= self.head.position:
            return
        if position != self.head.position + 1:
            self._forget_streams()
            self.recent.clear()
            self.recent_from = position - 1
        move(self.head, position, commit)
        self.note_key(commit.key, position)
        for entry in self._entries(commit):
            stream = self.streams.get(int(entry[1]))
            action = entry[0]
            if action in (Action.DROP, Action.PRUNE, Action.ERASE):
                self._forget_streams()
            elif stream is not None and action == Action.APPEND:
                stream.length = int(entry[2]) + 1
            elif stream is not None and action in (Action.PUT, Action.DELETE):
                stream.length, stream.deleted = int(entry[2]), action == Action.DELETE
                self.current.pop(stream.oid, None)

    def _entries(self, commit: Counted) -> list[tuple[int | bytes, ...]]:
        try:
            return unpack(commit.manifest)
        except msgspec.MsgspecError:
            self._forget_streams()
            return []

    def note_key(self, key: str, position: int) -> None:
        """Remember where a made key committed."""
        if key[:1] == "~":
            self.recent[key] = position
            if len(self.recent) > _RECENT_KEYS:
                self.recent.clear()
                self.recent_from = position

    def _forget_streams(self) -> None:
        self.named.clear()
        self.streams.clear()
        self.held.clear()
        self.current.clear()


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
