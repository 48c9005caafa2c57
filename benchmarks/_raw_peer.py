"""The peers: the least that can be done for the same durability, with nothing around it."""

from __future__ import annotations

import os
from pathlib import Path

import apsw

from _workplace import TEXT

BODY = TEXT.ljust(500, "x").encode()


def open_bare(path: Path, vfs: str | None = None) -> apsw.Connection:
    """A connection with the pragmas that Pagefile sets at level power, and one table."""
    connection = apsw.Connection(str(path), vfs=vfs)
    for pragma in (
        "journal_mode = WAL",
        "synchronous = FULL",
        "fullfsync = ON",
        "secure_delete = ON",
        "cache_size = -16384",
    ):
        connection.execute(f"PRAGMA {pragma}").fetchall()
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, body BLOB)").fetchall()
    return connection


def insert_many(connection: apsw.Connection, count: int) -> int:
    """One row per transaction."""
    for _ in range(count):
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("INSERT INTO t (body) VALUES (?)", (BODY,))
        connection.execute("COMMIT")
    return count


def write_many(file: int, count: int) -> int:
    """Append to a plain file, and sync after each."""
    for _ in range(count):
        os.write(file, BODY)
        os.fdatasync(file)
    return count
