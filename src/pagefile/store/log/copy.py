"""Moving a tenant to another engine while writers go on."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from pagefile.errors import Conflict, Corrupt, Invalid, PagefileError
from pagefile.store.arguments import Naming, require_callable, require_count, require_seconds
from pagefile.store.engine import (
    Copied,
    Engine,
    Limits,
    Origin,
    Prepared,
    RawCommit,
    Sealed,
    Stream,
)
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


#: How many bytes of content travel in one transaction, unless a single commit has more.
BATCH_BYTES = 4 * 1024 * 1024
_LEAST_BYTES, _MOST_BYTES = 1_024, 64 * 1024 * 1024
#: How often the destination may have moved under a batch before that is an error.
_MOST_SURPRISES = 100
#: How long a follower sleeps at most before it looks whether it is to stop.
_NAP_SECONDS = 0.5
#: Names of tenants are bounded where they are made; here they only have to be some.
_TENANTS = Naming(1 << 16)


class CopyReport(msgspec.Struct, frozen=True):
    """How far a copy is, and what it did since it was called.

    The destination equals the source at `position`. `behind` is how many commits
    the source had after it when the report was made. `emptied` counts records
    that had been erased or pruned in the source before they were copied.
    """

    tenant: str
    position: int
    digest: bytes
    total: int
    commits: int
    records: int
    emptied: int
    size_bytes: int
    seconds: float

    @property
    def behind(self) -> int:
        """How many commits the source has that the destination has not."""
        return max(0, self.total - self.position)

    @property
    def rate(self) -> float:
        """Records per second since the call."""
        return self.records / self.seconds if self.seconds else 0.0


def copy_tenant(
    source: Engine,
    target: Engine,
    tenant: str,
    *,
    progress: Callable[[CopyReport], object] | None = None,
    follow_seconds: float | None = None,
    batch_bytes: int = BATCH_BYTES,
) -> CopyReport:
    """Bring the destination to where the source was at the time of the call, or later.

    With `follow_seconds` it goes on with what is written meanwhile, for so long.
    Call it as often as you like: what is there is not copied again. Once nobody
    writes to the source any more, one more call makes both equal.

    Raises:
        Conflict: the destination holds another history of this tenant; it says
            where they part. Nothing was changed.
        Corrupt: the source's records do not fit its commits.
        Unavailable: a store failed; call again to go on.
    """
    if source is target:
        raise Invalid("target", "is the source itself", "name another store")
    _TENANTS.check_text("tenant", tenant)
    if progress is not None:
        require_callable("progress", progress)
    require_count(batch_bytes, "batch_bytes", _LEAST_BYTES, _MOST_BYTES)
    if follow_seconds is not None:
        require_seconds(follow_seconds, "follow_seconds")
    copy = _Copy(CopySource(source, tenant, batch_bytes), target, tenant, progress)
    copy.catch_up()
    if follow_seconds is not None:
        deadline = time.monotonic() + follow_seconds
        while (left := deadline - time.monotonic()) > 0:
            if source.wait(tenant, copy.position + 1, min(left, _NAP_SECONDS)):
                copy.catch_up()
    return copy.report()


class _Copy:
    """One call: where the destination is, and what was done so far."""

    def __init__(
        self,
        source: CopySource,
        target: Engine,
        tenant: str,
        progress: Callable[[CopyReport], object] | None,
    ) -> None:
        self._source = source
        self._target = target
        self._tenant = tenant
        self._progress = progress
        self._began = time.monotonic()
        self._commits = self._records = self._emptied = self._size = 0
        self._surprises = 0
        self._total = 0
        #: Streams of the destination that ended and still have their names; None until needed.
        self._ended: set[int] | None = None
        self.position, self._digest = 0, b""
        self._find_place()

    def report(self) -> CopyReport:
        """What was done so far."""
        self._total = max(self._total, self._source.head()[0])
        seconds = time.monotonic() - self._began
        done = (self._commits, self._records, self._emptied, self._size)
        return CopyReport(self._tenant, self.position, self._digest, self._total, *done, seconds)

    # Where the two histories meet

    def _find_place(self) -> None:
        """Go on from what the destination has.

        Raises:
            Conflict: that is not the beginning of what the source has.
        """
        head = self._target.head(self._tenant)
        if head.position and self._source.digest_at(head.position) != head.digest:
            raise self._parted(head.position)
        self.position, self._digest = head.position, head.digest

    def _parted(self, end: int) -> Conflict:
        position, _ = self._source.head()
        common = min(position, end)
        if not self._is_same(common):
            low = 0
            while low < common - 1:
                middle = (low + common) // 2
                low, common = (middle, common) if self._is_same(middle) else (low, middle)
            common -= 1
        if common == position:
            fact = f"the destination has {end - common} commits of its own after {common}"
        elif common:
            fact = f"the destination's history parts from the source's after position {common}"
        else:
            fact = f"the destination already holds another tenant {self._tenant!r}"
        return Conflict(
            fact,
            "copy into a store that holds nothing else of this tenant",
            target=self._tenant,
            expected=common,
            current=end,
        )

    def _is_same(self, position: int) -> bool:
        if not position:
            return True
        found = self._target.commits(self._tenant, position - 1, 1)
        return bool(found) and found[0].digest == self._source.digest_at(position)

    # Copying

    def catch_up(self) -> None:
        """Copy what is committed by now, and on until nothing erased meanwhile is left over."""
        self._total = self._source.head()[0]
        aim = self._total
        let_go = False
        while self.position < max(aim, self._source.whole_from):
            batch = self._source.read(self.position, self._digest)
            if not batch:
                break
            let_go = let_go or any(map(lets_go, batch))
            if let_go and batch[-1].commit.position >= max(aim, self._source.whole_from):
                batch[-1] = self._with_forgotten(batch[-1])
            self._store(batch)
            if self._progress is not None:
                self._progress(self.report())

    def _with_forgotten(self, copied: Copied) -> Copied:
        """The names of ended streams that the source no longer has go with the last commit."""
        if self._ended is None:
            oids = range(1, self._target.head(self._tenant).oid + 1)
            self._ended = {oid for oid in oids if self._has_ended(oid)}
        gone = [oid for oid in sorted(self._ended) if self._source.is_nameless(oid)]
        self._ended.difference_update(gone)
        return msgspec.structs.replace(copied, forgotten=gone)

    def _has_ended(self, oid: int) -> bool:
        stream = self._target.stream_number(self._tenant, oid)
        return stream is not None and bool(stream.dropped) and bool(stream.name)

    def _store(self, batch: list[Copied]) -> None:
        items = [(self._tenant, _prepared(copied)) for copied in batch]
        outcomes = self._target.apply(items)
        refused = next((o for o in outcomes if isinstance(o, PagefileError)), None)
        for copied, outcome in zip(batch, outcomes, strict=True):
            if isinstance(outcome, Sealed):
                self._count(copied)
        if refused is None:
            last = batch[-1].commit
            self.position, self._digest = last.position, last.digest
            return
        self._surprises += 1
        self._ended = None
        if not isinstance(refused, Conflict) or self._surprises > _MOST_SURPRISES:
            raise refused
        # Somebody else writes there: another copy, which is welcome, or it parts from here on.
        self._find_place()

    def _count(self, copied: Copied) -> None:
        self._commits += 1
        self._records += len(copied.contents)
        self._emptied += sum(content is None for content in copied.contents)
        self._size += sum(len(content.body) for content in copied.contents if content is not None)
        if self._ended is not None:
            self._ended.update(oid for oid in ended_by(copied) if copied.streams[oid].name)


def _prepared(copied: Copied) -> Prepared:
    return Prepared(copied.commit.key, (), (), Limits(), copied=copied)
