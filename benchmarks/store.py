"""What the store costs, next to the least that could be done instead.

    python benchmarks/store.py [--json] [--quick] [--only NAME] [--folder PATH]

Every figure is a median over rounds that take turns with the peer's, in this
run. Targets are printed with whether this run met them, and never asserted:
on a busy machine a durable commit measures the scheduler.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from _durable import crowd, one_writer
from _growth import length, spread_out, tail
from _in_memory import memory
from _report import print_json, print_table
from _row import Row
from _startup import startup
from _workplace import Workplace, disk_folder

CASES: dict[str, Callable[[Workplace], list[Row]]] = {
    "writer": one_writer,
    "crowd": crowd,
    "memory": memory,
    "length": length,
    "spread": spread_out,
    "tail": tail,
    "import": startup,
}


def main() -> int:
    asked = _arguments()
    load_before = os.getloadavg()[0]
    rows: list[Row] = []
    for name in [asked.only] if asked.only else CASES:
        with _workplace(asked.folder, asked.quick) as place:
            rows += CASES[name](place)
    (print_json if asked.json else print_table)(rows, load_before, "Pagefile store benchmarks")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="What the store costs, next to bare peers.")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, shorter logs")
    parser.add_argument("--only", choices=CASES, help="run one case")
    parser.add_argument("--folder", type=Path, default=disk_folder(), help="where files are made")
    return parser.parse_args()


@contextmanager
def _workplace(folder: Path, quick: bool) -> Iterator[Workplace]:
    """A folder of its own for each case, and progress on stderr."""
    with (
        tempfile.TemporaryDirectory(prefix="pagefile-benchmark-", dir=folder) as own,
        _progress() as (announce, advance),
        ExitStack() as opened,
    ):
        yield Workplace(Path(own), quick, announce, advance, opened)


@contextmanager
def _progress() -> Iterator[tuple[Callable[[str, int], None], Callable[[], None]]]:
    console = Console(stderr=True)
    if not console.is_terminal:
        yield (lambda what, rounds: print(f"{what} …", file=sys.stderr, flush=True)), (lambda: None)
        return
    # Drawn only when a round ends: a refreshing thread would take CPU from the subjects.
    with Progress(console=console, auto_refresh=False, transient=True) as progress:
        task = progress.add_task("starting", total=None)

        def announce(what: str, rounds: int) -> None:
            progress.reset(task, total=rounds, description=what)
            progress.refresh()

        def advance() -> None:
            progress.advance(task)
            progress.refresh()

        yield announce, advance


if __name__ == "__main__":
    raise SystemExit(main())
