"""The command line that the benchmarks share: arguments, folders, progress, the result."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from _report import print_json, print_table
from _row import Row
from _workplace import Workplace

Case = Callable[[Workplace], list[Row]]


@dataclass(frozen=True)
class Suite:
    """The cases of one script."""

    title: str
    about: str
    cases: Mapping[str, Case]
    #: Lines under the table, after the machine's: versions, what was left out.
    notes: Sequence[str] = ()
    #: All cases in one workplace, so that they can share what is slow to build.
    together: bool = False


def run(suite: Suite) -> int:
    asked = _arguments(suite)
    load_before = os.getloadavg()[0]
    names = [asked.only] if asked.only else list(suite.cases)
    rows: list[Row] = []
    for group in [names] if suite.together else [[name] for name in names]:
        with _workplace(asked.folder, asked.quick) as place:
            for name in group:
                rows += suite.cases[name](place)
    if asked.json:
        print_json(rows, load_before, suite.notes)
    else:
        print_table(rows, load_before, suite.title, suite.notes)
    return 0


def _arguments(suite: Suite) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=suite.about)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, shorter logs")
    parser.add_argument("--only", choices=suite.cases, help="run one case")
    parser.add_argument("--folder", type=Path, default=_disk_folder(), help="where files are made")
    return parser.parse_args()


def _disk_folder() -> str:
    # /tmp is often memory, where a sync costs nothing; /var/tmp is a disk by convention.
    return "/var/tmp" if os.access("/var/tmp", os.W_OK) else tempfile.gettempdir()


@contextmanager
def _workplace(folder: Path, quick: bool) -> Iterator[Workplace]:
    """A folder of its own, and progress on stderr."""
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
