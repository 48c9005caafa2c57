"""The rules of a commit, the same on every engine.

`apply` runs inside an engine's write lock. It checks everything before it
changes anything that cannot be taken back, so a refused batch leaves no trace:
conditions first, then each operation in order, then the rows, then the commit
itself with its place in the hash chain.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import msgspec

from pagefile.errors import Conflict, Invalid, LimitExceeded, NotFound, PagefileError
from pagefile.store.batch import Vector
from pagefile.store.commit.erasure import Rehearsed, bare_forks, doomed_by, runs_of
from pagefile.store.commit.idempotency import implausible, repeat_of
from pagefile.store.commit.rules import (
    ManifestEntry,
    append_alone,
    numbered,
    require,
    require_room,
    seal,
    unfinished_copy,
)
from pagefile.store.engine import (
    DOCUMENT,
    LOG,
    IndexKey,
    Limits,
    Prepared,
    Row,
    Sealed,
    Stream,
    TakesVectors,
    Transaction,
    Wiped,
    Write,
)
from pagefile.store.log.replay import replay
from pagefile.store.records import Action, StreamKind, name_digest

_Undo = tuple[Callable[..., None], Stream] | tuple[Callable[..., None], Stream, bool, bool]


class _Draft(msgspec.Struct, gc=False):
    """One batch on its way: what it will store, and how to take back what it touched."""

    tx: Transaction
    position: int
    time_us: int
    limits: Limits
    additions: list[tuple[Stream, Sequence[Row], Sequence[Sequence[IndexKey]]]] = []
    manifest: list[ManifestEntry] = []
    indexes: list[int] = []
    versions: list[int] = []
    #: What takes a step back, and about which stream. No closures: there may be thousands.
    undo: list[_Undo] = []
    #: Vectors of entries, by their log and the number of the first.
    vectors: list[tuple[Stream, int, Sequence[Vector | None]]] = []
    #: Logs that were appended to, and how long they were.
    lengths: list[tuple[Stream, int]] = []
    finish: list[Callable[[], None]] = []
    #: Logs that end, each with its place in the manifest.
    dropped: list[tuple[Stream, int]] = []
    erased: tuple[Wiped, ...] = ()


def apply(tx: Transaction, batch: Prepared, now_us: int) -> Sealed:
    """Commit one batch, or raise and leave everything as it was.

    Raises:
        Conflict, LimitExceeded, NotFound, Invalid: nothing was stored.
    """
    if batch.copied is not None:
        return replay(tx, batch.copied)
    # A key made at the very end of the log cannot have been used yet.
    if batch.after != tx.head.position:
        if batch.after > tx.head.position:
            raise implausible(batch.key)
        if (earlier := tx.earlier(batch.key, batch.after)) is not None:
            return repeat_of(earlier)
    for requirement in batch.when:
        require(tx, requirement)
    if type(now_us) is not int or not 0 <= now_us < 2**62:
        raise Invalid("clock", f"says {now_us!r}", "give whole microseconds since 1970")
    head = tx.head
    position = head.position + 1
    if head.last_erase >= position:
        raise unfinished_copy(head.position, head.last_erase)
    # The store's clock never runs backwards, whatever the machine's does.
    time_us = now_us if now_us > head.time_us else head.time_us
    if len(batch.writes) == 1 and (sealed := append_alone(tx, batch, position, time_us)):
        return sealed
    draft = _Draft(tx, position, time_us, batch.limits)
    try:
        for write in batch.writes:
            _PLANS[write.action](draft, write)
    except PagefileError:
        for stream, length in reversed(draft.lengths):
            stream.length = length
        for take_back, stream, *about in reversed(draft.undo):
            take_back(tx, stream, *about)
        raise
    for stream, rows, keys in draft.additions:
        tx.add(stream, rows, keys)
    for stream, first, vectors in draft.vectors:
        # Only such an engine is given any; asking a protocol takes longer than adding them.
        cast("TakesVectors", tx).add_vectors(stream, first, vectors)
    for step in draft.finish:
        step()
    for stream in _leftovers(draft).values():
        # Last in the manifest: a repeat of the batch is compared with what it asked for.
        draft.manifest.append((Action.PRUNE, stream.oid, stream.pruned))
        _prune(draft, stream, stream.pruned)
        if stream.dropped and stream.name and _is_let_go(tx, stream):
            tx.drop(stream, forget_name=True)
    commit = seal(tx, batch.key, position, time_us, draft.manifest)
    return Sealed(commit, tuple(draft.indexes), tuple(draft.versions), False, draft.erased)


def _living(draft: _Draft, kind: StreamKind, name: str) -> Stream | None:
    stream = draft.tx.stream(kind, name)
    if stream is not None and stream.dropped:
        raise _is_dropped(kind, name)
    return stream


def _is_dropped(kind: StreamKind, name: str) -> Invalid:
    return Invalid("batch", f"{kind} {name!r} is dropped in the same batch", "use two batches")


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
    draft.undo.append((_uncreate, stream))
    return stream


def _uncreate(tx: Transaction, stream: Stream) -> None:
    tx.head.oid -= 1
    if stream.kind == LOG:
        tx.head.logs -= 1
    tx.discard(stream)


def _plan_append(draft: _Draft, write: Write) -> None:
    stream = draft.tx.stream(LOG, write.name)
    if stream is None:
        stream = _create(draft, write, draft.limits.logs)
    elif stream.dropped:
        raise _is_dropped(LOG, write.name)
    first, contents = stream.length, write.contents
    end = first + len(contents)
    require_room(write, draft.limits, end)
    stream.length = end
    draft.lengths.append((stream, first))
    # Each operation has its own place in the commit: its number in the manifest.
    ordinal = len(draft.manifest)
    rows, entries = numbered(write, stream.oid, first, ordinal, draft.position, draft.time_us)
    draft.additions.append((stream, rows, write.keys))
    if write.vectors:
        draft.vectors.append((stream, first, write.vectors))
    draft.manifest += entries
    draft.indexes += range(first, end)


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
    draft.undo.append((_last_version, stream, was_deleted, deleted))
    stream.length, stream.deleted = version, deleted
    head.documents += was_deleted - deleted
    ordinal = len(draft.manifest)
    row = Row(version, draft.position, ordinal, draft.time_us, write.action, write.contents[0])
    draft.additions.append((stream, (row,), write.keys))
    draft.manifest.append((write.action, stream.oid, version, write.digests[0]))
    draft.versions.append(version)


def _last_version(tx: Transaction, stream: Stream, was_deleted: bool, deleted: bool) -> None:
    stream.length, stream.deleted = stream.length - 1, was_deleted
    tx.head.documents += deleted - was_deleted


def _plan_fork(draft: _Draft, write: Write) -> None:
    tx = draft.tx
    present = _living(draft, LOG, write.name)
    base = _living(draft, LOG, write.base)
    if base is None:
        raise NotFound(f"there is no log {write.base!r} to fork", "list the names first")
    if present is not None:
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
    hidden = base.pruned
    while base.base and at <= base.base_at:
        base = tx.stream_number(base.base)
    child = _create(draft, write, draft.limits.logs, base, at)
    # What its base has let go, it never shows, even if the owner still has it.
    child.pruned = hidden
    digest = name_digest(write.name, write.salt)
    entry = (Action.FORK, child.oid, at, digest, base.oid, hidden)
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
    draft.undo.append((_undrop, dropped))
    draft.finish.append(lambda: tx.drop(dropped, forget_name=_is_let_go(tx, dropped)))
    draft.manifest.append((Action.DROP, stream.oid))
    draft.dropped.append((stream, len(draft.manifest)))


def _is_let_go(tx: Transaction, stream: Stream) -> bool:
    """Whether all of an ended log is pruned, and no fork keeps any of it: its name says nothing."""
    is_pruned = stream.pruned >= stream.length and not (stream.base and not stream.pruned)
    return is_pruned and not any(row.content is not None for row in tx.rows(stream))


def _undrop(tx: Transaction, stream: Stream) -> None:
    stream.dropped = 0
    tx.head.logs += 1


def _leftovers(draft: _Draft) -> dict[int, Stream]:
    """Logs that had let go of something, and may have kept it for forks that are dropped now.

    Asked for last: the same batch may have pruned one of them.
    """
    found: dict[int, Stream] = {}
    for stream, place in draft.dropped:
        if not stream.base:
            continue  # Most are no forks, and looking through the manifest for each adds up.
        pruned_since = {entry[1] for entry in draft.manifest[place:] if entry[0] == Action.PRUNE}
        while stream.base:
            stream = draft.tx.stream_number(stream.base)
            if stream.pruned and stream.oid not in pruned_since:
                found[stream.oid] = stream
    return found


def _plan_prune(draft: _Draft, write: Write) -> None:
    stream = _living(draft, write.stream, write.name)
    if stream is None:
        raise NotFound(f"there is no {write.stream} {write.name!r} to prune", "list the names")
    before = stream.length if write.number is None else write.number
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
    """Erase what matches. It stands last in its batch, so nothing after it can fail."""
    tx = draft.tx
    written = {stream.oid: stream.kind for stream, _, _ in draft.additions}
    doomed = doomed_by(tx, write.selectors)
    wiped = tuple(run for one in doomed for run in runs_of(one.stream, one.rows))
    if write.rehearse or not (doomed or draft.manifest):
        raise Rehearsed(wiped)
    for one in doomed:
        if written.get(one.stream.oid) == DOCUMENT:
            raise Invalid(
                "beside", f"document {one.stream.name!r} is erased as well", "use two commits"
            )
    for one in doomed:
        if one.rows:
            tx.wipe(one.stream, one.rows)
    for one in doomed:
        if one.stream.oid not in written and one.leaves_nothing(tx):
            _retire(draft, one.stream)
    for fork in bare_forks(tx, [one.stream for one in doomed]):
        if fork.oid not in written:
            _retire(draft, fork)
    if wiped:
        tx.head.last_erase = draft.position
    draft.erased = wiped
    draft.manifest.extend((Action.ERASE, run.oid, run.first, run.last) for run in wiped)


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
        draft.dropped.append((stream, len(draft.manifest)))
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
