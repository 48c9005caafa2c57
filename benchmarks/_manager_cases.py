"""The manager engine against the standard library's: a list behind a proxy, in another process.

python benchmarks/_manager_cases.py [--json] [--quick] [--only NAME] [--folder PATH]
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.managers import SyncManager
from pathlib import Path
from typing import Any

from _measure import Spread, Subject, Timing, measure, rate_ratio
from _row import Row, Target
from _run import Suite, run
from _servers import ManagerProcess
from _workplace import LOG, VALUE, Workplace, append_many
from pagefile import Append, Batch, ContextBuffer, NewSlot, aio

_BODY = json.dumps(VALUE).encode()
_WRITERS, _EACH = 64, 10
_THREADS = 8
_PROXY = "multiprocessing proxy, one list.append"
_GUARDED = "multiprocessing proxies, lock, length, append, as a shared buffer needs"


def manager_one_writer(place: Workplace) -> list[Row]:
    """A lone caller, one append per commit, against calls through a proxy."""
    ours = "pagefile on a manager, one append"
    store = place.open_store(_manager(place).url)
    lists = _lists(place)
    bare, guarded = lists.list(), _Guarded(lists)
    count, rounds = 200, place.rounds(24)
    place.announce("manager, one writer", rounds)

    def append_bare() -> int:
        for _ in range(count):
            bare.append(_BODY)
        return count

    def append_guarded() -> int:
        for _ in range(count):
            guarded.append("thread", _BODY)
        return count

    timings = measure(
        [
            Subject(_PROXY, append_bare),
            Subject(_GUARDED, append_guarded),
            Subject(ours, lambda: append_many(store, count)),
        ],
        rounds,
        place.advance,
    )
    return [
        Row("manager writer", _PROXY, timings[_PROXY], level="none"),
        Row("manager writer", _GUARDED, timings[_GUARDED], level="none"),
        Row(
            "manager writer",
            ours,
            timings[ours],
            "× rate of one bare proxy call",
            rate_ratio(timings[ours], timings[_PROXY]),
            level="none",
        ),
        Row(
            "manager writer",
            ours,
            timings[ours],
            "× rate of the guarded proxies",
            rate_ratio(timings[ours], timings[_GUARDED]),
            Target(low=1),
            "none",
        ),
    ]


def manager_crowd(place: Workplace) -> list[Row]:
    """64 asyncio writers of one process, against threads that each have their own proxies."""
    ours = f"pagefile on a manager, {_WRITERS} asyncio tasks"
    peer = f"{_PROXY}, {_THREADS} threads"
    guarded_peer = f"{_GUARDED}, {_THREADS} threads"
    runner = place.open.enter_context(asyncio.Runner())
    awaited = aio.AsyncPagefile(place.open_handle(_manager(place).url))
    lists = _lists(place)
    bare, guarded = lists.list(), _Guarded(lists)
    pool = place.open.enter_context(ThreadPoolExecutor(_THREADS))
    each = _WRITERS * _EACH // _THREADS

    def append_bare(_: int) -> int:
        for _ in range(each):
            bare.append(_BODY)
        return each

    def append_guarded(_: int) -> int:
        for _ in range(each):
            guarded.append("thread", _BODY)
        return each

    async def repeat() -> None:
        for _ in range(_EACH):
            await awaited.store.commit(Batch([Append(LOG, VALUE)]))

    async def all_of_them() -> int:
        await asyncio.gather(*(repeat() for _ in range(_WRITERS)))
        return _WRITERS * _EACH

    rounds = place.rounds(12)
    place.announce(f"manager, {_WRITERS} writers", rounds)
    timings = measure(
        [
            Subject(peer, lambda: sum(pool.map(append_bare, range(_THREADS)))),
            Subject(guarded_peer, lambda: sum(pool.map(append_guarded, range(_THREADS)))),
            Subject(ours, lambda: runner.run(all_of_them())),
        ],
        rounds,
        place.advance,
    )
    return [
        Row("manager crowd", peer, timings[peer], level="none"),
        Row("manager crowd", guarded_peer, timings[guarded_peer], level="none"),
        Row(
            "manager crowd",
            ours,
            timings[ours],
            "× rate of bare proxy calls",
            rate_ratio(timings[ours], timings[peer]),
            level="none",
        ),
        Row(
            "manager crowd",
            ours,
            timings[ours],
            "× rate of the guarded proxies",
            rate_ratio(timings[ours], timings[guarded_peer]),
            Target(low=1),
            "none",
        ),
    ]


def manager_bytes(place: Workplace) -> list[Row]:
    """What a slot of 500 bytes takes in the manager's memory, against bytes in a proxied list."""
    count = 10_000 if place.quick else 100_000
    server, lists = _manager(place), _lists(place)
    # Larger than a process's free room, so that what is there before does not matter.
    buffer = ContextBuffer(place.open_store(server.url), max_slots_per_thread=10**9)
    bare = lists.list()
    place.announce("manager, bytes per slot", 3)

    def append() -> int:
        for start in range(0, count, 500):
            buffer.append_many(f"t{start}", [NewSlot(VALUE, "user", "agent")] * 500)
        return count

    def append_singly() -> int:
        for _ in range(count // 5):
            buffer.append("single", VALUE, "user", "agent")
        return count // 5

    def add() -> int:
        for n in range(count):
            bare.append(b"%d" % n + _BODY)
        return count

    rows: list[Row] = []
    server_of_lists: Any = lists
    for subject, pid, work in (
        ("bytes in a proxied list", server_of_lists._process.pid, add),
        ("a slot of pagefile, 500 in a commit", server.pid, append),
        ("a slot of pagefile, committed by itself", server.pid, append_singly),
    ):
        before = _resident(pid)
        each = (_resident(pid, after=work) - before) / _counted(work, count)
        place.advance()
        rows.append(
            Row(
                "manager bytes",
                f"{subject}, body of {len(_BODY)} bytes",
                Timing([1.0], [0.0]),
                "bytes of the server's memory",
                Spread(each, each, each),
            )
        )
    return rows


def _counted(work: Callable[[], int], count: int) -> int:
    return count // 5 if work.__name__ == "append_singly" else count


def _resident(pid: int, after: Callable[[], int] | None = None) -> int:
    """Bytes that a process has in memory, once the work is done."""
    if after is not None:
        after()
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


class _Guarded:
    """A shared buffer on proxies: the length is checked and the append done under one lock."""

    def __init__(self, manager: SyncManager) -> None:
        self._manager = manager
        self._threads = manager.dict()
        self._lock = manager.Lock()

    def append(self, thread_id: str, data: bytes) -> int:
        with self._lock:
            if thread_id not in self._threads:
                self._threads[thread_id] = self._manager.list()
            slots = self._threads[thread_id]
            if len(slots) >= 10**9:
                raise MemoryError
            slots.append(data)
            return len(slots) - 1


def _lists(place: Workplace) -> SyncManager:
    # Threads of this process may be running: nothing is forked.
    manager = SyncManager(ctx=multiprocessing.get_context("spawn"))
    manager.start()
    place.open.callback(manager.shutdown)
    return manager


def _manager(place: Workplace) -> ManagerProcess:
    return place.open.enter_context(ManagerProcess())


CASES = {
    "manager-writer": manager_one_writer,
    "manager-crowd": manager_crowd,
    "manager-bytes": manager_bytes,
}

if __name__ == "__main__":
    suite = Suite("Pagefile on a manager", "The manager engine next to proxies.", CASES)
    raise SystemExit(run(suite))
