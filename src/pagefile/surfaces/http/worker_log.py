"""What the server program says of its workers, as our lines: one died, one took its place.

The program has no hook for that, but it tells its logger. Who reads our log
reads JSON, so its words are put into lines of ours, and the rest of them is
left out below `warning`.
"""

from __future__ import annotations

import logging
import re
import sys
import time
from typing import Any

import msgspec

from pagefile.surfaces.http.clock import milliseconds_of
from pagefile.surfaces.http.logs import Level

_DIED = re.compile(r"Unexpected exit from worker-(\d+)")
_STARTED = re.compile(r"Spawning worker-(\d+) with PID: (\d+)")
_encode = msgspec.json.Encoder().encode


class WorkerLog(logging.Handler):
    """Writes a line for each worker that died, and for the one that takes its place."""

    def __init__(self) -> None:
        super().__init__()
        self._pids: dict[int, int] = {}
        self._dead: set[int] = set()

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage()
        if found := _STARTED.search(said):
            self._started(int(found[1]), int(found[2]))
        elif found := _DIED.search(said):
            number = int(found[1])
            self._dead.add(number)
            self._tell("error", "worker died", worker=number, pid=self._pids.get(number))
        elif record.levelno >= logging.WARNING:
            level: Level = "error" if record.levelno >= logging.ERROR else "warning"
            # The first line alone: what follows is a trace, whose lines may quote somebody.
            self._tell(level, "server", message=said.partition("\n")[0][:500])

    def _started(self, number: int, pid: int) -> None:
        self._pids[number] = pid
        if number in self._dead:
            self._dead.discard(number)
            self._tell("warning", "worker replaced", worker=number, pid=pid)

    @staticmethod
    def _tell(level: Level, event: str, **told: object) -> None:
        now = milliseconds_of(time.time_ns() // 1_000)
        line = _encode({"time": now, "level": level, "event": event, **told})
        sys.stderr.write(line.decode() + "\n")
        sys.stderr.flush()


def logging_config() -> dict[str, Any]:
    """For the server program: everything that it says goes to a `WorkerLog`."""
    return {
        "handlers": {"lines": {"()": WorkerLog}},
        "loggers": {"_granian": {"handlers": ["lines"], "propagate": False}},
    }
