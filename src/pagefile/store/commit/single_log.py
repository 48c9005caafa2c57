"""The commonest commit: appends to one log that exists.

The rules are those of `rules.py`, with fewer steps around them: there is
nothing to take back, because everything that can refuse the batch comes first.
"""

from __future__ import annotations

from pagefile.store.commit.rules import log_is_full
from pagefile.store.engine import (
    LOG,
    AddsLone,
    Limits,
    Lone,
    Prepared,
    RawCommit,
    Row,
    Sealed,
    Transaction,
    Write,
)
from pagefile.store.records import Action, chain, pack

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
