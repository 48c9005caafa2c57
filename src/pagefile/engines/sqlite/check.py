"""What `check` looks at in an SQLite file: its own structures, and every index afresh.

The hash chain proves the records (`verify` walks it). Here everything that is
derived from them is derived once more and compared: secondary keys, idempotency
keys, who holds what, the counters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import apsw

from pagefile.engines.sqlite.rows import (
    commit_ids,
    fetch,
    further_ids,
    row_from,
    space_of_log,
    space_of_tenant,
    space_of_user,
)
from pagefile.errors import PagefileError
from pagefile.store.engine import DOCUMENT, index_keys
from pagefile.store.records import Problem

#: How SQLite mentions a page that it could not get, and why.
_ERROR_CODE = re.compile(r"error code=(\d+)")
_COUNTED = (
    ("records_astray", "records stand where they do not belong"),
    ("records_elsewhere", "records are numbered as another tenant's"),
    ("users_astray", "records have no user of this tenant"),
    ("holdings_wrong", "notes on which user has records where are wrong"),
    ("used_keys_wrong", "idempotency keys are missing or invented"),
)


def examine(connection: apsw.Connection, sql: dict[str, str], tenant: str) -> Iterator[Problem]:
    """Everything wrong with one tenant's part of the file, and with the file as such."""
    for (line,) in fetch(connection, "PRAGMA integrity_check(20)"):
        if (failed := _ERROR_CODE.search(line)) and int(failed[1]) & 0xFF == apsw.SQLITE_IOERR:
            raise apsw.exception_for(int(failed[1]))  # The disk's answer: nothing is known of it.
        if line != "ok":
            yield Problem(None, f"SQLite finds: {line}")
    homeless = fetch(connection, sql["records_homeless"])[0][0]
    if homeless:
        yield Problem(None, f"{homeless} logs, documents or records belong to no tenant")
    found = fetch(connection, sql["tenant_by_name"], tenant)
    if not found:
        return
    number, logs, documents = found[0][:3]
    names = ("tenant", "first", "last", "further_first", "further_last")
    numbers = (number, *commit_ids(number), *further_ids(number))
    places = dict(zip(names, numbers, strict=True))
    for query, what in _COUNTED:
        count = connection.execute(sql[query], places).fetchall()[0][0]
        if count:
            yield Problem(None, f"{count} {what}")
    for query, noted in (("living_logs", logs), ("living_documents", documents)):
        counted = fetch(connection, sql[query], number)[0][0]
        if counted != noted:
            yield Problem(None, f"{query}: {counted} counted, {noted} noted")
    yield from _wrong_keys(connection, sql, number)


def _wrong_keys(connection: apsw.Connection, sql: dict[str, str], tenant: int) -> Iterator[Problem]:
    """Every key that should be there is, and there are no others: the numbers agree."""
    expected = 0
    for columns in connection.execute(sql["keyed_records"], (tenant,)):
        position, ordinal = columns[1:3]
        record, stream, kind, until = columns[15:19]
        try:
            content = row_from(columns, lambda _: None).content
            keys = index_keys(kind, content) if content is not None else []
            spaces = {
                "log": space_of_log(stream),
                "user": space_of_user(columns[5]),
                "tenant": space_of_tenant(tenant),
            }
        except (PagefileError, TypeError) as unreadable:
            where = position if type(position) is int else None
            yield Problem(where, f"the keys of record {record} cannot be read: {unreadable}")
            continue
        for key in keys:
            expected += 1
            place: tuple[object, ...] = (spaces[key.scope], key.field, key.value)
            query = "has_key"
            if kind == DOCUMENT and until is not None:
                query, place = "has_past_key", (*place, until)
            try:
                found = fetch(connection, sql[query], *place, position, ordinal, record)[0][0]
            except OverflowError:  # No space of keys has such a number.
                found = 0
            if not found:
                yield Problem(position, f"key {key.field!r} does not lead to its record")
    found = fetch(connection, sql["all_keys"], tenant)[0][0]
    if found > expected:
        yield Problem(None, f"{found - expected} keys lead to no record of theirs")
