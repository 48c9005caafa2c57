"""The parts of an organism, put together around one store."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from typing import Any

from pagefile.context.buffer import ContextBuffer
from pagefile.dispatch.answers import Answers
from pagefile.dispatch.claims import Claims
from pagefile.dispatch.dispatcher import Dispatcher
from pagefile.dispatch.events import Events
from pagefile.dispatch.intake import Intake
from pagefile.dispatch.limits import DispatchLimits
from pagefile.dispatch.listener import Listeners
from pagefile.dispatch.metrics import Metrics
from pagefile.dispatch.names import STATES
from pagefile.dispatch.own_thread import Reach
from pagefile.dispatch.scheduler import Schedule
from pagefile.dispatch.steps import Stepper
from pagefile.dispatch.workers.presence import Presence
from pagefile.dispatch.workers.wakeup import Bell
from pagefile.store.store import Store

_WORKER_BYTES = 8


class Parts:
    """What an organism is made of; each part knows only those it needs."""

    def __init__(
        self,
        store: Store,
        name: str,
        limits: DispatchLimits,
        new_id: Callable[[], str],
        *,
        registers_calls: bool,
    ) -> None:
        self.store = store
        self.name = name
        self.limits = limits
        self.worker = os.urandom(_WORKER_BYTES).hex()
        self._numbers = itertools.count(1)
        self.context = ContextBuffer(store)
        self.listeners = Listeners()
        self.metrics = Metrics()
        self.events = Events()
        self.answers = Answers(store)
        self.schedule = Schedule(self.listeners, limits)
        stepper = Stepper(
            self.listeners, limits, new_id, self.new_message, registers_calls=registers_calls
        )
        self.dispatcher = Dispatcher(
            store, stepper, self.schedule, self.answers, self.metrics, self.events
        )
        self.presence = Presence(store, name, self.worker, limits.lease_seconds)
        self.claims = Claims(
            store, name, self.presence, self.dispatcher, limits, self.metrics, self.events
        )
        self.intake = Intake(
            store,
            name,
            self.worker,
            self.listeners,
            limits,
            self.claims,
            self.dispatcher,
            new_id,
            self.new_message,
        )
        self.bell = Bell(store, self._heard)
        self.intake.rung = self.bell.rung
        #: Called when there may be something to take.
        self.look: Callable[[], None] = lambda: None
        self.dispatcher.over = self._over
        self.dispatcher.left_behind = self.claims.doubt

    def new_message(self) -> str:
        """A message id: this process's own number, then one of its own."""
        return f"{self.worker}-{next(self._numbers)}"

    def reach(self, thread: str) -> Reach:
        """What a handler's handle leads to."""

        def state(name: str) -> Any:
            found = self.store.get(f"{STATES}{thread}/{name}")
            return None if found is None or found.erased else found.value

        return Reach(lambda: self.context.handle(thread), state, self.new_message)

    def stats(self) -> dict[str, Any]:
        """Counters, latencies, and what is under way in this process."""
        self.metrics.commits = self.dispatcher.outbox.commits
        return {
            **self.metrics.snapshot(),
            "conversations": len(self.dispatcher.owned),
            "running": self.schedule.running,
            "waiting": self.schedule.waiting,
            "queues": self.schedule.by_listener(),
        }

    def _heard(self, thread: str) -> None:
        if not self.dispatcher.look(thread):
            self.look()

    def _over(self) -> None:
        if self.claims.more:
            self.look()
