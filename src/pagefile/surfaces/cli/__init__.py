"""The command line: `pagefile`. Every command mirrors a call of the library.

Read in this order: entry, registry, common_options, parameters, call, answer, envelope,
exit_codes, screen, memory_view, stacked_rows, organism_view with `organism_frame`, copy; then
`commands/`, a module for each noun.
"""

from __future__ import annotations

from collections.abc import Sequence

from pagefile.surfaces.cli.exit_codes import EXIT_STATUS

__all__ = ["EXIT_STATUS", "main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    # Imported here: who wants only the statuses does not load the parser.
    from pagefile.surfaces.cli.entry import run

    return run(arguments)
