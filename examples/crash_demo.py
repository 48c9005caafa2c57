"""Eight processes write to one file, one is killed, and nothing acknowledged is lost.

    python examples/crash_demo.py [--keep FILE] [--seconds N]

Each writer tells this process about a commit only after `commit` returned. When
all have ended, the file is opened again and every acknowledged entry is looked
for at the place that its writer was told. Needs no key and no server.
"""

from __future__ import annotations

import argparse
import os
import random
import select
import selectors
import shlex
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from rich.console import Console
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

import pagefile
from pagefile import Append, Batch, Entry, Store

WRITERS = 8
SECONDS = 14.0
_PAGE = 5_000
_REDRAWS_PER_SECOND = 8
_LAST_WORDS_SECONDS = 30.0


# What a writer does, in its own process


def write_until_told(number: int, path: Path, log: str) -> int:
    """Append, and acknowledge each entry once it is stored, until stdin is closed."""
    with pagefile.open(path) as pf:
        count = 0
        while not _told_to_stop():
            entry = Append(log, {"writer": number, "count": count}, actor=f"writer-{number}")
            commit = pf.store.commit(Batch([entry]))
            try:
                os.write(1, f"{count} {commit.indexes[0]}\n".encode())
            except BrokenPipeError:
                return 0  # Nobody listens any more.
            count += 1
    return 0


def _told_to_stop() -> bool:
    # The end of stdin also comes when the parent dies, however it dies.
    readable, _, _ = select.select([0], [], [], 0)
    return bool(readable)


# The writers, as their parent sees them


@dataclass
class Writer:
    """One process, and what it has acknowledged so far: the index of each count."""

    number: int
    process: subprocess.Popen[bytes]
    indexes: list[int] = field(default_factory=list)
    killed: bool = False
    unread: bytes = b""

    @property
    def state(self) -> str:
        if self.killed:
            return "killed with SIGKILL"
        status = self.process.poll()
        if status is None:
            return "writing" if self.indexes else "starting"
        return "stopped" if status == 0 else f"failed with status {status}"

    @property
    def failed(self) -> bool:
        return not self.killed and self.process.poll() != 0

    def hear(self, received: bytes) -> None:
        """Take in acknowledgements; the last line may not be complete yet."""
        *lines, self.unread = (self.unread + received).split(b"\n")
        for line in lines:
            count, index = map(int, line.split())
            if count != len(self.indexes):
                raise RuntimeError(f"writer {self.number} skipped from {len(self.indexes)}")
            self.indexes.append(index)

    def kill(self) -> None:
        """No warning, no clean-up: what a crash of the process is."""
        self.process.kill()
        self.killed = True


@contextmanager
def running(path: Path, log: str) -> Iterator[list[Writer]]:
    """The writers; none outlives the block, whatever happens in it."""
    writers: list[Writer] = []
    try:
        for number in range(1, WRITERS + 1):
            writers.append(Writer(number, _start(number, path, log)))
        yield writers
    finally:
        for writer in writers:
            with writer.process:  # Leaving it closes the pipes and waits for the end.
                writer.process.kill()


def _start(number: int, path: Path, log: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, __file__, "--writer", str(number), str(path), log],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # Ctrl-C in the terminal reaches only this process, which ends the others.
        start_new_session=True,
    )


class Ears:
    """Listens to all writers at once."""

    def __init__(self, writers: list[Writer]) -> None:
        self._selector = selectors.DefaultSelector()
        for writer in writers:
            assert writer.process.stdout is not None
            self._selector.register(writer.process.stdout, selectors.EVENT_READ, writer)

    def listen(self, seconds: float) -> bool:
        """Take in what comes within some time; False when every writer has ended."""
        for key, _ in self._selector.select(seconds):
            received = os.read(key.fd, 65_536)
            if received:
                key.data.hear(received)
            else:
                self._selector.unregister(key.fileobj)
        return bool(self._selector.get_map())


# What a person sees


class Screen(Protocol):
    """Where the story is told: a terminal, or plain lines for a pipe."""

    def watching(self) -> AbstractContextManager[object]:
        """Held open while the writers run."""

    def show(self, writers: list[Writer], seconds: float, *, last: bool = False) -> None:
        """How far everybody is."""

    def say(self, line: str, style: str = "") -> None:
        """One thing that happened."""

    def verifying(self) -> AbstractContextManager[Callable[[int, int], None]]:
        """Gives the progress callback for `verify`."""

    def conclude(self, title: str, lines: list[tuple[str, str]], *, good: bool) -> None:
        """How it ended."""


class Terminal:
    """A live table, progress bars and a panel."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False)
        self._next_at = 0.0

    def watching(self) -> AbstractContextManager[object]:
        return self._live

    def show(self, writers: list[Writer], seconds: float, *, last: bool = False) -> None:
        if seconds < self._next_at and not last:
            return
        self._next_at = seconds + 1 / _REDRAWS_PER_SECOND
        self._live.update(_table(writers, seconds), refresh=True)

    def say(self, line: str, style: str = "") -> None:
        # Never broken into lines, so that a command can be copied.
        self._console.print(Text(line, style), soft_wrap=True)

    @contextmanager
    def verifying(self) -> Iterator[Callable[[int, int], None]]:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=self._console) as progress:
            task = progress.add_task("verifying the hash chain", total=None)
            yield lambda done, total: progress.update(task, completed=done, total=total)

    def conclude(self, title: str, lines: list[tuple[str, str]], *, good: bool) -> None:
        grid = Table.grid(padding=(0, 2))
        for name, value in lines:
            grid.add_row(Text(name, "bold"), Text(value, overflow="fold"))
        colour = "green" if good else "red"
        self._console.print(Panel(grid, title=title, border_style=colour, padding=(1, 2)))


def _table(writers: list[Writer], seconds: float) -> Table:
    most = max(1, *(len(writer.indexes) for writer in writers))
    total = sum(len(writer.indexes) for writer in writers)
    table = Table(title=f"{WRITERS} processes, one file, {seconds:.1f} s", expand=True)
    for heading in ("writer", "pid", "acknowledged"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", ratio=1)
    table.add_column("state", no_wrap=True, min_width=19)
    for writer in writers:
        bar = ProgressBar(
            total=most,
            completed=len(writer.indexes),
            complete_style="red" if writer.killed else "green",
            finished_style="red" if writer.killed else "green",
        )
        table.add_row(
            str(writer.number),
            str(writer.process.pid),
            f"{len(writer.indexes):,}",
            bar,
            writer.state,
            style="bold red" if writer.killed else "",
        )
    table.add_section()
    rate = f"{total / seconds:,.0f} per second" if seconds else ""
    table.add_row("all", "", f"{total:,}", rate, "", style="bold")
    return table


class PlainLines:
    """For a pipe or a log: a line per second, no colours."""

    def __init__(self) -> None:
        self._next_at = 0.0

    def watching(self) -> AbstractContextManager[object]:
        return nullcontext()

    def show(self, writers: list[Writer], seconds: float, *, last: bool = False) -> None:
        if seconds < self._next_at and not last:
            return
        self._next_at = seconds + 1
        counts = " ".join(f"{len(writer.indexes):>5}" for writer in writers)
        total = sum(len(writer.indexes) for writer in writers)
        self.say(f"{seconds:5.1f} s  acknowledged {total:>6}  by writer {counts}")

    def say(self, line: str, style: str = "") -> None:
        print(line, flush=True)

    def verifying(self) -> AbstractContextManager[Callable[[int, int], None]]:
        self.say("verifying the hash chain")
        return nullcontext(lambda done, total: None)

    def conclude(self, title: str, lines: list[tuple[str, str]], *, good: bool) -> None:
        self.say(title)
        for name, value in lines:
            self.say(f"  {name:<26} {value}")


# The story


def write_and_kill(writers: list[Writer], seconds: float, screen: Screen) -> None:
    """Let them write, kill one in the middle, then tell the others to stop."""
    ears = Ears(writers)
    started = time.monotonic()
    victim = random.choice(writers)

    def follow(until: float) -> None:
        while (now := time.monotonic() - started) < until:
            ears.listen(min(until - now, 1 / _REDRAWS_PER_SECOND))
            screen.show(writers, time.monotonic() - started)

    with screen.watching():
        follow(seconds / 2)
        victim.kill()
        screen.say(
            f"kill -9 {victim.process.pid}: writer {victim.number} is gone, the others go on",
            "bold red",
        )
        follow(seconds)
        _stop(writers, ears)
        screen.show(writers, time.monotonic() - started, last=True)


def _stop(writers: list[Writer], ears: Ears) -> None:
    """Closing stdin is the signal; whatever they still acknowledge counts."""
    for writer in writers:
        assert writer.process.stdin is not None
        writer.process.stdin.close()
    deadline = time.monotonic() + _LAST_WORDS_SECONDS
    while ears.listen(0.1) and time.monotonic() < deadline:
        pass
    for writer in writers:
        writer.process.wait(_LAST_WORDS_SECONDS)


@dataclass(frozen=True)
class Findings:
    """What the reopened file says about the acknowledgements."""

    acknowledged: int
    stored: int
    lost: int
    duplicates: int
    gaps: int
    problems: tuple[str, ...]

    @property
    def good(self) -> bool:
        at_least = self.stored >= self.acknowledged > 0
        return at_least and not (self.lost or self.duplicates or self.gaps or self.problems)


def examine(path: Path, log: str, writers: list[Writer], screen: Screen) -> Findings:
    """Open the file again and hold it against what was acknowledged."""
    with pagefile.open(path) as pf:
        entries = list(_all_entries(pf.store, log))
        with screen.verifying() as progress:
            verified = pf.store.verify(progress=progress)
        checked = pf.store.check()
    found = [(entry.value["writer"], entry.value["count"]) for entry in entries]
    at = {entry.index: what for entry, what in zip(entries, found, strict=True)}
    promised = {
        index: (writer.number, count)
        for writer in writers
        for count, index in enumerate(writer.indexes)
    }
    acknowledged = sum(len(writer.indexes) for writer in writers)
    problems = [problem.what for problem in (*verified.problems, *checked.problems)]
    problems += [f"writer {writer.number} {writer.state}" for writer in writers if writer.failed]
    return Findings(
        acknowledged,
        len(entries),
        # Two acknowledgements of one index would leave one of them without a place.
        lost=acknowledged - sum(at.get(index) == what for index, what in promised.items()),
        duplicates=len(found) - len(set(found)),
        gaps=_gaps(entries, found),
        problems=tuple(problems),
    )


def _all_entries(store: Store, log: str) -> Iterator[Entry]:
    start = 0
    while page := store.read(log, start, limit=_PAGE):
        yield from page
        start = page[-1].index + 1


def _gaps(entries: list[Entry], found: list[tuple[int, int]]) -> int:
    """Indexes that the log leaves out, and counts that a writer seems to have left out."""
    missing = entries[-1].index + 1 - len(entries) if entries else 0
    last = dict(sorted(found))
    written = Counter(writer for writer, _ in set(found))
    return missing + sum(last[writer] + 1 - written[writer] for writer in last)


def conclude(path: Path, findings: Findings, screen: Screen) -> None:
    """The numbers, and how to look at them without us."""
    unsaid = findings.stored - findings.acknowledged
    lines = [
        ("acknowledged", f"{findings.acknowledged:,}"),
        ("stored", f"{findings.stored:,}" + (_unsaid(unsaid) if unsaid > 0 else "")),
        ("lost", str(findings.lost)),
        ("duplicates", str(findings.duplicates)),
        ("gaps", str(findings.gaps)),
        ("verify and check", "clean" if not findings.problems else "; ".join(findings.problems)),
        ("", ""),
        ("the file", str(path)),
    ]
    title = "Nothing acknowledged was lost" if findings.good else "A promise was broken"
    screen.conclude(title, lines, good=findings.good)
    screen.say("Look into it, then remove the folder when you like:")
    screen.say(f"sqlite3 -readonly {shlex.quote(str(path))} 'SELECT * FROM entries LIMIT 5'")


def _unsaid(count: int) -> str:
    return f" ({count} stored just before the kill, which came before the acknowledgement)"


def run(path: Path, seconds: float) -> int:
    """The whole demonstration; the exit status."""
    console = Console()
    screen: Screen = Terminal(console) if console.is_terminal else PlainLines()
    # A log of its own: a kept file may hold earlier runs.
    log = f"crash-demo-{uuid.uuid4().hex[:8]}"
    try:
        with running(path, log) as writers:
            write_and_kill(writers, seconds, screen)
            findings = examine(path, log, writers, screen)
    except KeyboardInterrupt:
        screen.say(f"interrupted; the writers are ended, the file is {path}")
        return 130
    conclude(path, findings, screen)
    return 0 if findings.good else 1


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill a writer; lose nothing.")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="write to this file")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long to write")
    parser.add_argument("--writer", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.writer:
        number, path, log = asked.writer
        return write_until_told(int(number), Path(path), log)
    if not 2 <= asked.seconds <= 600:
        parser.error("--seconds: give 2 to 600")
    if asked.keep and not asked.keep.parent.is_dir():
        parser.error(f"--keep: there is no folder {asked.keep.parent}")
    path = asked.keep or Path(tempfile.mkdtemp(prefix="pagefile-demo-")) / "demo.db"
    return run(path, asked.seconds)


if __name__ == "__main__":
    raise SystemExit(main())
