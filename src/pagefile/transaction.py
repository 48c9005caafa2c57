"""The rules of a commit, the same on every engine.

`apply` runs inside an engine's write lock. It checks everything before it
changes anything that cannot be taken back, so a refused batch leaves no trace:
conditions first, then each operation in order, then the rows, then the commit
itself with its place in the hash chain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from pagefile.batch import Selector
from pagefile.content import Action, chain, name_digest, pack, unpack
from pagefile.engine import (
    DOCUMENT,
    LOG,
    IndexKey,
    Limits,
    Prepared,
    RawCommit,
    Requirement,
    Row,
    Sealed,
    Stream,
    Transaction,
    Wiped,
    Write,
)
from pagefile.errors import Conflict, Invalid, LimitExceeded, NotFound, PagefileError
from pagefile.records import StreamKind

ManifestEntry = tuple[int | bytes, ...]


class Rehearsed(PagefileError):
    """Not a failure: an erasure that stored nothing, as asked or for want of a match."""

    def __init__(self, wiped: tuple[Wiped, ...]) -> None:
        super().__init__("nothing was erased")
        self.wiped = wiped


class _Draft(msgspec.Struct, gc=False):
    """One batch on its way: what it will store, and how to take back what it touched."""

    tx: Transaction
    position: int
    time_us: int
    limits: Limits
    #: Whether an operation after this one could still be refused.
    several: bool
    additions: list[tuple[Stream, list[Row], Sequence[Sequence[IndexKey]]]] = []
    manifest: list[ManifestEntry] = []
    indexes: list[int] = []
    versions: list[int] = []
    undo: list[Callable[[], None]] = []
    finish: list[Callable[[], None]] = []
    erased: tuple[Wiped, ...] = ()


def apply(tx: Transaction, batch: Prepared, now_us: int) -> Sealed:
    """Commit one batch, or raise and leave everything as it was.

    Raises:
        Conflict, LimitExceeded, NotFound, Invalid: nothing was stored.
    """
    if not batch.fresh and (earlier := tx.earlier(batch.key)) is not None:
        return repeat_of(earlier)
    for requirement in batch.when:
        _require(tx, requirement)
    head = tx.head
    position = head.position + 1
    # The store's clock never runs backwards, whatever the machine's does.
    time_us = now_us if now_us > head.time_us else head.time_us
    draft = _Draft(tx, position, time_us, batch.limits, len(batch.writes) > 1)
    try:
        for write in batch.writes:
            _PLANS[write.action](draft, write)
    except PagefileError:
        for step in reversed(draft.undo):
            step()
        raise
    for stream, rows, keys in draft.additions:
        tx.add(stream, rows, keys)
    for step in draft.finish:
        step()
    manifest = pack(draft.manifest)
    digest = chain(head.digest, position, time_us, manifest)
    head.position = position
    head.time_us = time_us
    head.digest = digest
    commit = RawCommit(position, time_us, batch.key, manifest, digest)
    tx.seal(commit)
    return Sealed(commit, tuple(draft.indexes), tuple(draft.versions), False, draft.erased)


def repeat_of(commit: RawCommit) -> Sealed:
    """What the first commit of a key answered, read back from its manifest."""
    indexes: list[int] = []
    versions: list[int] = []
    for entry in unpack(commit.manifest):
        if entry[0] in (Action.APPEND, Action.FORK):
            indexes.append(int(entry[2]))
        elif entry[0] in (Action.PUT, Action.DELETE):
            versions.append(int(entry[2]))
    return Sealed(commit, tuple(indexes), tuple(versions), True)


def _require(tx: Transaction, need: Requirement) -> None:
    if need.what in ("version", "absent"):
        _require_version(tx, need)
    elif need.what in ("length", "below"):
        _require_length(tx, need)
    else:
        _require_key(tx, need)


def _require_version(tx: Transaction, need: Requirement) -> None:
    stream = tx.stream(DOCUMENT, need.name)
    current = stream.length if stream is not None else 0
    if need.what == "absent":
        if stream is not None and not stream.deleted:
            raise Conflict(
                f"document {need.name!r} exists at version {current}",
                "read it, or choose another name",
                target=need.name,
                expected=0,
                current=current,
            )
    elif current != need.number:
        raise Conflict(
            f"document {need.name!r} is at version {current}, not {need.number}",
            "read it again, then retry",
            target=need.name,
            expected=need.number,
            current=current,
        )


def _require_length(tx: Transaction, need: Requirement) -> None:
    stream = tx.stream(LOG, need.name)
    current = stream.length if stream is not None else 0
    if need.what == "below":
        if current >= need.number:
            raise _log_is_full(need.name, need.number, current + 1)
    elif current != need.number:
        raise Conflict(
            f"log {need.name!r} has {current} entries, not {need.number}",
            f"read from {min(need.number, current)} to see what was added, then append again",
            target=need.name,
            expected=need.number,
            current=current,
        )


def _require_key(tx: Transaction, need: Requirement) -> None:
    key = need.key
    assert key is not None
    if need.what == "count":
        found = tx.count(key, need.user, need.number)
        if found >= need.number:
            raise LimitExceeded(
                f"the number of records under {key.field!r}",
                limit=need.number,
                wanted=found + 1,
                next_step="remove one, or raise the limit",
            )
        return
    # What an erasure took away left no trace of its keys, so it counts as a
    # change of every key: the caller re-reads and comes again.
    last = max(tx.last_change(key, need.user), tx.head.last_erase)
    if last > need.number:
        raise Conflict(
            f"records under {key.field!r} changed at position {last}, after {need.number}",
            "read them again, then retry with the newer position",
            target=key.field,
            expected=need.number,
            current=last,
        )


def _log_is_full(name: str, limit: int, wanted: int) -> LimitExceeded:
    return LimitExceeded(
        f"the number of entries in log {name!r}",
        limit=limit,
        wanted=wanted,
        next_step="fork it, start another log, or raise the limit",
    )


def _living(draft: _Draft, kind: StreamKind, name: str) -> Stream | None:
    stream = draft.tx.stream(kind, name)
    if stream is not None and stream.dropped:
        raise Invalid("batch", f"{kind} {name!r} is dropped in the same batch", "use two batches")
    return stream


def _create(
    draft: _Draft, write: Write, limit: int | None, base: Stream | None = None, at: int = 0
) -> Stream:
    tx, head = draft.tx, draft.tx.head
    counted = head.logs if write.stream == LOG else head.documents
    if limit is not None and counted >= limit:
        raise LimitExceeded(
            f"the number of {write.stream}s",
            limit=limit,
            wanted=counted + 1,
            next_step="remove some, or raise the limit",
        )
    stream = Stream(head.oid + 1, write.stream, write.name, draft.position)
    if base is not None:
        stream.base, stream.base_at, stream.salt = base.oid, at, write.salt
        stream.first = stream.length = at
    head.oid += 1
    if write.stream == LOG:
        head.logs += 1
    tx.create(stream)

    def undo() -> None:
        head.oid -= 1
        if stream.kind == LOG:
            head.logs -= 1
        tx.discard(stream)

    draft.undo.append(undo)
    return stream


def _plan_append(draft: _Draft, write: Write) -> None:
    stream = draft.tx.stream(LOG, write.name)
    if stream is None or stream.dropped:
        stream = _living(draft, LOG, write.name) or _create(draft, write, draft.limits.logs)
    contents = write.contents
    index = stream.length
    end = index + len(contents)
    limit = draft.limits.log_entries
    if write.limit is not None and write.limit < limit:
        limit = write.limit
    if end > limit:
        raise _log_is_full(write.name, limit, end)
    stream.length = end
    if draft.several:
        draft.undo.append(partial(setattr, stream, "length", index))
    oid, position, time_us, manifest = stream.oid, draft.position, draft.time_us, draft.manifest
    # Each operation has its own place in the commit; only records come before.
    ordinal = len(manifest)
    if end - index == 1:
        rows = [Row(index, position, ordinal, time_us, Action.APPEND, contents[0])]
        manifest.append((Action.APPEND, oid, index, write.digests[0]))
        draft.indexes.append(index)
    else:
        numbers = range(index, end)
        rows = [
            Row(number, position, ordinal + number - index, time_us, Action.APPEND, content)
            for number, content in zip(numbers, contents, strict=True)
        ]
        manifest += [
            (Action.APPEND, oid, number, digest)
            for number, digest in zip(numbers, write.digests, strict=True)
        ]
        draft.indexes += numbers
    draft.additions.append((stream, rows, write.keys))


def _plan_put(draft: _Draft, write: Write) -> None:
    head = draft.tx.head
    stream = _living(draft, DOCUMENT, write.name)
    if stream is None:
        stream = _create(draft, write, draft.limits.documents)
        stream.deleted = True
    elif stream.deleted:
        limit = draft.limits.documents
        if limit is not None and head.documents >= limit:
            raise LimitExceeded(
                "the number of documents",
                limit=limit,
                wanted=head.documents + 1,
                next_step="remove some, or raise the limit",
            )
    _next_version(draft, write, stream, deleted=False)


def _plan_delete(draft: _Draft, write: Write) -> None:
    stream = _living(draft, DOCUMENT, write.name)
    if stream is None or stream.deleted:
        raise NotFound(f"there is no document {write.name!r} to delete", "list the names first")
    _next_version(draft, write, stream, deleted=True)


def _next_version(draft: _Draft, write: Write, stream: Stream, *, deleted: bool) -> None:
    head = draft.tx.head
    version, was_deleted = stream.length + 1, stream.deleted

    def undo() -> None:
        stream.length, stream.deleted = version - 1, was_deleted
        head.documents += int(deleted) - int(was_deleted)

    draft.undo.append(undo)
    stream.length, stream.deleted = version, deleted
    head.documents += int(was_deleted) - int(deleted)
    ordinal = len(draft.manifest)
    row = Row(version, draft.position, ordinal, draft.time_us, write.action, write.contents[0])
    draft.additions.append((stream, [row], write.keys))
    draft.manifest.append((write.action, stream.oid, version, write.digests[0]))
    draft.versions.append(version)


def _plan_fork(draft: _Draft, write: Write) -> None:
    tx = draft.tx
    base = _living(draft, LOG, write.base)
    if base is None:
        raise NotFound(f"there is no log {write.base!r} to fork", "list the names first")
    if (present := _living(draft, LOG, write.name)) is not None:
        raise Conflict(
            f"log {write.name!r} exists with {present.length} entries",
            "choose another name for the fork",
            target=write.name,
            expected=0,
            current=present.length,
        )
    at = base.length if write.number is None else write.number
    if not base.pruned <= at <= base.length:
        raise Invalid(
            "fork.at",
            f"{at} is outside {base.pruned} … {base.length} of log {write.base!r}",
            "fork at an index the log still has, or at its length",
        )
    # A fork inside what the base itself shares hangs on the owner directly,
    # so a chain is only as long as the forks that added something.
    while base.base and at <= base.base_at:
        base = tx.stream_number(base.base)
    child = _create(draft, write, draft.limits.logs, base, at)
    entry = (Action.FORK, child.oid, at, name_digest(write.name, write.salt), base.oid)
    draft.manifest.append(entry)
    draft.indexes.append(at)


def _plan_drop(draft: _Draft, write: Write) -> None:
    tx, head = draft.tx, draft.tx.head
    stream = _living(draft, LOG, write.name)
    if stream is None:
        raise NotFound(f"there is no log {write.name!r} to drop", "list the names first")
    if any(written is stream for written, _, _ in draft.additions):
        raise Invalid("drop", f"log {write.name!r} is also appended to", "use two batches")
    dropped = stream
    dropped.dropped = draft.position
    head.logs -= 1

    def undo() -> None:
        dropped.dropped = 0
        head.logs += 1

    draft.undo.append(undo)
    draft.finish.append(lambda: tx.drop(dropped))
    draft.manifest.append((Action.DROP, stream.oid))


def _plan_prune(draft: _Draft, write: Write) -> None:
    before = write.number
    assert before is not None
    stream = _living(draft, write.stream, write.name)
    if stream is None:
        raise NotFound(f"there is no {write.stream} {write.name!r} to prune", "list the names")
    if before > stream.length:
        raise Invalid(
            "prune.before",
            f"{before} is beyond {write.stream} {write.name!r} at {stream.length}",
            "prune at most up to its end",
        )
    if any(written is stream for written, _, _ in draft.additions):
        raise Invalid("prune", f"{write.name!r} is also written to", "use two batches")
    pruned = stream
    draft.finish.append(lambda: _prune(draft, pruned, before))
    draft.manifest.append((Action.PRUNE, stream.oid, before))


def _prune(draft: _Draft, stream: Stream, before: int) -> None:
    draft.tx.head.last_erase = draft.position
    draft.tx.prune(stream, before)


def _plan_erase(draft: _Draft, write: Write) -> None:
    """Erase what matches. It stands alone in its batch, so nothing after it can fail."""
    tx, selector = draft.tx, write.selector
    assert selector is not None
    wiped: list[Wiped] = []
    for stream in _candidates(tx, selector):
        rows = [row for row in tx.rows(stream) if row.content is not None]
        doomed = [row for row in rows if _matches(row, selector)]
        if not doomed:
            continue
        # That a document was deleted says nothing about anybody: such a version
        # goes when nothing else is left, and its stream with it.
        markers = [row for row in rows if row.action == Action.DELETE]
        is_whole = _is_whole(selector) and len(doomed) + len(markers) == len(rows)
        if is_whole:
            doomed = rows
        wiped.extend(_runs(stream, doomed))
        if write.rehearse:
            continue
        tx.wipe(stream, doomed)
        if is_whole:
            _retire(draft, stream)
    if write.rehearse or not wiped:
        raise Rehearsed(tuple(wiped))
    tx.head.last_erase = draft.position
    draft.erased = tuple(wiped)
    draft.manifest.extend((Action.ERASE, run.oid, run.first, run.last) for run in wiped)


def _candidates(tx: Transaction, selector: Selector) -> list[Stream]:
    named: list[Stream] | None = None
    if selector.log is not None:
        named = tx.incarnations(LOG, selector.log)
    elif selector.document is not None:
        named = tx.incarnations(DOCUMENT, selector.document)
    if selector.user is None and not selector.anonymous:
        return named or []
    holders = tx.holders(selector.user)
    if named is None:
        return holders
    wanted = {stream.oid for stream in named}
    return [stream for stream in holders if stream.oid in wanted]


def _matches(row: Row, selector: Selector) -> bool:
    content = row.content
    if content is None or row.action == Action.DELETE:
        return False
    if (selector.user is not None or selector.anonymous) and content.user != selector.user:
        return False
    if selector.first is not None and row.number < selector.first:
        return False
    if selector.last is not None and row.number > selector.last:
        return False
    return selector.before_us is None or row.time_us < selector.before_us


def _is_whole(selector: Selector) -> bool:
    return selector.first is None and selector.last is None and selector.before_us is None


def _runs(stream: Stream, rows: list[Row]) -> list[Wiped]:
    """Neighbouring numbers joined, so that a million entries are one line of the receipt."""
    runs: list[list[Row]] = []
    for row in rows:
        if runs and row.number == runs[-1][-1].number + 1:
            runs[-1].append(row)
        else:
            runs.append([row])
    return [
        Wiped(
            stream.kind,
            stream.name,
            stream.oid,
            run[0].number,
            run[-1].number,
            len(run),
            sum(len(row.content.body) for row in run if row.content is not None),
        )
        for run in runs
    ]


def _retire(draft: _Draft, stream: Stream) -> None:
    """End a stream that has no content left, and its name with it."""
    head = draft.tx.head
    if not stream.dropped:
        stream.dropped = draft.position
        if stream.kind == LOG:
            head.logs -= 1
        elif not stream.deleted:
            head.documents -= 1
        draft.manifest.append((Action.DROP, stream.oid))
    draft.tx.drop(stream, forget_name=True)


_PLANS: dict[int, Callable[[_Draft, Write], None]] = {
    Action.APPEND: _plan_append,
    Action.PUT: _plan_put,
    Action.DELETE: _plan_delete,
    Action.FORK: _plan_fork,
    Action.DROP: _plan_drop,
    Action.PRUNE: _plan_prune,
    Action.ERASE: _plan_erase,
}
