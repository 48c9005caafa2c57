"""The organism: listeners that talk to each other through one store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Executor
from hashlib import sha256
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from pagefile.context.backend import Backend, store_behind
from pagefile.context.names import require_name
from pagefile.dispatch.conversation import DeadLetter, dead_letter, dead_letters, drop_dead_letter
from pagefile.dispatch.events import Event
from pagefile.dispatch.intake import OpenConversation, open_conversations, waits_for_room
from pagefile.dispatch.journal import Answer, Delivery, Identity
from pagefile.dispatch.lifecycle import Life, Parts, Remaining
from pagefile.dispatch.listener import (
    WORKERS,
    DispatchLimits,
    Listener,
    Retry,
    listener_of,
    require_limits,
)
from pagefile.dispatch.workers.pool import ProcessPool, pool_for
from pagefile.errors import Forbidden, Invalid, LimitExceeded, NotFound, Unsupported, shown
from pagefile.store.arguments import require_flag, require_seconds
from pagefile.store.store import Store

# Ids of threads: random, and drawn many at a time, because each draw is a system call.


_ID_BYTES = 16
_AT_ONCE = 256


def thread_ids() -> Callable[[], str]:
    """What makes ids that nobody can guess, 32 characters each."""
    drawn: list[str] = []

    def new_id() -> str:
        if not drawn:
            text = os.urandom(_ID_BYTES * _AT_ONCE).hex()
            size = 2 * _ID_BYTES
            drawn.extend(text[at : at + size] for at in range(0, len(text), size))
        return drawn.pop()

    return new_id


_Handler = TypeVar("_Handler", bound=Callable[..., Any])
_DRAIN_SECONDS = 10.0


class Organism:
    """Listeners, and the messages between them, kept in a store.

    Every message is recorded once before its handler runs. What a handler sends,
    and what it does through its handle, is committed together with the
    acknowledgement of the message, hence exactly once; anything else that it
    does happens at least once. Any number of processes may run the same
    organism on one store.

    `backend` is a store, a handle or a URL; None is a private `memory:`.
    CPU-bound handlers run in the processes of `process_pool`, or of any other
    `executor`, also by its address, such as `dask://host:port`; those open the
    store by its URL, which is `url` if it is not known.
    The thread registry knows the first activation of each conversation, and with
    `register_calls` every one, at the price of two more writes for each call.
    """

    def __init__(
        self,
        backend: Backend | None = None,
        *,
        name: str = "organism",
        tenant: str | None = None,
        limits: DispatchLimits | None = None,
        process_pool: ProcessPool | None = None,
        executor: Executor | str | None = None,
        url: str | None = None,
        register_calls: bool = False,
        new_id: Callable[[], str] | None = None,
    ) -> None:
        require_name("name", name)
        require_flag("register_calls", register_calls)
        self.name = name
        self.limits = require_limits(limits if limits is not None else DispatchLimits())
        if tenant is not None:
            # Opened here, so that it is closed here; a store or handle has a tenant already.
            if not isinstance(backend, (str, os.PathLike)):
                raise Invalid("tenant", shown(tenant), "give it with a URL, or open a handle")
            import pagefile

            handle = pagefile.open(backend, tenant=tenant)
            backend, close = handle, handle.close
            self._store, self._close = handle.store, close
        else:
            self._store, self._close = store_behind(backend)
        self._parts = Parts(
            self._store,
            name,
            self.limits,
            new_id or thread_ids(),
            registers_calls=register_calls,
        )
        self.worker = self._parts.worker
        self.metrics = self._parts.metrics
        self.events = self._parts.events
        self._pool = pool_for(backend, self._store, process_pool, executor, url)
        self._life = Life(self._parts, self._pool)

    # Declaring

    def listener(
        self,
        name: str,
        *,
        payload: type | Sequence[type] | None = None,
        description: str = "",
        peers: Sequence[str] = (),
        agent: bool = False,
        broadcast: bool = False,
        cpu_bound: bool = False,
        timeout: float = 30.0,
        prompt: str = "",
        retry: Retry | None = None,
    ) -> Callable[[_Handler], _Handler]:
        """Declare the decorated function as a listener.

        It takes (payload), (payload, metadata) or (payload, metadata, thread)
        and returns a `HandlerResponse`, several of them, or None. `async def`
        runs in the loop, a plain function in a thread, a CPU-bound one in the
        process pool. Whom it may call are its `peers`, and itself.

        Raises:
            Invalid: the name is taken, or the declaration makes no sense.
        """

        def declare(handler: _Handler) -> _Handler:
            self.register(
                listener_of(
                    handler,
                    name,
                    payload=payload,
                    description=description,
                    peers=peers,
                    agent=agent,
                    broadcast=broadcast,
                    cpu_bound=cpu_bound,
                    timeout=timeout,
                    prompt=prompt,
                    retry=retry,
                )
            )
            return handler

        return declare

    def register(self, listener: Listener) -> None:
        """Declare a listener that was made elsewhere."""
        if self._life.is_running:
            raise Forbidden("the organism runs already", "declare listeners before start()")
        if not isinstance(listener, Listener):
            raise Invalid("listener", f"{shown(listener)} is no Listener", "give Listener(…)")
        if listener.mode == "pool" and self._pool is None:
            raise Unsupported(
                f"listener {listener.name!r} is CPU-bound, and there is no process pool",
                "give process_pool= or executor=, or declare it without cpu_bound",
            )
        self._parts.listeners.add(listener)

    @property
    def listeners(self) -> list[Listener]:
        """The listeners, in the order of their declaration."""
        return self._parts.listeners.all()

    # Running

    @property
    def is_running(self) -> bool:
        """Whether this process works on messages."""
        return self._life.is_running

    async def start(self) -> None:
        """Begin to work: on what is injected here, and on what nobody else works on."""
        await self._life.start()

    async def shutdown(self, timeout: float = _DRAIN_SECONDS) -> Remaining:
        """Take nothing in, finish what is under way, at most for `timeout` seconds.

        Always returns. What is left is recorded, and any process that runs the
        organism goes on with it.
        """
        return await self._life.shutdown(timeout)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.shutdown(_DRAIN_SECONDS if error is None else 0.0)
        self._close()

    # Messages from outside

    async def inject(
        self,
        payload: Any,
        to: str,
        *,
        caller: Identity,
        thread_id: str | None = None,
        message_id: str | None = None,
        timeout: float = 0.0,
    ) -> Delivery:
        """Record a message and let it be worked on; what it is known by.

        `caller` is who was authenticated; the message has no say in it. Without
        `thread_id` it begins a conversation of its own; with it, the caller's
        earlier one goes on, one request after the other. `message_id` makes a
        repeat harmless. When too many requests wait already, it waits up to
        `timeout` seconds for room.

        Raises:
            NotFound: nobody of this name takes this payload.
            Forbidden: the thread is another caller's, or the caller's name is a listener's.
            LimitExceeded: too many requests wait. Invalid: the payload cannot be stored.
        """
        require_seconds(timeout)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        pause = 0.005
        while True:
            try:
                delivery = await self._parts.intake.take(payload, to, caller, thread_id, message_id)
                break
            except LimitExceeded as error:
                left = deadline - loop.time()
                if not waits_for_room(error) or left <= 0:
                    raise
                await asyncio.sleep(min(left, pause))
                pause = min(0.25, pause * 2)
        self.metrics.injected += 1
        return delivery

    async def publish(self, payload: Any, *, caller: Identity) -> list[Delivery]:
        """Inject a message to every listener that takes its type."""
        targets = self._parts.listeners.taking(payload)
        if not targets:
            raise NotFound("nobody takes this payload", "check its type")
        return list(
            await asyncio.gather(
                *(self.inject(payload, one.name, caller=caller) for one in targets)
            )
        )

    async def answer(self, delivery: Delivery, timeout: float | None = None) -> Answer:
        """Wait for what comes back, whichever process it comes from.

        Raises:
            TimeoutError: nothing did in time; the message is worked on all the same.
            NotFound: the conversation is gone.
        """
        if not isinstance(delivery, Delivery):
            raise Invalid("delivery", f"{shown(delivery)} is no Delivery", "give what inject gave")
        if timeout is not None:
            require_seconds(timeout)
        async with asyncio.timeout(timeout):
            if self._parts.dispatcher.expects(delivery):
                found = await asyncio.shield(self._parts.answers.expect(delivery.message_id))
                if found is not None:
                    return found
            return await self._parts.answers.follow(delivery)

    async def ask(
        self,
        payload: Any,
        to: str,
        *,
        caller: Identity,
        thread_id: str | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """Inject a message and wait for what comes back."""
        delivery = await self.inject(payload, to, caller=caller, thread_id=thread_id)
        return await self.answer(delivery, timeout)

    async def cancel(self, thread_id: str) -> bool:
        """Stop the work on a conversation's request, whichever process does it.

        The caller gets a `SystemError` with the code "cancelled"; handlers that
        run may run on, but whatever they come to is refused. False when nothing
        is under way.
        """
        require_name("thread_id", thread_id)
        conversation = await self._parts.claims.seize(thread_id)
        if conversation is None:
            return False
        await self._parts.dispatcher.stop(conversation, "cancelled", "the request was cancelled")
        if self._parts.dispatcher.owned.get(thread_id) is conversation:
            ready = [act for act in conversation.activations.values() if act.inbox]
            if self.is_running:
                self._parts.dispatcher.take(conversation, [act for act in ready if not act.queued])
            else:
                del self._parts.dispatcher.owned[thread_id]
                await self._parts.claims.give_back([conversation])
        return True

    def conversations(self, limit: int = 100) -> list[OpenConversation]:
        """Conversations that are under way in any process."""
        return open_conversations(self._store, self.name, limit)

    # Dead letters

    def dead_letters(self, limit: int = 100) -> list[DeadLetter]:
        """Messages that came to nothing, oldest first."""
        return dead_letters(self._store, self.name, limit)

    async def redrive(self, message_id: str, *, timeout: float = 0.0) -> Delivery:
        """Send a dead letter again, in a conversation of its own, and drop it.

        Raises:
            NotFound: there is no such letter, or its payload is gone.
        """
        require_name("message_id", message_id)
        letter, version = await asyncio.to_thread(dead_letter, self._store, message_id)
        payload = await asyncio.to_thread(letter.payload, self._store)
        delivery = await self.inject(
            payload,
            letter.listener,
            caller=Identity(letter.initiator, letter.user_id),
            # Who redrives it at the same time, or again after a crash, drives it once. A digest,
            # for an id that holds the one before grows with every redrive.
            message_id=f"redriven-{sha256(message_id.encode()).hexdigest()[:32]}-{version}",
            timeout=timeout,
        )
        await self.drop_dead_letter(message_id)
        return delivery

    async def drop_dead_letter(self, message_id: str) -> None:
        """Let go of a dead letter; nothing happens when there is none."""
        require_name("message_id", message_id)
        await asyncio.to_thread(drop_dead_letter, self._store, message_id)

    # Observing

    def stream(self) -> AsyncIterator[Event]:
        """Events of this process, from now on."""
        return self.events.stream()

    def stats(self) -> dict[str, Any]:
        """Counters, latencies, and what is under way in this process."""
        return self._parts.stats()


# An organism as all its processes see it: who works, what waits, what died.


_MOST = 1_000


class WorkerView(msgspec.Struct, frozen=True):
    """One process, as it said at its last heartbeat. `stats` are those of `Organism.stats`."""

    worker: str
    pid: int
    seen_us: int
    lease_seconds: float
    stats: dict[str, Any]


class Overview(msgspec.Struct, frozen=True):
    """The processes of an organism, its open conversations and its dead letters."""

    organism: str
    workers: tuple[WorkerView, ...]
    conversations: tuple[OpenConversation, ...]
    dead_letters: tuple[DeadLetter, ...]


def organisms_of(store: Store) -> list[str]:
    """The names of the organisms that processes work on, or did when they died."""
    names = store.names("document", prefix=WORKERS, limit=_MOST)
    found = (document for document in store.get_many(names) if document is not None)
    return sorted({str(each.value.get("organism")) for each in found if not each.erased})


def overview_of(store: Store, organism: str, limit: int = 100) -> Overview:
    """What the store knows of an organism now; of each list at most `limit`."""
    names = store.names("document", prefix=WORKERS, limit=_MOST)
    workers: list[WorkerView] = []
    for name, document in zip(names, store.get_many(names), strict=True):
        if document is None or document.erased or document.value.get("organism") != organism:
            continue
        value = document.value
        workers.append(
            WorkerView(
                name.removeprefix(WORKERS),
                int(value.get("pid", 0)),
                document.time_us,
                float(value.get("lease_seconds", 0)),
                dict(value.get("stats", {})),
            )
        )
    return Overview(
        organism,
        tuple(workers[:limit]),
        tuple(open_conversations(store, organism, limit)),
        tuple(dead_letters(store, organism, limit)),
    )
