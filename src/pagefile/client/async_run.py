"""One run by its id, awaited; see `run.py`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from pagefile.client.async_connection import AsyncLink
from pagefile.client.awaited.ledger import AsyncLedger
from pagefile.client.awaited.runs import AsyncRuns as RunRoutes
from pagefile.client.optimistic_update import ATTEMPTS, Change, Read, Rest, updating
from pagefile.client.shapes.runs import Patched
from pagefile.errors import PagefileError


class AsyncRuns(RunRoutes):
    """Routes about runs; called with an id, it gives that run."""

    def __call__(self, run_id: str) -> AsyncRun:
        """The run of that id; nothing is asked yet."""
        return AsyncRun(self._link, run_id)


class AsyncRun:
    """A run on the server."""

    def __init__(self, link: AsyncLink, run_id: str) -> None:
        self.run_id = run_id
        self._runs = RunRoutes(link)
        self._ledger = AsyncLedger(link)

    def __repr__(self) -> str:
        return f"AsyncRun({self.run_id!r})"

    async def load(self) -> dict[str, Any]:
        """The working set."""
        return await self._runs.get(self.run_id)

    async def update(self, change: Change, *, attempts: int = ATTEMPTS) -> Patched:
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
                outcome = await self.load()
            elif isinstance(step, Rest):
                await asyncio.sleep(step.seconds)
            else:
                try:
                    outcome = await self._runs.patch(
                        self.run_id, set=step.set, ops=step.ops, expected_seq=step.seq
                    )
                except PagefileError as error:
                    outcome = error

    def follow(
        self, *, after: int | None = None, seconds: float | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """Events of the run as they are recorded."""
        return self._ledger.follow(self.run_id, after=after, seconds=seconds)
