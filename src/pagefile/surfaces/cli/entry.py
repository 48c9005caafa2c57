"""One run of the program: parse, call, print, and the exit status that says how it ended."""

from __future__ import annotations

import io
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Annotated, Any

import typer
import typer.main

from pagefile.errors import Forbidden, NotFound, PagefileError, Unavailable, as_fields, shown
from pagefile.surfaces.cli import call as exit_codes
from pagefile.surfaces.cli.call import Answer, Call, envelope
from pagefile.surfaces.cli.registry import Commands, markup_mode, with_options


def _version(asked: bool) -> None:
    if asked:
        import pagefile

        print(f"pagefile {pagefile.__version__}")
        raise typer.Exit


def _program(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Virtual memory for AI agents: one crash-safe store for context, state and memory."""


@cache
def program(markup: Any) -> Any:
    """The whole command line."""
    app = typer.Typer(
        cls=Commands,
        no_args_is_help=True,
        context_settings={"help_option_names": ["--help", "-h"]},
        rich_markup_mode=markup,
    )
    app.callback()(_program)
    return with_options(typer.main.get_command(app), markup=markup)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status. Nothing it meets ends in a traceback."""
    call = Call()
    given = list(sys.argv[1:] if arguments is None else arguments)
    _prepare_output()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = lambda message, *_, **__: call.screen.warn(_noted(message))
            status = _called(call, given)
        sys.stdout.flush()
    except BrokenPipeError:
        _let_go_of_output()
        return exit_codes.BROKEN_PIPE
    except SystemExit as end:
        # The parser's own answer to a broken pipe, and to a shell that asks for completions.
        if isinstance(end.__context__, BrokenPipeError):
            _let_go_of_output()
            return exit_codes.BROKEN_PIPE
        raise
    except KeyboardInterrupt:
        return exit_codes.INTERRUPTED
    except OSError as error:  # Only what could not be written is left to fail here.
        _let_go_of_output()
        call.screen.error("unavailable", f"standard output: {error.strerror}", "make room")
        return exit_codes.status_of("unavailable")
    return status


def _prepare_output() -> None:
    """Whatever the streams are, printing must not fail for a character they lack."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  Until the end.
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _noted(message: Warning | str) -> str:
    if type(message).__name__ == "IsolationWarning":
        return "note: no --user was given: these are nobody's memories, named users have their own"
    return f"note: {message}"


def _called(call: Call, given: list[str]) -> int:
    try:
        answer = program(markup_mode()).main(given, "pagefile", standalone_mode=False, obj=call)
    except PagefileError as error:
        return _refused(call, given, as_fields(error), exit_codes.status_of(error.code))
    except typer.TyperException as error:
        if type(error).__name__ == "NoArgsIsHelpError" and not call.json:
            print(error.format_message())
            return exit_codes.USAGE
        return _refused(call, given, _misused(error), exit_codes.USAGE)
    except typer.Abort:
        call.screen.note("not done: it was not confirmed")
        return exit_codes.PROBLEMS
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except OSError as error:
        return _refused_by_system(call, given, error)
    except Exception as error:
        if call.debug:
            raise
        told = {
            "code": "internal",
            "fact": f"{type(error).__name__}: {error}",
            "next_step": "this is a fault of the program: run it again with --debug, and report it",
        }
        return _refused(call, given, told, exit_codes.INTERNAL)
    if not isinstance(answer, Answer):
        # Help, the version and completion print by themselves, and end with a status.
        return answer if isinstance(answer, int) else exit_codes.FINE
    return _answered(call, given, answer)


def _answered(call: Call, given: list[str], answer: Answer) -> int:
    if not call.json:
        answer.show(call.screen)
        return answer.status
    print(
        envelope(
            _command(call, given),
            call.seconds,
            call.scope(),
            data=answer.data,
            count=answer.counted,
            status="ok" if answer.status == exit_codes.FINE else "problems",
        )
    )
    return answer.status


def _refused(call: Call, given: list[str], error: dict[str, Any], status: int) -> int:
    call.screen.error(error["code"], error["fact"], error["next_step"])
    # Also when what failed is the parsing of the very option.
    if call.json or "--json" in given:
        command = _command(call, given)
        print(envelope(command, call.seconds, call.scope(), status="error", error=error))
    return status


def _refused_by_system(call: Call, given: list[str], error: OSError) -> int:
    fact = f"{error.filename or 'the system'}: {error.strerror or error}"
    kinds: dict[type[OSError], tuple[type[PagefileError], str]] = {
        FileNotFoundError: (NotFound, "check the path"),
        PermissionError: (Forbidden, "check the permissions"),
        IsADirectoryError: (NotFound, "name a file, not a folder"),
    }
    kind, step = kinds.get(type(error), (Unavailable, "look at the path and the disk, then retry"))
    return _refused(call, given, as_fields(kind(fact, step)), exit_codes.status_of(kind.code))


def _misused(error: typer.TyperException) -> dict[str, Any]:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "pagefile"
    fact = " ".join(_plainly(error).split())
    if type(error).__name__ == "NoArgsIsHelpError":  # Its message is the whole help.
        fact = "a command is missing"
    return {"code": "usage", "fact": fact, "next_step": f"see '{path} --help'"}


def _plainly(error: typer.TyperException) -> str:
    """What is wrong in people's words, where those of the validator behind it would show."""
    fact = error.format_message()
    told = getattr(error.__cause__, "errors", None)
    if not callable(told) or not (found := told()):
        return fact
    first = found[0]
    bounds = first.get("ctx", {})
    given = shown(first.get("input"))
    words = {
        "int_parsing": f"{given} is no whole number",
        "int_parsing_size": f"{given} is too large",
        "int_from_float": f"{given} is no whole number",
        "float_parsing": f"{given} is no number",
        "bool_parsing": f"{given} is neither yes nor no",
        "greater_than_equal": f"{given} is less than {bounds.get('ge')}",
        "less_than_equal": f"{given} is more than {bounds.get('le')}",
    }.get(first["type"], first["msg"].removeprefix("Value error, "))
    return fact.replace(first["msg"], words)


def _command(call: Call, given: list[str]) -> str:
    """The words that name the command, as far as they are known."""
    return call.command or next((word for word in given if not word.startswith("-")), "")


def _let_go_of_output() -> None:
    """Nobody reads on: what is left in the buffer must not be tried again at the end."""
    with suppress(OSError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
