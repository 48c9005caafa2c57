"""What a request costs: a working set read, and a slot appended, over loopback.

    python benchmarks/server.py [--seconds 3] [--rounds 5]

Reads stand next to a bare FastAPI endpoint that answers with the same JSON from
memory, on granian, which we run on, and on uvicorn. Durable appends of 64 connections
stand next to a bare Starlette endpoint on granian that does nothing but the library's
append, and next to the library's own group commit with 64 tasks, on the same disk.
Rounds take turns, so that all sides see the same neighbours; ratios are of medians.
Before that, how long a server takes from its start to its first answer.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

import pagefile
from _http_load import Load, Target, cpu_seconds, load
from _servers import free_port
from pagefile.surfaces.access.keys import KeyStore

_BARE = Path(__file__).parent / "_http_bare.py"
_PROGRAMS = ("granian", "uvicorn")
_PROCESSES = 2
_READERS, _WRITERS = 16, 64
_SLOT = json.dumps(
    {"payload": {"text": "user prefers metric units"}, "from_id": "user", "to_id": "agent"}
).encode()
_READS_WANTED, _WRITES_WANTED = 0.9, 0.85
_START_WANTED = 10.0
#: Of each side, its rounds, and its requests for a second of processor time in each.
Rows = dict[str, tuple[list[Load], list[float]]]


@contextmanager
def running(command: list[str], port: int, folder: str, workers: int = 1) -> Iterator[int]:
    """A server, once all its processes answer; ids of requests tell them apart."""
    process = subprocess.Popen([sys.executable, *command], cwd=folder, stderr=subprocess.DEVNULL)
    try:
        answered: set[str] = set()
        for _ in range(2_000):
            try:
                said = httpx.get(f"http://127.0.0.1:{port}/health", timeout=1).headers
                answered.add(said.get("x-request-id", "")[:12])
            except httpx.TransportError:
                time.sleep(0.05)
            if len(answered) == workers:
                break
        yield process.pid
    finally:
        process.terminate()
        process.wait(20)


def main() -> None:
    """Measure, print, and say whether the aims are reached."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        starts(folder, asked.rounds)
        url = f"{folder}/http.db"
        with pagefile.Admin(url) as admin:
            key = KeyStore(admin).create("default", ("read", "write", "admin")).secret
            run = admin.open("default").runs.boot("Measure it", ["in one run"], run_id="r")
            for number in range(10):
                item = {
                    "id": f"i{number}",
                    "content": f"what was seen in step {number}",
                    "timestamp": "2026-01-01T00:00:00Z",
                    "priority": number % 10,
                }
                ops = [{"op": "append", "field": "sliding_context", "items": [item]}]
                run.update(lambda _, ops=ops: {"ops": ops})  # type: ignore[misc]
            document = json.dumps(run.load())
        one_port, more_port = free_port(), free_port()
        one = ["-c", _OURS, url, str(one_port), "1"]
        more = ["-c", _OURS, url, str(more_port), str(_PROCESSES)]
        with running(one, one_port, folder) as our_pid:
            with contextlib.ExitStack() as stack:
                sides: dict[str, tuple[Target, int]] = {}
                for program in _PROGRAMS:
                    port = free_port()
                    bare = [str(_BARE), str(port), program, "reads", document]
                    pid = stack.enter_context(running(bare, port, folder))
                    sides[f"bare FastAPI, {program}"] = (Target(port, "/run"), pid)
                sides["pagefile GET /v1/runs/{id}"] = (
                    Target(one_port, "/v1/runs/r", key),
                    our_pid,
                )
                reads(asked.seconds, asked.rounds, sides)
            bare_port = free_port()
            bare = [str(_BARE), str(bare_port), "granian", "appends", f"{folder}/bare.db"]
            with (
                running(more, more_port, folder, _PROCESSES) as more_pid,
                running(bare, bare_port, folder) as bare_pid,
            ):
                sides = {
                    "bare Starlette, granian": (Target(bare_port, "/threads", "", _SLOT), bare_pid),
                    "POST slot, 1 process": (
                        Target(one_port, "/v1/threads", key, _SLOT),
                        our_pid,
                    ),
                    f"POST slot, {_PROCESSES} processes": (
                        Target(more_port, "/v1/threads", key, _SLOT),
                        more_pid,
                    ),
                }
                writes(asked.seconds, asked.rounds, sides, folder)


_OURS = """
import sys
from pagefile.surfaces.http.config import ServerConfig
from pagefile.surfaces.http.server import serve
serve(ServerConfig(url=sys.argv[1], port=int(sys.argv[2]), workers=int(sys.argv[3]),
                   rate_per_second=0), out=sys.stderr)
"""


def starts(folder: str, rounds: int) -> None:
    """A server on a store that is not there yet: how long until it answers."""
    took = []
    for number in range(rounds):
        port = free_port()
        before = time.perf_counter()
        command = ["-c", _OURS, f"{folder}/start{number}.db", str(port), "1"]
        with running(command, port, folder):
            took.append(time.perf_counter() - before)
    print(
        f"Start: {statistics.median(took):.2f} s until /health answers (aim: under {_START_WANTED})"
    )


def reads(seconds: int, rounds: int, sides: dict[str, tuple[Target, int]]) -> None:
    """GET of a working set, next to the bare endpoints."""
    rows: Rows = {name: ([], []) for name in sides}
    for _ in range(rounds):
        for name, (target, pid) in sides.items():
            _measure(rows[name], target, pid, _READERS, seconds)
    _show(f"Reads, {_READERS} connections", rows, _READS_WANTED)


def writes(seconds: int, rounds: int, sides: dict[str, tuple[Target, int]], folder: str) -> None:
    """POST of a slot, next to a bare endpoint and to the library's own group commit."""
    rows: Rows = {name: ([], []) for name in (*sides, "library, 64 tasks")}
    for number in range(rounds):
        for name, (target, pid) in sides.items():
            path = f"{target.path}/bench{target.port}-{number}-{{n}}/slots"
            _measure(rows[name], target._replace(path=path), pid, _WRITERS, seconds)
        before = time.process_time()
        made = asyncio.run(_group_commit(f"{folder}/lib{number}.db", seconds))
        loads, per_cpu = rows["library, 64 tasks"]
        loads.append(made)
        per_cpu.append(made.per_second * seconds / (time.process_time() - before))
    _show(f"Durable appends, {_WRITERS} connections", rows, _WRITES_WANTED)


def _measure(
    row: tuple[list[Load], list[float]], target: Target, pid: int, connections: int, seconds: int
) -> None:
    before = cpu_seconds(pid)
    made = load(target, connections=connections, seconds=seconds)
    row[0].append(made)
    row[1].append(made.per_second * seconds / max(1e-9, cpu_seconds(pid) - before))


async def _group_commit(url: str, seconds: int) -> Load:
    took: list[float] = []
    async with pagefile.aio.open(url) as pf:
        pf.sync.context.max_slots_per_thread = 10_000_000
        end = time.perf_counter() + seconds

        async def write() -> None:
            while (started := time.perf_counter()) < end:
                await pf.context.append("bench", {"text": "user prefers metric"}, "user", "agent")
                took.append(time.perf_counter() - started)

        await asyncio.gather(*(write() for _ in range(_WRITERS)))
    took.sort()
    return Load(len(took) / seconds, took[int(len(took) * 0.99) - 1], 0)


def _show(title: str, rows: Rows, wanted: float) -> None:
    print(f"\n{title}")
    rates: dict[str, tuple[float, float]] = {}
    for name, (loads, per_cpu) in rows.items():
        rate = statistics.median(each.per_second for each in loads)
        p99 = statistics.median(each.p99_seconds for each in loads)
        failed = sum(each.failed for each in loads)
        cpu = statistics.median(per_cpu)
        rates[name] = rate, cpu
        shown = f"{cpu:>9,.0f} a CPU-second"
        print(f"  {name:<28} {rate:>9,.0f}/s {shown}   p99 {p99 * 1e3:7.2f} ms   failed {failed}")
    peer, *others = rates
    for name in others:
        rate, cpu = (mine / theirs for mine, theirs in zip(rates[name], rates[peer], strict=True))
        if name.startswith(("bare", "library")):
            print(f"  {name}: {rate:.2f} of {peer}")
            continue
        met = "yes" if rate >= wanted else "NO"
        print(
            f"  {name}: {rate:.2f} of {peer}, wanted at least {wanted}: {met}; "
            f"{cpu:.2f} of its requests a CPU-second"
        )


if __name__ == "__main__":
    import pagefile.aio

    main()
