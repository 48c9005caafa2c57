"""How long to wait for a server that says nothing.

A server that is stopped, or behind something that keeps its connections open, is not gone
for TCP: whoever waits for its answer would wait for ever. A long commit is as quiet. So
after a while the server is asked, on another connection, whether it is still at work.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
from psycopg.abc import PQGen

_T = TypeVar("_T")

#: After so long without a byte, the server is asked; and again after each such time.
QUIET_SECONDS = 20.0
#: What it said just before the question may still be on its way.
LAST_SECONDS = 2.0
#: How long a commit may take beyond the wait for its turn, though the server is at work.
MOST_SECONDS = 600.0
_STATE = "SELECT state FROM pg_stat_activity WHERE pid = %s"


class PatientConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection on which nobody waits without bound for a server that is not there."""

    #: Whether the server is at work for this connection; without it, silence alone counts.
    is_at_work: Callable[[PatientConnection], bool] | None = None
    #: The bound on one answer whatever the server says; none for reading.
    most_seconds: float | None = None

    def wait(self, gen: PQGen[_T], *how: Any, **named: Any) -> _T:
        """Every wait of the driver for this connection passes here."""
        return super().wait(self._bounded(gen), *how, **named)

    def _bounded(self, gen: PQGen[_T]) -> PQGen[_T]:
        """The same steps; the driver also takes one whenever nothing came for a moment."""
        silence: _Silence | None = None
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if ready == 0:
                    silence = silence or _Silence()
                    self._require_answer(silence)
                else:
                    silence = None
                wanted = gen.send(ready)
        except StopIteration as end:
            answer: _T = end.value
            return answer

    def _require_answer(self, silence: _Silence) -> None:
        now = time.monotonic()
        if now < silence.until:
            return
        seconds = now - silence.since
        is_late = self.most_seconds is not None and seconds >= self.most_seconds
        if not is_late and not silence.is_last:
            if self.is_at_work is not None and self.is_at_work(self):
                silence.until = time.monotonic() + QUIET_SECONDS
            else:
                silence.until, silence.is_last = time.monotonic() + LAST_SECONDS, True
            return
        self.close()
        raise psycopg.OperationalError(f"the server has said nothing for {seconds:.0f} s")


class _Silence:
    def __init__(self) -> None:
        self.since = time.monotonic()
        self.until = self.since + QUIET_SECONDS
        self.is_last = False


def asking(parameters: dict[str, Any]) -> Callable[[PatientConnection], bool]:
    """Asks the server behind a connection, on one that is made for it, what it does."""

    def is_at_work(quiet: PatientConnection) -> bool:
        own = parameters
        if "," in str(parameters.get("host", "")):
            # Of several servers, the one that is quiet.
            own = {**parameters, "host": quiet.info.host, "port": quiet.info.port}
            own.pop("hostaddr", None)
        try:
            other = PatientConnection.connect(**own, autocommit=True)
        except psycopg.Error as error:
            # A refusal is an answer, such as that there are too many connections.
            return "FATAL" in str(error)
        try:
            found = other.execute(_STATE, (quiet.info.backend_pid,)).fetchone()
        except psycopg.Error:
            return False
        finally:
            with suppress(psycopg.Error):
                other.close()
        return found is not None and not str(found[0]).startswith("idle")

    return is_at_work
