"""What remembering and recalling cost, next to peers that are given the same vectors.

    python benchmarks/memory.py [--json] [--quick] [--sizes 1000,10000] [--only NAME]
                                [--max-seconds 120]

Each subject and size runs in a process of its own, so that its memory is its
own too. At each size: filled as fast as the subject can, then searches for ten,
then memories put one by one, then by 64 writers at once: tasks for ours and for
LangGraph's async store, which gather what tasks ask for at the same time; threads
that call the same `put` or `add` for the rest. One by one, a put cannot take less
than the sync it waits for, so the targets are for many writers. A subject that
takes more than `--max-seconds` at a size is reported as such. Embedding is not
measured: everybody is given the same vectors. How much other users' data cost one
user is what the same few memories take alone and among those of many others.
Processor time stands beside wall time, for machines that have other work. Rates are
of this machine, in this run; the ratios are what counts.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from _memory_data import texts, vectors
from _memory_subjects import (
    SUBJECTS,
    WANTED,
    OurArmReopened,
    OursReopened,
    installed,
    size_on_disk,
)

_PUTS = 200
#: Forty turns of all writers: what starts them counts in the first.
_CROWD = 2_560
_SEARCHES = 100
_USERS = 1_000
#: What one of many users has, with and without the others.
_OWN = 100
_OURS = ("pagefile, file", "pagefile, memory:")
_Figures = dict[str, Any]


class _Stopwatch:
    """Seconds of the clock and of the processor for each of some steps."""

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.processor: list[float] = []

    def __enter__(self) -> None:
        # The clock last and first: to ask the processor takes a while itself.
        self._processor = time.process_time()
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.wall.append(time.perf_counter() - self._began)
        self.processor.append(time.process_time() - self._processor)


def _measure(name: str, size: int, users: int, folder: Path) -> _Figures:
    """One subject at one size, in this process."""
    more = _PUTS + _CROWD
    said, rows = texts(size + more, 1), vectors(size + more, 2)
    asked, targets = texts(_SEARCHES, 3, words=6), vectors(_SEARCHES, 4)
    each = size // users
    # Both are of a file that another process has filled.
    is_reopened = SUBJECTS[name][1] in (OursReopened, OurArmReopened)
    if is_reopened:
        # In a process of its own, so that nothing of it is in this one's memory.
        command = [sys.executable, __file__, "--fill", str(size), str(users), str(folder)]
        subprocess.run(command, check=True)
    before = _resident()
    subject = SUBJECTS[name][1](folder)
    began = time.perf_counter()
    if isinstance(subject, OurArmReopened):
        subject.fill("user-0", (), rows[:0])
    elif not is_reopened:
        for user in range(users):
            part = slice(user * each, (user + 1) * each)
            subject.fill(f"user-{user}", said[part], rows[part])
    filled = time.perf_counter() - began
    subject.search("user-0", asked[0], targets[0])
    found: list[list[str]] = []
    search, put, crowd = _Stopwatch(), _Stopwatch(), _Stopwatch()
    for query, row in zip(asked, targets, strict=True):
        with search:
            found.append(subject.search("user-0", query, row))
    grown = _resident() - before
    for at in range(size, size + _PUTS):
        with put:
            subject.put("user-0", said[at], rows[at])
    last = slice(size + _PUTS, size + more)
    with crowd:
        subject.crowd("user-0", said[last], rows[last])
    subject.close()
    slowest = sorted(search.wall)[int(0.99 * _SEARCHES)]
    return {
        "fill_per_second": 0.0 if is_reopened else size / filled,
        "put_us": statistics.mean(put.wall) * 1e6,
        "put_cpu_us": statistics.mean(put.processor) * 1e6,
        "crowd_us": crowd.wall[0] / _CROWD * 1e6,
        "crowd_cpu_us": crowd.processor[0] / _CROWD * 1e6,
        "search_p50_ms": statistics.median(search.wall) * 1e3,
        "search_cpu_ms": statistics.median(search.processor) * 1e3,
        "search_p99_ms": slowest * 1e3,
        "memory_bytes": grown / size,
        "disk_bytes": size_on_disk(folder) / size,
        "recall": _share_of_exact(found, said[:each], rows[:each], targets),
    }


def _fill(size: int, users: int, folder: Path) -> None:
    """A file of ours, for another process to open."""
    said, rows = texts(size + _PUTS + _CROWD, 1), vectors(size + _PUTS + _CROWD, 2)
    subject = OursReopened(folder)
    each = size // users
    for user in range(users):
        part = slice(user * each, (user + 1) * each)
        subject.fill(f"user-{user}", said[part], rows[part])
    subject.close()


def _share_of_exact(found: list[list[str]], said: list[str], rows: Any, targets: Any) -> float:
    """How much of the exact nearest ten was found; says nothing where words count too."""
    hits = 0
    for texts_found, target in zip(found, targets, strict=True):
        best = (rows @ target).argsort()[-WANTED:]
        hits += len({said[at] for at in best} & set(texts_found))
    return hits / (WANTED * len(found))


def _resident() -> int:
    """Bytes of memory that this process has now."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def _apart(name: str, size: int, users: int, folder: Path, most_seconds: float) -> _Figures:
    """The same in a process of its own, ended when it takes too long."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        command = [sys.executable, __file__, "--child", name, str(size), str(users), own]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=most_seconds)
        except subprocess.TimeoutExpired:
            return {"refused": f"more than {most_seconds:g} s"}
    if ran.returncode:
        lines = ran.stderr.strip().splitlines()
        return {"refused": lines[-1] if lines else "failed"}
    figures: _Figures = json.loads(ran.stdout.strip().splitlines()[-1])
    return figures


def _against(
    results: dict[tuple[str, str], _Figures], sizes: list[str], crowded: str
) -> list[_Figures]:
    """The figures that have targets; `crowded` is where many users are."""
    rows: list[_Figures] = []

    def judge(what: str, size: str, value: float, target: float | None) -> None:
        verdict = "noted" if target is None else "met" if value >= target else "missed"
        rows.append(
            {"what": what, "size": size, "ratio": value, "target": target, "verdict": verdict}
        )

    def ratio(what: str, size: str, field: str, ours: str, peer: str, target: float | None) -> None:
        mine = results.get((size, ours), {}).get(field)
        theirs = results.get((size, peer), {}).get(field)
        if mine and theirs:
            judge(what, size, theirs / mine, target)

    small, large = sizes[0], sizes[-1]
    for peer in ("LangGraph InMemoryStore", "mem0, infer=False"):
        ratio(f"search p50, × {peer}", small, "search_p50_ms", "pagefile, file", peer, 20)
    for peer, times in (("LangGraph SqliteStore", 5), ("mem0, infer=False", 20)):
        ratio(f"put, 64 writers, × {peer}", small, "crowd_us", "pagefile, file", peer, times)
        ratio(f"put, one at a time, × {peer}", small, "put_us", "pagefile, file", peer, None)
    peer = "LangGraph AsyncSqliteStore"
    ratio(f"put, 64 writers, × {peer}", small, "crowd_us", "pagefile, file", peer, None)
    exact = "numpy float32 exact"
    # A few thousand rows are multiplied in microseconds: the targets are for many.
    is_many = large.startswith("100,000 ")
    for ours in ("pagefile, vectors alone", "pagefile, memory:", "pagefile, file"):
        as_fast = 1 if is_many else None
        ratio(f"search p50 of {ours}, × {exact}", large, "search_p50_ms", ours, exact, as_fast)
    ratio(f"memory of the vector arm, × {exact}", large, "memory_bytes",
          "pagefile, vector arm reopened", exact, 2 if is_many else None)  # fmt: skip
    # Words, structure and keys are in it too, of which the exact scan has nothing.
    ratio(f"memory of the whole index, × {exact}", large, "memory_bytes",
          "pagefile, file reopened", exact, None)  # fmt: skip
    found = results.get((large, "pagefile, vectors alone"), {}).get("recall")
    if found is not None:
        judge(f"recall@{WANTED} of pagefile, vectors alone, share of exact", large, found, 0.98)
    for ours in _OURS:
        alone, among = (results.get((size, ours), {}) for size in (_alone(), crowded))
        # Processor time, and a half for chance: both are fractions of a millisecond.
        if alone.get("search_cpu_ms") and among.get("search_cpu_ms"):
            what = f"search of one user's {_OWN} of {ours}, alone ÷ among others, processor"
            judge(what, crowded, alone["search_cpu_ms"] / among["search_cpu_ms"], 0.67)
    return rows


def _alone() -> str:
    return f"{_OWN:,} of one user"


def main() -> int:
    if sys.argv[1:2] == ["--fill"]:
        count, among, own = sys.argv[2:5]
        _fill(int(count), int(among), Path(own))
        return 0
    if sys.argv[1:2] == ["--child"]:
        name, count, among, own = sys.argv[2:6]
        print(json.dumps(_measure(name, int(count), int(among), Path(own))))
        return 0
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--quick", action="store_true", help="1,000 memories alone")
    parser.add_argument("--sizes", default="1000,10000,100000", help="how many memories")
    parser.add_argument("--only", choices=SUBJECTS, action="append", help="these subjects")
    parser.add_argument(
        "--max-seconds", type=float, default=120, help="how long a subject may take at a size"
    )
    parser.add_argument(
        "--folder", type=Path, default=Path("/var/tmp"), help="where files are made"
    )
    asked = parser.parse_args()
    sizes = [1_000] if asked.quick else [int(size) for size in asked.sizes.split(",")]
    places = [(f"{size:,} of one user", size, 1) for size in sizes]
    labels = [label for label, _, _ in places]
    users = min(_USERS, max(sizes) // _OWN)
    crowded = f"{max(sizes):,} of {users:,} users"
    places += [(_alone(), _OWN, 1), (crowded, max(sizes), users)]
    results: dict[tuple[str, str], _Figures] = {}
    for label, size, people in places:
        few = label == _alone() or (label == crowded and users < _USERS)
        for name in asked.only or (_OURS if few else SUBJECTS):
            if installed(name):
                print(f"{label}: {name} …", file=sys.stderr, flush=True)
                found = _apart(name, size, people, asked.folder, asked.max_seconds)
                results[label, name] = found
                # At once: a run over all sizes takes an hour, and may be cut short.
                told = {key: round(v, 3) if type(v) is float else v for key, v in found.items()}
                print(f"  {json.dumps(told)}", file=sys.stderr, flush=True)
    ratios = _against(results, labels, crowded)
    if asked.json:
        rows = [{"size": size, "subject": name, **f} for (size, name), f in results.items()]
        print(json.dumps({"figures": rows, "ratios": ratios}, indent=2))
    else:
        _print(results, ratios)
    return 0


def _print(results: dict[tuple[str, str], _Figures], ratios: list[_Figures]) -> None:
    table = Table(title="Remembering and recalling")
    for column in ("size", "subject", "fill/s", "put µs", "cpu", "of 64 µs", "cpu",
                   "search p50 ms", "cpu", "p99 ms", "memory B", "disk B", "of exact"):  # fmt: skip
        table.add_column(column, justify="left" if column in ("size", "subject") else "right")
    for (size, name), figures in results.items():
        if "refused" in figures:
            table.add_row(size, name, str(figures["refused"]))
            continue
        table.add_row(
            size,
            name,
            f"{figures['fill_per_second']:,.0f}",
            f"{figures['put_us']:,.0f}",
            f"{figures['put_cpu_us']:,.0f}",
            f"{figures['crowd_us']:,.0f}",
            f"{figures['crowd_cpu_us']:,.0f}",
            f"{figures['search_p50_ms']:.2f}",
            f"{figures['search_cpu_ms']:.2f}",
            f"{figures['search_p99_ms']:.2f}",
            f"{figures['memory_bytes']:,.0f}",
            f"{figures['disk_bytes']:,.0f}",
            f"{figures['recall']:.3f}",
        )
    console = Console(width=180)
    console.print(table)
    for row in ratios:
        console.print(
            f"{row['what']} at {row['size']}: {row['ratio']:.2f} "
            + (f"(target {row['target']}): " if row["target"] is not None else "")
            + row["verdict"]
        )


if __name__ == "__main__":
    sys.exit(main())
