"""Records, streams and commits as bytes in Redis."""

from __future__ import annotations

from typing import Any

import msgspec

from pagefile.errors import Corrupt
from pagefile.store.codec.decoder import msgpack_decoder
from pagefile.store.engine import DOCUMENT, LOG, RawCommit, Row, Stream, TenantHead
from pagefile.store.records import Content


class _StoredRow(msgspec.Struct, array_like=True, gc=False, frozen=True):
    position: int
    ordinal: int
    time_us: int
    action: int
    user: str | None = None
    kind: str = ""
    actor: str = ""
    sources: tuple[str, ...] = ()
    keys: bytes = b""
    tenant_keys: bytes = b""
    notes: bytes = b""
    type_name: str = ""
    salt: bytes = b""
    body: bytes = b""


class _StoredStream(msgspec.Struct, array_like=True, gc=False, frozen=True):
    oid: int
    is_log: bool
    name: str
    length: int
    first: int
    pruned: int
    base: int
    base_at: int
    created: int
    dropped: int
    deleted: bool
    salt: bytes
    earlier: int


class Counted(msgspec.Struct, array_like=True, gc=False, frozen=True):
    """A commit, and the tenant's counters after it."""

    time_us: int
    key: str
    manifest: bytes
    digest: bytes
    oid: int
    logs: int
    documents: int
    last_erase: int

    def raw(self, position: int) -> RawCommit:
        return RawCommit(position, self.time_us, self.key, self.manifest, self.digest)


_pack = msgspec.msgpack.Encoder().encode
_read_row = msgpack_decoder(_StoredRow).decode
_read_stream = msgpack_decoder(_StoredStream).decode
_read_commit = msgpack_decoder(Counted).decode


def pack_row(row: Row) -> bytes:
    """A record without its number, which is its field."""
    content = row.content
    if content is None:
        return _pack((row.position, row.ordinal, row.time_us, row.action))
    return _pack(
        (
            row.position,
            row.ordinal,
            row.time_us,
            row.action,
            content.user,
            content.kind,
            content.actor,
            content.sources,
            content.keys,
            content.tenant_keys,
            content.notes,
            content.type_name,
            content.salt,
            content.body,
        )
    )


def row_from(number: int, raw: bytes) -> Row:
    """A record read back.

    Raises:
        Corrupt: the bytes cannot be what was stored.
    """
    try:
        stored = _read_row(raw)
    except msgspec.MsgspecError as error:
        raise _damaged(f"record number {number}", error) from error
    content = None
    if stored.salt:  # The salt goes with the content.
        content = Content(
            stored.action,
            stored.user,
            stored.kind,
            stored.actor,
            stored.sources,
            stored.keys,
            stored.tenant_keys,
            stored.notes,
            stored.type_name,
            stored.body,
            stored.salt,
        )
    return Row(number, stored.position, stored.ordinal, stored.time_us, stored.action, content)


def pack_stream(stream: Stream) -> bytes:
    """A stream; its `id` is the number of the stream that had the name before it."""
    return _pack(
        (
            stream.oid,
            stream.kind == LOG,
            stream.name,
            stream.length,
            stream.first,
            stream.pruned,
            stream.base,
            stream.base_at,
            stream.created,
            stream.dropped,
            stream.deleted,
            stream.salt,
            stream.id,
        )
    )


def stream_from(raw: bytes) -> Stream:
    """A stream read back.

    Raises:
        Corrupt: the bytes cannot be what was stored.
    """
    try:
        stored = _read_stream(raw)
    except msgspec.MsgspecError as error:
        raise _damaged("a stream", error) from error
    stream = Stream(stored.oid, LOG if stored.is_log else DOCUMENT, stored.name, stored.created)
    stream.length, stream.first, stream.pruned = stored.length, stored.first, stored.pruned
    stream.base, stream.base_at, stream.salt = stored.base, stored.base_at, stored.salt
    stream.dropped, stream.deleted, stream.id = stored.dropped, stored.deleted, stored.earlier
    return stream


def copy_of(stream: Stream) -> Stream:
    """Another object for the same stream, to be changed by a batch that may yet fail."""
    other = Stream(stream.oid, stream.kind, stream.name, stream.created)
    other.length, other.first, other.pruned = stream.length, stream.first, stream.pruned
    other.base, other.base_at, other.salt = stream.base, stream.base_at, stream.salt
    other.dropped, other.deleted, other.id = stream.dropped, stream.deleted, stream.id
    return other


def pack_commit(commit: RawCommit, head: TenantHead) -> bytes:
    """A commit and the counters after it; the head of a tenant is its last commit."""
    return _pack(
        (
            commit.time_us,
            commit.key,
            commit.manifest,
            commit.digest,
            head.oid,
            head.logs,
            head.documents,
            head.last_erase,
        )
    )


def commit_from(entry: Any) -> tuple[int, Counted]:
    """An entry of the stream of commits: its position, and what it holds.

    Raises:
        Corrupt: the bytes cannot be what was stored.
    """
    label, fields = entry
    position = int(label.partition(b"-")[0])
    try:
        return position, _read_commit(fields[1])
    except (msgspec.MsgspecError, IndexError, TypeError) as error:
        raise _damaged(f"the commit at position {position}", error) from error


def head_from(tenant: str, entry: Any) -> TenantHead:
    """Where a tenant is, by its last commit; at its beginning without one."""
    head = TenantHead(tenant)
    if entry is not None:
        head.position, last = commit_from(entry)
        move(head, head.position, last)
    return head


def copy_head(head: TenantHead) -> TenantHead:
    """Another object that shows the same; made without the digest that a new one starts with."""
    other = TenantHead.__new__(TenantHead)
    other.position, other.time_us, other.digest = head.position, head.time_us, head.digest
    other.oid, other.logs, other.documents = head.oid, head.logs, head.documents
    other.last_erase = head.last_erase
    return other


def move(head: TenantHead, position: int, commit: Counted) -> None:
    """Let the head show a commit."""
    head.position, head.time_us, head.digest = position, commit.time_us, commit.digest
    head.oid, head.logs, head.documents = commit.oid, commit.logs, commit.documents
    head.last_erase = commit.last_erase


def _damaged(what: str, error: Exception) -> Corrupt:
    return Corrupt(
        f"{what} is damaged in Redis ({type(error).__name__})",
        "run `verify` to see how far it goes, then restore a copy",
    )
