"""Making a commit of another store again: same position, time, key, numbers and digest.

Runs inside an engine's write lock, as `rules.apply` does, and calls the
engine in the same order. There is nothing to decide, because the manifest says
what was decided. Everything is looked at before anything changes: a commit that
does not follow on what is stored here is refused and leaves no trace.
"""

from __future__ import annotations

from collections.abc import Iterator

from pagefile.errors import Conflict, Corrupt
from pagefile.store.engine import (
    DOCUMENT,
    LOG,
    NAMELESS,
    Copied,
    IndexKey,
    Origin,
    RawCommit,
    Row,
    Sealed,
    Stream,
    TenantHead,
    Transaction,
    index_keys,
)
from pagefile.store.records import Action, chain, read_manifest

_RECORDS = (Action.APPEND, Action.PUT, Action.DELETE)
#: How many rows an erasure looks at together.
_ROWS_AT_ONCE = 1_000

_Entry = tuple[int | bytes, ...]


def replay(tx: Transaction, copied: Copied) -> Sealed:
    """Store a copied commit, or raise and leave everything as it was.

    Raises:
        Conflict: it is not the one that comes next here.
        Corrupt: what is stored here is not what its commits say.
    """
    commit = copied.commit
    _require_next(tx.head, commit)
    return _Replay(tx, copied, read_manifest(commit.position, commit.manifest)).run()


def _require_next(head: TenantHead, commit: RawCommit) -> None:
    # The digest covers the position and the digest before: it follows on one commit alone.
    if commit.digest != chain(
        head.digest, commit.position, commit.time_us, commit.key, commit.manifest
    ):
        raise Conflict(
            f"the copied commit at position {commit.position} does not follow on this history",
            "copy into a store that holds nothing else of this tenant",
            target="tenant",
            expected=commit.position - 1,
            current=head.position,
        )


class _Replay:
    """One commit on its way: first what it touches, then the changes."""

    def __init__(self, tx: Transaction, copied: Copied, entries: list[_Entry]) -> None:
        self._tx = tx
        self._copied = copied
        self._entries = entries
        self._streams: dict[int, Stream] = {}
        self._made: list[Stream] = []
        #: The next number of each stream that is written to.
        self._next: dict[int, int] = {}

    def run(self) -> Sealed:
        self._look()
        self._create()
        self._wipe()
        self._drop()
        for stream, rows, keys in self._additions():
            self._tx.add(stream, rows, keys)
        self._prune()
        head, commit = self._tx.head, self._copied.commit
        self._note_erasure(self._copied.whole_from)
        head.position, head.time_us, head.digest = commit.position, commit.time_us, commit.digest
        self._tx.seal(commit)
        return Sealed(commit, (), ())

    # Looking

    def _look(self) -> None:
        records = 0
        for entry in self._entries:
            action, oid = int(entry[0]), int(entry[1])
            stream = self._streams.get(oid)
            if stream is None:
                stream = self._streams[oid] = self._found(oid) or self._new(entry)
            if action in _RECORDS:
                records += 1
                number = self._next.get(oid, stream.length + (stream.kind == DOCUMENT))
                if entry[2] != number:
                    raise self._damaged(f"stream {oid} is at {number}, not at {entry[2]!r}")
                self._next[oid] = number + 1
        if records != len(self._copied.contents):
            raise self._damaged("it stores more or fewer records than were brought")
        for oid in self._copied.forgotten:
            if oid not in self._streams and (stream := self._found(oid)) is not None:
                self._streams[oid] = stream

    def _found(self, oid: int) -> Stream | None:
        if oid > self._tx.head.oid:
            return None
        origin = self._copied.streams.get(oid)
        if origin is not None and origin.name:
            # By name first: that is what engines remember.
            stream = self._tx.stream(origin.kind, origin.name)
            if stream is not None and stream.oid == oid:
                return stream
        stream = self._tx.stream_number(oid)
        if not stream.dropped:
            # What a name leads to is looked at before it changes.
            self._tx.stream(stream.kind, stream.name)
        return stream

    def _new(self, entry: _Entry) -> Stream:
        action, oid = int(entry[0]), int(entry[1])
        origin = self._copied.streams.get(oid)
        if oid != self._tx.head.oid + len(self._made) + 1 or origin is None:
            raise self._damaged(f"there is no stream {oid}")
        stream = Stream(oid, origin.kind, _name(oid, origin), self._copied.commit.position)
        if action == Action.FORK:
            stream.base_at, stream.base, stream.pruned = int(entry[2]), int(entry[4]), int(entry[5])
            stream.first = stream.length = stream.base_at
            stream.salt = origin.salt
        self._made.append(stream)
        return stream

    def _damaged(self, how: str) -> Corrupt:
        return Corrupt(
            f"the copied commit at position {self._copied.commit.position} does not fit: {how}",
            "run `verify` on both stores to see which of them is damaged",
        )

    # Changing

    def _create(self) -> None:
        head = self._tx.head
        for stream in self._made:
            head.oid += 1
            stream.deleted = stream.kind == DOCUMENT
            if stream.kind == LOG:
                head.logs += 1
            self._tx.create(stream)

    def _of(self, action: int) -> Iterator[tuple[Stream, _Entry]]:
        for entry in self._entries:
            if entry[0] == action:
                yield self._streams[int(entry[1])], entry

    def _note_erasure(self, position: int) -> None:
        # Never back: while something is missing, it is a position that is yet to come.
        self._tx.head.last_erase = max(self._tx.head.last_erase, position)

    def _wipe(self) -> None:
        for stream, entry in self._of(Action.ERASE):
            self._note_erasure(self._copied.commit.position)
            first, last = int(entry[2]), int(entry[3])
            for start in range(first, last + 1, _ROWS_AT_ONCE):
                rows = self._tx.rows(stream, start, min(last, start + _ROWS_AT_ONCE - 1))
                if doomed := [row for row in rows if row.content is not None]:
                    self._tx.wipe(stream, doomed)

    def _drop(self) -> None:
        head, position = self._tx.head, self._copied.commit.position
        ended = [stream for stream, _ in self._of(Action.DROP)]
        for stream in ended:
            stream.dropped = position
            if stream.kind == LOG:
                head.logs -= 1
            elif not stream.deleted:
                head.documents -= 1
        for stream in ended:
            self._tx.drop(stream, forget_name=not self._copied.streams[stream.oid].name)
        for oid in self._copied.forgotten:
            stream = self._streams[oid]
            if stream.dropped and stream.name:
                self._tx.drop(stream, forget_name=True)

    def _additions(self) -> Iterator[tuple[Stream, list[Row], list[list[IndexKey]]]]:
        """The records, neighbouring appends to one log together."""
        head, commit = self._tx.head, self._copied.commit
        contents = iter(self._copied.contents)
        rows: list[Row] = []
        keys: list[list[IndexKey]] = []
        before: Stream | None = None
        for oid, number in self._next.items():
            stream = self._streams[oid]
            stream.length = number - (stream.kind == DOCUMENT)
        for ordinal, entry in enumerate(self._entries):
            action = int(entry[0])
            if action not in _RECORDS:
                continue
            stream, content = self._streams[int(entry[1])], next(contents)
            if rows and before is not None and (stream is not before or stream.kind == DOCUMENT):
                yield before, rows, keys if any(keys) else []
                rows, keys = [], []
            before = stream
            if stream.kind == DOCUMENT:
                deleted = action == Action.DELETE
                head.documents += int(stream.deleted) - int(deleted)
                stream.deleted = deleted
            place = (int(entry[2]), commit.position, ordinal, commit.time_us, action)
            rows.append(Row(*place, content))
            has_keys = content is not None and (content.keys or content.tenant_keys)
            keys.append(index_keys(stream.kind, content) if content and has_keys else [])
        if rows and before is not None:
            yield before, rows, keys if any(keys) else []

    def _prune(self) -> None:
        for stream, entry in self._of(Action.PRUNE):
            self._note_erasure(self._copied.commit.position)
            self._tx.prune(stream, int(entry[2]))


def _name(oid: int, origin: Origin) -> str:
    """The stream's name; for one that is erased, what no caller can ask for until it ends."""
    return origin.name or f"{NAMELESS}{oid}"
