"""`pagefile pack` and `restore`: runs as files, and runs from files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from pagefile.errors import Conflict, Invalid, NotFound, shown
from pagefile.settings import Settings
from pagefile.surfaces.cli.call import Answer, Call, plain
from pagefile.surfaces.cli.memory_view import count
from pagefile.surfaces.cli.parameters import DryRun
from pagefile.surfaces.cli.screen import Screen

if TYPE_CHECKING:
    from pagefile.handle import Pagefile


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


# `pagefile restore`: runs from resume packs, and from the folders of the earlier system.


_STATE = Path("state/working_set.v2.1.json")


def restore(
    context: typer.Context,
    pack: Annotated[
        Path | None,
        typer.Argument(
            metavar="PACK", help="A resume pack, or the id of a run below AOS_RUNS_ROOT."
        ),
    ] = None,
    new_id: Annotated[
        str | None, typer.Option("--id", help="The id of the run that is made.", metavar="ID")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every run below the root, each under its own id.")
    ] = False,
    root: Annotated[
        Path | None,
        typer.Option(
            "--root",
            help="A folder of runs of the earlier system; otherwise AOS_RUNS_ROOT.",
            metavar="FOLDER",
        ),
    ] = None,
    dry_run: DryRun = False,
) -> Answer:
    """Make a run of a resume pack; everything is checked before anything is stored."""
    call = Call.of(context)
    if everything:
        if pack is not None or new_id is not None:
            raise Invalid("all", "means every run, each under its own id", "leave the others out")
        return _restore_all(call, _require_root(root), dry_run=dry_run)
    if pack is None:
        raise Invalid("pack", "is missing", "name a resume pack, or give --all")
    place = _found(pack, root)
    if dry_run:
        from pagefile.runs.packs.reader import verify_pack

        told = plain(verify_pack(place))
        return Answer(told, lambda screen: screen.fields(told.items()))
    with call.open(create=True) as pf, call.screen.progress("restoring") as progress:
        run = pf.runs.restore_from_pack(place, new_run_id=new_id, progress=progress)
        seq = run.load()["_update_seq"]
    told = {"run_id": run.run_id, "seq": seq, "pack": str(place)}
    return Answer(told, lambda screen: screen.line(run.run_id))


def _found(pack: Path, root: Path | None) -> Path:
    """A path that is there counts first; then a run of that name below the root."""
    if pack.exists() or len(pack.parts) != 1 or pack.name == "..":
        return pack
    below = root if root is not None else Path(Settings.from_environment().runs_root or ".")
    return below / pack if (below / pack).is_dir() else pack


def _require_root(root: Path | None) -> Path:
    named = Settings.from_environment().runs_root
    if root is None and not named:
        raise Invalid("root", "is missing", "give --root FOLDER, or set AOS_RUNS_ROOT")
    found = Path(named) if root is None else root
    if not found.is_dir():
        raise NotFound(f"there is no folder {shown(str(found))}", "give the folder of the runs")
    return found


def _restore_all(call: Call, root: Path, *, dry_run: bool) -> Answer:
    from pagefile.runs.packs.reader import verify_pack

    folders = sorted(each for each in root.iterdir() if (each / _STATE).is_file())
    told: list[dict[str, Any]] = []
    if dry_run:
        told = [
            {"run_id": (report := verify_pack(each)).run_id, "status": "sound", "seq": report.seq}
            for each in folders
        ]
    else:
        with call.open(create=True) as pf, call.screen.progress("restoring") as progress:
            for number, each in enumerate(folders, 1):
                told.append(_restored(pf, each))
                if progress is not None:
                    progress(number, len(folders))

    def show(screen: Screen) -> None:
        rows = [(each["run_id"], each["status"]) for each in told]
        screen.table(("run", "status"), rows, none=f"no runs below {root}")
        made = sum(each["status"] == "restored" for each in told)
        screen.note(f"{count(made, 'run')} restored of {len(told):,}")

    return Answer(told, show)


def _restored(pf: Pagefile, folder: Path) -> dict[str, Any]:
    """One run; one that is here already is left, so that doing it again does nothing."""
    try:
        run = pf.runs.restore_from_pack(folder, new_run_id=folder.name)
    except Conflict:
        return {"run_id": folder.name, "status": "present", "seq": None}
    return {"run_id": run.run_id, "status": "restored", "seq": run.load()["_update_seq"]}
