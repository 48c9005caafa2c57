"""`pagefile pack`: resume packs, each a whole run in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer

from pagefile.surfaces.cli.answer import Answer
from pagefile.surfaces.cli.call import Call

app = typer.Typer(help="Resume packs: a whole run in one file.", no_args_is_help=True)


@app.callback()
def pack() -> None:
    """Resume packs: a whole run in one file."""


@app.command("verify")
def verify(
    context: typer.Context,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A resume pack, or an older format of one.")
    ],
) -> Answer:
    """Read all of a pack and check it; store nothing."""
    from pagefile.runs.packs.reader import verify_pack

    call = Call.of(context)
    with call.screen.progress("reading") as progress:
        report = verify_pack(file, progress=progress)
    told = msgspec.to_builtins(report)
    return Answer(told, lambda screen: screen.fields(told.items()))


@app.command("create")
def create(
    context: typer.Context,
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's id.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the pack goes.")] = Path(
        "."
    ),
) -> Answer:
    """Write a run, as it is now, into one file."""
    call = Call.of(context)
    with call.open() as pf, call.screen.progress("packing") as progress:
        made = pf.runs.open(run).create_resume_pack(folder, progress=progress, writer_id="cli")
        size = made.stat().st_size
    told = {"run_id": run, "path": str(made), "size_bytes": size}
    return Answer(told, lambda screen: screen.line(str(made)))
