"""`pagefile organism check` and `pagefile organism top`: organisms, before and while they run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from pagefile.errors import NotFound, shown
from pagefile.surfaces.cli import call as exit_codes
from pagefile.surfaces.cli.call import Answer, Call
from pagefile.surfaces.cli.memory_view import count, short
from pagefile.surfaces.cli.screen import Screen, needed, stacked, visible

if TYPE_CHECKING:
    from rich.console import RenderableType

    from pagefile.dispatch import Overview, Problem, WorkerView
    from pagefile.handle import Pagefile


# Organisms at one moment, as numbers: what `pagefile organism top` shows.


_SECOND = 1_000_000
#: Of conversations and dead letters no more than so many are counted.
MOST_COUNTED = 1_000
_MOST_LETTERS = 5


class ProcessRow(msgspec.Struct, frozen=True):
    """One process. `per_second` is None until two of its heartbeats were seen."""

    worker: str
    pid: int
    alive: bool
    seen_seconds_ago: float
    hops: int
    per_second: float | None
    conversations: int
    waiting: int
    running: int
    errors: int
    dead: int


class ListenerRow(msgspec.Struct, frozen=True):
    """One listener in all processes. `p50` and `p95` are those of the slowest process."""

    listener: str
    runs: int
    per_second: float | None
    waiting: int
    running: int
    mean_seconds: float
    p50_seconds: float
    p95_seconds: float
    max_seconds: float
    errors: int
    timeouts: int


class LetterRow(msgspec.Struct, frozen=True):
    """One dead letter."""

    message_id: str
    listener: str
    code: str
    error: str
    attempts: int


class OrganismFrame(msgspec.Struct, frozen=True):
    """One organism. Of conversations and dead letters at most 1,000 are counted."""

    organism: str
    processes: tuple[ProcessRow, ...]
    listeners: tuple[ListenerRow, ...]
    conversations: int
    unowned: int
    dead_letters: int
    newest_dead_letters: tuple[LetterRow, ...]


class Frames:
    """Makes frames out of overviews; the rates are those between two heartbeats."""

    def __init__(self) -> None:
        #: The last two different heartbeats of each process.
        self._seen: dict[str, tuple[WorkerView, WorkerView | None]] = {}

    def frame(self, overview: Overview, now_us: int) -> OrganismFrame:
        """How it is with an organism."""
        for view in overview.workers:
            last, _ = self._seen.get(view.worker, (None, None))
            if last is None or last.seen_us != view.seen_us:
                self._seen[view.worker] = view, last
        letters = overview.dead_letters
        return OrganismFrame(
            overview.organism,
            tuple(self._process(view, now_us) for view in overview.workers),
            tuple(self._listener(name, overview.workers) for name in _names(overview.workers)),
            len(overview.conversations),
            sum(1 for each in overview.conversations if not each.owner),
            len(letters),
            tuple(
                LetterRow(one.message_id, one.listener, one.code, one.error, one.attempts)
                for one in letters[-_MOST_LETTERS:][::-1]
            ),
        )

    def _process(self, view: WorkerView, now_us: int) -> ProcessRow:
        stats = view.stats
        ago = max(0.0, (now_us - view.seen_us) / _SECOND)
        return ProcessRow(
            view.worker,
            view.pid,
            ago <= view.lease_seconds,
            ago,
            int(stats.get("hops", 0)),
            self._rate(view, lambda stats: stats.get("hops", 0)),
            int(stats.get("conversations", 0)),
            int(stats.get("waiting", 0)),
            int(stats.get("running", 0)),
            int(stats.get("errors", 0)),
            int(stats.get("dead", 0)),
        )

    def _listener(self, name: str, workers: tuple[WorkerView, ...]) -> ListenerRow:
        latencies = [view.stats.get("listeners", {}).get(name, {}) for view in workers]
        queues = [view.stats.get("queues", {}).get(name, {}) for view in workers]
        rates = [
            self._rate(view, lambda stats: stats.get("listeners", {}).get(name, {}).get("count", 0))
            for view in workers
        ]
        known = [rate for rate in rates if rate is not None]
        runs = sum(int(each.get("count", 0)) for each in latencies)
        seconds = sum(each.get("mean", 0.0) * each.get("count", 0) for each in latencies)
        return ListenerRow(
            name,
            runs,
            sum(known) if known else None,
            sum(int(each.get("waiting", 0)) for each in queues),
            sum(int(each.get("running", 0)) for each in queues),
            seconds / runs if runs else 0.0,
            max((float(each.get("p50", 0.0)) for each in latencies), default=0.0),
            max((float(each.get("p95", 0.0)) for each in latencies), default=0.0),
            max((float(each.get("max", 0.0)) for each in latencies), default=0.0),
            sum(int(each.get("errors", 0)) for each in latencies),
            sum(int(each.get("timeouts", 0)) for each in latencies),
        )

    def _rate(self, view: WorkerView, count: Any) -> float | None:
        last, before = self._seen[view.worker]
        if before is None or last.seen_us <= before.seen_us:
            return None
        made = int(count(last.stats)) - int(count(before.stats))
        return max(0.0, made * _SECOND / (last.seen_us - before.seen_us))


def _names(workers: tuple[WorkerView, ...]) -> list[str]:
    found: set[str] = set()
    for view in workers:
        found |= set(view.stats.get("listeners", {})) | set(view.stats.get("queues", {}))
    return sorted(found)


# How people see organisms: tables on a terminal, plain lines elsewhere.


_LISTENERS = (
    *("listener", "runs", "per s", "queue", "busy"),
    *("mean", "p95", "max", "errors", "timeouts"),
)
_PROCESSES = (
    *("process", "pid", "seen", "hops", "per s"),
    *("talks", "queue", "busy", "errors", "dead"),
)
_LETTERS = ("dead letter", "listener", "code", "tries", "error")
#: Columns that are words; all others are numbers.
_WORDS = {"listener", "process", "dead letter", "code", "error"}
#: What stands between two columns here.
_BETWEEN = 2
_BAD = {"errors", "timeouts", "dead"}


def lines(screen: Screen, frames: Sequence[OrganismFrame]) -> None:
    """Frames as plain lines: no person looks, or only once."""
    for frame in frames:
        screen.line(headline(frame))
        for headings, rows in _tables(frame):
            screen.line("\t".join(headings))
            for row in rows:
                screen.line("\t".join(row))
    if not frames:
        screen.note("no organism runs here")


def drawn(frames: Sequence[OrganismFrame], at: str, width: int) -> RenderableType:
    """Frames as one picture for a terminal."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    for frame in frames:
        parts.append(Text(visible(headline(frame)), "bold"))
        for headings, rows in _tables(frame):
            if rows and needed(headings, rows, _BETWEEN) <= width:
                parts += [Text(), _table(headings, rows)]
            elif rows:
                clean = [[visible(cell) for cell in row] for row in rows]
                parts += [Text(), *stacked(headings, clean, width)]
        parts.append(Text())
    if not frames:
        parts.append(Text("no organism runs here", "dim"))
    if at:
        parts.append(Text(f"{at}   Ctrl-C ends", "dim"))
    return Group(*parts)


def headline(frame: OrganismFrame) -> str:
    """An organism in one line."""
    alive = sum(1 for row in frame.processes if row.alive)
    silent = len(frame.processes) - alive
    rates = [row.per_second for row in frame.processes if row.per_second is not None]
    words = [
        frame.organism,
        _processes(alive, silent),
        f"{sum(rates):,.1f} hops/s" if rates else "",
        _counted(frame.conversations, "open conversation"),
        f"{frame.unowned:,} without a process" if frame.unowned else "",
        _counted(frame.dead_letters, "dead letter"),
    ]
    return " · ".join(word for word in words if word)


def _processes(alive: int, silent: int) -> str:
    said = "1 process" if alive == 1 else f"{alive:,} processes"
    return f"{said}, {silent:,} silent" if silent else said


def _counted(number: int, noun: str) -> str:
    said = count(number, noun)
    return said.replace(" ", "+ ", 1) if number >= MOST_COUNTED else said


def _tables(frame: OrganismFrame) -> list[tuple[Sequence[str], list[list[str]]]]:
    return [
        (_LISTENERS, [_listener(row) for row in frame.listeners]),
        (_PROCESSES, [_process(row) for row in frame.processes]),
        (_LETTERS, [_letter(row) for row in frame.newest_dead_letters]),
    ]


def _listener(row: ListenerRow) -> list[str]:
    spans = (row.mean_seconds, row.p95_seconds, row.max_seconds)
    numbers = (row.errors, row.timeouts)
    return [
        row.listener,
        f"{row.runs:,}",
        _rate(row.per_second),
        f"{row.waiting:,}",
        f"{row.running:,}",
        *(span(each) if row.runs else "-" for each in spans),
        *(f"{each:,}" for each in numbers),
    ]


def _process(row: ProcessRow) -> list[str]:
    numbers = (row.conversations, row.waiting, row.running, row.errors, row.dead)
    seen = f"{row.seen_seconds_ago:.0f} s ago"
    return [
        row.worker,
        str(row.pid),
        seen if row.alive else f"{seen}, silent",
        f"{row.hops:,}",
        _rate(row.per_second),
        *(f"{each:,}" for each in numbers),
    ]


def _letter(row: LetterRow) -> list[str]:
    return [row.message_id, row.listener, row.code, str(row.attempts), short(row.error)]


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.1f}"


def span(seconds: float) -> str:
    """A length of time in the unit that suits it."""
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds / 60:.0f} min"


def _table(headings: Sequence[str], rows: list[list[str]]) -> Any:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold", padding=(0, 1, 0, 0))
    table.show_edge = False
    # What a dead letter says has the room that is left; ids stay whole, to be copied.
    table.expand = "error" in headings
    for heading in headings:
        words = heading in _WORDS
        table.add_column(
            heading,
            justify="left" if words else "right",
            no_wrap=True,
            ratio=1 if heading == "error" else None,
            overflow="ellipsis",
        )
    for row in rows:
        cells = zip(headings, row, strict=True)
        table.add_row(*(Text(visible(cell), _style(name, cell)) for name, cell in cells))
    return table


def _style(heading: str, cell: str) -> str:
    if heading in _BAD and cell != "0":
        return "red"
    if cell.endswith("silent"):
        return "yellow"
    return ""


app = typer.Typer(help="Organisms: check a file, watch them work.", no_args_is_help=True)


@app.callback()
def organism() -> None:
    """Organisms: check a file, watch them work."""


@app.command("check")
def check(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="An organism.yaml.")],
) -> Answer:
    """Say everything that is wrong in a file, with line and key; its handlers are imported."""
    import os
    import sys

    from pagefile.dispatch.organism_file import check as check_file
    from pagefile.dispatch.organism_file import load

    Call.of(context)
    # Handlers are found as `python -m` finds modules: from where one stands.
    here = os.getcwd()
    if here not in sys.path:
        sys.path.insert(0, here)
    problems = check_file(file)
    if problems:
        return _wrong(file, problems)
    found = load(file)
    told: dict[str, Any] = {
        "file": file,
        "problems": [],
        "organism": found.name,
        "listeners": [listener.name for listener in found.listeners],
    }
    words = f"{file}: {found.name}, {count(len(found.listeners), 'listener')}, nothing wrong"
    return Answer(told, lambda screen: screen.done(words), count=0)


def _wrong(file: str, problems: list[Problem]) -> Answer:
    def show(screen: Screen) -> None:
        for problem in problems:
            screen.line(f"{file}:{problem.line}: {_said(problem)}", "red")
        screen.error("invalid", count(len(problems), "problem"), "mend the file")

    told = {"file": file, "problems": problems, "organism": None, "listeners": []}
    return Answer(told, show, count=len(problems), status=exit_codes.PROBLEMS)


def _said(problem: Problem) -> str:
    # The line stands before it already.
    what = problem.what.removeprefix(f"line {problem.line}: ")
    return f"{problem.key}: {what}" if problem.key else what


@app.command("top")
def top(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="One organism; all of the store, when left out."),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print one frame, and end.")] = False,
    interval: Annotated[
        float,
        typer.Option(
            "--interval", help="Look again after so long.", min=0.1, max=3600, metavar="SECONDS"
        ),
    ] = 2.0,
    most: Annotated[
        int | None, typer.Option("--most", help="End after so many frames.", min=1, metavar="N")
    ] = None,
) -> Answer | None:
    """Watch organisms work, whichever processes do it: read from the store they share."""

    call = Call.of(context)
    frames = Frames()
    with call.open() as pf:
        if not once and not call.json and call.screen.is_terminal:
            _live(pf, name, frames, interval, most)
            return None
        found = _frames(pf, name, frames)

    def show(screen: Screen) -> None:
        if not screen.is_terminal:
            lines(screen, found)
            return
        from rich.console import Console

        console = Console(highlight=False, markup=False, emoji=False)
        console.print(drawn(found, "", console.width))

    return Answer(found, show)


def _frames(pf: Pagefile, name: str | None, frames: Frames) -> list[OrganismFrame]:
    from pagefile.dispatch.organism import organisms_of, overview_of

    now_us = time.time_ns() // 1_000
    names = organisms_of(pf.store)
    if name is not None:
        if name not in names:
            raise NotFound(
                f"no process works on an organism {shown(name)} here",
                "see 'pagefile organism top'; check --url and --tenant",
            )
        names = [name]
    return [frames.frame(overview_of(pf.store, each, MOST_COUNTED), now_us) for each in names]


def _live(
    pf: Pagefile, name: str | None, frames: Frames, interval: float, most: int | None
) -> None:
    from rich.console import Console
    from rich.live import Live

    console = Console(highlight=False, markup=False, emoji=False)
    with Live(console=console, auto_refresh=False, screen=most is None) as live:
        shown = 0
        while True:
            at = time.strftime("%H:%M:%S")
            live.update(drawn(_frames(pf, name, frames), at, console.width), refresh=True)
            shown += 1
            if shown == most:
                return
            time.sleep(interval)
