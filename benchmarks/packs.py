"""What it takes to pack a long run, to verify the pack, and to restore it elsewhere.

    python benchmarks/packs.py [--json] [--quick] [--only NAME] [--folder PATH]

One run of 100,000 events (1,000 with --quick): four of the agent's own, then a
patch, and a milestone now and then. Each figure comes from a process of its
own, so that its peak of memory is its own too. Megabytes per second are those
of the unpacked content.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
import zipfile
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pagefile
from _measure import Spread, Timing, cpu_seconds
from _row import Row, Target
from _run import Suite, run
from _workplace import Workplace
from pagefile import Append, Batch
from pagefile.runs.packs.format import Progress
from pagefile.runs.packs.reader import verify_pack
from pagefile.runs.packs.restore import restore_from_pack
from pagefile.runs.packs.writer import create_resume_pack
from pagefile.runs.runs import Runs

_EVENTS = 100_000
_STEP = 5
_STEPS_PER_MILESTONE = 2_000
_RUN = "long"
_STEPS_SHOWN = 100
#: Megabytes. SQLite's own cache takes up to 64 of them.
_MOST_MEMORY = Target(high=128)

Work = Callable[[Path, Progress], Any]


def _item(number: int) -> dict[str, Any]:
    return {
        "id": f"s{number:06}",
        "content": f"step {number:06}: looked at it, and it was as it should be",
        "timestamp": "2026-01-01T00:00:00Z",
        "priority": number % 10,
    }


def _events(booted: Any, number: int) -> list[Append]:
    text = f"line {number} of the file, which was read from its beginning to its end"
    return [
        booted.ledger.event(kind, payload)
        for kind, payload in (
            ("STEP_REQUEST", {"ws_seq": number, "model": "a-model"}),
            ("MODEL_ACTION", {"action": {"type": "read", "path": f"src/{number}.py"}}),
            ("TOOL_CALL", {"tool_name": "read", "arguments": {"path": f"src/{number}.py"}}),
            ("TOOL_RESULT", {"tool_name": "read", "ok": True, "result": text}),
        )
    ]


def _build(folder: Path, events: int, place: Workplace) -> None:
    place.announce(f"a run of {events:,} events", _STEPS_SHOWN)
    with pagefile.open(folder / "from.db", durability="process") as pf:
        booted = Runs(pf.store).boot("Read the whole repository", run_id=_RUN)
        steps = events // _STEP
        for number in range(steps):
            pf.store.commit(Batch(_events(booted, number)))
            added = [{"op": "append", "field": "sliding_context", "items": [_item(number)]}]
            patch = {"_schema_version": "2.1", "expected_seq": number, "ops": added}
            if not booted.apply_patch(patch).ok:
                raise SystemExit("the run could not be built")
            if number % _STEPS_PER_MILESTONE == _STEPS_PER_MILESTONE - 1:
                booted.milestone("another part is read")
            if number % max(1, steps // _STEPS_SHOWN) == 0:
                place.advance()


def _pack(folder: Path, progress: Progress) -> None:
    with pagefile.open(folder / "from.db") as pf:
        create_resume_pack(Runs(pf.store).open(_RUN), folder / "packs", progress=progress)


def _verify(folder: Path, progress: Progress) -> None:
    verify_pack(_packed(folder), progress=progress)


def _restore(folder: Path, progress: Progress) -> None:
    with pagefile.open(folder / f"to-{time.monotonic_ns()}.db") as pf:
        restore_from_pack(Runs(pf.store), _packed(folder), progress=progress)


def _restore_to_memory(folder: Path, progress: Progress) -> None:
    with pagefile.open("memory:") as pf:
        restore_from_pack(Runs(pf.store), _packed(folder), progress=progress)


def _packed(folder: Path) -> Path:
    return max((folder / "packs").glob("*.zip"), key=lambda path: path.stat().st_mtime_ns)


def _child(work: Work, folder: Path, pipe: Connection) -> None:
    """Do the work; tell of progress, then of seconds and of bytes at the peak."""
    shown = 0

    def progress(done: int, total: int) -> None:
        nonlocal shown
        while shown < done * _STEPS_SHOWN // total:
            shown += 1
            pipe.send(None)

    memory, cpu, wall = _peak_bytes(), cpu_seconds(), time.perf_counter()
    work(folder, progress)
    pipe.send((time.perf_counter() - wall, cpu_seconds() - cpu, _peak_bytes() - memory))


def _peak_bytes() -> int:
    # Not ru_maxrss where it can be helped: Linux hands a parent's peak on to its children.
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text().splitlines()
        return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _measured(what: str, work: Work, place: Workplace, folder: Path) -> tuple[float, float, int]:
    place.announce(what, _STEPS_SHOWN)
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(work, folder, there))
    child.start()
    there.close()
    while (told := here.recv()) is None:
        place.advance()
    child.join()
    wall, cpu, peak = told
    return wall, cpu, peak


def packs(place: Workplace) -> list[Row]:
    """Packing, verifying and restoring, one after the other."""
    folder, events = place.folder, 1_000 if place.quick else _EVENTS
    _build(folder, events, place)
    rows: list[Row] = []
    for name, work, target in (
        ("pack", _pack, _MOST_MEMORY),
        ("verify", _verify, _MOST_MEMORY),
        ("restore to SQLite", _restore, _MOST_MEMORY),
        # What it holds is the store itself.
        ("restore to memory:", _restore_to_memory, None),
    ):
        wall, cpu, peak = _measured(name, work, place, folder)
        unpacked = _unpacked_bytes(_packed(folder))
        timing = Timing([wall / events], [cpu / events])
        rows.append(_row(name, timing, "MB more memory at the peak", peak / 1e6, target))
        rows.append(_row(name, timing, "MB/s", unpacked / wall / 1e6))
    packed = _packed(folder).stat().st_size
    rows.append(_row("the pack", timing, "MB unpacked", unpacked / 1e6))
    rows.append(_row("the pack", timing, "MB packed", packed / 1e6))
    return rows


def _row(
    name: str, timing: Timing, meaning: str, figure: float, target: Target | None = None
) -> Row:
    return Row("packs", name, timing, meaning, Spread(figure, figure, figure), target)


def _unpacked_bytes(path: Path) -> int:
    with zipfile.ZipFile(path) as archive:
        return sum(info.file_size for info in archive.infolist())


SUITE = Suite(
    title="Pagefile resume packs",
    about="What it takes to pack and restore a long run.",
    cases={"packs": packs},
)

if __name__ == "__main__":
    raise SystemExit(run(SUITE))
