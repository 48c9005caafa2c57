"""The rules of a commit, the same on every engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import msgspec

from pagefile.errors import Conflict, Forbidden, Invalid, LimitExceeded, NotFound, PagefileError
from pagefile.store.batch import Vector
from pagefile.store.commit.erasure import Rehearsed, bare_forks, doomed_by, runs_of
from pagefile.store.commit.idempotency import implausible, repeat_of
from pagefile.store.engine import (
    DOCUMENT,
    LOG,
    AddsLone,
    IndexKey,
    Limits,
    Lone,
    Prepared,
    RawCommit,
    Requirement,
    Row,
    Sealed,
    Stream,
    TakesVectors,
    Transaction,
    Wiped,
    Write,
)
from pagefile.store.log.replay import replay
from pagefile.store.records import Action, StreamKind, chain, name_digest, pack


def require(tx: Transaction, need: Requirement) -> None:
    """Raise unless the condition holds.

    Raises:
        Conflict: a version, a length or a key is not as expected.
        LimitExceeded: a count or a length is not below its limit.
    """
    what = need.what
    if what == "absent" or what == "version":
        _require_version(tx, need)
    elif what == "length" or what == "below":
        _require_length(tx, need)
    elif what == "created":
        _require_created(tx, need)
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
            raise log_is_full(need.name, need.number, current + 1)
    elif current != need.number:
        raise Conflict(
            f"log {need.name!r} has {current} entries, not {need.number}",
            f"read from {min(need.number, current)} to see what was added, then append again",
            target=need.name,
            expected=need.number,
            current=current,
        )


def _require_created(tx: Transaction, need: Requirement) -> None:
    stream = tx.stream(LOG, need.name)
    current = stream.created if stream is not None else 0
    if current != need.number:
        raise Conflict(
            f"log {need.name!r} came into being at position {current}, not {need.number}",
            "look at it again, then retry",
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


def log_is_full(name: str, limit: int, wanted: int) -> LimitExceeded:
    """The refusal of an entry too many."""
    return LimitExceeded(
        f"the number of entries in log {name!r}",
        limit=limit,
        wanted=wanted,
        next_step="start another log, fork it at an earlier entry, or raise the limit",
    )


def unfinished_copy(position: int, reached: int) -> Forbidden:
    """A copy that was cut off: what is written there would part it from its source."""
    return Forbidden(
        f"this is an unfinished copy, at position {position} of at least {reached}",
        "copy again to go on",
    )


#: What a commit says of one thing that it did.
ManifestEntry = tuple[int | bytes, ...]


def append_one(tx: AddsLone, one: Lone, now_us: int) -> tuple[RawCommit, int] | None:
    """Commit a single append, for engines where every step of `rules.apply` is felt.

    The same rules with less around them. Returns the commit and the index; or
    None, with nothing done, when the log is not there, the clock is wrong or it is an
    unfinished copy: those are for `rules.apply`, with `batch_of` the append. So are keys
    that may have been used; who calls sees to that.
    """
    stream = tx.stream(LOG, one.log)
    head = tx.head
    if stream is None or type(now_us) is not int or not 0 <= now_us < 2**62:
        return None
    position = head.position + 1
    if head.last_erase >= position:
        return None
    time_us = now_us if now_us > head.time_us else head.time_us
    index = stream.length
    if index >= one.most:
        raise log_is_full(one.log, one.most, index + 1)
    stream.length = index + 1
    row = Row(index, position, 0, time_us, Action.APPEND, one.content)
    manifest = pack(((Action.APPEND, stream.oid, index, one.digest),))
    head.digest = digest = chain(head.digest, position, time_us, one.key, manifest)
    head.position = position
    head.time_us = time_us
    commit = RawCommit(position, time_us, one.key, manifest, digest)
    tx.add_lone(stream, row, one.keys, commit)
    return commit, index


def batched(batch: Prepared | Lone) -> Prepared:
    """A single append in the form that every engine takes, and `rules.apply`."""
    return batch_of(batch) if type(batch) is Lone else batch  # type: ignore[return-value]


def batch_of(one: Lone) -> Prepared:
    """The same append for `rules.apply`."""
    keys = (one.keys,) if one.keys else ()
    write = Write(Action.APPEND, LOG, one.log, (one.content,), (one.digest,), keys, one.most)
    return Prepared(one.key, (write,), (), one.limits, one.after)


def append_alone(tx: Transaction, batch: Prepared, position: int, time_us: int) -> Sealed | None:
    """Appends to one log that exists: most commits there are, and nothing to take back.

    The same steps as for any batch, without the draft; None when it is another.
    """
    write = batch.writes[0]
    if write.action != Action.APPEND or write.vectors:
        return None
    stream = tx.stream(LOG, write.name)
    if stream is None or stream.dropped:
        return None
    first, end = stream.length, stream.length + len(write.contents)
    if end > batch.limits.log_entries or (write.limit is not None and end > write.limit):
        require_room(write, batch.limits, end)
    stream.length = end
    if end - first > 1:
        rows, entries = numbered(write, stream.oid, first, 0, position, time_us)
        tx.add(stream, rows, write.keys)
        commit = seal(tx, batch.key, position, time_us, entries)
        return Sealed(commit, tuple(range(first, end)), ())
    row = Row(first, position, 0, time_us, Action.APPEND, write.contents[0])
    tx.add(stream, (row,), write.keys)
    entry = (Action.APPEND, stream.oid, first, write.digests[0])
    return Sealed(seal(tx, batch.key, position, time_us, [entry]), (first,), ())


def require_room(write: Write, limits: Limits, end: int) -> None:
    """Refuse appends that would make the log longer than it may be."""
    limit = limits.log_entries
    if write.limit is not None and write.limit < limit:
        limit = write.limit
    if end > limit:
        raise log_is_full(write.name, limit, end)


def numbered(
    write: Write, oid: int, first: int, ordinal: int, position: int, time_us: int
) -> tuple[list[Row], list[ManifestEntry]]:
    """The rows of a run of appends and what the manifest says of them."""
    action, contents, digests = write.action, write.contents, write.digests
    if len(contents) == 1:
        rows = [Row(first, position, ordinal, time_us, action, contents[0])]
        return rows, [(action, oid, first, digests[0])]
    shift = ordinal - first
    numbers = range(first, first + len(contents))
    rows = [
        Row(number, position, number + shift, time_us, action, content)
        for number, content in zip(numbers, contents, strict=True)
    ]
    return rows, [
        (action, oid, number, digest) for number, digest in zip(numbers, digests, strict=True)
    ]


def seal(
    tx: Transaction, key: str, position: int, time_us: int, entries: list[ManifestEntry]
) -> RawCommit:
    """Give the commit its place in the hash chain, and hand it to the engine."""
    head = tx.head
    manifest = pack(entries)
    head.digest = digest = chain(head.digest, position, time_us, key, manifest)
    head.position = position
    head.time_us = time_us
    commit = RawCommit(position, time_us, key, manifest, digest)
    tx.seal(commit)
    return commit


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
