"""What a message between listeners costs, recorded and delivered, next to peers.

    python benchmarks/dispatch.py [--json] [--quick] [--only NAME] [--folder PATH]

A hop is one message that a handler sent, recorded in both threads and handled.
Peers: a bare asyncio queue, which records nothing; the store's own group commit;
Celery on the same Redis, when PAGEFILE_PEERS names a Python that has it. Targets
are printed with whether this run met them, and never asserted.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import _dispatch_work as work
from _measure import Subject, Timing, measure, rate_ratio, spread
from _row import Row, Target
from _run import Suite, run
from _servers import RedisServer, find_valkey
from _workplace import Workplace
from pagefile import Append, Batch, Pagefile
from pagefile.dispatch import Organism, ProcessPool

CONVERSATIONS = 64
HOPS = 60
#: How a caller asks, how often, and whether each waits for the one before.
FORMS = (("submit all, then collect", 200, False), ("one at a time", 40, True))
CPU_TASKS = 32
HERE = Path(__file__).parent
PEERS = os.environ.get("PAGEFILE_PEERS", "")


def memory(place: Workplace) -> list[Row]:
    """Hops per CPU second in one process, nothing durable."""
    kept: dict[str, Pagefile] = {}

    def fresh() -> None:
        # What a store in memory keeps slows the garbage collection of the next round.
        if "pf" in kept:
            kept["pf"].close()
        kept["pf"] = place.open_handle("memory:")

    def hops(start: str, conversations: int, count: int) -> int:
        return asyncio.run(work.hops(kept["pf"], start, conversations, count))

    subjects = [
        Subject("a bare asyncio queue", lambda: asyncio.run(work.bare(CONVERSATIONS, HOPS))),
        Subject("calls and replies", lambda: hops("caller", CONVERSATIONS, HOPS), fresh),
        Subject("calls to oneself", lambda: hops("walker", CONVERSATIONS, HOPS), fresh),
        Subject("one conversation", lambda: hops("caller", 1, 1_000), fresh),
    ]
    rounds = place.rounds(12)
    place.announce("hops in memory", rounds)
    timings = measure(subjects, rounds, place.advance)
    rows = [Row("memory:", subjects[0].name, timings[subjects[0].name])]
    for subject in subjects[1:]:
        timing = timings[subject.name]
        per_cpu = spread([1 / seconds for seconds in timing.cpu])
        target = Target(low=10_000) if subject.name.startswith("calls") else None
        rows.append(Row("memory:", subject.name, timing, "hops per CPU second", per_cpu, target))
    return rows


def sqlite(place: Workplace) -> list[Row]:
    """Hops per second on a file that survives a power cut."""
    handle = place.open_handle(place.new_path())

    async def appends() -> int:
        async def writer(number: int) -> None:
            for n in range(HOPS // 4):
                await handle.store.commit_async(Batch([Append(f"log {number}", {"n": n})]))

        await asyncio.gather(*(writer(number) for number in range(CONVERSATIONS)))
        return CONVERSATIONS * (HOPS // 4)

    subjects = [
        Subject("64 writers, group commit", lambda: asyncio.run(appends())),
        Subject(
            "64 conversations",
            lambda: asyncio.run(work.hops(handle, "caller", CONVERSATIONS, HOPS)),
        ),
        Subject("one conversation", lambda: asyncio.run(work.hops(handle, "caller", 1, 100))),
    ]
    rounds = place.rounds(8)
    place.announce("hops on SQLite", rounds)
    timings = measure(subjects, rounds, place.advance)
    appended, crowd = timings[subjects[0].name], timings[subjects[1].name]
    goal = [min(2_000.0, 0.5 / seconds) for seconds in appended.wall]
    reached = spread([1 / own / wanted for own, wanted in zip(crowd.wall, goal, strict=True)])
    meaning = "× the lower of 2,000 and half the appends"
    return [
        Row("SQLite", subjects[0].name, appended, level="power"),
        Row("SQLite", "64 conversations", crowd, meaning, reached, Target(low=1.0), "power"),
        Row(
            "SQLite",
            "one conversation",
            timings[subjects[2].name],
            "× the rate of group commit",
            rate_ratio(timings[subjects[2].name], appended),
            level="power",
        ),
    ]


def fan_out(place: Workplace) -> list[Row]:
    """CPU-bound handlers in two processes, against the same work in this one."""
    handle = place.open_handle(place.new_path())
    organism = Organism(handle, process_pool=ProcessPool(workers=2))
    organism.listener("burn", payload=work.Burn, cpu_bound=True)(work.burn)
    loop = asyncio.new_event_loop()
    place.open.callback(loop.close)
    loop.run_until_complete(organism.start())

    async def fanned() -> int:
        asked = [
            await organism.inject(work.Burn(work.LOOPS), "burn", caller=work.CALLER)
            for _ in range(CPU_TASKS)
        ]
        for delivery in asked:
            await organism.answer(delivery)
        return CPU_TASKS

    def here() -> int:
        for _ in range(CPU_TASKS):
            work.burnt(work.LOOPS)
        return CPU_TASKS

    subjects = [
        Subject("one process, no messages", here),
        Subject("two workers", lambda: loop.run_until_complete(fanned())),
    ]
    rounds = place.rounds(8)
    place.announce("CPU-bound fan-out", rounds)
    timings = measure(subjects, rounds, place.advance)
    loop.run_until_complete(organism.shutdown())
    one, two = timings[subjects[0].name], timings[subjects[1].name]
    return [
        Row("CPU-bound", subjects[0].name, one),
        Row("CPU-bound", subjects[1].name, two, "× the rate of one process", rate_ratio(two, one)),
    ]


def across(place: Workplace) -> list[Row]:
    """Requests of one caller to a worker process through one Redis, there and back."""
    if find_valkey() is None:
        return []
    server = place.closing(RedisServer())
    server.start()
    with subprocess.Popen(
        [sys.executable, str(HERE / "_dispatch_work.py"), server.url],
        stdout=subprocess.PIPE,
        text=True,
    ) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()
        handle = place.open_handle(server.url)
        celery = _celery(server.url)
        subjects: list[Subject] = []
        for form, count, one_by_one in FORMS:
            if celery is not None:
                subjects.append(Subject(f"Celery, {form}", _asking(celery, count, one_by_one)))
            subjects.append(Subject(f"organism, {form}", _requesting(handle, count, one_by_one)))
        rounds = place.rounds(6)
        place.announce("across processes", rounds)
        timings = measure(subjects, rounds, place.advance)
        if celery is not None:
            celery.communicate("all 0\n")
        worker.kill()
    rows: list[Row] = []
    for form, _, _ in FORMS:
        ours: Timing = timings[f"organism, {form}"]
        if celery is None:
            rows.append(Row("Redis, two processes", f"organism, {form}", ours, alone=True))
            continue
        theirs = timings[f"Celery, {form}"]
        rows.append(Row("Redis, two processes", f"Celery, {form}", theirs))
        ratio = rate_ratio(ours, theirs)
        meaning = "× the rate of Celery"
        rows.append(Row("Redis, two processes", f"organism, {form}", ours, meaning, ratio))
    return rows


def _requesting(handle: Pagefile, count: int, one_by_one: bool) -> Callable[[], int]:
    return lambda: asyncio.run(work.requests(handle, count, one_by_one=one_by_one))


def _asking(peer: subprocess.Popen[str], count: int, one_by_one: bool) -> Callable[[], int]:
    return lambda: _asked(peer, "one" if one_by_one else "all", count)


def _celery(url: str) -> subprocess.Popen[str] | None:
    if not PEERS or shutil.which(PEERS) is None:
        return None
    peer = subprocess.Popen(
        [PEERS, str(HERE / "_dispatch_celery.py"), url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert peer.stdout is not None
    if peer.stdout.readline() != "ready\n":
        peer.kill()
        return None
    return peer


def _asked(peer: subprocess.Popen[str], form: str, count: int) -> int:
    assert peer.stdin is not None
    assert peer.stdout is not None
    peer.stdin.write(f"{form} {count}\n")
    peer.stdin.flush()
    return int(peer.stdout.readline())


SUITE = Suite(
    title="Dispatch",
    about="What a message between listeners costs.",
    cases={"memory": memory, "sqlite": sqlite, "fan-out": fan_out, "across": across},
    notes=() if PEERS else ("Celery was left out: PAGEFILE_PEERS names no Python that has it.",),
)

if __name__ == "__main__":
    raise SystemExit(run(SUITE))
