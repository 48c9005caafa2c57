"""One append to a log that is known, alone in its group: what most commits are.

It reads nothing and has nothing to take back, so it needs none of the buffers of
`transaction.py`; and its call of the script has one shape, so that it is
written as bytes at once. Whatever is not exactly this goes the general way.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import cast

from pagefile.engines.redis.connection import Command, Ready, packed, script
from pagefile.engines.redis.layout import Keys
from pagefile.engines.redis.rows import copy_head, copy_of, pack_commit, pack_row, pack_stream
from pagefile.engines.redis.tenant_cache import MOST_TOLD, Known
from pagefile.engines.redis.transaction import SWEEP_EVERY
from pagefile.engines.redis.writer import LEASE_MS, Turn
from pagefile.store.commit.rules import apply
from pagefile.store.engine import (
    LOG,
    IndexKey,
    Prepared,
    RawCommit,
    Row,
    Sealed,
    Stream,
    Transaction,
)
from pagefile.store.records import Action, StreamKind

#: What `commit.lua` and `append.lua` name, each with the count of its bytes: the key of the
#: records, head, new head, token, whether it is queued, lease, position, how many to tell of;
#: then the commit with its place, the record with its number, the log with its number.
_VALUES = (
    b"$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$1\r\n%b\r\n"
    + packed((LEASE_MS,))
    + b"$%d\r\n%b\r\n"
    + packed((MOST_TOLD,))
    + b"$%d\r\n%b\r\n" * 6
)
#: The count of keys, seven keys, thirteen values.
_PARTS = 1 + 7 + 13


class LoneAppend:
    """The part of a transaction that such a commit uses."""

    #: As in `RedisTransaction`.
    lets_go = is_sure = False

    def __init__(self, known: Known, stream: Stream) -> None:
        self._known = known
        self._stream = copy_of(stream)
        self.head = copy_head(known.head)
        self._row: Row | None = None
        self.last: RawCommit | None = None

    def stream(self, kind: StreamKind, name: str) -> Stream:
        """The log itself: nothing else is asked for."""
        return self._stream

    def add(self, stream: Stream, rows: Sequence[Row], keys: Sequence[Sequence[IndexKey]]) -> None:
        """Keep the record."""
        (self._row,) = rows

    def seal(self, commit: RawCommit) -> None:
        """Keep the commit."""
        self.last = commit

    def apply(self, batch: Prepared, now_us: int) -> Sealed:
        """What `pagefile.store.commit.rules.apply` says of it.

        Raises:
            PagefileError: it is refused for what is known here, which may not be true there.
        """
        return apply(cast(Transaction, self), batch, now_us)

    def command(self, turn: Turn) -> Command:
        """The call of the script that stores it."""
        known, stream, row, commit = self._known, self._stream, self._row, self.last
        assert row is not None
        assert commit is not None
        rows = known.keys.rows(stream.oid)
        before, token = known.digest, turn.token
        at, place = b"%d" % known.head.position, b"%d-0" % commit.position
        number, oid = b"%d" % row.number, b"%d" % stream.oid
        entry, stored, state = pack_commit(commit, self.head), pack_row(row), pack_stream(stream)
        values = _VALUES % (
            *(len(rows), rows, len(before), before, len(commit.digest), commit.digest),
            *(len(token), token, turn.queued, len(at), at),
            *(len(place), place, len(entry), entry),
            *(len(number), number, len(stored), stored),
            *(len(oid), oid, len(state), state),
        )
        return "EVALSHA", script("append")[1], Ready(_fixed_keys(known.keys) + values, _PARTS)

    def settle(self) -> None:
        """It is stored: what it changed is known from now on."""
        known, stream, commit = self._known, self._stream, self.last
        assert commit is not None
        known.head = self.head
        known.note_key(commit.key, commit.position)
        known.streams[stream.oid] = known.named[LOG, stream.name] = stream


def lone_append(known: Known, batches: Sequence[Prepared]) -> LoneAppend | None:
    """A way to store the group without reading anything; None when it is not a lone append."""
    if len(batches) != 1 or not known.is_fresh:
        return None
    batch, position = batches[0], known.head.position
    if (
        batch.after != position
        or len(batch.writes) != 1
        or batch.when
        or batch.copied is not None
        or batch.key[:1] != "~"
        # Then old keys are swept out, too.
        or not (position + 1) % SWEEP_EVERY
    ):
        return None
    write = batch.writes[0]
    if write.action != Action.APPEND or len(write.contents) != 1 or write.keys:
        return None
    stream = known.named.get((LOG, write.name))
    if stream is None or stream.dropped or stream.deleted:
        return None
    if (write.contents[0].user, stream.oid) not in known.held:
        return None
    return LoneAppend(known, stream)


@functools.lru_cache(maxsize=1_024)
def _fixed_keys(keys: Keys) -> bytes:
    """The count of keys, and those that are the same for every log."""
    fixed = (keys.head, keys.queue, keys.turn, keys.turns, keys.commits, keys.streams)
    return packed((len(fixed) + 1, *fixed))
