"""How people see organisms: tables on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pagefile.surfaces.cli.memory_view import count, short
from pagefile.surfaces.cli.organism_frame import (
    MOST_COUNTED,
    LetterRow,
    ListenerRow,
    OrganismFrame,
    ProcessRow,
)
from pagefile.surfaces.cli.screen import Screen, visible
from pagefile.surfaces.cli.stacked_rows import needed, stacked

if TYPE_CHECKING:
    from rich.console import RenderableType

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
