"""The conversations in this process's hands: from what handlers came to, to what is next."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable

from pagefile.context.slot import payload_type_of
from pagefile.dispatch.conversation import Activation, Conversation, ConversationDocument
from pagefile.dispatch.events import Events, MessageSentEvent, Metrics, ThreadEvent
from pagefile.dispatch.journal import Answers, Delivery, Draft, JournalReader, Outbox
from pagefile.dispatch.letter import Failure, Letter, Outcome, Stop
from pagefile.dispatch.steps import Stepper
from pagefile.dispatch.workers.scheduler import Schedule, Turn
from pagefile.errors import Conflict, PagefileError, Unavailable
from pagefile.store.batch import LengthIs, VersionIs
from pagefile.store.records import Entry
from pagefile.store.store import Store

_SECOND = 1_000_000
#: How long a store that does not answer is left alone, at most.
_MOST_PAUSE_SECONDS = 5.0
#: One draft takes so many outcomes of a conversation, to bound the batch.
_MOST_OUTCOMES = 64


def now_us() -> int:
    """Microseconds since 1970, by this machine."""
    return time.time_ns() // 1_000


class Dispatcher:
    """What this process owns, and every step it takes."""

    def __init__(
        self,
        store: Store,
        stepper: Stepper,
        schedule: Schedule,
        answers: Answers,
        metrics: Metrics,
        events: Events,
    ) -> None:
        self._store = store
        self._stepper = stepper
        self._schedule = schedule
        self._answers = answers
        self._metrics = metrics
        self._events = events
        self._journals = JournalReader(store)
        self.outbox = Outbox(store, self)
        self.owned: dict[str, Conversation] = {}
        self.wake: Callable[[], None] = lambda: None
        #: This process may own a conversation that it does not work on.
        self.left_behind: Callable[[], None] = lambda: None
        #: A conversation is over; called without knowing whether others wait for its place.
        self.over: Callable[[], None] = lambda: None
        self._stopping: list[asyncio.Event] = []
        #: Somebody waits for the last conversation to end, or for room for another.
        self.changed = asyncio.Event()
        self._timers: set[asyncio.TimerHandle] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    # Taking conversations in

    def take(self, conversation: Conversation, ready: Iterable[Activation]) -> None:
        """This process owns the conversation from now on."""
        self.owned[conversation.thread] = conversation
        self._make_ready(conversation, ready)

    async def read(self, conversation: Conversation) -> list[Activation]:
        """Fold what others wrote to the journal; what became ready."""
        if self._store.is_instant:
            return self._journals.catch_up(conversation)
        return await asyncio.to_thread(self._journals.catch_up, conversation)

    def look(self, thread: str) -> bool:
        """Others wrote to a conversation; False when it is not owned here."""
        conversation = self.owned.get(thread)
        if conversation is None:
            return False
        conversation.stale = True
        if not conversation.in_flight:
            self._spawn(self._catch_up(conversation))
        return True

    def expects(self, delivery: Delivery) -> bool:
        """Whether this process will know of the answer first."""
        conversation = self.owned.get(delivery.thread_id)
        if conversation is None or conversation.lost:
            return False
        return any(letter.id == delivery.message_id for letter in conversation.requests)

    def release_all(self) -> list[Conversation]:
        """Own nothing any more; what was owned."""
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()
        left = list(self.owned.values())
        self.owned.clear()
        for conversation in left:
            conversation.lost = True
        self._wake_who_stops()
        return left

    async def settle(self) -> None:
        """Let what runs in the background end."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # For the runner

    def finished(self, turn: Turn, outcome: Outcome) -> None:
        """A handler is through."""
        conversation = turn.conversation
        if conversation.lost:
            self._metrics.discarded += 1
            return
        conversation.outcomes.append(outcome)
        self.outbox.touch(conversation)

    async def stop(self, conversation: Conversation, code: str, message: str) -> None:
        """End the request that a conversation works on."""
        gone = asyncio.Event()
        conversation.outcomes.append(Stop(code, message))
        self.outbox.touch(conversation)
        request = conversation.requests[0].id if conversation.requests else ""
        while conversation.requests and conversation.requests[0].id == request:
            if conversation.lost:
                break
            self._stopping.append(gone)
            await gone.wait()
            gone.clear()

    # For the outbox

    def draft(self, conversation: Conversation) -> Draft | None:
        """The steps that are due, as one draft; None when there is nothing to commit."""
        if conversation.lost:
            return None
        draft = Draft(conversation)
        outcomes = conversation.outcomes
        while outcomes and len(draft.outcomes) < _MOST_OUTCOMES:
            if outcomes[0].alone and draft.outcomes:
                break
            outcome = outcomes.popleft()
            try:
                taken = self._stepper.step(conversation, outcome, draft)
            except Exception as error:  # noqa: BLE001  A payload's own code may raise anything.
                draft.error = error
                draft.outcomes.append(outcome)
                return draft
            if not taken:
                self._metrics.discarded += 1
                continue
            draft.outcomes.append(outcome)
            if draft.ends or outcome.alone:
                break
        if not draft.records:
            return None
        draft.when.append(VersionIs(conversation.document, conversation.version))
        if draft.ends:
            # Whoever asked meanwhile must not be left behind in a conversation that is over.
            draft.when.append(LengthIs(conversation.journal, conversation.seen))
            ended = ConversationDocument(
                conversation.organism,
                conversation.initiator,
                begins=conversation.seen + 1,
                ended_us=now_us(),
            )
            draft.operations.append(ended.put(conversation.thread, conversation.user))
        draft.finish()
        return draft

    def committed(self, draft: Draft, entries: list[Entry]) -> None:
        """The draft is recorded: now its messages may be worked on."""
        conversation, metrics = draft.conversation, self._metrics
        metrics.hops += len(draft.outcomes)
        metrics.sent += len(draft.letters)
        for letter, number, payload in draft.letters:
            letter.keep(entries[number], payload)
        if self._events.wanted:
            self._tell(draft)
        if draft.dead:
            metrics.dead += len(draft.dead)
        for message_id, number, payload in draft.answers:
            metrics.answered += 1
            value = entries[number].value if number >= 0 else payload
            self._answers.tell(message_id, conversation.thread, value)
        self._wake_who_stops()
        if draft.ends:
            self._forget(conversation)
            return
        conversation.wrote(entries[-1].index)
        self._make_ready(conversation, draft.ready)
        for act, letter in draft.delayed:
            metrics.retried += 1
            self._wait_for(conversation, act, letter)
        if conversation.stale:
            self._spawn(self._catch_up(conversation))

    async def refused(self, draft: Draft, error: PagefileError) -> None:
        """Nothing of the draft was recorded: read what is, and decide anew."""
        conversation = draft.conversation
        if isinstance(error, Conflict) and error.target == conversation.document:
            self._answers.lose([message_id for message_id, _, _ in draft.answers])
            self.lose(conversation)
            return
        pause = 0.05
        while True:
            try:
                await self._reload(conversation, draft)
                break
            except Unavailable:
                await asyncio.sleep(pause)
                pause = min(_MOST_PAUSE_SECONDS, pause * 2)
            except PagefileError:
                # Nobody can go on with it; `cancel` cannot either. It stays as it is.
                self._answers.lose([message_id for message_id, _, _ in draft.answers])
                self.lose(conversation)
                return
        if conversation.stale:
            self._spawn(self._catch_up(conversation))
        if isinstance(error, (Conflict, Unavailable)):
            conversation.outcomes.extendleft(reversed(draft.outcomes))
            return
        for outcome in reversed(draft.outcomes):
            if isinstance(outcome, Stop):
                continue
            if len(draft.outcomes) > 1:
                # One of them cannot be recorded; by themselves it shows which.
                outcome.alone = True
                conversation.outcomes.appendleft(outcome)
                continue
            conversation.outcomes.appendleft(_as_failure(outcome, error))

    def muddled(self, draft: Draft, error: Exception) -> None:
        """The draft is recorded, and the state here is not what it says: to be read anew."""
        import logging

        logging.getLogger("pagefile.dispatch").error("after a commit: %r", error, exc_info=error)
        self._answers.lose([message_id for message_id, _, _ in draft.answers])
        self.lose(draft.conversation)
        self.left_behind()

    def lose(self, conversation: Conversation) -> None:
        """Another process owns it now."""
        conversation.lost = True
        self._metrics.lost += 1
        if self.owned.get(conversation.thread) is conversation:
            del self.owned[conversation.thread]
        self._answers.lose([letter.id for letter in conversation.requests])
        self.changed.set()
        self._wake_who_stops()
        if self._events.wanted:
            self._events.tell(ThreadEvent(conversation.thread, "lost"))

    # Inside

    async def _reload(self, conversation: Conversation, draft: Draft) -> None:
        # Whoever writes from now on makes it stale again.
        conversation.stale = False
        read = conversation.afresh()
        ready = await self.read(read)
        # Asked for now: handlers may have begun, or ended, while it was read.
        made = (*draft.outcomes, *conversation.outcomes)
        running = [outcome.letter.id for outcome in made if isinstance(outcome, Outcome)]
        running += [
            act.running.id for act in conversation.activations.values() if act.running is not None
        ]
        conversation.adopt(read, running)
        self._make_ready(conversation, [act for act in ready if act.running is None])

    async def _catch_up(self, conversation: Conversation) -> None:
        if conversation.in_flight or conversation.lost or not conversation.stale:
            return
        conversation.in_flight = True
        try:
            conversation.stale = False
            self._make_ready(conversation, await self.read(conversation))
        except Unavailable:
            conversation.stale = True  # The next step tries again.
        except PagefileError:
            self.lose(conversation)
        finally:
            conversation.in_flight = False
            if conversation.outcomes:
                self.outbox.touch(conversation)

    def _make_ready(self, conversation: Conversation, ready: Iterable[Activation]) -> None:
        woken = False
        for act in ready:
            if not act.inbox or conversation.activations.get(act.thread) is not act:
                act.queued = False
                continue
            letter = act.inbox[0]
            if letter.due_us:
                self._wait_for(conversation, act, letter)
                continue
            act.queued = True
            if self._schedule.push(conversation, act):
                woken = True
            else:
                self._refuse(conversation, act)
        if woken:
            self.wake()

    def _refuse(self, conversation: Conversation, act: Activation) -> None:
        """Nobody here listens to the name any more."""
        act.queued = False
        act.running = act.inbox.popleft()
        failure = Failure("routing", f"there is no listener {act.listener!r} here")
        conversation.outcomes.append(Outcome(act.running, failure=failure))
        self.outbox.touch(conversation)

    def _wait_for(self, conversation: Conversation, act: Activation, letter: Letter) -> None:
        act.queued = True
        seconds = max(0.0, (letter.due_us - now_us()) / _SECOND)

        def due() -> None:
            self._timers.discard(timer)
            letter.due_us = 0
            act.queued = False
            if not conversation.lost:
                self._make_ready(conversation, [act])

        timer = asyncio.get_running_loop().call_later(seconds, due)
        self._timers.add(timer)

    def _forget(self, conversation: Conversation) -> None:
        conversation.lost = True
        if self.owned.get(conversation.thread) is conversation:
            del self.owned[conversation.thread]
        self.changed.set()
        self.over()

    def _wake_who_stops(self) -> None:
        while self._stopping:
            self._stopping.pop().set()

    def _spawn(self, work: object) -> None:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)  # type: ignore[arg-type]
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _tell(self, draft: Draft) -> None:
        events = self._events
        for letter, _, payload in draft.letters:
            kind = payload_type_of(payload)
            events.tell(MessageSentEvent(letter.thread, letter.sender, letter.to, kind, payload))
        for _, letter in draft.delayed:
            events.tell(ThreadEvent(letter.thread, "retried", (letter.to,)))
        for letter in draft.dead:
            events.tell(ThreadEvent(letter.thread, "dead", (letter.to,)))
        for thread in draft.released:
            events.tell(ThreadEvent(thread, "released"))
        for message_id, _, _ in draft.answers:
            events.tell(ThreadEvent(draft.conversation.thread, "answered", (message_id,)))


def _as_failure(outcome: Outcome, error: PagefileError) -> Outcome:
    """What cannot be recorded is not delivered: the caller is told instead."""
    failed = Outcome(outcome.letter, failure=Failure(_code(error), str(error)))
    failed.unrecorded = outcome.failure is not None
    return failed


def _code(error: PagefileError) -> str:
    return "full" if error.code == "limit_exceeded" else "invalid"
