"""Commits that survive a power cut: one writer on the disk as it is, crowds on a slow one."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable

from _delay_vfs import DelayVfs
from _measure import Subject, measure, rate_ratio
from _raw_peer import insert_many, open_bare, write_many
from _row import Row, Target
from _workplace import LOG, VALUE, Workplace, append_many
from pagefile import Append, Batch, Options, Store, aio

_BARE = "bare apsw, one row per transaction"
_FILE = "plain file, write + fdatasync"


#: What a sync takes on disks that people have; 0 is this disk as it is.
_SYNC_SECONDS = (0.0, 0.0002, 0.002)
_CROWD_SYNC_SECONDS = 0.002


def one_writer(place: Workplace) -> list[Row]:
    """A lone caller, one append per commit, against the same in bare apsw, on three disks."""
    file = os.open(place.new_path(), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    place.open.callback(os.close, file)
    timings = measure([Subject(_FILE, lambda: write_many(file, 100))], 12, lambda: None)
    rows = [Row("writer", _FILE, timings[_FILE])]
    for seconds in _SYNC_SECONDS:
        rows += _one_writer(place, seconds)
    return rows


def _one_writer(place: Workplace, sync_seconds: float) -> list[Row]:
    name, count = None, 50
    disk = "this disk"
    if sync_seconds:
        vfs = DelayVfs(sync_seconds)
        place.open.callback(vfs.unregister)
        name, disk = vfs.name, f"+{sync_seconds * 1000:g} ms sync"
    store = place.open_store(place.new_path(), Options(vfs=name))
    bare = open_bare(place.new_path(), name)
    place.open.callback(bare.close)
    peer, ours = f"{_BARE}, {disk}", f"pagefile, one append per commit, {disk}"
    rounds = place.rounds(48)
    place.announce(f"one writer, {disk}", rounds)
    timings = measure(
        [
            Subject(peer, lambda: insert_many(bare, count)),
            Subject(ours, lambda: append_many(store, count)),
        ],
        rounds,
        place.advance,
    )
    ratio = rate_ratio(timings[ours], timings[peer])
    return [
        Row("writer", peer, timings[peer]),
        Row("writer", ours, timings[ours], "× rate of bare apsw", ratio, Target(low=0.8)),
    ]


def crowd(place: Workplace) -> list[Row]:
    """Many callers under a sync delay, against one bare loop under the same delay."""
    vfs = DelayVfs(_CROWD_SYNC_SECONDS)
    # On the stack first, so that it outlives every connection that uses it.
    place.open.callback(vfs.unregister)
    bare = open_bare(place.new_path(), vfs.name)
    place.open.callback(bare.close)
    runner = place.open.enter_context(asyncio.Runner())
    handle = place.open_handle(place.new_path(), Options(vfs=vfs.name))
    store, awaited = handle.store, aio.AsyncPagefile(handle)

    def tasks(many: int, each: int) -> Callable[[], int]:
        return lambda: runner.run(commit_from_tasks(awaited, many, each))

    crowds = [
        (Subject("1 writer", lambda: append_many(store, 50)), Target(low=0.8)),
        (Subject("8 threads", lambda: commit_from_threads(store, 8, 40)), Target(low=4)),
        (Subject("8 asyncio tasks", tasks(8, 40)), Target(low=4)),
        (Subject("64 asyncio tasks", tasks(64, 20)), Target(low=20)),
    ]
    rounds = place.rounds(12)
    place.announce("crowd", rounds)
    subjects = [Subject(_BARE, lambda: insert_many(bare, 50)), *(s for s, _ in crowds)]
    timings = measure(subjects, rounds, place.advance)
    peer = timings[_BARE]
    meaning = f"× rate of bare apsw, {_CROWD_SYNC_SECONDS * 1000:g} ms sync"
    rows = [Row("crowd", _BARE, peer)]
    for subject, target in crowds:
        timing = timings[subject.name]
        rows.append(Row("crowd", subject.name, timing, meaning, rate_ratio(timing, peer), target))
    return rows


def commit_from_threads(store: Store, many: int, each: int) -> int:
    threads = [threading.Thread(target=append_many, args=(store, each)) for _ in range(many)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return many * each


async def commit_from_tasks(handle: aio.AsyncPagefile, many: int, each: int) -> int:
    async def one() -> None:
        for _ in range(each):
            await handle.store.commit(Batch([Append(LOG, VALUE)]))

    await asyncio.gather(*(one() for _ in range(many)))
    return many * each
