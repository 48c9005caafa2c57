"""The command line: `pagefile`. Every command mirrors a call of the library.

Read in this order: entry (one run of the program), registry (which commands there are, and the
options that all take), parameters, call (what a command is given and gives back), screen,
memory_view, copy; then `commands/`, a module for each noun.
"""

from __future__ import annotations

from collections.abc import Sequence

from pagefile.surfaces.cli.call import EXIT_STATUS

__all__ = ["EXIT_STATUS", "main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    # Imported here: who wants only the statuses does not load the parser.
    from pagefile.surfaces.cli.entry import run

    return run(arguments)
