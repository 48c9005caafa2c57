"""Taking messages in, recorded first; and whose conversation it is."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Any

import msgspec

from pagefile.context import registry_documents
from pagefile.context.appender import NewSlot, slot_append
from pagefile.context.names import log_of, require_name
from pagefile.dispatch.conversation import Conversation, ConversationDocument
from pagefile.dispatch.dispatcher import Dispatcher, now_us
from pagefile.dispatch.events import Events, Metrics, ThreadEvent
from pagefile.dispatch.journal import Delivery, Identity
from pagefile.dispatch.letter import SYSTEM, Failure, Letter, Outcome
from pagefile.dispatch.listener import (
    BELL,
    CONVERSATIONS,
    ENDED,
    JOURNALS,
    OPEN,
    TAKEN,
    DispatchLimits,
    Listeners,
)
from pagefile.dispatch.workers.presence import Presence
from pagefile.errors import (
    Conflict,
    Corrupt,
    Forbidden,
    Invalid,
    LimitExceeded,
    NotFound,
    Unavailable,
)
from pagefile.store import codec
from pagefile.store.arguments import require_type
from pagefile.store.batch import (
    Absent,
    Append,
    Batch,
    Condition,
    CountBelow,
    Operation,
    Put,
    Query,
    VersionIs,
)
from pagefile.store.codec.decoder import convert
from pagefile.store.records import Document, Entry
from pagefile.store.store import Store

# Whose conversation it is: leaving it to others, taking it over, giving it back.


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


#: A thread id is part of the names of documents next to others.
_MOST_ID_BYTES = 300
#: So many of a thread's first slots say whose it is.
_LOOKED_AT = 100


class Intake:
    """The door of an organism."""

    def __init__(
        self,
        store: Store,
        organism: str,
        worker: str,
        listeners: Listeners,
        limits: DispatchLimits,
        claims: Claims,
        dispatcher: Dispatcher,
        new_thread: Callable[[], str],
        new_message: Callable[[], str],
    ) -> None:
        self._store = store
        self._organism = organism
        self._worker = worker
        self._listeners = listeners
        self._limits = limits
        self._claims = claims
        self._dispatcher = dispatcher
        self._new_thread = new_thread
        self._new_message = new_message
        #: Whether this process works on what it takes in.
        self.works = False
        self.rung: Callable[[str], None] = lambda thread: None

    async def take(
        self,
        payload: Any,
        to: str,
        caller: Identity,
        thread_id: str | None,
        message_id: str | None,
    ) -> Delivery:
        """Record a request and let it be worked on.

        Raises:
            NotFound: nobody of this name takes this payload.
            Forbidden: the caller's name is a listener's, or the thread is another's.
            Invalid: the message id was used for another request.
            LimitExceeded: too many requests wait already.
        """
        self._check(payload, to, caller)
        for given, field in ((thread_id, "thread_id"), (message_id, "message_id")):
            if given is not None:
                require_name(field, given)
                if len(given.encode()) > _MOST_ID_BYTES:
                    raise Invalid(field, "is too long", f"keep it within {_MOST_ID_BYTES} bytes")
        for _ in range(_ATTEMPTS):
            try:
                return await self._attempt(payload, to, caller, thread_id, message_id)
            except Conflict as conflict:
                if message_id is not None and conflict.target == TAKEN + message_id:
                    return await self._earlier(message_id, caller, self._mark(payload, to, caller))
        return await self._attempt(payload, to, caller, thread_id, message_id)

    def _check(self, payload: Any, to: str, caller: Identity) -> None:
        require_type("caller", caller, Identity)
        require_name("caller.name", caller.name)
        if caller.user_id is not None:
            require_name("caller.user_id", caller.user_id)
        name = caller.name
        if name in self._listeners or name == SYSTEM or name.startswith(SYSTEM + "."):
            raise Forbidden(
                "the caller's name is one of the organism's own", "let callers in by other names"
            )
        listener = self._listeners.get(to)
        if listener is None or not listener.accepts(payload):
            # Nothing about who is there: a stranger need not learn it.
            raise NotFound("nobody of this name takes this payload", "check name and type")

    async def _attempt(
        self,
        payload: Any,
        to: str,
        caller: Identity,
        thread_id: str | None,
        message_id: str | None,
    ) -> Delivery:
        thread = self._new_thread() if thread_id is None else thread_id
        document = None if thread_id is None else await self._document(thread)
        version = 0 if document is None else document.version
        told = self._told(document, caller)
        if told is None and thread_id is not None:
            await self._require_own(thread, caller)
        id = self._new_message() if message_id is None else message_id
        conversation = Conversation(thread, self._organism, caller.name, caller.user_id)
        conversation.begins = 0 if told is None else told.begins
        joins = told is not None and not told.ended_us
        mine = not joins and self.works and self._claims.room > 0
        batch = self._batch(conversation, version, payload, to, id)
        if message_id is not None:
            mark = self._mark(payload, to, caller)
            taken = put_taken(TAKEN + id, thread, id, self._organism, caller.user_id, mark)
            batch.operations = [*batch.operations, taken]
            batch.when = [*batch.when, Absent(taken.document)]
        if not joins:
            self._open(batch, conversation, to, mine=mine)
        elif thread not in self._dispatcher.owned:
            batch.operations = [*batch.operations, ring(thread)]
        entries = await self._committed(batch, mine=mine)
        place = entries[1].index
        if mine:
            conversation.version = version + 1
            if thread_id is not None and not version:
                # One of this name may have been there before; versions count on.
                opened = await self._document(thread)
                if opened is None or opened.position != entries[0].position:
                    return Delivery(id, thread, place)  # Another took it since.
                conversation.version = opened.version
            if not self.works:
                # Shut down since: nobody here would work on it, nor tell who waits.
                with contextlib.suppress(Unavailable):
                    await self._claims.give_back([conversation])
                self.rung(thread)
                return Delivery(id, thread, place)
            conversation.seen = place + 1
            letter = Letter(id, "request", thread, to, caller.name)
            letter.keep(entries[0], payload)
            self._begin(conversation, letter)
        else:
            self._claims.more = True
            if not self._dispatcher.look(thread):
                self.rung(thread)
        return Delivery(id, thread, place)

    async def _committed(self, batch: Batch, *, mine: bool) -> list[Entry]:
        if self._store.is_instant:
            return self._store.append_many(batch)
        known = False
        try:
            entries = await self._store.append_many_async(batch)
            known = True
        except Conflict:
            known = True
            raise
        finally:
            if mine and not known:
                # The caller gave up, or the store did not answer: it may be committed.
                self._claims.doubt()
        return entries

    def _told(self, document: Document | None, caller: Identity) -> ConversationDocument | None:
        """What the document says, if this caller may go on with the conversation."""
        if document is None or document.erased:
            return None
        told = document_of(document)
        if (told.initiator, document.user) != (caller.name, caller.user_id):
            raise Forbidden("the thread is another caller's", "leave thread_id out")
        if told.organism != self._organism:
            raise Forbidden("the thread is another organism's", "leave thread_id out")
        return told

    async def _require_own(self, thread: str, caller: Identity) -> None:
        """Refuse a thread that others began, whose conversation is not known, or no longer.

        A handler sees what stands in its thread, and it works for this caller.
        """
        log = log_of(thread)
        if self._store.is_instant:
            found = self._store.read(log, limit=_LOOKED_AT)
        else:
            found = await asyncio.to_thread(self._store.read, log, limit=_LOOKED_AT)
        if any(not one.erased and one.user not in (None, caller.user_id) for one in found):
            raise Forbidden("the thread is another caller's", "leave thread_id out")

    def _batch(
        self, conversation: Conversation, version: int, payload: Any, to: str, id: str
    ) -> Batch:
        """The request's slot and the journal's word of it, if the conversation is as it was."""
        thread, sender, user = conversation.thread, conversation.initiator, conversation.user
        slot = NewSlot(payload, sender, to, None, False, "", "", user)
        return Batch(
            [
                slot_append(log_of(thread), slot, "", self._limits.max_slots_per_thread),
                Append(JOURNALS + thread, [["in", id, to, sender, 0]], user, "in"),
            ],
            [
                VersionIs(conversation.document, version)
                if version
                else Absent(conversation.document)
            ],
        )

    def _open(self, batch: Batch, conversation: Conversation, to: str, *, mine: bool) -> None:
        """A conversation begins, or begins again: with this process, or with whoever comes."""
        thread, user = conversation.thread, conversation.user
        opened = ConversationDocument(
            self._organism,
            conversation.initiator,
            self._worker if mine else NOBODY,
            conversation.begins,
        )
        operations: list[Operation] = [
            *batch.operations,
            opened.put(thread, user),
            registry_documents.put_path(thread, conversation.path_of_first(to), user),
        ]
        if not mine:
            waiting = (self._organism, NOBODY)
            below = CountBelow(OPEN, waiting, self._limits.max_waiting, everyone=True)
            operations.append(ring(thread))
            batch.when = [*batch.when, below]
        batch.operations = operations

    def _begin(self, conversation: Conversation, letter: Letter) -> None:
        conversation.requests.append(letter)
        act = conversation.start_next()
        assert act is not None
        self._dispatcher.take(conversation, [act])

    async def _document(self, thread: str) -> Document | None:
        if self._store.is_instant:
            return self._store.get(CONVERSATIONS + thread)
        return await asyncio.to_thread(self._store.get, CONVERSATIONS + thread)

    def _mark(self, payload: Any, to: str, caller: Identity) -> str:
        """What tells a repeat of a request from another one with the same id."""
        type_name, body = codec.encode(payload)
        parts = (self._organism, caller.name, to, type_name)
        return sha256(b"\0".join((*(part.encode() for part in parts), body))).hexdigest()

    async def _earlier(self, message_id: str, caller: Identity, mark: str) -> Delivery:
        """The delivery that took this id the first time."""
        found = await asyncio.to_thread(self._store.get, TAKEN + message_id)
        if found is None or found.erased or found.user != caller.user_id:
            raise Invalid("message_id", "is another caller's", "choose another")
        if found.value.get("mark", mark) != mark:
            raise Invalid("message_id", "was used for another request", "choose another")
        return Delivery(message_id, str(found.value["thread"]))


def waits_for_room(error: LimitExceeded) -> bool:
    """Whether trying later can help: too many wait, and they will be worked on."""
    return OPEN in error.what
