"""What this process knows of one tenant, so that a writer alone needs no reading.

True at one position. When others have committed, their commits say what changed;
where they do not say enough, everything is let go.
"""

from __future__ import annotations

from typing import Any

import msgspec

from pagefile.engines.redis.connection import Link
from pagefile.engines.redis.layout import Keys
from pagefile.engines.redis.rows import Counted, commit_from, head_from, move
from pagefile.errors import Corrupt
from pagefile.store.commit.idempotency import KeyExpiry
from pagefile.store.engine import Stream, TenantHead
from pagefile.store.records import Action, StreamKind, unpack

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
