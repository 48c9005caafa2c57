"""Moving a tenant to another engine while writers go on.

The destination makes each commit again, with its position, time, key, numbers,
salts and digest. Its own position is the progress: a copy that was killed goes
on from there, and one commit after the other must continue the hash chain, so a
destination with another history is refused and cannot be mixed up.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from pagefile.errors import Conflict, Invalid, PagefileError
from pagefile.store.arguments import Naming, require_callable, require_count, require_seconds
from pagefile.store.engine import Copied, Engine, Limits, Prepared, Sealed
from pagefile.store.log.copy import CopySource, ended_by, lets_go

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
