"""From steps to commits: what is ready at the same time goes in one batch.

Each conversation has at most one draft under way, taken from the state that the
draft before it left. Drafts of several conversations share a commit; if that is
refused, each tries by itself, so that nobody suffers for another.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Protocol

from pagefile.dispatch.conversation import Conversation
from pagefile.dispatch.draft import Draft
from pagefile.errors import Invalid, PagefileError, Unavailable
from pagefile.store.batch import Batch, Condition, Operation
from pagefile.store.records import Entry
from pagefile.store.store import Store

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
                entries = self._store.append_many(_batch_of(drafts))
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
                return await self._store.append_many_async(batch)
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
