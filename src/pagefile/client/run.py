"""One run by its id: read it, change it, and change it again when somebody was faster."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from pagefile.client.calls.ledger import Ledger
from pagefile.client.calls.runs import Runs as RunRoutes
from pagefile.client.connection import Link
from pagefile.client.optimistic_update import ATTEMPTS, Change, Read, Rest, updating
from pagefile.client.shapes.runs import Patched
from pagefile.errors import PagefileError


class Runs(RunRoutes):
    """Routes about runs; called with an id, it gives that run."""

    def __call__(self, run_id: str) -> Run:
        """The run of that id; nothing is asked yet."""
        return Run(self._link, run_id)


class Run:
    """A run on the server."""

    def __init__(self, link: Link, run_id: str) -> None:
        self.run_id = run_id
        self._runs = RunRoutes(link)
        self._ledger = Ledger(link)

    def __repr__(self) -> str:
        return f"Run({self.run_id!r})"

    def load(self) -> dict[str, Any]:
        """The working set."""
        return self._runs.get(self.run_id)

    def update(self, change: Change, *, attempts: int = ATTEMPTS) -> Patched:
        """Read, let `change` make the patch, send it; again until nobody was faster.

        `change` gets the working set and returns fields to set, or a mapping with
        `set` and `ops`. It may run several times, so it must not do anything else.
        """
        plan = updating(change, attempts)
        outcome: Any = None
        while True:
            try:
                step = plan.send(outcome)
            except StopIteration as end:
                made: Patched = end.value
                return made
            outcome = None
            if isinstance(step, Read):
                outcome = self.load()
            elif isinstance(step, Rest):
                time.sleep(step.seconds)
            else:
                try:
                    outcome = self._runs.patch(
                        self.run_id, set=step.set, ops=step.ops, expected_seq=step.seq
                    )
                except PagefileError as error:
                    outcome = error

    def follow(
        self, *, after: int | None = None, seconds: float | None = None
    ) -> Iterator[dict[str, Any]]:
        """Events of the run as they are recorded."""
        return self._ledger.follow(self.run_id, after=after, seconds=seconds)
