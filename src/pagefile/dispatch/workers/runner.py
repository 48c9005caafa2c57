"""Running handlers: so many at a time, each within its time, none in the way of the loop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from time import perf_counter
from typing import Any

from pagefile.context.slot import HandlerMetadata, payload_type_of
from pagefile.dispatch.conversation import nudge_of
from pagefile.dispatch.events import AgentStateEvent, Events, MessageReceivedEvent, Metrics
from pagefile.dispatch.letter import TIMEOUT_ERROR, Effects, Failure, Letter, Outcome, responses_of
from pagefile.dispatch.listener import DispatchLimits, Listener, Refused
from pagefile.dispatch.workers.own_thread import OwnThread, Reach
from pagefile.dispatch.workers.pool import HandlerFailed, Pool, WorkerDied
from pagefile.dispatch.workers.scheduler import Schedule, Turn
from pagefile.errors import Forbidden, Invalid, LimitExceeded, Unsupported

# Threads for plain handlers. They die with the process: one that hangs holds up nobody's exit.


_Errand = tuple[
    asyncio.AbstractEventLoop, "asyncio.Future[Any]", contextvars.Context, Callable[[], Any]
]


class DaemonThreads:
    """Runs functions in threads, as many at a time as there is work for."""

    def __init__(self) -> None:
        self._errands: SimpleQueue[_Errand | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._idle = 0
        self._threads = 0

    def run(self, function: Callable[[], Any]) -> asyncio.Future[Any]:
        """A future of what the function returns; cancelling it lets the thread run on, unheard."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._lock:
            if self._idle:
                self._idle -= 1
            else:
                self._threads += 1
                threading.Thread(
                    target=self._work, name=f"pagefile-handler-{self._threads}", daemon=True
                ).start()
        self._errands.put((loop, future, contextvars.copy_context(), function))
        return future

    def close(self) -> None:
        """Let idle threads end."""
        with self._lock:
            idle, self._idle = self._idle, 0
        for _ in range(idle):
            self._errands.put(None)

    def _work(self) -> None:
        while (errand := self._errands.get()) is not None:
            loop, future, context, function = errand
            result: Any = None
            error: BaseException | None = None
            try:
                result = context.run(function)
            except BaseException as raised:  # noqa: BLE001  Handed to whoever waits.
                error = raised
            with self._lock:
                self._idle += 1
            try:
                loop.call_soon_threadsafe(_settle, future, result, error)
            except RuntimeError:
                continue  # The loop is closed; nobody waits any more.


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    elif isinstance(error, Exception) and not isinstance(error, StopIteration):
        future.set_exception(error)
    else:
        # SystemExit in a handler's thread ends the handler, not the organism.
        stopped = RuntimeError(f"the handler raised {type(error).__name__}")
        stopped.__cause__ = error
        future.set_exception(stopped)


#: What no further try can mend.
_FINAL = (Refused, Invalid, Forbidden, LimitExceeded, Unsupported)
#: A worker lets others have the loop after so many handlers that never waited.
_MOST_IN_A_ROW = 256
#: How long a handler that was told to end may go on before it is given up.
_STUBBORN_SECONDS = 1.0


class _Worker:
    """One task that runs handlers, one after the other."""

    __slots__ = ("deadline", "given_up", "task", "timed_out", "turn")

    def __init__(self) -> None:
        #: When the handler that it runs must be through; 0 between handlers.
        self.deadline = 0.0
        #: Its handler was told that its time is over.
        self.timed_out = False
        #: Its handler did not listen, and nobody waits for it any more.
        self.given_up = False
        self.turn: Turn | None = None
        self.task: asyncio.Task[None] | None = None


class Runner:
    """The workers of one organism."""

    def __init__(
        self,
        schedule: Schedule,
        limits: DispatchLimits,
        metrics: Metrics,
        events: Events,
        reach: Callable[[str], Reach],
        usage: Callable[[Listener], str],
        finished: Callable[[Turn, Outcome], None],
        pool: Pool | None,
    ) -> None:
        self._schedule = schedule
        self._limits = limits
        self._metrics = metrics
        self._events = events
        self._reach = reach
        self._usage = usage
        self._finished = finished
        self._pool = pool
        self._threads = DaemonThreads()
        self._workers: list[_Worker] = []
        self._idle: list[asyncio.Future[None]] = []
        self._watch: asyncio.TimerHandle | None = None
        self._tick = 1.0
        #: Handlers that nobody waits for any more.
        self._stubborn: set[asyncio.Task[None]] = set()
        #: A worker was woken and has not looked yet.
        self._waking = False
        self.paused = False

    def start(self, shortest_timeout: float) -> None:
        """Begin; handlers that overrun are noticed within a quarter of the shortest timeout."""
        self._tick = min(1.0, max(0.005, shortest_timeout / 4))
        self.paused = False

    def wake(self) -> None:
        """Something is ready: let one more worker look, who wakes the next if there is more."""
        if self._waking or self.paused:
            return
        while self._idle:
            waiter = self._idle.pop()
            if not waiter.done():
                self._waking = True
                waiter.set_result(None)
                return
        if len(self._workers) < self._limits.max_concurrent_handlers:
            self._waking = True
            worker = _Worker()
            self._workers.append(worker)
            worker.task = asyncio.get_running_loop().create_task(self._work(worker))

    async def stop(self) -> None:
        """End all workers, and what they run."""
        self.paused = True
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        workers, self._workers = self._workers, []
        tasks = [worker.task for worker in workers if worker.task is not None]
        for task in (*tasks, *self._stubborn):
            task.cancel()
        if tasks:
            # One that does not listen must not keep everybody here.
            await asyncio.wait(tasks, timeout=_STUBBORN_SECONDS)
        for worker in workers:
            if worker.turn is not None:
                worker.given_up = True
                self._schedule.done(worker.turn)
        self._idle = []
        self._threads.close()

    async def _work(self, worker: _Worker) -> None:
        loop = asyncio.get_running_loop()
        schedule = self._schedule
        in_a_row = 0
        self._waking = False
        while True:
            turn = None if self.paused else schedule.pop()
            if turn is None:
                waiter = loop.create_future()
                self._idle.append(waiter)
                await waiter
                self._waking = False
                in_a_row = 0
                continue
            if schedule.waiting:
                self.wake()
            worker.turn = turn
            try:
                outcome = await self._run(turn, worker)
            finally:
                worker.deadline, worker.turn = 0.0, None
                if not worker.given_up:
                    schedule.done(turn)
            if worker.given_up:
                return
            if worker.timed_out:
                # The handler was told that its time is over, and went on to its end.
                worker.timed_out = False
                assert worker.task is not None
                worker.task.uncancel()
            if outcome is not None:
                self._finished(turn, outcome)
            in_a_row += 1
            if in_a_row >= _MOST_IN_A_ROW:
                in_a_row = 0
                await asyncio.sleep(0)

    async def _run(self, turn: Turn, worker: _Worker) -> Outcome | None:
        act, conversation, listener = turn.act, turn.conversation, turn.listener
        act.queued = False
        if conversation.lost or conversation.activations.get(act.thread) is not act:
            return None
        letter = act.inbox.popleft()
        act.running = letter
        metadata = HandlerMetadata(
            letter.thread,
            letter.sender,
            listener.name if listener.agent else None,
            letter.kind == "self",
            self._usage(listener) if listener.agent else "",
            nudge_of(act.watchers) if act.watchers else "",
        )
        own: OwnThread | None = None
        started = perf_counter()
        try:
            if letter.value is None and letter.entry is None:
                raise Refused("the content of the message was erased")
            if listener.takes > 2 or listener.mode == "pool":
                own = self._own(turn, letter)
            if self._events.wanted:
                self._tell_begin(listener, letter)
            if listener.mode != "pool":  # Which keeps time itself.
                worker.deadline = started + listener.timeout
                if self._watch is None:
                    self._watch_clock()
            if listener.mode == "async":
                arguments = (letter.payload, metadata, own)[: listener.takes]
                returned = await listener.handler(*arguments)
                effects = None if own is None else own.close()
            else:
                returned, effects = await self._elsewhere(listener, letter, metadata, own)
            outcome = Outcome(letter, responses_of(returned), effects)
        except asyncio.CancelledError:
            assert worker.task is not None
            if worker.timed_out:
                worker.timed_out = False
                worker.task.uncancel()
                code, text = "timeout", TIMEOUT_ERROR.message
            elif worker.task.cancelling():
                raise
            else:
                # Something that the handler waited for was cancelled, not the handler.
                code, text = "handler", "CancelledError"
            outcome = self._failed(listener, letter, code, text, final=False)
        except WorkerDied as error:
            outcome = self._failed(listener, letter, "worker", str(error), final=False)
        except HandlerFailed as error:
            outcome = self._failed(listener, letter, "handler", str(error), final=False)
        except TimeoutError as error:
            text = str(error) or TIMEOUT_ERROR.message
            outcome = self._failed(listener, letter, "timeout", text, final=False)
        except (KeyboardInterrupt, SystemExit, GeneratorExit):
            raise  # Meant for the process, or for this very task.
        except BaseException as error:  # noqa: BLE001  A handler is somebody else's code.
            outcome = self._failed(
                listener, letter, "handler", _told(error), final=isinstance(error, _FINAL)
            )
        finally:
            if own is not None:
                own.revoke()
        self._metrics.of(listener.name).add(perf_counter() - started)
        if self._events.wanted:
            state = AgentStateEvent(listener.name, "idle", letter.thread)
            self._events.tell(state)
        return outcome

    async def _elsewhere(
        self,
        listener: Listener,
        letter: Letter,
        metadata: HandlerMetadata,
        own: OwnThread | None,
    ) -> tuple[Any, Effects | None]:
        """Run a handler in a thread, or in another process."""
        if listener.mode == "pool":
            assert own is not None
            if self._pool is None:
                raise Refused("there is no process pool for CPU-bound handlers")
            return await self._pool.run(listener, letter, metadata, own)
        arguments = (letter.payload, metadata, own)[: listener.takes]
        returned = await self._threads.run(lambda: listener.handler(*arguments))
        return returned, None if own is None else own.close()

    def _own(self, turn: Turn, letter: Letter) -> OwnThread:
        conversation = turn.conversation
        return OwnThread(
            turn.listener.name,
            letter.thread,
            letter.id,
            letter.kind,
            letter.sender,
            letter.attempts + 1,
            conversation.user,
            self._reach(letter.thread),
            max(0, self._limits.max_tokens - conversation.spent),
            self._limits.max_sent,
        )

    def _failed(
        self, listener: Listener, letter: Letter, code: str, message: str, *, final: bool
    ) -> Outcome:
        latency, metrics = self._metrics.of(listener.name), self._metrics
        latency.errors += 1
        metrics.errors += 1
        if code == "timeout":
            latency.timeouts += 1
            metrics.timeouts += 1
        failures = letter.attempts + 1
        pause: float | None = None
        if not final and failures < listener.retry.attempts:
            pause = listener.retry.seconds_after(failures)
        return Outcome(letter, failure=Failure(code, message, pause))

    def _tell_begin(self, listener: Listener, letter: Letter) -> None:
        payload = letter.payload
        received = MessageReceivedEvent(
            letter.thread, letter.sender, letter.to, payload_type_of(payload), payload
        )
        self._events.tell(received)
        self._events.tell(AgentStateEvent(listener.name, "running", letter.thread))

    # One clock for all handlers: a timer for each message would cost more than the message.

    def _watch_clock(self) -> None:
        self._watch = asyncio.get_running_loop().call_later(self._tick, self._look_at_clock)

    def _look_at_clock(self) -> None:
        self._watch = None
        now, running = perf_counter(), False
        for worker in self._workers:
            if worker.deadline:
                running = True
                if now > worker.deadline and worker.task is not None:
                    if worker.timed_out:
                        self._give_up(worker)
                        continue
                    worker.deadline = now + _STUBBORN_SECONDS
                    worker.timed_out = True
                    worker.task.cancel()
        if running:
            self._watch_clock()

    def _give_up(self, worker: _Worker) -> None:
        """A handler neither ended nor was ended: its caller is told, and it runs on unheard."""
        turn = worker.turn
        assert turn is not None
        assert worker.task is not None
        worker.given_up = True
        worker.deadline = 0.0
        self._workers = [one for one in self._workers if one is not worker]
        self._stubborn.add(worker.task)
        worker.task.add_done_callback(self._stubborn.discard)
        self._schedule.done(turn)
        letter = turn.act.running
        if letter is not None:
            text = TIMEOUT_ERROR.message
            self._finished(turn, self._failed(turn.listener, letter, "timeout", text, final=False))
        self.wake()


def _told(error: BaseException) -> str:
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001  Its own text may be broken as well.
        return type(error).__name__
