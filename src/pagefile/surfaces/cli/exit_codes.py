"""What the shell gets to know: the same reasons as everywhere, as small numbers."""

from __future__ import annotations

from typing import Final

EXIT_STATUS: Final = {
    "not_found": 3,
    "conflict": 4,
    "invalid": 5,
    "limit_exceeded": 6,
    "unavailable": 7,
    "corrupt": 8,
    "unsupported": 9,
    "forbidden": 10,
}

FINE: Final = 0
#: The command ran, and what it looked at is not in order; or it was told no.
PROBLEMS: Final = 1
#: The command line itself makes no sense.
USAGE: Final = 2
#: A fault of the program, as `sysexits.h` numbers it.
INTERNAL: Final = 70
#: 128 and the number of the signal, as a shell counts.
INTERRUPTED: Final = 130
BROKEN_PIPE: Final = 141


def status_of(code: str) -> int:
    """The exit status for the code of an error."""
    return EXIT_STATUS.get(code, PROBLEMS)
