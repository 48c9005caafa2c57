"""The journal of conversations: drafts that commit together, recovery, waiting for answers."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from pagefile.context.names import THREADS
from pagefile.context.slot import LANE, payload_type_of
from pagefile.dispatch.conversation import Activation, Conversation, Watcher
from pagefile.dispatch.letter import Letter, Outcome, Stop, SystemError
from pagefile.dispatch.listener import JOURNALS
from pagefile.errors import Corrupt, Invalid, NotFound, PagefileError, Unavailable
from pagefile.store.batch import NO_NOTES, Append, Batch, Condition, Operation
from pagefile.store.log.feed import feed_of
from pagefile.store.records import Entry
from pagefile.store.store import Store

# Who speaks to an organism from outside, and what they hold in their hands afterwards.


class Identity(msgspec.Struct, frozen=True):
    """An authenticated caller. `user_id` is the partition that everything said is kept in.

    The program that lets callers in makes it; nothing in a message can change it.
    """

    name: str
    user_id: str | None = None


class Delivery(msgspec.Struct, frozen=True):
    """A message that was taken: stored, and delivered whatever happens.

    `thread_id` names the conversation; inject with it to go on. `place` is
    where its journal was, for whoever looks for the answer.
    """

    message_id: str
    thread_id: str
    place: int = 0


class Answer(msgspec.Struct, frozen=True):
    """What came back. `payload` is a `SystemError` when it `failed`, None without a reply."""

    payload: Any
    message_id: str
    thread_id: str

    @property
    def failed(self) -> bool:
        """Whether an error came back in place of an answer."""
        return isinstance(self.payload, SystemError)


# Waiting for answers: of conversations in this process, and of those in others.


#: How far back from the end of a thread a slot is looked for at first.
_NEAR = 32


class Answers:
    """Who waits for what."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, asyncio.Future[Answer | None]] = {}

    def expect(self, message_id: str) -> asyncio.Future[Answer | None]:
        """A future of an answer that this process will know of; None when it loses track."""
        future = self._waiting.get(message_id)
        if future is None:
            future = asyncio.get_running_loop().create_future()
            self._waiting[message_id] = future
        return future

    def tell(self, message_id: str, thread_id: str, payload: Any) -> None:
        """The answer is recorded."""
        future = self._waiting.pop(message_id, None)
        if future is not None and not future.done():
            future.set_result(Answer(payload, message_id, thread_id))

    def lose(self, message_ids: list[str]) -> None:
        """Another process will answer these: look for it in the store."""
        for message_id in message_ids:
            future = self._waiting.pop(message_id, None)
            if future is not None and not future.done():
                future.set_result(None)

    def lose_all(self) -> None:
        """This process answers no more."""
        self.lose(list(self._waiting))

    async def follow(self, delivery: Delivery) -> Answer:
        """Read the journal, and wait for more of it, until the answer is there.

        Raises:
            NotFound: the conversation is gone.
        """
        journal = JOURNALS + delivery.thread_id
        after = delivery.place - 1
        async with feed_of(self._store).follow_async(journal, after) as entries:
            # What was injected has a journal, unless its user was forgotten meanwhile: none comes.
            if not await asyncio.to_thread(self._store.has_log, journal):
                raise _gone(delivery)
            async for entry in entries:
                found = await self._answer_in(entry, delivery)
                if found is not None:
                    return found
        raise _gone(delivery)

    async def _answer_in(self, entry: Entry, delivery: Delivery) -> Answer | None:
        if entry.erased:
            return None
        for record in entry.value:
            answered = record[5] if record[0] == "hop" else record[1]
            if record[0] in ("hop", "stop") and answered and answered[0] == delivery.message_id:
                payload = await asyncio.to_thread(self._payload, entry, delivery, answered)
                return Answer(payload, delivery.message_id, delivery.thread_id)
        return None

    def _payload(self, entry: Entry, delivery: Delivery, answered: list[Any]) -> Any:
        if len(answered) > 2:
            return SystemError(answered[2], answered[3], False, answered[4])
        if answered[1] < 0:
            return None
        slot = slot_of(self._store, delivery.thread_id, entry.position, answered[1])
        return None if slot is None else slot.value


def _gone(delivery: Delivery) -> NotFound:
    return NotFound(
        f"conversation {delivery.thread_id!r} is gone", "it was erased, or kept long enough"
    )


def slot_of(store: Store, thread: str, position: int, ordinal: int) -> Entry | None:
    """The slot that a commit added to a thread: the one of that number among its own."""
    log = THREADS + thread
    # Most often it stands near the end, and one look finds it.
    near = [entry for entry in store.read(log, -_NEAR) if entry.position == position]
    if len(near) > ordinal and (near[0].index == 0 or len(near) < _NEAR):
        return None if near[ordinal].erased else near[ordinal]
    for change in store.changes(position - 1, limit=1):
        for touched in change.touched:
            if touched.action == "append" and touched.name == log:
                count = touched.last - touched.first + 1
                if ordinal < count:
                    index = touched.first + ordinal
                    found = store.read(log, index, index + 1)
                    return found[0] if found and not found[0].erased else None
                ordinal -= count
    return None


_PAGE = 1_000


class JournalReader:
    """Reads journals of one store, and the slots that they speak of."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def catch_up(self, conversation: Conversation) -> list[Activation]:
        """Fold what was not seen yet; the activations that it made ready.

        Letters whose slots were erased have no payload, and are not delivered.
        """
        places: dict[str, tuple[int, int]] = {}
        while True:
            entries = self._store.read(conversation.journal, conversation.seen, limit=_PAGE)
            if not entries:
                break
            for entry in entries:
                if not entry.erased and entry.index not in conversation.own:
                    for record in entry.value:
                        self._fold(conversation, record, entry.position, places)
                conversation.seen = entry.index + 1
                conversation.own.discard(entry.index)
        self._fetch(conversation, places)
        return [
            act
            for act in conversation.activations.values()
            if act.inbox and act.running is None and not act.queued
        ]

    def _fold(
        self,
        conversation: Conversation,
        record: list[Any],
        position: int,
        places: dict[str, tuple[int, int]],
    ) -> None:
        kind = record[0]
        if kind == "in":
            letter = Letter(record[1], "request", conversation.thread, record[2], record[3])
            places[letter.id] = position, record[4]
            conversation.requests.append(letter)
            conversation.start_next()
        elif kind == "retry":
            letter = _taken(conversation, record[2], record[1])
            letter.attempts, letter.due_us = record[3], record[4]
            conversation.activations[record[2]].inbox.appendleft(letter)
        elif kind == "stop":
            _answer(conversation)
        elif kind == "hop":
            self._fold_hop(conversation, record, position, places)

    def _fold_hop(
        self,
        conversation: Conversation,
        record: list[Any],
        position: int,
        places: dict[str, tuple[int, int]],
    ) -> None:
        _, id, thread, sends, ended, answered, watches, spent = record
        _taken(conversation, thread, id)
        caller = conversation.activations[thread]
        conversation.messages += len(sends)
        conversation.spent += spent
        for send in sends:
            if send[1] == "call":
                conversation.open_call(caller, send[2], send[3])
        if answered:
            _answer(conversation)
        elif ended:
            conversation.release(caller)
        for send in sends:
            letter = Letter(send[0], send[1], send[2], send[3], send[4])
            act = conversation.activations.get(letter.thread)
            if act is not None:
                act.inbox.append(letter)
                places[letter.id] = position, send[5]
        for watch in watches:
            _fold_watch(conversation, caller, watch)

    def _fetch(self, conversation: Conversation, places: dict[str, tuple[int, int]]) -> None:
        """Read the slots of the letters that are still to be worked on."""
        letters = [*conversation.waiting(), *conversation.requests]
        for letter in letters:
            place = places.get(letter.id)
            if letter.entry is None and place is not None:
                letter.entry = slot_of(self._store, letter.thread, *place)


def _answer(conversation: Conversation) -> None:
    conversation.requests.popleft()
    conversation.release(conversation.activations[conversation.thread])
    conversation.start_next()


def _taken(conversation: Conversation, thread: str, id: str) -> Letter:
    """Take a letter out of the inbox it is first in."""
    act = conversation.activations.get(thread)
    if act is None or not act.inbox or act.inbox[0].id != id:
        raise Corrupt(
            f"the journal of conversation {conversation.thread!r} does not add up",
            "something else wrote to it: erase the conversation",
        )
    return act.inbox.popleft()


def _fold_watch(conversation: Conversation, act: Activation, watch: list[Any]) -> None:
    if watch[0] == "+":
        if act.watchers is None:
            act.watchers = {}
        act.watchers[watch[1]] = Watcher(*watch[1:])
    elif watch[0] == "-":
        (act.watchers or {}).pop(watch[1], None)
    else:
        other = conversation.activations.get(watch[1])
        if other is not None and other.watchers and watch[2] in other.watchers:
            other.watchers[watch[2]].raised = True


# What one conversation wants to commit: operations, conditions, and what follows from them.


#: The names of payload classes met so far.
_TYPES: dict[type, str] = {}
_MOST_TYPES = 4_096
_SELF_CALL = {"is_self_call": True}


class Draft(msgspec.Struct, eq=False, gc=False):
    """Steps of one conversation on their way into one commit."""

    conversation: Conversation
    operations: list[Operation] = []
    when: list[Condition] = []
    #: What the journal will say of these steps.
    records: list[list[Any]] = []
    #: How many slots each thread got so far, and how many appends there are in all.
    slots: dict[str, int] = {}
    appended: int = 0
    #: Letters, each with the number of its append and its payload.
    letters: list[tuple[Letter, int, Any]] = []
    #: Requests that are answered, each with the number of the append, or -1, and its payload.
    answers: list[tuple[str, int, Any]] = []
    #: What the steps were made from, to be taken anew if the commit is refused.
    outcomes: list[Outcome | Stop] = []
    ready: list[Activation] = []
    delayed: list[tuple[Activation, Letter]] = []
    released: list[str] = []
    dead: list[Letter] = []
    #: Why the draft could not even be made.
    error: Exception | None = None
    #: The conversation is over, for now.
    ends: bool = False

    def append(self, operation: Append) -> int:
        """Add an append; its number."""
        self.operations.append(operation)
        self.appended += 1
        return self.appended - 1

    def slot(
        self, thread: str, payload: Any, sender: str, to: str, *, limit: int, own: bool = False
    ) -> tuple[int, int]:
        """Record a message in a thread; the number of its append, and which of the thread's."""
        cls = type(payload)
        name = _TYPES.get(cls)
        if name is None:
            if len(_TYPES) >= _MOST_TYPES:
                _TYPES.clear()
            name = _TYPES[cls] = payload_type_of(payload)
        keys = {LANE: (name, sender, to)}
        notes = _SELF_CALL if own else NO_NOTES
        user = self.conversation.user
        self.operations.append(
            Append(THREADS + thread, payload, user, "slot", sender, (), keys, limit, notes)
        )
        number, ordinal = self.appended, self.slots.get(thread, 0)
        self.appended = number + 1
        self.slots[thread] = ordinal + 1
        return number, ordinal

    def finish(self) -> None:
        """The journal's own entry, last."""
        conversation = self.conversation
        self.append(Append(conversation.journal, self.records, conversation.user, "hop"))


# From steps to commits: what is ready at the same time goes in one batch.
#
# Each conversation has at most one draft under way, taken from the state that the
# draft before it left. Drafts of several conversations share a commit; if that is
# refused, each tries by itself, so that nobody suffers for another.


#: Bounds one batch: by conversations, and by the operations that one more may find in it.
_MOST_DRAFTS = 256
_MOST_OPERATIONS = 2_000
#: How long a store that does not answer is left alone, at most.
_MOST_PAUSE_SECONDS = 5.0
_UNSOUND = RuntimeError("a draft could not be made")


class Drafting(Protocol):
    """Who makes drafts, and hears what became of them."""

    def draft(self, conversation: Conversation) -> Draft | None: ...
    def committed(self, draft: Draft, entries: list[Entry]) -> None: ...
    def muddled(self, draft: Draft, error: Exception) -> None: ...
    async def refused(self, draft: Draft, error: PagefileError) -> None: ...


class Outbox:
    """Commits what conversations have to say."""

    def __init__(self, store: Store, drafting: Drafting) -> None:
        self._store = store
        self._drafting = drafting
        self._touched: deque[Conversation] = deque()
        self._waiting: set[Conversation] = set()
        self._flushing = False
        self._task: asyncio.Task[None] | None = None
        self._when_idle: list[Callable[[], None]] = []
        self.commits = 0

    @property
    def is_idle(self) -> bool:
        """Nothing is waiting and nothing is under way."""
        return not self._touched and not self._flushing

    def touch(self, conversation: Conversation) -> None:
        """This conversation has something to commit."""
        if conversation.in_flight or conversation in self._waiting:
            return
        self._waiting.add(conversation)
        self._touched.append(conversation)
        if not self._flushing:
            self._flushing = True
            loop = asyncio.get_running_loop()
            if self._store.is_instant:
                loop.call_soon(self._flush_at_once)
            else:
                self._task = loop.create_task(self._flush())

    async def rest(self, timeout: float) -> None:
        """Wait until all is committed that there is, at most for so many seconds."""
        if not self._flushing:
            return
        resting = asyncio.Event()
        self._when_idle.append(resting.set)
        try:
            async with asyncio.timeout(timeout):
                await resting.wait()
        except TimeoutError:
            return

    def _rested(self) -> None:
        self._flushing = False
        for tell in self._when_idle:
            tell()
        self._when_idle.clear()

    def close(self) -> None:
        """Try no more; what is not known to be committed is found out by whoever goes on."""
        if self._task is not None:
            self._task.cancel()

    def _taken(self) -> list[Draft]:
        drafts: list[Draft] = []
        operations = 0
        while self._touched and len(drafts) < _MOST_DRAFTS and operations < _MOST_OPERATIONS:
            conversation = self._touched.popleft()
            self._waiting.discard(conversation)
            if conversation.in_flight:
                continue  # Its journal is being read since; whoever does touches it again.
            draft = self._drafting.draft(conversation)
            if draft is not None:
                conversation.in_flight = True
                drafts.append(draft)
                operations += len(draft.operations)
        return drafts

    def _flush_at_once(self) -> None:
        """For a store whose commits take microseconds: no task, no waiting."""
        while self._touched:
            drafts = self._taken()
            if not drafts:
                continue
            try:
                if any(draft.error is not None for draft in drafts):
                    raise _UNSOUND
                entries = self._store.commit_entries(_batch_of(drafts))
            except Exception as error:  # noqa: BLE001  A payload's own code may raise anything.
                self._task = asyncio.get_running_loop().create_task(self._apart(drafts, error))
                return
            self._settle(drafts, entries)
        self._rested()

    async def _apart(self, drafts: list[Draft], error: Exception) -> None:
        await self._one_by_one(drafts, error)
        await self._flush()

    async def _flush(self) -> None:
        # What the handlers that run now come to goes along.
        await asyncio.sleep(0)
        while self._touched:
            drafts = self._taken()
            if not drafts:
                continue
            try:
                if any(draft.error is not None for draft in drafts):
                    raise _UNSOUND
                entries = await self._committed(_batch_of(drafts))
            except Exception as error:  # noqa: BLE001  A payload's own code may raise anything.
                await self._one_by_one(drafts, error)
            else:
                self._settle(drafts, entries)
                # Those who were just woken have a turn before the next commit.
                await asyncio.sleep(0)
        self._rested()

    async def _committed(self, batch: Batch) -> list[Entry]:
        """Commit, and find out what became of it when the store does not say."""
        pause = 0.05
        while True:
            try:
                return await self._store.commit_entries_async(batch)
            except Unavailable as error:
                if error.outcome != "unknown":
                    raise
                # The same batch has the same key: it is stored once, however often it is sent.
                await asyncio.sleep(pause)
                pause = min(_MOST_PAUSE_SECONDS, pause * 2)

    async def _one_by_one(self, drafts: list[Draft], error: Exception) -> None:
        for draft in drafts:
            own: Exception | None = draft.error
            if own is None and len(drafts) == 1:
                own = error
            if own is None:
                try:
                    entries = await self._committed(_batch_of([draft]))
                except Exception as raised:  # noqa: BLE001  See above.
                    own = raised
                else:
                    self._settle([draft], entries)
                    continue
            await self._drafting.refused(draft, _as_refusal(own))
            self._let_go(draft)

    def _settle(self, drafts: list[Draft], entries: list[Entry]) -> None:
        self.commits += 1
        at = 0
        for draft in drafts:
            end = at + draft.appended
            try:
                self._drafting.committed(draft, entries[at:end])
            except Exception as error:  # noqa: BLE001  It is committed: never to be tried again.
                self._drafting.muddled(draft, error)
            at = end
            self._let_go(draft)

    def _let_go(self, draft: Draft) -> None:
        conversation = draft.conversation
        conversation.in_flight = False
        if conversation.outcomes:
            self.touch(conversation)


def _as_refusal(error: Exception) -> PagefileError:
    if isinstance(error, PagefileError):
        return error
    fact = f"could not be recorded ({type(error).__name__}: {error})"
    return Invalid("payload", fact, "mend its class")


def _batch_of(drafts: list[Draft]) -> Batch:
    operations: list[Operation] = []
    when: list[Condition] = []
    for draft in drafts:
        operations += draft.operations
        when += draft.when
    return Batch(operations, when)
