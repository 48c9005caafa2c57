"""The command line: `pagefile`. Every command mirrors a call of the library.

entry        one run of the program: parse, call, print, exit status
commands     which commands there are, loaded when they are asked for
everywhere   the options that every command takes
call         what a command is given: the options, the store, the screen
answer       what a command gives back
envelope     an answer or an error as JSON
screen       an answer or an error for people
exits        the exit statuses
"""

from __future__ import annotations

from collections.abc import Sequence

from pagefile.surfaces.cli.exits import EXIT_STATUS

__all__ = ["EXIT_STATUS", "main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    # Imported here: who wants only the statuses does not load the parser.
    from pagefile.surfaces.cli.entry import run

    return run(arguments)
