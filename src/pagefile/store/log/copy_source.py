"""Reading a tenant's commits with everything they stored, to be made again elsewhere.

Nothing is held for long: writers go on, and what is read here may be erased a
moment later. The erasure is then a later commit, and is copied in its turn.
"""

from __future__ import annotations

import msgspec

from pagefile.errors import Corrupt
from pagefile.store.engine import Copied, Engine, Origin, RawCommit, Stream
from pagefile.store.records import Action, Content, chain, digest_of, unpack

_RECORDS = (Action.APPEND, Action.PUT, Action.DELETE)
#: Actions after which a name may be gone.
_ENDINGS = (Action.DROP, Action.ERASE)
_COMMITS_AT_ONCE = 512
_FEWEST_ROWS, _MOST_ROWS = 8, 128
_MOST_KNOWN = 50_000

_Entry = tuple[int | bytes, ...]


class CopySource:
    """One tenant of the store that is copied."""

    def __init__(self, engine: Engine, tenant: str, batch_bytes: int) -> None:
        self._engine = engine
        self._tenant = tenant
        self._batch_bytes = batch_bytes
        self._streams: dict[int, tuple[Origin, Stream]] = {}
        #: Contents read ahead, by stream and number.
        self._ahead: dict[int, dict[int, Content | None]] = {}
        self._rows_at_once = _FEWEST_ROWS
        #: Where the source let go of what was missing so far.
        self._let_go_at = 0
        #: The destination is whole from this position on: what was missing is accounted for.
        self.whole_from = 0

    def head(self) -> tuple[int, bytes]:
        """How far the tenant is, and the digest of everything up to there."""
        head = self._engine.head(self._tenant)
        return head.position, head.digest

    def digest_at(self, position: int) -> bytes | None:
        """The digest of everything up to a position, if it is there."""
        found = self._engine.commits(self._tenant, position - 1, 1)
        return found[0].digest if found and found[0].position == position else None

    def read(self, after: int, previous: bytes) -> list[Copied]:
        """The next commits, as many as fit into a batch; `previous` is the digest before them.

        Raises:
            Corrupt: what is stored is not what the commits say.
        """
        commits = self._engine.commits(self._tenant, after, _COMMITS_AT_ONCE)
        manifests = [self._manifest(commit) for commit in commits]
        ends = {
            int(entry[1]): int(entry[2])
            for entries in manifests
            for entry in entries
            if entry[0] in _RECORDS
        }
        self._ahead.clear()
        found: list[Copied] = []
        size, last_missing = 0, 0
        for commit, entries in zip(commits, manifests, strict=True):
            after += 1
            self._require_link(commit, after, previous)
            previous = commit.digest
            copied = Copied(commit, *self._parts(commit, entries, ends))
            found.append(copied)
            if None in copied.contents:
                last_missing = commit.position
            size += len(commit.manifest) + sum(len(c.body) for c in copied.contents if c)
            if size >= self._batch_bytes:
                break
        if last_missing:
            self._account_for(last_missing)
        return [
            msgspec.structs.replace(copied, whole_from=self._let_go_at)
            if None in copied.contents
            else copied
            for copied in found
        ]

    def _manifest(self, commit: RawCommit) -> list[_Entry]:
        try:
            return unpack(commit.manifest)
        except (msgspec.MsgspecError, TypeError) as error:
            raise _damaged(commit.position, "its manifest cannot be read") from error

    def _require_link(self, commit: RawCommit, position: int, previous: bytes) -> None:
        if commit.position != position:
            raise _damaged(position, f"the next one is {commit.position}")
        made = chain(previous, position, commit.time_us, commit.key, commit.manifest)
        if made != commit.digest:
            raise _damaged(position, "its digest does not follow from the one before")

    def _parts(
        self, commit: RawCommit, entries: list[_Entry], ends: dict[int, int]
    ) -> tuple[list[Content | None], dict[int, Origin]]:
        contents: list[Content | None] = []
        origins: dict[int, Origin] = {}
        for entry in entries:
            action, oid = int(entry[0]), int(entry[1])
            origin, stream = self._stream(oid, commit.position, afresh=action in _ENDINGS)
            origins[oid] = origin
            if action in _RECORDS:
                content = self._content(stream, int(entry[2]), ends[oid])
                if content is not None and digest_of(stream.name, content) != entry[3]:
                    # Erased together with its name while it was read: look once more.
                    origin, stream = self._stream(oid, commit.position, afresh=True)
                    if stream.name:
                        raise _damaged(
                            commit.position, f"{stream.kind} {stream.name!r} was changed"
                        )
                    origins[oid], content = origin, None
                contents.append(content)
        return contents, origins

    def _stream(self, oid: int, position: int, *, afresh: bool) -> tuple[Origin, Stream]:
        known = self._streams.get(oid)
        if known is None or afresh:
            stream = self._engine.stream_number(self._tenant, oid)
            if stream is None:
                raise _damaged(position, f"stream {oid} is missing")
            if len(self._streams) >= _MOST_KNOWN:
                self._streams.clear()
            salt = stream.salt if stream.name else b""
            known = self._streams[oid] = Origin(stream.kind, stream.name, salt), stream
            if not stream.name:
                self.whole_from = max(self.whole_from, stream.dropped)
        return known

    def is_nameless(self, oid: int) -> bool:
        """Whether the stream's name is erased."""
        stream = self._engine.stream_number(self._tenant, oid)
        return stream is not None and not stream.name

    def _content(self, stream: Stream, number: int, last: int) -> Content | None:
        ahead = self._ahead.setdefault(stream.oid, {})
        if number not in ahead:
            wanted = range(number, min(last + 1, number + self._rows_at_once))
            rows = self._engine.rows(self._tenant, stream, number, wanted[-1], len(wanted))
            ahead.update(dict.fromkeys(wanted))
            ahead.update((row.number, row.content) for row in rows)
            self._pace(len(rows), sum(len(row.content.body) for row in rows if row.content))
        return ahead.pop(number)

    def _pace(self, rows: int, size: int) -> None:
        """Read more rows at once while they are small, fewer when they are not."""
        if size > self._batch_bytes // 4:
            self._rows_at_once = max(1, self._rows_at_once // 4)
        elif rows == self._rows_at_once:
            self._rows_at_once = min(_MOST_ROWS, self._rows_at_once * 2)

    def _account_for(self, position: int) -> None:
        """Something is missing that this commit stored: a later one must have let it go."""
        last_erase = self._engine.head(self._tenant).last_erase
        if last_erase <= position:
            raise _damaged(position, "a record of it is missing and was never erased")
        self._let_go_at = last_erase
        self.whole_from = max(self.whole_from, last_erase)


def lets_go(copied: Copied) -> bool:
    """Whether the commit may have erased names of streams that ended before."""
    actions = {entry[0] for entry in unpack(copied.commit.manifest)}
    return not actions or Action.ERASE in actions


def ended_by(copied: Copied) -> list[int]:
    """The streams that the commit ended."""
    return [int(entry[1]) for entry in unpack(copied.commit.manifest) if entry[0] == Action.DROP]


def _damaged(position: int, how: str) -> Corrupt:
    return Corrupt(
        f"the commit at position {position} of the source is damaged: {how}",
        "run `verify` on the source, then restore a copy of it",
    )
