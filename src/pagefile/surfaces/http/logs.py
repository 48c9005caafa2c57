"""One line of JSON for each request, with its id and without any payload.

Lines are collected for a moment and written together: a system call for each
would cost more than many a request.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Literal, TextIO

import msgspec

from pagefile.operations.timestamps import milliseconds_of
from pagefile.surfaces.http.call import Call

Level = Literal["debug", "info", "warning", "error"]
_RANKS: dict[str, int] = {"debug": 0, "info": 1, "warning": 2, "error": 3}
_COLLECT_SECONDS = 0.1
_MOST_LINES = 500
_encode_lines = msgspec.json.Encoder().encode_lines


class _Line(msgspec.Struct, omit_defaults=True):
    """What is told of a request; kept as it is until many are made JSON at once."""

    time: str
    level: Level
    event: str
    request_id: str
    method: str
    route: str
    status: int
    duration_ms: float
    who: str = ""
    tenant: str = ""
    code: str = ""
    error: str = ""


class Log:
    """Writes lines to a stream; used from one event loop."""

    def __init__(self, level: Level = "info", stream: TextIO | None = None) -> None:
        self._least = _RANKS[level]
        self._stream = stream
        self._lines: list[_Line | dict[str, object]] = []
        self._is_due = False

    def request(self, method: str, call: Call, seconds: float) -> None:
        """Tell of a request: the template of its route, not the path, which may name people."""
        level: Level = "info" if call.status < 500 and not call.error_kind else "error"
        if _RANKS[level] < self._least:
            return
        who = call.identity
        name, tenant = ("", "") if who is None else (who.name, who.tenant)
        self._add(
            _Line(
                milliseconds_of(time.time_ns() // 1_000),
                level,
                "request",
                call.request_id,
                method[:16],
                call.route,
                call.status,
                round(seconds * 1_000, 3),
                name,
                tenant,
                call.reason,
                call.error_kind,
            )
        )

    def tell(self, level: Level, event: str, told: dict[str, object]) -> None:
        """One line, soon."""
        if _RANKS[level] < self._least:
            return
        now = milliseconds_of(time.time_ns() // 1_000)
        self._add({"time": now, "level": level, "event": event, **told})

    def _add(self, line: _Line | dict[str, object]) -> None:
        self._lines.append(line)
        if len(self._lines) >= _MOST_LINES:
            self.flush()
        elif not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_later(_COLLECT_SECONDS, self._flush_due)

    def flush(self) -> None:
        """Write what waits."""
        lines, self._lines = self._lines, []
        if lines:
            stream = sys.stderr if self._stream is None else self._stream
            stream.write(_encode_lines(lines).decode())
            stream.flush()

    def _flush_due(self) -> None:
        self._is_due = False
        self.flush()
