"""Which commands there are. Each is a line here, and its module is loaded when it is called."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Annotated, Any

import msgspec
import typer
import typer.core
import typer.main

from pagefile.surfaces.cli.call import Call

# The options that every command takes, before its name or behind it.


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


_LEAST_BOXES = 80
_HERE = "pagefile.surfaces.cli.commands"


class Hook(msgspec.Struct, frozen=True):
    """One command: its name, where it is, and the line that `--help` shows.

    `at` is `module:name` of a function, or of a `typer.Typer` with commands below.
    """

    name: str
    at: str
    about: str
    panel: str


START, MEMORY, THREADS, KEEPING = "Start here", "Memory", "Threads and runs", "Keeping"
SERVING = "Serving"

HOOKS = (
    Hook("init", f"{_HERE}.config:init", "Make a store and a configuration file here.", START),
    Hook("demo", f"{_HERE}.demo:demo", "See it work: no key, no server, a few seconds.", START),
    Hook(
        "doctor", f"{_HERE}.doctor:doctor", "Say what is there, what is wrong, what to do.", START
    ),
    Hook(
        "config", f"{_HERE}.config:config", "The settings in force, and where each is from.", START
    ),
    Hook("add", f"{_HERE}.memories:add", "Remember something.", MEMORY),
    Hook("search", f"{_HERE}.memories:search", "Find what answers a question.", MEMORY),
    Hook("prompt", f"{_HERE}.threads:prompt", "See what a model would be sent, and why.", MEMORY),
    Hook(
        "list", f"{_HERE}.memories:list_", "List episodes, facts, blocks, users and more.", MEMORY
    ),
    Hook("get", f"{_HERE}.memories:get", "Show one memory and where it comes from.", MEMORY),
    Hook("update", f"{_HERE}.memories:update", "Change a memory; the past stays.", MEMORY),
    Hook("forget", f"{_HERE}.privacy:forget", "Erase memories, to the last byte.", MEMORY),
    Hook("consolidate", f"{_HERE}.maintenance:consolidate", "Read facts out of episodes.", MEMORY),
    Hook(
        "review", f"{_HERE}.memories:review", "Let in what was proposed, or turn it away.", MEMORY
    ),
    Hook("threads", f"{_HERE}.threads:app", "Threads of messages.", THREADS),
    Hook(
        "tail",
        f"{_HERE}.threads:tail",
        "The last messages of a thread, and those to come.",
        THREADS,
    ),
    Hook("runs", f"{_HERE}.runs:app", "Runs: the tasks of agents.", THREADS),
    Hook("ledger", f"{_HERE}.runs:ledger", "Everything that happened to a run.", THREADS),
    Hook("pack", f"{_HERE}.packs:app", "Resume packs: a whole run in one file.", THREADS),
    Hook("restore", f"{_HERE}.packs:restore", "Make a run of a resume pack.", THREADS),
    Hook("organism", f"{_HERE}.organism:app", "Organisms: check a file, watch them work.", SERVING),
    Hook("serve", f"{_HERE}.serve:serve", "Serve over HTTP.", SERVING),
    Hook("keys", f"{_HERE}.serve:app", "Keys of the server.", SERVING),
    Hook("mcp", f"{_HERE}.mcp:mcp", "Serve the store to MCP clients.", SERVING),
    Hook("verify", f"{_HERE}.maintenance:verify", "Walk the hash chain.", KEEPING),
    Hook("check", f"{_HERE}.maintenance:check", "Examine the engine's structures.", KEEPING),
    Hook("reindex", f"{_HERE}.maintenance:reindex", "Make the search index anew.", KEEPING),
    Hook("export", f"{_HERE}.privacy:export", "Write all that is kept of a user.", KEEPING),
    Hook("import", f"{_HERE}.privacy:import_", "Take in what export wrote.", KEEPING),
    Hook("copy", f"{_HERE}.maintenance:copy", "Copy a tenant into another store.", KEEPING),
    Hook(
        "migrate", f"{_HERE}.maintenance:migrate", "Bring a store to the current format.", KEEPING
    ),
    Hook("bench", f"{_HERE}.bench:bench", "Measure this machine.", KEEPING),
    Hook("help", f"{_HERE}.help:help_", "Every command and option, also as JSON.", KEEPING),
)


#: What other programs of this kind call the same; not listed, and told by its own name.
ALIASES = {
    "remember": "add",
    "recall": "search",
    "delete": "forget",
    "status": "doctor",
    "why": "get",
}


class Commands(typer.core.TyperGroup):
    """Loads a command's module when it is called, not to list its name."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [hook.name for hook in HOOKS]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """What is shown of a command; `resolve_command` has the command itself."""
        for hook in HOOKS:
            if hook.name == cmd_name:
                shown = typer.core.TyperCommand(
                    hook.name, help=hook.about, rich_help_panel=hook.panel
                )
                self.commands.setdefault(hook.name, shown)
                return shown
        return None

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        for hook in HOOKS:  # So that a mistyped name is met with the nearest one.
            self.get_command(ctx, hook.name)
        if args and args[0] in ALIASES:
            args = [ALIASES[args[0]], *args[1:]]
        name, command, rest = super().resolve_command(ctx, args)
        return name, command if command is None else loaded(name or ""), rest


def loaded(name: str) -> Any:
    """The command of that name, with the options that every command takes."""
    return _built(name, markup_mode())


@cache
def _built(name: str, markup: Any) -> Any:
    hook = next(hook for hook in HOOKS if hook.name == name)
    module, _, attribute = hook.at.partition(":")
    found = getattr(import_module(module), attribute)
    if isinstance(found, typer.Typer):
        command: Any = typer.main.get_group(found)
    else:
        app = typer.Typer(add_completion=False)
        app.command(name)(found)
        command = typer.main.get_command(app)
    command.name = name
    return with_options(command, markup=markup)


def markup_mode() -> Any:
    """Help in colours and boxes for a terminal; loading what draws them takes a while.

    Boxes that are too narrow would cut the names of options.
    """
    is_wide = shutil.get_terminal_size().columns >= _LEAST_BOXES
    return "rich" if sys.stdout.isatty() and is_wide else None
