"""`pagefile help`: every command and option, for people and for programs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from pagefile.errors import NotFound, shown
from pagefile.surfaces.cli import call as exit_codes
from pagefile.surfaces.cli.call import Answer, Call
from pagefile.surfaces.cli.registry import PANEL
from pagefile.surfaces.cli.screen import Screen


def help_(
    context: typer.Context,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="COMMAND", help="A command, or none for all.")
    ] = None,
) -> Answer:
    """Every command with its arguments and options; --json is for programs that call it."""
    import pagefile

    call = Call.of(context)
    found = described()
    if words:
        name = " ".join(words)
        found = [each for each in found if f"{each['name']} ".startswith(f"{name} ")]
        if not found:
            raise NotFound(f"there is no command {shown(name)}", "see 'pagefile help'")
    call.command = "help"
    told = {
        "program": "pagefile",
        "version": pagefile.__version__,
        "commands": found,
        "everywhere": everywhere(),
        "exit_statuses": statuses(),
    }

    def show(screen: Screen) -> None:
        if words:
            for each in found:
                _show_one(screen, each)
            screen.note("options everywhere: --url --tenant --user --json --quiet --debug")
            return
        rows = [(each["name"], _usage(each), each["about"]) for each in found]
        screen.table(("command", "takes", "does"), rows)
        screen.note("options everywhere: --url --tenant --user --json --quiet; see COMMAND --help")

    return Answer(told, show, count=len(found))


def _show_one(screen: Screen, command: dict[str, Any]) -> None:
    """One command with its arguments and options."""
    takes = _usage(command)
    screen.line(f"pagefile {command['name']}{f' {takes}' if takes else ''}", "bold")
    screen.line(f"  {command['about']}")
    parameters = [*command["arguments"], *command["options"]]
    screen.fields([(f"  {_flags(each)}", _about(each)) for each in parameters])


def _flags(parameter: dict[str, Any]) -> str:
    names = ", ".join(parameter["flags"]) or parameter["name"]
    return f"{names} {parameter['takes']}" if parameter["flags"] and parameter["takes"] else names


def _about(parameter: dict[str, Any]) -> str:
    default = parameter["default"]
    known = default is not None and not isinstance(default, bool) and parameter["flags"]
    return f"{parameter['about']} [{default}]" if known else str(parameter["about"])


def statuses() -> dict[str, int]:
    """The exit statuses, by reason."""
    return {
        "ok": exit_codes.FINE,
        "problems": exit_codes.PROBLEMS,
        "usage": exit_codes.USAGE,
        **exit_codes.EXIT_STATUS,
        "internal": exit_codes.INTERNAL,
        "interrupted": exit_codes.INTERRUPTED,
        "broken_pipe": exit_codes.BROKEN_PIPE,
    }


def described() -> list[dict[str, Any]]:
    """Every command that can be run, in order."""
    from pagefile.surfaces.cli.registry import HOOKS, loaded

    return [each for hook in HOOKS for each in _described(hook.name, loaded(hook.name))]


def everywhere() -> list[dict[str, Any]]:
    """The options that every command takes."""
    from pagefile.surfaces.cli.registry import HOOKS, loaded

    return [_parameter(p) for p in loaded(HOOKS[0].name).params if _is_everywhere(p)]


def _described(name: str, command: Any) -> list[dict[str, Any]]:
    below = getattr(command, "commands", {})
    own = [] if below and not command.invoke_without_command else [_one(name, command)]
    return own + [e for n, c in below.items() for e in _described(f"{name} {n}", c)]


def _one(name: str, command: Any) -> dict[str, Any]:
    own = [_parameter(p) for p in command.params if not _is_everywhere(p)]
    return {
        "name": name,
        "about": " ".join((command.help or "").split()),
        "arguments": [p for p in own if not p["flags"]],
        "options": [p for p in own if p["flags"]],
    }


def _is_everywhere(parameter: Any) -> bool:
    return getattr(parameter, "rich_help_panel", None) == PANEL


def _parameter(parameter: Any) -> dict[str, Any]:
    is_argument = parameter.param_type_name == "argument"
    default = parameter.default
    return {
        "name": parameter.metavar if is_argument else parameter.opts[0],
        "flags": [] if is_argument else [*parameter.opts, *parameter.secondary_opts],
        "takes": None if getattr(parameter, "is_flag", False) else parameter.metavar or "",
        "required": parameter.required,
        "repeats": parameter.multiple or parameter.nargs == -1,
        "default": default if isinstance(default, (int, float)) else str(default or "") or None,
        "about": parameter.help or "",
    }


def _usage(described: dict[str, Any]) -> str:
    return " ".join(
        each["name"] if each["required"] else f"[{each['name']}]" for each in described["arguments"]
    )
