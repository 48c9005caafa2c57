"""`pagefile organism check` and `pagefile organism top`: organisms, before and while they run."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pagefile.errors import NotFound, shown
from pagefile.surfaces.cli import exit_codes
from pagefile.surfaces.cli.answer import Answer
from pagefile.surfaces.cli.call import Call
from pagefile.surfaces.cli.memory_view import count
from pagefile.surfaces.cli.screen import Screen

if TYPE_CHECKING:
    from pagefile.dispatch import Problem
    from pagefile.handle import Pagefile
    from pagefile.surfaces.cli.organism_frame import Frames, OrganismFrame

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
    from pagefile.surfaces.cli.organism_frame import Frames
    from pagefile.surfaces.cli.organism_view import drawn, lines

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
    from pagefile.surfaces.cli.organism_frame import MOST_COUNTED

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

    from pagefile.surfaces.cli.organism_view import drawn

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
