"""Finding records by secondary key: the question, its ranges, its cursor."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

import msgspec

from pagefile.errors import Invalid
from pagefile.store.arguments import require_flag
from pagefile.store.codec.sort_key import AFTER_EVERYTHING, KeyValue
from pagefile.store.commit.preparation import Preparer
from pagefile.store.engine import LOG, Engine, Hit, KeyRange


class Query(msgspec.Struct, frozen=True):
    """What `find` looks for: one `value`, or a range `low <= value < high`.

    With `prefix`, a tuple `value` also finds the tuples that begin with it.
    `log` looks inside one log, its shared entries included; otherwise the
    query is for one `user` (None: nobody's), or with `everyone` for the whole
    tenant, where it finds documents that declared `tenant_keys`.
    """

    field: str
    value: KeyValue | None = None
    low: KeyValue | None = None
    high: KeyValue | None = None
    prefix: bool = False
    user: str | None = None
    everyone: bool = False
    log: str | None = None
    cursor: str | None = None
    reverse: bool = False


class Finder:
    """Turns a query into the key ranges that answer it."""

    def __init__(self, engine: Engine, preparer: Preparer, tenant: str) -> None:
        self._engine = engine
        self._preparer = preparer
        self._naming = preparer.naming
        self._tenant = tenant

    def spans(self, query: Query, at: int | None) -> Iterator[KeyRange]:
        """One range, or for a fork one for each log it shares entries of."""
        for flag in ("prefix", "everyone", "reverse"):
            require_flag(f"query.{flag}", getattr(query, flag))
        low, high = self._bounds(query)
        after = _cursor_place(query.cursor) if query.cursor is not None else None
        if query.log is None:
            if not query.everyone:
                self._naming.check_user(query.user)
            owner = None if query.everyone else query.user
            yield KeyRange(
                "tenant" if query.everyone else "user",
                owner,
                query.field,
                low,
                high,
                after,
                query.reverse,
            )
            return
        self._naming.check_text("log", query.log)
        stream = self._engine.stream(self._tenant, LOG, query.log, at)
        below: int | None = None
        above = stream.pruned if stream is not None else 0
        while stream is not None:
            yield KeyRange(
                "log", stream.oid, query.field, low, high, after, query.reverse, above, below
            )
            below = stream.base_at if below is None else min(below, stream.base_at)
            stream = self._engine.stream_number(self._tenant, stream.base) if stream.base else None

    def _bounds(self, query: Query) -> tuple[bytes, bytes]:
        if query.value is not None and (query.low is not None or query.high is not None):
            raise Invalid("query", "asks for a value and for a range", "give one of the two")
        if query.everyone and (query.user is not None or query.log is not None):
            raise Invalid("query", "asks for everyone and for one", "give one of the two")
        key = self._preparer.envelopes.index_key
        if query.value is not None:
            exact = key("user", query.field, query.value).value
            return exact, exact + (AFTER_EVERYTHING if query.prefix else b"\x00")
        self._naming.check_text("field", query.field)
        low = b"" if query.low is None else key("user", query.field, query.low).value
        high = (
            AFTER_EVERYTHING if query.high is None else key("user", query.field, query.high).value
        )
        return low, high


def place_of(hit: Hit) -> tuple[bytes, int, int]:
    """Where a hit stands in the order of answers."""
    return hit.value, hit.row.position, hit.row.ordinal


def cursor_text(hit: Hit) -> str:
    """A cursor that continues after this hit."""
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(place_of(hit))).decode()


def _cursor_place(cursor: str) -> tuple[bytes, int, int]:
    try:
        raw = base64.urlsafe_b64decode(cursor.encode())
        return msgspec.msgpack.decode(raw, type=tuple[bytes, int, int])
    except (AttributeError, binascii.Error, msgspec.DecodeError, ValueError):
        raise Invalid("cursor", "was not made by find", "pass a page's cursor unchanged") from None
