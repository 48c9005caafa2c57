"""`pagefile init` and `pagefile config`: where the store is, and what else is set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from pagefile.errors import Conflict, Invalid, shown
from pagefile.settings import SECRETS, Settings, config_file
from pagefile.surfaces.cli.call import Answer, Call, file_of, masked
from pagefile.surfaces.cli.parameters import EmbedderName
from pagefile.surfaces.cli.screen import Screen

_HEADER = "# Settings of Pagefile for this folder; the environment and options come first.\n"
_NEXT = (
    'pagefile add "I live in Lisbon." --user ann --consolidate',
    'pagefile search "Where does Ann live?" --user ann',
    "pagefile doctor",
)


def init(
    context: typer.Context,
    embedder: Annotated[
        EmbedderName | None,
        typer.Option("--embedder", help="What makes the vectors; the best that is installed."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace a configuration file that is there.")
    ] = False,
) -> Answer:
    """Make a store here, and a pagefile.toml that names it, its tenant and its user."""
    call = Call.of(context)
    file = config_file()
    chosen = {
        "url": _beside(file, call.url),
        "tenant": call.tenant,
        "user": call.user,
        "embedder": embedder,
    }
    text = _HEADER + "".join(
        f"{name} = {_toml(name, value)}\n" for name, value in chosen.items() if value
    )
    # Who asks for nothing in particular is content with what is there.
    is_there = file.exists() and not force
    again = is_there and embedder is None and not call.given
    if is_there and not again and file.read_text(encoding="utf-8") != text:
        raise Conflict(
            f"there is a file {shown(str(file))}",
            "edit it, or replace it with --force",
            target=str(file),
            expected=0,
            current=1,
        )
    if masked(call.url) != call.url:
        raise Invalid(
            "url", "holds a password, which belongs in no file", "set PAGEFILE_URL instead"
        )
    with call.open(create=True) as pf:
        stats = pf.stats()
    if not again:
        file.write_text(text, encoding="utf-8")
    place = file_of(call.url)
    where = call.url if place is None else str(place.absolute())
    told = {"config": str(file.absolute()), "store": where, "engine": stats.engine}

    def show(screen: Screen) -> None:
        screen.done("ready, as it was: nothing was changed" if again else "ready")
        screen.fields(
            [
                ("store", f"{where} ({stats.engine}, survives {_level(stats.durability)})"),
                ("settings", str(file.absolute())),
            ]
        )
        screen.note("next:")
        for line in _NEXT:
            screen.note(f"  {line}")

    return Answer(told, show)


def _beside(file: Path, url: str) -> str:
    """The URL as the file names it: a path counts from the folder that the file is in."""
    place = file_of(url)
    is_plain = place is not None and "://" not in url and not url.startswith("~")
    return str(Path(url).absolute()) if is_plain and file.parent != Path() else url


def _level(durability: str) -> str:
    levels = {"power": "a power cut", "process": "a crash, not a power cut", "none": "nothing"}
    return levels[durability]


def _toml(name: str, value: str) -> str:
    if not value.isprintable():
        raise Invalid(name, f"{shown(value)} cannot be written down", "use printable characters")
    return json.dumps(value, ensure_ascii=False)


def config(context: typer.Context) -> Answer:
    """Every setting, its value, and where it comes from; keys are not shown."""
    call = Call.of(context)
    settings = Settings.from_environment()
    rows = [_row(settings, field) for field in _FIELDS]
    for part, inner in (("server", settings.server), ("jwt", settings.jwt)):
        rows += [(f"{part}.{name}", inner[name], _origin(settings, part, name)) for name in inner]
    told: list[dict[str, Any]] = []
    for name, value, origin in rows:
        given = call.given.get(name)
        if given is not None:
            value, origin = masked(given), f"--{name}"
        told.append({"name": name, "value": value, "from": origin})

    def show(screen: Screen) -> None:
        screen.table(
            ("setting", "value", "from"),
            [(each["name"], each["value"], each["from"]) for each in told],
        )
        file = config_file()
        screen.note(f"configuration file: {file}{'' if file.exists() else ' (not there)'}")

    return Answer(told, show)


_OTHERS = ("origins", "rivals", "server", "jwt")
_FIELDS = tuple(field for field in Settings.__struct_fields__ if field not in _OTHERS)


def _origin(settings: Settings, part: str, name: str) -> str:
    return settings.origins[f"{part}.{name}"]


def _row(settings: Settings, field: str) -> tuple[str, Any, str]:
    value = getattr(settings, field)
    origin = settings.origins.get(field, "default")
    if field == "url" and settings.rivals:
        return field, None, f"{' and '.join(settings.rivals)}: which one? set PAGEFILE_URL"
    if field in SECRETS:
        return field, "set, not shown" if value else "", origin
    return field, masked(value) if isinstance(value, str) else value, origin
