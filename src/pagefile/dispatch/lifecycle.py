"""The parts of an organism, and its life in one process: start, heartbeat, drain, cleaning."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
from collections.abc import Callable
from typing import Any

import msgspec

from pagefile.context.buffer import ContextBuffer
from pagefile.dispatch.dispatcher import Dispatcher, now_us
from pagefile.dispatch.events import Events, Metrics
from pagefile.dispatch.intake import Claims, Intake
from pagefile.dispatch.journal import Answers
from pagefile.dispatch.listener import (
    BELL,
    CONVERSATIONS,
    ENDED,
    JOURNALS,
    STATES,
    DispatchLimits,
    Listener,
    Listeners,
)
from pagefile.dispatch.steps import Stepper
from pagefile.dispatch.workers.own_thread import Reach
from pagefile.dispatch.workers.pool import Pool
from pagefile.dispatch.workers.presence import Bell, Presence
from pagefile.dispatch.workers.runner import Runner
from pagefile.dispatch.workers.scheduler import Schedule
from pagefile.errors import Conflict, Forbidden, NotFound, PagefileError
from pagefile.store.arguments import require_seconds
from pagefile.store.batch import Batch, Condition, Delete, Drop, Operation, Prune, Query, VersionIs
from pagefile.store.records import Document
from pagefile.store.store import Store

# The parts of an organism, put together around one store.


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


# Letting go of what is over: journals and marks of conversations that ended long ago.
#
# Threads and their slots stay: they are the agents' memory, not the organism's.


_PAGE = 100
#: So much of the bell may stand before what everybody has heard is let go.
_MOST_RUNG = 10_000


def let_go(store: Store, organism: str, before_us: int) -> int:
    """Forget conversations that ended before a moment; how many."""
    page = store.find(
        Query(ENDED, low=(organism, 0), high=(organism, before_us), everyone=True), limit=_PAGE
    )
    return sum(_forget(store, found) for found in page.items if isinstance(found, Document))


def _forget(store: Store, document: Document) -> bool:
    when: list[Condition] = [VersionIs(document.name, document.version)]
    operations: list[Operation] = [Delete(document.name)]
    if document.name.startswith(CONVERSATIONS):
        journal = JOURNALS + document.name.removeprefix(CONVERSATIONS)
        if store.has_log(journal):
            operations += [Prune(None, log=journal), Drop(journal)]
    try:
        store.commit(Batch(operations, when))
    except (Conflict, NotFound):
        return False  # It goes on, or another process was faster.
    return True


def quieten(store: Store) -> None:
    """Keep the bell's log short."""
    length = store.length(BELL)
    first = store.read(BELL, limit=1)
    if first and length - first[0].index > _MOST_RUNG:
        store.commit(Batch([Prune(length - _MOST_RUNG // 2, log=BELL)]))


# What an agent is told about those it may call.


_RULE = (
    "Responding ends this activation: whatever the listeners that you called "
    "have not answered by then is lost."
)


def usage_of(listener: Listener, listeners: Listeners) -> str:
    """Who it is, whom it may call and with what."""
    lines = [f"{listener.prompt}\n"] if listener.prompt else []
    lines.append(f"You are {listener.name}.")
    if listener.description:
        lines.append(listener.description)
    for name in sorted(listener.peers):
        peer = listeners.get(name)
        if peer is None:
            continue
        lines.append(f"\n{peer.name}: {peer.description}" if peer.description else f"\n{peer.name}")
        lines += [f"  {cls.__name__}: {_schema(cls)}" for cls in peer.payload]
    lines.append(f"\n{_RULE}")
    return "\n".join(lines)


def _schema(cls: type) -> str:
    make: Any = getattr(cls, "model_json_schema", None)
    try:
        schema = make() if make is not None else msgspec.json.schema(cls)
    except TypeError:  # Fields that have no schema; the name has to do.
        return "{}"
    return json.dumps(schema, sort_keys=True, separators=(",", ":"))


_SECOND = 1_000_000


class Remaining(msgspec.Struct, frozen=True):
    """What `shutdown` left: nothing, or work that any other process goes on with.

    `running` names the listeners whose handlers were stopped, `waiting` counts
    the messages that are recorded and not done, `released` the conversations
    that were given back.
    """

    running: tuple[str, ...] = ()
    waiting: int = 0
    conversations: int = 0
    released: int = 0

    def __bool__(self) -> bool:
        """True when something is left."""
        return bool(self.conversations)


class Life:
    """Works on messages between `start` and `shutdown`."""

    def __init__(self, parts: Parts, pool: Pool | None) -> None:
        self._parts = parts
        self._pool = pool
        self._runner: Runner | None = None
        self._starting = False
        self.tasks: list[asyncio.Task[None]] = []
        self._looking = asyncio.Event()
        parts.look = self._looking.set

    @property
    def is_running(self) -> bool:
        """Whether this process works on messages."""
        return self._runner is not None

    async def start(self) -> None:
        """Begin to work: on what is injected here, and on what nobody else works on."""
        if self._runner is not None or self._starting:
            raise Forbidden("the organism runs already", "shutdown() it first")
        self._starting = True
        try:
            await self._begin()
        finally:
            self._starting = False

    async def _begin(self) -> None:
        parts = self._parts
        everyone = parts.listeners.all()
        usage = {one.name: usage_of(one, parts.listeners) for one in everyone if one.agent}
        runner = Runner(
            parts.schedule,
            parts.limits,
            parts.metrics,
            parts.events,
            parts.reach,
            lambda listener: usage[listener.name],
            parts.dispatcher.finished,
            self._pool,
        )
        runner.start(min((one.timeout for one in everyone), default=1.0))
        await asyncio.to_thread(self._renew)
        self._runner = runner
        parts.dispatcher.wake = runner.wake
        parts.intake.works = True
        parts.claims.resting = False
        parts.bell.start()
        self._looking.set()
        loop = asyncio.get_running_loop()
        works = (self._beat(), self._tend(), self._look())
        self.tasks = [loop.create_task(work) for work in works]

    async def shutdown(self, timeout: float) -> Remaining:
        """Take nothing in, finish what is under way, at most for `timeout` seconds."""
        require_seconds(timeout)
        runner, parts = self._runner, self._parts
        if runner is None:
            return Remaining()
        parts.intake.works = False
        parts.claims.resting = True
        await self._drained(timeout)
        self._runner = None
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        running = tuple(parts.schedule.names_running())
        parts.bell.stop()
        await runner.stop()
        parts.dispatcher.wake = lambda: None
        await parts.dispatcher.outbox.rest(timeout)
        parts.dispatcher.outbox.close()
        left = parts.dispatcher.release_all()
        waiting = sum(1 for conversation in left for _ in conversation.waiting())
        released = 0
        try:
            released = await parts.claims.give_back(left)
            await asyncio.to_thread(parts.presence.leave)
        except PagefileError:
            # The lease runs out by itself; others take over then.
            pass
        parts.answers.lose_all()
        if self._pool is not None:
            self._pool.close()
        return Remaining(running, waiting, len(left), released)

    async def _drained(self, timeout: float) -> None:
        dispatcher = self._parts.dispatcher
        try:
            async with asyncio.timeout(timeout):
                while dispatcher.owned:
                    dispatcher.changed.clear()
                    await dispatcher.changed.wait()
        except TimeoutError:
            return

    def _renew(self) -> None:
        self._parts.presence.renew({"stats": self._parts.stats()})

    async def _beat(self) -> None:
        """Renew the lease; nothing else, so that nothing else can make it late."""
        pause = self._parts.limits.lease_seconds / 3
        while True:
            await asyncio.sleep(pause)
            try:
                await asyncio.to_thread(self._renew)
            except Exception as error:  # noqa: BLE001  Whatever it was: the next one may succeed.
                _log("the lease could not be renewed", error)

    async def _tend(self) -> None:
        """Look after those who did not renew theirs, and what is kept too long."""
        pause = self._parts.limits.lease_seconds / 3
        while True:
            try:
                await self._parts.claims.claim_dead()
                await self._parts.claims.claim_left_behind()
                self._looking.set()
                await asyncio.sleep(pause)
                await asyncio.to_thread(self._let_go)
            except Exception as error:  # noqa: BLE001  One document that nobody can read, say.
                _log("looking after others failed", error)
                await asyncio.sleep(pause)

    def _let_go(self) -> None:
        before_us = now_us() - int(self._parts.limits.retention_seconds * _SECOND)
        if before_us > 0:
            let_go(self._parts.store, self._parts.name, before_us)
            quieten(self._parts.store)

    async def _look(self) -> None:
        """Take what nobody has, whenever there may be some and there is room."""
        while True:
            await self._looking.wait()
            self._looking.clear()
            try:
                await self._parts.claims.claim_open()
            except Exception as error:  # noqa: BLE001  See above.
                _log("looking for work failed", error)
                await asyncio.sleep(self._parts.limits.lease_seconds / 3)
                self._looking.set()


def _log(what: str, error: Exception) -> None:
    # Imported here: it takes longer to load than all of this room's own modules.
    import logging

    logging.getLogger("pagefile.dispatch").warning("%s: %s", what, error)
