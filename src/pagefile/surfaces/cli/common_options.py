"""The options that every command takes, before its name or behind it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Annotated, Any

import typer
import typer.main

from pagefile.surfaces.cli.call import Call

PANEL = "Everywhere"


def _noting(name: str) -> Callable[[typer.Context, Any], None]:
    def note(context: typer.Context, value: Any) -> None:
        # False and None are what was not given: the same option may stand before the command.
        if value is not None and value is not False and not context.resilient_parsing:
            Call.of(context).choose(name, value)

    return note


def _option(name: str, *flags: str, help: str, **more: Any) -> Any:
    return typer.Option(
        *flags,
        help=help,
        callback=_noting(name),
        expose_value=False,
        show_default=False,
        rich_help_panel=PANEL,
        **more,
    )


def _everywhere(
    url: Annotated[
        str | None, _option("url", "--url", help="The store: a path or a URL.", metavar="URL")
    ] = None,
    tenant: Annotated[
        str | None, _option("tenant", "--tenant", help="The tenant.", metavar="NAME")
    ] = None,
    user: Annotated[
        str | None, _option("user", "--user", "-u", help="Whose memories.", metavar="NAME")
    ] = None,
    json: Annotated[
        bool, _option("json", "--json", help="Print one JSON object, for programs.")
    ] = False,
    quiet: Annotated[
        bool, _option("quiet", "--quiet", "-q", help="Print the result and nothing beside it.")
    ] = False,
    debug: Annotated[
        bool, _option("debug", "--debug", help="Show where in the program an error came from.")
    ] = False,
) -> None:
    """Holds the options; it is never called."""


@cache
def _parameters() -> list[Any]:
    app = typer.Typer(add_completion=False)
    app.command()(_everywhere)
    return list(typer.main.get_command(app).params)


def _no_type(ctx: Any) -> None:
    """Nothing to say of a type."""


def _is_choice(parameter: Any) -> bool:
    return bool(getattr(getattr(parameter, "type_descriptor", None), "is_choice", False))


def _without_type(command: Any) -> None:
    """`--help` is a switch too, made when it is asked for."""
    make = command.get_help_option

    def made(ctx: Any) -> Any:
        option = make(ctx)
        if option is not None:
            option.metavar = ""
        return option

    command.get_help_option = made


def with_options(command: Any, *, markup: Any) -> Any:
    """The command, and those below it, with these options too."""
    command.params.extend(_parameters())
    for parameter in command.params:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""  # A switch takes no value, whatever its type is called.
        elif parameter.param_type_name == "argument" and not _is_choice(parameter):
            parameter.display_type_rich = _no_type  # Its name says what it is.
    _without_type(command)
    command.rich_markup_mode = markup
    for below in getattr(command, "commands", {}).values():
        with_options(below, markup=markup)
    return command
