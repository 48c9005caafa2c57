"""PostgreSQL: commits of one writer and of crowds, next to the bare client's INSERT and COMMIT."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import psycopg

import _postgres_saver
from _durable import commit_from_tasks, commit_from_threads
from _measure import Subject, measure, rate_ratio
from _raw_peer import BODY
from _row import Row, Target
from _servers import OWNER, PostgresServer
from _workplace import Workplace, append_many
from pagefile import Append, Batch, aio

_BARE = "bare psycopg, INSERT + COMMIT"
_AUTOCOMMIT = "bare psycopg, autocommit INSERT"
_MEANING = "× rate of INSERT + COMMIT"


def _server(place: Workplace) -> PostgresServer:
    """One server for all cases, with its default settings, on the folder's disk."""
    if "postgres" not in place.kept:
        # Beside the folder, which is closed to the user the server runs as.
        server = PostgresServer(place.folder.parent)
        place.open.callback(server.stop)
        place.kept["postgres"] = server
        with server.connect(OWNER, "stores") as connection:
            connection.execute(
                "CREATE TABLE bare (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body bytea)"
            )
    server = place.kept["postgres"]
    assert isinstance(server, PostgresServer)
    return server


def _connect(place: Workplace, *, autocommit: bool = False) -> psycopg.Connection:
    connection = _server(place).connect(OWNER, "stores")
    connection.autocommit = autocommit
    return place.closing(connection)


def _insert(connection: psycopg.Connection, count: int) -> int:
    for _ in range(count):
        connection.execute("INSERT INTO bare (body) VALUES (%s)", (BODY,))
        if not connection.autocommit:
            connection.commit()
    return count


def _insert_from_threads(connections: list[psycopg.Connection], each: int) -> int:
    threads = [threading.Thread(target=_insert, args=(c, each)) for c in connections]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(threads) * each


def writer(place: Workplace) -> list[Row]:
    """One caller, one append per commit."""
    bare, quick = _connect(place), _connect(place, autocommit=True)
    store = place.open_store(_server(place).new_url())
    ours, count, rounds = "pagefile, one append per commit", 50, place.rounds(32)
    place.announce("postgres, one writer", rounds)
    timings = measure(
        [
            Subject(_BARE, lambda: _insert(bare, count)),
            Subject(_AUTOCOMMIT, lambda: _insert(quick, count)),
            Subject(ours, lambda: append_many(store, count)),
        ],
        rounds,
        place.advance,
    )
    ratio = rate_ratio(timings[ours], timings[_BARE])
    closer = rate_ratio(timings[ours], timings[_AUTOCOMMIT])
    case, level = "postgres-writer", store.durability
    return [
        Row(case, _BARE, timings[_BARE], level="power"),
        Row(case, _AUTOCOMMIT, timings[_AUTOCOMMIT], level="power"),
        Row(case, ours, timings[ours], _MEANING, ratio, Target(low=0.6), level),
        Row(case, ours, timings[ours], "× rate of autocommit", closer, None, level),
    ]


def threads(place: Workplace) -> list[Row]:
    """Eight threads on one handle, next to eight bare ones with a connection each."""
    eight = [_connect(place) for _ in range(8)]
    store = place.open_store(_server(place).new_url())
    peer, ours, rounds = f"8 threads of {_BARE}", "pagefile, 8 threads", place.rounds(16)
    place.announce("postgres, 8 threads", rounds)
    timings = measure(
        [
            Subject(peer, lambda: _insert_from_threads(eight, 25)),
            Subject(ours, lambda: commit_from_threads(store, 8, 25)),
        ],
        rounds,
        place.advance,
    )
    ratio = rate_ratio(timings[ours], timings[peer])
    meaning = "× rate of 8 bare threads"
    return [
        Row("postgres-threads", peer, timings[peer], level="power"),
        Row(
            "postgres-threads", ours, timings[ours], meaning, ratio, Target(low=1), store.durability
        ),
    ]


def tasks(place: Workplace) -> list[Row]:
    """Sixty-four asyncio tasks on one handle, next to one bare writer."""
    bare = _connect(place)
    handle = place.open_handle(_server(place).new_url())
    runner = place.open.enter_context(asyncio.Runner())
    awaited = aio.AsyncPagefile(handle)
    ours, rounds = "pagefile, 64 asyncio tasks", place.rounds(16)
    place.announce("postgres, 64 tasks", rounds)
    timings = measure(
        [
            Subject(_BARE, lambda: _insert(bare, 50)),
            Subject(ours, lambda: runner.run(commit_from_tasks(awaited, 64, 10))),
        ],
        rounds,
        place.advance,
    )
    ratio = rate_ratio(timings[ours], timings[_BARE])
    level = handle.store.durability
    return [
        Row("postgres-tasks", _BARE, timings[_BARE], level="power"),
        Row("postgres-tasks", ours, timings[ours], _MEANING, ratio, Target(low=3), level),
    ]


def saver(place: Workplace) -> list[Row]:
    """Sixty-four writers, next to as many that put checkpoints with LangGraph's PostgresSaver."""
    if not _postgres_saver.is_there():
        return []
    peer = place.closing(_postgres_saver.Saver(_server(place)))
    handle = place.open_handle(_server(place).new_url())
    runner = place.open.enter_context(asyncio.Runner())
    awaited = aio.AsyncPagefile(handle)
    theirs, rounds = "langgraph PostgresSaver.put, 64 threads", place.rounds(8)
    tasks, threads = "pagefile, 64 asyncio tasks", "pagefile, 64 threads"
    place.announce("postgres, 64 writers next to PostgresSaver", rounds)
    timings = measure(
        [
            Subject(theirs, lambda: peer.put_from_threads(4)),
            Subject(tasks, lambda: runner.run(commit_from_tasks(awaited, 64, 10))),
            Subject(threads, lambda: commit_from_threads(handle.store, 64, 10)),
        ],
        rounds,
        place.advance,
    )
    case, level = "postgres-saver", handle.store.durability
    rows = [Row(case, theirs, timings[theirs], level="power")]
    for ours in (tasks, threads):
        ratio = rate_ratio(timings[ours], timings[theirs])
        meaning = "× rate of PostgresSaver.put"
        rows.append(Row(case, ours, timings[ours], meaning, ratio, Target(low=3), level))
    return rows


def size(place: Workplace) -> list[Row]:
    """What a slot costs: bytes on the server, and milliseconds to read the last ones."""
    url = _server(place).new_url()
    handle = place.open_handle(url)
    store = handle.store
    count = 2_000 if place.quick else 20_000
    value = {"text": "x" * 489}
    for _ in range(count // 1_000):
        store.commit(Batch([Append("log", value) for _ in range(1_000)]))
    owned = handle._owned
    assert owned is not None
    each = owned.size_bytes() / count
    rounds = place.rounds(16)
    place.announce("postgres, sizes", rounds)
    last: Callable[[], int] = lambda: len(store.read("log", -20)) // 20  # noqa: E731
    timings = measure([Subject("read the last 20 slots", last)], rounds, place.advance)
    name = f"read the last 20 of {count:,} slots; {each:,.0f} bytes a slot of 500"
    return [Row("postgres-size", name, timings["read the last 20 slots"], alone=True)]


CASES = {
    "postgres-writer": writer,
    "postgres-threads": threads,
    "postgres-tasks": tasks,
    "postgres-saver": saver,
    "postgres-size": size,
}
