"""What is told of the processes of a server, as our lines: one died, one took its place.

Who reads our log reads JSON, so the server program's own words are put into
lines of ours, and the rest of them is left out below `warning`.
"""

from __future__ import annotations

import logging
import sys
import time
from typing import Any

import msgspec

from pagefile.operations.timestamps import milliseconds_of
from pagefile.surfaces.http.logs import Level

_encode = msgspec.json.Encoder().encode


class WorkerLog(logging.Handler):
    """Writes what the server program warns of."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            level: Level = "error" if record.levelno >= logging.ERROR else "warning"
            # The first line alone: what follows is a trace, whose lines may quote somebody.
            tell(level, "server", message=record.getMessage().partition("\n")[0][:500])


def tell(level: Level, event: str, **told: object) -> None:
    """One line, now."""
    now = milliseconds_of(time.time_ns() // 1_000)
    line = _encode({"time": now, "level": level, "event": event, **told})
    sys.stderr.write(line.decode() + "\n")
    sys.stderr.flush()


def logging_config() -> dict[str, Any]:
    """For the server program: everything that it says goes to a `WorkerLog`."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "handlers": {"lines": {"()": WorkerLog}},
        "loggers": {"uvicorn": {"handlers": ["lines"], "level": "WARNING", "propagate": False}},
    }
