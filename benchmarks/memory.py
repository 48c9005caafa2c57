"""What remembering and recalling cost, next to peers that are given the same vectors.

    python benchmarks/memory.py [--json] [--quick] [--sizes 1000,10000] [--only NAME]

Each subject and size runs in a process of its own, so that its memory is its
own too. At each size: filled as fast as the subject can, then memories put one
by one, then searches for ten. A subject that takes more than 120 seconds at a
size is reported as such. Embedding is not measured: everybody is given the same
vectors. Rates are of this machine, in this run; the ratios are what counts.
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
from _memory_subjects import SUBJECTS, WANTED, installed, size_on_disk

_MOST_SECONDS = 120
_PUTS = 200
_SEARCHES = 100
_USERS = 1_000
_Figures = dict[str, Any]


def _measure(name: str, size: int, users: int, folder: Path) -> _Figures:
    """One subject at one size, in this process."""
    said, rows = texts(size + _PUTS, 1), vectors(size + _PUTS, 2)
    asked, targets = texts(_SEARCHES, 3, words=6), vectors(_SEARCHES, 4)
    before = _resident()
    subject = SUBJECTS[name][1](folder)
    began = time.perf_counter()
    each = size // users
    for user in range(users):
        part = slice(user * each, (user + 1) * each)
        subject.fill(f"user-{user}", said[part], rows[part])
    filled = time.perf_counter() - began
    subject.search("user-0", asked[0], targets[0])
    found: list[list[str]] = []
    taken: list[float] = []
    for query, row in zip(asked, targets, strict=True):
        started = time.perf_counter()
        found.append(subject.search("user-0", query, row))
        taken.append(time.perf_counter() - started)
    grown = _resident() - before
    started = time.perf_counter()
    for at in range(size, size + _PUTS):
        subject.put("user-0", said[at], rows[at])
    puts = (time.perf_counter() - started) / _PUTS
    subject.close()
    taken.sort()
    return {
        "fill_per_second": size / filled,
        "put_us": puts * 1e6,
        "search_p50_ms": statistics.median(taken) * 1e3,
        "search_p99_ms": taken[int(0.99 * len(taken))] * 1e3,
        "memory_bytes": grown / size,
        "disk_bytes": size_on_disk(folder) / size,
        "recall": _share_of_exact(found, said[:each], rows[:each], targets),
    }


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


def _apart(name: str, size: int, users: int, folder: Path) -> _Figures:
    """The same in a process of its own, ended when it takes too long."""
    with tempfile.TemporaryDirectory(dir=folder) as own:
        command = [sys.executable, __file__, "--child", name, str(size), str(users), own]
        try:
            ran = subprocess.run(command, capture_output=True, text=True, timeout=_MOST_SECONDS)
        except subprocess.TimeoutExpired:
            return {"refused": f"more than {_MOST_SECONDS} s"}
    if ran.returncode:
        lines = ran.stderr.strip().splitlines()
        return {"refused": lines[-1] if lines else "failed"}
    figures: _Figures = json.loads(ran.stdout.strip().splitlines()[-1])
    return figures


def _against(results: dict[tuple[str, str], _Figures], sizes: list[str]) -> list[_Figures]:
    """The figures that have targets."""
    rows: list[_Figures] = []

    def ratio(what: str, size: str, field: str, ours: str, peer: str, target: float) -> None:
        mine = results.get((size, ours), {}).get(field)
        theirs = results.get((size, peer), {}).get(field)
        if mine and theirs:
            value = theirs / mine
            verdict = "met" if value >= target else "missed"
            rows.append(
                {"what": what, "size": size, "ratio": value, "target": target, "verdict": verdict}
            )

    small, large = sizes[0], sizes[-1]
    for peer in ("LangGraph InMemoryStore", "mem0, infer=False"):
        ratio(f"search p50, × {peer}", small, "search_p50_ms", "pagefile, file", peer, 20)
    ratio("put, × LangGraph SqliteStore", small, "put_us", "pagefile, file",
          "LangGraph SqliteStore", 5)  # fmt: skip
    ratio("put, × mem0", small, "put_us", "pagefile, file", "mem0, infer=False", 20)
    exact = "numpy float32 exact"
    for ours in ("pagefile, vectors alone", "pagefile, file"):
        ratio(f"search p50 of {ours}, × {exact}", large, "search_p50_ms", ours, exact, 1)
    ratio(f"memory, × {exact}", large, "memory_bytes", "pagefile, vectors alone", exact, 2)
    return rows


def main() -> int:
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
        "--folder", type=Path, default=Path("/var/tmp"), help="where files are made"
    )
    asked = parser.parse_args()
    sizes = [1_000] if asked.quick else [int(size) for size in asked.sizes.split(",")]
    places = [(f"{size:,} of one user", size, 1) for size in sizes]
    if not asked.quick and max(sizes) >= 100 * _USERS:
        places.append((f"{max(sizes):,} of {_USERS:,} users", max(sizes), _USERS))
    results: dict[tuple[str, str], _Figures] = {}
    for label, size, users in places:
        for name in asked.only or SUBJECTS:
            if installed(name):
                print(f"{label}: {name} …", file=sys.stderr, flush=True)
                results[label, name] = _apart(name, size, users, asked.folder)
    labels = [label for label, _, users in places if users == 1]
    ratios = _against(results, labels)
    if asked.json:
        rows = [{"size": size, "subject": name, **f} for (size, name), f in results.items()]
        print(json.dumps({"figures": rows, "ratios": ratios}, indent=2))
    else:
        _print(results, ratios)
    return 0


def _print(results: dict[tuple[str, str], _Figures], ratios: list[_Figures]) -> None:
    table = Table(title="Remembering and recalling")
    for column in ("size", "subject", "fill/s", "put µs", "search p50 ms", "p99 ms",
                   "memory B", "disk B", "of exact"):  # fmt: skip
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
            f"{figures['search_p50_ms']:.2f}",
            f"{figures['search_p99_ms']:.2f}",
            f"{figures['memory_bytes']:,.0f}",
            f"{figures['disk_bytes']:,.0f}",
            f"{figures['recall']:.3f}",
        )
    console = Console(width=150)
    console.print(table)
    for row in ratios:
        console.print(
            f"{row['what']} at {row['size']}: {row['ratio']:.2f} "
            f"(target {row['target']}): {row['verdict']}"
        )


if __name__ == "__main__":
    sys.exit(main())
