"""The life of an organism in one process: start, heartbeat, looking for work, drain."""

from __future__ import annotations

import asyncio

import msgspec

from pagefile.dispatch.components import Parts
from pagefile.dispatch.dispatcher import now_us
from pagefile.dispatch.retention import let_go, quieten
from pagefile.dispatch.usage import usage_of
from pagefile.dispatch.workers.pool import Pool
from pagefile.dispatch.workers.runner import Runner
from pagefile.errors import Forbidden, PagefileError
from pagefile.store.arguments import require_seconds

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
