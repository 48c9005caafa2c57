"""Whose conversation it is: leaving it to others, taking it over, giving it back."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

import msgspec

from pagefile.dispatch.conversation import Conversation, ConversationDocument
from pagefile.dispatch.dispatcher import Dispatcher, now_us
from pagefile.dispatch.events import Events, Metrics, ThreadEvent
from pagefile.dispatch.letter import Failure, Outcome
from pagefile.dispatch.listener import BELL, CONVERSATIONS, ENDED, JOURNALS, OPEN, DispatchLimits
from pagefile.dispatch.workers.presence import Presence
from pagefile.errors import Conflict, Corrupt, Unavailable
from pagefile.store.batch import Append, Batch, Condition, Operation, Put, Query, VersionIs
from pagefile.store.codec.decoder import convert
from pagefile.store.records import Document
from pagefile.store.store import Store

_PAGE = 64
_AT_ONCE = 16
_ATTEMPTS = 20
_DOUBT_SECONDS = 60.0
NOBODY = ""


class Claims:
    """Takes conversations that nobody works on."""

    def __init__(
        self,
        store: Store,
        organism: str,
        presence: Presence,
        dispatcher: Dispatcher,
        limits: DispatchLimits,
        metrics: Metrics,
        events: Events,
    ) -> None:
        self._store = store
        self._organism = organism
        self._presence = presence
        self._dispatcher = dispatcher
        self._limits = limits
        self._metrics = metrics
        self._events = events
        #: Somebody may be waiting for room here.
        self.more = False
        #: This process takes nothing any more.
        self.resting = False
        #: Until when it is worth looking for what this process owns and does not know of.
        self._doubts_until = 0.0
        #: What it owns and does not work on, by document, with the version that was seen.
        self._behind: dict[str, int] = {}

    @property
    def room(self) -> int:
        """How many more conversations this process works on."""
        if self.resting:
            return 0
        return self._limits.max_conversations - len(self._dispatcher.owned)

    async def claim_open(self) -> int:
        """Take what nobody has, as far as there is room; how many."""
        taken = 0
        self.more = True
        while self.room > 0:
            found = await asyncio.to_thread(self._open, NOBODY)
            if not found:
                self.more = False
                break
            # Others look at the same page: from different ends they seldom meet.
            random.shuffle(found)
            some = found[: max(1, min(self.room, _AT_ONCE))]
            # At once: their commits share a sync, or a round trip.
            claimed = await asyncio.gather(*(self._claim(document) for document in some))
            taken += sum(claimed)
            if not any(claimed):
                break
        return taken

    async def claim_dead(self) -> int:
        """Take over from processes that have died; how many conversations."""
        taken = 0
        for worker in await asyncio.to_thread(self._presence.dead):
            while found := await asyncio.to_thread(self._open, worker):
                claimed = [await self._claim(document, dead=True) for document in found]
                taken += sum(claimed)
                if not any(claimed):
                    break
            else:
                await asyncio.to_thread(self._presence.bury, worker)
        return taken

    def doubt(self) -> None:
        """Something went wrong while this process took a conversation: it may own it all the same.

        The commit that it does not know of may also be still on its way.
        """
        self._doubts_until = time.monotonic() + _DOUBT_SECONDS

    async def claim_left_behind(self) -> int:
        """Take anew what this process owns by its document and does not work on; how many.

        Only what is found twice: what is on its way in right now is not there yet.
        """
        if self.resting or (time.monotonic() > self._doubts_until and not self._behind):
            return 0
        found = await asyncio.to_thread(self._all_open, self._presence.worker)
        behind = [one for one in found if _thread(one) not in self._dispatcher.owned]
        before, self._behind = self._behind, {one.name: one.version for one in behind}
        again = [one for one in behind if before.get(one.name) == one.version]
        return sum([await self._claim(document) for document in again])

    def _open(self, owner: str) -> list[Document]:
        page = self._store.find(Query(OPEN, (self._organism, owner), everyone=True), limit=_PAGE)
        return [one for one in page.items if isinstance(one, Document) and not one.erased]

    def _all_open(self, owner: str) -> list[Document]:
        query = Query(OPEN, (self._organism, owner), everyone=True)
        found: list[Document] = []
        while True:
            page = self._store.find(query, limit=_PAGE)
            found += [one for one in page.items if isinstance(one, Document) and not one.erased]
            if page.cursor is None:
                return found
            query = msgspec.structs.replace(query, cursor=page.cursor)

    async def _claim(self, document: Document, *, dead: bool = False) -> bool:
        """Make a conversation this process's own, or anybody's if there is no room."""
        thread = _thread(document)
        told = document_of(document)
        owner = self._presence.worker if self.room > 0 else NOBODY
        deaths, length = told.deaths, 0
        if dead:
            length = await asyncio.to_thread(self._store.length, _journal(thread))
            # Who died without getting any further may have been killed by a message.
            deaths = told.deaths + 1 if length == told.reached else 1
        held = msgspec.structs.replace(
            told, owner=owner, deaths=deaths, reached=length if dead else told.reached
        )
        operations: list[Operation] = [held.put(thread, document.user)]
        if owner == NOBODY:
            operations.append(ring(thread))
        when: list[Condition] = [VersionIs(document.name, document.version)]
        try:
            await self._store.commit_async(Batch(operations, when))
        except Conflict:
            return False
        except Unavailable:
            self.doubt()
            raise
        if owner == NOBODY:
            return True
        conversation = Conversation(thread, told.organism, told.initiator, document.user)
        conversation.version = document.version + 1
        conversation.begins = conversation.seen = told.begins
        conversation.deaths = deaths
        await self._recover(conversation)
        return True

    async def _recover(self, conversation: Conversation) -> None:
        try:
            ready = await self._dispatcher.read(conversation)
        except Unavailable:
            self.doubt()
            return
        except Corrupt:
            return  # Nobody can go on with it; it stays as it is.
        self._metrics.claimed += 1
        if self._events.wanted:
            self._events.tell(ThreadEvent(conversation.thread, "recovered"))
        if conversation.deaths > self._limits.max_deaths:
            self._dispatcher.take(conversation, ())
            for act in ready:
                act.running = act.inbox.popleft()
                failure = Failure("worker", "processes that worked on this message died")
                conversation.outcomes.append(Outcome(act.running, failure=failure))
            self._dispatcher.outbox.touch(conversation)
            return
        self._dispatcher.take(conversation, ready)

    async def seize(self, thread: str) -> Conversation | None:
        """Take a conversation from whoever has it; None when it is over or unknown.

        Whatever the other process still does there is refused.
        """
        owned = self._dispatcher.owned.get(thread)
        if owned is not None:
            return owned
        for _ in range(_ATTEMPTS):
            document = await asyncio.to_thread(self._store.get, CONVERSATIONS + thread)
            if document is None or document.erased:
                return None
            told = document_of(document)
            if told.ended_us or told.organism != self._organism:
                return None
            held = msgspec.structs.replace(told, owner=self._presence.worker)
            when = [VersionIs(document.name, document.version)]
            try:
                await self._store.commit_async(Batch([held.put(thread, document.user)], when))
            except Conflict:
                continue
            conversation = Conversation(thread, told.organism, told.initiator, document.user)
            conversation.version = document.version + 1
            conversation.begins = conversation.seen = told.begins
            try:
                await self._dispatcher.read(conversation)
            except Unavailable:
                self.doubt()
                raise
            self._dispatcher.owned[thread] = conversation
            return conversation
        return None

    async def give_back(self, left: Sequence[Conversation]) -> int:
        """Leave conversations to whoever comes; how many."""
        given = 0
        for at in range(0, len(left), _PAGE):
            some = left[at : at + _PAGE]
            given += sum([await self._give(conversation) for conversation in some])
        return given

    async def _give(self, conversation: Conversation) -> bool:
        told = ConversationDocument(
            conversation.organism, conversation.initiator, begins=conversation.begins
        )
        try:
            await self._store.commit_async(
                Batch(
                    [told.put(conversation.thread, conversation.user), ring(conversation.thread)],
                    [VersionIs(conversation.document, conversation.version)],
                )
            )
        except Conflict:
            return False
        return True


class OpenConversation(msgspec.Struct, frozen=True):
    """A conversation that is not over. No owner: it waits for a process to work on it."""

    thread_id: str
    initiator: str
    owner: str
    deaths: int
    user_id: str | None


def open_conversations(store: Store, organism: str, limit: int) -> list[OpenConversation]:
    """The conversations of an organism that are not over, by owner."""
    page = store.find(Query(OPEN, (organism,), prefix=True, everyone=True), limit=limit)
    found: list[OpenConversation] = []
    for document in page.items:
        if isinstance(document, Document) and not document.erased:
            told = document_of(document)
            found.append(
                OpenConversation(
                    _thread(document), told.initiator, told.owner, told.deaths, document.user
                )
            )
    return found


def document_of(document: Document) -> ConversationDocument:
    """What the document of a conversation says."""
    try:
        return convert(document.value, ConversationDocument)
    except msgspec.ValidationError as error:
        raise Corrupt(
            f"document {document.name!r} is no conversation ({error})",
            "something else wrote it: restore it, or delete it",
        ) from error


def ring(thread: str) -> Append:
    """Tell other processes that there is something to do in a conversation."""
    return Append(BELL, thread, kind="bell")


def put_taken(
    name: str, thread: str, message_id: str, organism: str, user: str | None, mark: str
) -> Put:
    """That a message id of the caller's was used, for which conversation and what request."""
    value = {"thread": thread, "message": message_id, "organism": organism, "mark": mark}
    keys = {ENDED: (organism, now_us())}
    return Put(name, value, user=user, kind="taken", tenant_keys=keys)


def _thread(document: Document) -> str:
    return document.name.removeprefix(CONVERSATIONS)


def _journal(thread: str) -> str:
    return JOURNALS + thread
