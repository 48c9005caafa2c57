"""What following a log costs while nothing happens, and how late an entry arrives.

    python benchmarks/follow.py [--json] [--quick] [--only NAME] [--folder PATH]

Idle: the CPU of a process whose followers all wait, as a share of one core.
Delivery: from a commit acknowledged in another process to its entry yielded in
this one; the processes compare CLOCK_MONOTONIC, which they share. Targets are
printed with whether this run met them, and never asserted.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from itertools import islice
from statistics import median, quantiles

from _measure import Spread, Timing, cpu_seconds, spread
from _row import Row, Target
from _run import Suite, run
from _workplace import LOG, Workplace
from pagefile import Append, Batch, Pagefile

FOLLOWERS = 100
IDLE_SECONDS = 12
COMMITS = 600
#: Seconds between two commits: while the file is busy, and when it has gone quiet before each.
PAUSES = {"a commit every 10 ms": 0.01, "a commit every 0.7 s": 0.73}
_IDLE_ROUNDS = 4

WRITER = """
import sys, time, pagefile
from pagefile import Append, Batch
path, log, count, pause = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
with pagefile.open(path) as pf:
    for n in range(count):
        time.sleep(pause)
        pf.store.commit(Batch([Append(log, n)]))
        print(time.monotonic(), flush=True)
"""


def idle(place: Workplace) -> list[Row]:
    """Threads in `next`, then tasks in `anext`, that nobody wakes."""
    rows = []
    for subject, start in (
        ("sync followers", _wait_in_threads),
        ("async followers", _wait_in_loop),
    ):
        handle = place.open_handle(place.new_path())
        handle.store.commit(Batch([Append(LOG, 0)]))
        place.announce(f"{FOLLOWERS} idle {subject}", _IDLE_ROUNDS)
        stop = start(handle)
        shares = _cpu_shares(place)
        stop()
        rows.append(
            Row(
                f"{FOLLOWERS} idle",
                subject,
                Timing([1.0] * len(shares), shares),
                "% of a core",
                spread([100 * share for share in shares]),
                Target(high=1.0),
            )
        )
    return rows


def _cpu_shares(place: Workplace) -> list[float]:
    """CPU seconds per second, over rounds after the file has gone quiet."""
    seconds = (IDLE_SECONDS / 4 if place.quick else IDLE_SECONDS) / _IDLE_ROUNDS
    time.sleep(2)
    shares = []
    for _ in range(_IDLE_ROUNDS):
        cpu, wall = cpu_seconds(), time.perf_counter()
        time.sleep(seconds)
        shares.append((cpu_seconds() - cpu) / (time.perf_counter() - wall))
        place.advance()
    return shares


def _wait_in_threads(handle: Pagefile) -> Callable[[], None]:
    followers = [handle.feed.follow(f"{LOG} {n}") for n in range(FOLLOWERS)]
    threads = [threading.Thread(target=list, args=(each,), daemon=True) for each in followers]
    for thread in threads:
        thread.start()

    def stop() -> None:
        for follower in followers:
            follower.close()
        for thread in threads:
            thread.join()

    return stop


def _wait_in_loop(handle: Pagefile) -> Callable[[], None]:
    async def follow(n: int) -> None:
        async for _ in handle.feed.follow_async(f"{LOG} {n}"):
            pass

    async def follow_all() -> None:
        await asyncio.gather(*(follow(n) for n in range(FOLLOWERS)))

    thread = threading.Thread(target=asyncio.run, args=(follow_all(),), daemon=True)
    thread.start()

    def stop() -> None:
        handle.close()
        thread.join()

    return stop


def delivery(place: Workplace) -> list[Row]:
    """One process commits, this one follows; at two paces."""
    rows = []
    for pace, pause in PAUSES.items():
        count = 60 if place.quick or pause > 0.1 else COMMITS
        for subject, collect in (("sync follower", _collect), ("async follower", _collect_async)):
            place.announce(f"{subject}, {pace}", 1)
            seconds, cpu = _delays(place, pause, count, collect)
            place.advance()
            rows += _delay_rows(f"delivery, {pace}", subject, seconds, cpu / count)
    return rows


def _delays(
    place: Workplace, pause: float, count: int, collect: Callable[[Pagefile, int], list[float]]
) -> tuple[list[float], float]:
    """Seconds from acknowledged there to yielded here, and the CPU of this process.

    An entry may be yielded before its writer hears that it is stored; that is 0.
    """
    path = place.new_path()
    handle = place.open_handle(path)
    handle.store.commit(Batch([Append("other", 0)]))
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), LOG, str(count), str(pause)],
        stdout=subprocess.PIPE,
        text=True,
    )
    # The writer's is not in it: it has not been waited for yet.
    cpu = cpu_seconds()
    yielded = collect(handle, count)
    cpu = cpu_seconds() - cpu
    acknowledged = [float(line) for line in writer.communicate()[0].split()]
    handle.close()
    return [max(0.0, own - its) for its, own in zip(acknowledged, yielded, strict=True)], cpu


def _collect(handle: Pagefile, count: int) -> list[float]:
    with handle.feed.follow(LOG, -1) as follower:
        return [time.monotonic() for _ in islice(follower, count)]


def _collect_async(handle: Pagefile, count: int) -> list[float]:
    async def collect() -> list[float]:
        async with handle.feed.follow_async(LOG, -1) as follower:
            times = []
            async for _ in follower:
                times.append(time.monotonic())
                if len(times) == count:
                    break
            return times

    return asyncio.run(collect())


def _delay_rows(case: str, subject: str, seconds: Sequence[float], cpu: float) -> list[Row]:
    timing = Timing([max(median(seconds), 1e-9)], [cpu])
    milliseconds = [1_000 * each for each in seconds]
    late = quantiles(milliseconds, n=100, method="inclusive")[98]
    return [
        Row(case, subject, timing, "ms, median", spread(milliseconds)),
        Row(case, "", timing, "ms, p99", Spread(late, late, max(milliseconds)), Target(high=100)),
    ]


SUITE = Suite(
    title="Following a log",
    about="What following a log costs, and how late an entry arrives.",
    cases={"idle": idle, "delivery": delivery},
)

if __name__ == "__main__":
    raise SystemExit(run(SUITE))
