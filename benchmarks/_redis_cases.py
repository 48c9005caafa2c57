"""The Redis engine against the raw client doing one XADD, on a Valkey started here.

python benchmarks/_redis_cases.py [--json] [--quick] [--only NAME] [--folder PATH]
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import redis
import redis.asyncio

from _measure import Spread, Subject, Timing, measure, rate_ratio
from _row import Row, Target
from _run import Suite, run
from _servers import RedisServer
from _workplace import LOG, VALUE, Workplace, append_many
from pagefile import Append, Batch, ContextBuffer, NewSlot, aio

_BODY = json.dumps(VALUE).encode()
_WRITERS, _EACH = 64, 10
#: What the server does before it answers, and what an acknowledged commit survives by it.
_LEVELS = (("always", "power"), ("everysec", "none"))


def redis_one_writer(place: Workplace) -> list[Row]:
    """A lone caller, one append per commit, against one XADD per append."""
    rows: list[Row] = []
    for fsync, level in _LEVELS:
        server = _server(place, fsync)
        raw = place.closing(redis.Redis(port=server.port))
        store = place.open_store(server.url)
        peer = f"redis-py, one XADD, appendfsync {fsync}"
        ours = f"pagefile on Redis, one append, appendfsync {fsync}"
        count, rounds = 100, place.rounds(24)
        place.announce(f"Redis, one writer, {fsync}", rounds)

        def add(count: int = count, raw: Any = raw) -> int:
            for _ in range(count):
                raw.xadd("raw", {"d": _BODY})
            return count

        def append(count: int = count, store: Any = store) -> int:
            return append_many(store, count)

        timings = measure([Subject(peer, add), Subject(ours, append)], rounds, place.advance)
        ratio = rate_ratio(timings[ours], timings[peer])
        rows += [
            Row("redis writer", peer, timings[peer], level=level),
            Row(
                "redis writer",
                ours,
                timings[ours],
                "× rate of one XADD",
                ratio,
                Target(low=0.4),
                level,
            ),
        ]
    return rows


def redis_crowd(place: Workplace) -> list[Row]:
    """64 asyncio writers of one process, against 64 that each do their XADDs."""
    rows: list[Row] = []
    for fsync, level in _LEVELS:
        server = _server(place, fsync)
        runner = place.open.enter_context(asyncio.Runner())
        awaited = aio.AsyncPagefile(place.open_handle(server.url))
        raw = redis.asyncio.Redis(port=server.port)
        place.open.callback(_end, runner, raw)
        peer = f"redis-py asyncio, {_WRITERS} × XADD, appendfsync {fsync}"
        ours = f"pagefile on Redis, {_WRITERS} asyncio tasks, appendfsync {fsync}"

        async def add(raw: Any = raw) -> None:
            await raw.xadd("raw", {"d": _BODY})

        async def append(awaited: Any = awaited) -> None:
            await awaited.store.commit(Batch([Append(LOG, VALUE)]))

        rounds = place.rounds(12)
        place.announce(f"Redis, {_WRITERS} writers, {fsync}", rounds)
        timings = measure(
            [Subject(peer, _crowd(runner, add)), Subject(ours, _crowd(runner, append))],
            rounds,
            place.advance,
        )
        ratio = rate_ratio(timings[ours], timings[peer])
        meaning = f"× rate of {_WRITERS} XADD writers"
        rows += [
            Row("redis crowd", peer, timings[peer], level=level),
            Row("redis crowd", ours, timings[ours], meaning, ratio, Target(low=1), level),
        ]
    return rows


def redis_bytes(place: Workplace) -> list[Row]:
    """What a slot of 500 bytes takes in the server's memory, against the same in XADD."""
    count = 2_000 if place.quick else 20_000
    server = _server(place, "everysec")
    raw = place.closing(redis.Redis(port=server.port))
    buffer = ContextBuffer(place.open_store(server.url), max_slots_per_thread=count)
    place.announce("Redis, bytes per slot", 3)

    def append_together() -> int:
        for _ in range(count // 500):
            buffer.append_many("together", [NewSlot(VALUE, "user", "agent")] * 500)
        return count

    def append() -> int:
        for _ in range(count):
            buffer.append("thread", VALUE, "user", "agent")
        return count

    def add() -> int:
        with raw.pipeline(transaction=False) as pipe:
            for _ in range(count):
                pipe.xadd("raw", {"d": _BODY})
            pipe.execute()
        return count

    rows: list[Row] = []
    for subject, work in (
        ("one XADD", add),
        ("a slot of pagefile, committed by itself", append),
        ("a slot of pagefile, 500 in a commit", append_together),
    ):
        before = _used(raw)
        timings = measure([Subject(subject, work)], 0, place.advance)
        each = (_used(raw) - before) / count
        timings[subject] = Timing([1.0], [0.0])
        rows.append(
            Row(
                "redis bytes",
                f"{subject}, body of {len(_BODY)} bytes",
                timings[subject],
                "bytes of server memory",
                Spread(each, each, each),
            )
        )
    return rows


def _end(runner: asyncio.Runner, raw: Any) -> None:
    runner.run(raw.aclose())


def _used(raw: Any) -> int:
    return int(raw.info("memory")["used_memory_dataset"])


def _server(place: Workplace, fsync: str) -> RedisServer:
    under = place.folder
    under.chmod(0o755)
    return place.open.enter_context(RedisServer(fsync=fsync, under=under))


def _crowd(runner: asyncio.Runner, one: Callable[[], Awaitable[None]]) -> Callable[[], int]:
    async def repeat() -> None:
        for _ in range(_EACH):
            await one()

    async def all_of_them() -> int:
        await asyncio.gather(*(repeat() for _ in range(_WRITERS)))
        return _WRITERS * _EACH

    def work() -> int:
        running: Coroutine[Any, Any, int] = all_of_them()
        return runner.run(running)

    return work


CASES = {
    "redis-writer": redis_one_writer,
    "redis-crowd": redis_crowd,
    "redis-bytes": redis_bytes,
}

if __name__ == "__main__":
    raise SystemExit(
        run(Suite("Pagefile on Redis", "The Redis engine next to its raw client.", CASES))
    )
