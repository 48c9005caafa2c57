"""Taking messages in: recorded first, under the name of whoever was let in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from hashlib import sha256
from typing import Any

from pagefile.context import registry_documents
from pagefile.context.appender import NewSlot, slot_append
from pagefile.context.names import log_of, require_name
from pagefile.dispatch.claims import NOBODY, Claims, document_of, put_taken, ring
from pagefile.dispatch.conversation import Conversation, ConversationDocument
from pagefile.dispatch.dispatcher import Dispatcher
from pagefile.dispatch.journal import Delivery, Identity
from pagefile.dispatch.letter import SYSTEM, Letter
from pagefile.dispatch.listener import (
    CONVERSATIONS,
    JOURNALS,
    OPEN,
    TAKEN,
    DispatchLimits,
    Listeners,
)
from pagefile.errors import Conflict, Forbidden, Invalid, LimitExceeded, NotFound, Unavailable
from pagefile.store import codec
from pagefile.store.arguments import require_type
from pagefile.store.batch import Absent, Append, Batch, CountBelow, Operation, VersionIs
from pagefile.store.records import Document, Entry
from pagefile.store.store import Store

_ATTEMPTS = 20
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
            return self._store.commit_entries(batch)
        known = False
        try:
            entries = await self._store.commit_entries_async(batch)
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
