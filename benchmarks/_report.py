"""The result for people (a table) and for machines (JSON)."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence

import apsw
from rich.console import Console
from rich.table import Table

from _row import Row

_COLOURS = {"met": "green", "missed": "red", "noted": "dim", "peer": "dim"}


def print_table(
    rows: Sequence[Row], load_before: float, title: str, notes: Sequence[str] = ()
) -> None:
    """One section per case. Levels have a column when any row states one."""
    levels = any(row.level for row in rows)
    table = Table(title=title, caption=_machine_line(load_before))
    table.add_column("case", no_wrap=True)
    table.add_column("subject")
    if levels:
        table.add_column("survives", no_wrap=True)
    for heading in ("per second", "wall µs", "CPU µs"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("figure (quartiles)")
    table.add_column("target", no_wrap=True)
    table.add_column("this run", no_wrap=True)
    previous = ""
    for row in rows:
        if row.case != previous and previous:
            table.add_section()
        name = row.case if row.case != previous else ""
        table.add_row(name, row.subject, *([row.level] if levels else []), *_figures(row))
        previous = row.case
    console = Console()
    if not console.is_terminal:
        # In a file or a pipe there is no edge to wrap at.
        console = Console(width=150)
    console.print(table)
    for note in notes:
        # As it is: a command is copied whole, and its brackets are no markup.
        console.print(note, markup=False, highlight=False, soft_wrap=True)


def print_json(rows: Sequence[Row], load_before: float, notes: Sequence[str] = ()) -> None:
    """Everything the table shows, unrounded."""
    found = {"machine": _machine(load_before), "rows": [r.to_json() for r in rows]}
    print(json.dumps(found | {"notes": list(notes)}))


def _figures(row: Row) -> tuple[str, ...]:
    colour = _COLOURS[row.verdict]
    figure = row.figure
    return (
        _number(row.timing.per_second),
        _number(row.timing.wall_us),
        _number(row.timing.cpu_us),
        ""
        if figure is None
        else f"{_number(figure.middle)} {row.meaning}"
        f" ({_number(figure.low)} … {_number(figure.high)})",
        "" if row.target is None else str(row.target),
        f"[{colour}]{row.verdict}[/{colour}]",
    )


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _machine(load_before: float) -> dict[str, str | int | float | None]:
    return {
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "system": platform.platform(),
        "cpus": os.cpu_count(),
        "load_before": load_before,
        "load_after": os.getloadavg()[0],
    }


def _machine_line(load_before: float) -> str:
    facts = _machine(load_before)
    return (
        f"Python {facts['python']}, SQLite {facts['sqlite']}, {facts['cpus']} CPUs, "
        f"load {load_before:.1f} before and {facts['load_after']:.1f} after"
    )
