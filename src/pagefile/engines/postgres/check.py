"""What `check` looks at in PostgreSQL: everything derived from the records, derived afresh."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pagefile.engines.postgres.connection import Session
from pagefile.engines.postgres.rows import row_from, space_for
from pagefile.errors import PagefileError
from pagefile.store.engine import DOCUMENT, index_keys
from pagefile.store.records import Problem

_COUNTED = (
    ("records_astray", "records stand where they do not belong"),
    ("gaps", "positions have no commit"),
    ("holdings_wrong", "notes on which user has records where are wrong"),
    ("used_keys_wrong", "idempotency keys are missing or invented"),
)


#: Only where the table is there.
_VECTORS = (("vectors_astray", "vectors have no entry"),)


def examine(session: Session, tenant: str, *, vectors: bool = False) -> Iterator[Problem]:
    """Everything wrong with one tenant's rows; inside one snapshot."""
    found = session.fetch("head", tenant)
    if not found:
        return
    number, logs, documents = found[0][:3]
    for name, what in (*_COUNTED, *(_VECTORS if vectors else ())):
        count = session.fetch(name, number)[0][0]
        if count:
            yield Problem(None, f"{count} {what}")
    for name, noted in (("living_logs", logs), ("living_documents", documents)):
        counted = session.fetch(name, number)[0][0]
        if counted != noted:
            yield Problem(None, f"{name}: {counted} counted, {noted} noted")
    yield from _wrong_keys(session, number)


def _wrong_keys(session: Session, tenant: int) -> Iterator[Problem]:
    """Every key that should be there is, and there are no others."""
    users = dict(session.fetch("all_users", tenant))
    stored: set[tuple[Any, ...]] = set(session.fetch("all_keys", tenant))
    stored |= set(session.fetch("all_past_keys", tenant))
    for columns in session.fetch("keyed_records", tenant):
        number, position, ordinal = columns[:3]
        oid, kind, until = columns[15:18]
        try:
            content = row_from(columns[:15]).content
            keys = index_keys(kind, content) if content is not None else []
        except PagefileError as unreadable:
            yield Problem(position, f"the keys of a record cannot be read: {unreadable}")
            continue
        for key in keys:
            space = space_for(key, oid, users.get(columns[5] or "", 0))
            place: tuple[Any, ...] = (space, key.field, key.value)
            if kind == DOCUMENT and until is not None:
                place = (*place, until)
            place = (*place, position, ordinal, oid, number)
            if place not in stored:
                yield Problem(position, f"key {key.field!r} does not lead to its record")
            stored.discard(place)
    if stored:
        yield Problem(None, f"{len(stored)} keys lead to no record of theirs")
