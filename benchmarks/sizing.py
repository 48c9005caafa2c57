"""What a million slots cost on each engine: bytes, and time to write, read, open and verify.

    python benchmarks/sizing.py [--slots N] [--only ENGINE] [--json] [--folder PATH]

One thread of N slots, each with a body of 500 bytes of its own, appended 1,000 in a commit.
The servers are started by this script, with their default settings, on the disk of the
folder. Each engine is filled once: the figures are of one run, not medians of rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from statistics import median

import redis
from rich.console import Console
from rich.table import Table

import pagefile
from _servers import ManagerProcess, PostgresServer, RedisServer
from pagefile import ContextBuffer, NewSlot

_TOGETHER = 1_000
_READS = 25
_THREAD = "long"


@dataclass
class Place:
    """Where an engine keeps its store, and how many bytes that is."""

    url: str
    #: What is counted, and the count of it.
    kinds: str
    size_bytes: Callable[[], int]
    #: Bytes on the disk beside those, where there are both.
    disk_bytes: Callable[[], int] | None = None


@dataclass
class Cost:
    """What one engine took."""

    engine: str
    slots: int
    bytes_are: str
    bytes_a_slot: float
    disk_bytes_a_slot: float | None
    append_1000_ms: float
    append_1000_ms_at_the_end: float
    tail_50_ms: float
    open_ms: float
    verify_seconds: float | None


@contextmanager
def _memory(folder: Path) -> Iterator[Place]:
    yield Place("memory:", "memory of the process", lambda: _resident(os.getpid()))


@contextmanager
def _sqlite(folder: Path) -> Iterator[Place]:
    path = folder / "store.db"
    yield Place(str(path), "file", lambda: sum(f.stat().st_size for f in folder.glob("store.db*")))


@contextmanager
def _postgres(folder: Path) -> Iterator[Place]:
    with ExitStack() as opened:
        # Beside the folder, which is closed to the user the server runs as.
        server = PostgresServer(folder.parent)
        opened.callback(server.stop)

        def size_bytes() -> int:
            with server.connect(database="stores") as connection:
                row = connection.execute("SELECT pg_database_size('stores')").fetchone()
            assert row is not None
            return int(row[0])

        yield Place(server.new_url(), "database", size_bytes)


@contextmanager
def _redis(folder: Path) -> Iterator[Place]:
    folder.chmod(0o755)
    with (
        RedisServer(fsync="everysec", under=folder) as server,
        redis.Redis(port=server.port) as raw,
    ):
        yield Place(
            server.url,
            "server memory",
            lambda: int(raw.info("memory")["used_memory"]),
            lambda: int(raw.info("persistence")["aof_current_size"]),
        )


@contextmanager
def _manager(folder: Path) -> Iterator[Place]:
    with ManagerProcess() as server:
        yield Place(server.url, "server memory", lambda: _resident(server.pid))


ENGINES = {
    "memory": _memory,
    "sqlite": _sqlite,
    "postgresql": _postgres,
    "redis": _redis,
    "manager": _manager,
}


def _resident(pid: int) -> int:
    """Bytes that a process has in memory."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def _timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _cost(engine: str, slots: int, folder: Path, *, verify: bool) -> Cost:
    with ENGINES[engine](folder) as place, ExitStack() as opened:
        handle = opened.enter_context(pagefile.open(place.url))
        buffer = ContextBuffer(handle.store, max_slots_per_thread=2 * slots)
        before = place.size_bytes()
        disk_before = place.disk_bytes() if place.disk_bytes else 0
        appended = _fill(engine, buffer, slots)
        size = place.size_bytes() - before
        disk = place.disk_bytes() - disk_before if place.disk_bytes else None
        thread = buffer.handle(_THREAD)
        tail = median(_timed(lambda: thread.tail(50)) for _ in range(_READS))
        opening = [0.0]
        if place.url != "memory:":
            opening = [_timed(lambda: pagefile.open(place.url).close()) for _ in range(5)]
        verified: float | None = None
        if verify:
            _say(f"{engine}: verify …")
            verified = _timed(handle.verify)
        last = appended[-max(1, len(appended) // 10) :]
    return Cost(
        engine,
        slots,
        place.kinds,
        size / slots,
        None if disk is None else disk / slots,
        1e3 * median(appended),
        1e3 * median(last),
        1e3 * tail,
        1e3 * median(opening),
        verified,
    )


def _fill(engine: str, buffer: ContextBuffer, slots: int) -> list[float]:
    """Seconds of each commit."""
    appended: list[float] = []
    for start in range(0, slots, _TOGETHER):
        together = [
            # With its key, quotes and braces this makes a body of 500 bytes.
            NewSlot({"text": f"An agent saw {n}. ".ljust(489, "x")}, "user", "agent")
            for n in range(start, min(slots, start + _TOGETHER))
        ]
        appended.append(_timed(partial(buffer.append_many, _THREAD, together)))
        done = start + len(together)
        if not done % max(_TOGETHER, slots // 10 // _TOGETHER * _TOGETHER):
            _say(f"{engine}: {done:,} of {slots:,} slots, {1e3 * appended[-1]:.0f} ms a commit")
    return appended


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _show(costs: list[Cost]) -> None:
    table = Table(title=f"{costs[0].slots:,} slots of 500 bytes in one thread")
    table.add_column("engine")
    headings = ("bytes a slot", "on disk", "1,000 slots", "… the last tenth", "tail(50)")
    for heading in (*headings, "open", "verify"):
        table.add_column(heading, justify="right", no_wrap=True)
    for cost in costs:
        table.add_row(
            cost.engine,
            f"{cost.bytes_a_slot:,.0f} ({cost.bytes_are})",
            "" if cost.disk_bytes_a_slot is None else f"{cost.disk_bytes_a_slot:,.0f}",
            f"{cost.append_1000_ms:.1f} ms",
            f"{cost.append_1000_ms_at_the_end:.1f} ms",
            f"{cost.tail_50_ms:.2f} ms",
            f"{cost.open_ms:.1f} ms",
            "" if cost.verify_seconds is None else f"{cost.verify_seconds:.1f} s",
        )
    Console(width=150).print(table)


def main() -> int:
    parser = argparse.ArgumentParser(description="What many slots cost on each engine.")
    parser.add_argument("--slots", type=int, default=1_000_000, help="how many")
    parser.add_argument("--only", choices=ENGINES, help="one engine")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--no-verify", action="store_true", help="leave `verify` out")
    default = "/var/tmp" if os.access("/var/tmp", os.W_OK) else tempfile.gettempdir()
    parser.add_argument("--folder", type=Path, default=default, help="where files are made")
    asked = parser.parse_args()
    costs: list[Cost] = []
    for engine in [asked.only] if asked.only else list(ENGINES):
        with tempfile.TemporaryDirectory(prefix="pagefile-sizing-", dir=asked.folder) as own:
            costs.append(_cost(engine, asked.slots, Path(own), verify=not asked.no_verify))
        if asked.json:
            print(json.dumps(asdict(costs[-1])), flush=True)
    if not asked.json:
        _show(costs)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
