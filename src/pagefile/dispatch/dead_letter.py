"""Messages that nobody could handle: kept, listed, and sent again."""

from __future__ import annotations

from typing import Any

import msgspec

from pagefile.context.names import THREADS
from pagefile.dispatch.conversation import Conversation
from pagefile.dispatch.letter import Letter
from pagefile.dispatch.names import DEAD, DEAD_AT
from pagefile.dispatch.outcome import Failure
from pagefile.errors import Conflict, NotFound
from pagefile.store.batch import Batch, Delete, Put, VersionIs
from pagefile.store.codec.decoder import convert
from pagefile.store.query import Query
from pagefile.store.records import Document
from pagefile.store.store import Store

_MOST_TEXT = 2_000


class DeadLetter(msgspec.Struct, frozen=True):
    """One message that came to nothing, and why. `slot` is its place in `thread_id`."""

    message_id: str
    organism: str
    listener: str
    sender: str
    kind: str
    thread_id: str
    slot: int
    conversation: str
    code: str
    error: str
    attempts: int
    initiator: str
    user_id: str | None = None

    def payload(self, store: Store) -> Any:
        """What the message said.

        Raises:
            NotFound: it was erased, or its thread is gone.
        """
        found = store.read(THREADS + self.thread_id, self.slot, self.slot + 1)
        if not found or found[0].erased:
            raise NotFound(
                f"the payload of dead letter {self.message_id!r} is gone", "drop the letter"
            )
        return found[0].value


def put_dead_letter(conversation: Conversation, letter: Letter, failure: Failure) -> Put:
    """Keep a message that came to nothing."""
    value = DeadLetter(
        letter.id,
        conversation.organism,
        letter.to,
        letter.sender,
        letter.kind,
        letter.thread,
        letter.entry.index if letter.entry is not None else -1,
        conversation.thread,
        failure.code,
        failure.message[:_MOST_TEXT].encode("utf-8", "replace").decode(),
        letter.attempts,
        conversation.initiator,
        conversation.user,
    )
    return Put(
        DEAD + letter.id,
        msgspec.structs.asdict(value),
        user=conversation.user,
        kind="dead letter",
        tenant_keys={DEAD_AT: conversation.organism},
    )


def dead_letters(store: Store, organism: str, limit: int = 100) -> list[DeadLetter]:
    """The dead letters of an organism, oldest first."""
    page = store.find(Query(DEAD_AT, organism, everyone=True), limit=limit)
    return [
        convert(found.value, DeadLetter)
        for found in page.items
        if isinstance(found, Document) and not found.erased
    ]


def dead_letter(store: Store, message_id: str) -> tuple[DeadLetter, int]:
    """One letter, and the version of its document.

    Raises:
        NotFound: there is none of this id.
    """
    found = store.get(DEAD + message_id)
    if found is None or found.erased:
        raise NotFound(f"there is no dead letter {message_id!r}", "list them first")
    return convert(found.value, DeadLetter), found.version


def drop_dead_letter(store: Store, message_id: str) -> None:
    """Let go of a letter, if it is there."""
    name = DEAD + message_id
    found = store.get(name)
    if found is None:
        return
    try:
        store.commit(Batch([Delete(name)], [VersionIs(name, found.version)]))
    except (Conflict, NotFound):
        return  # Another was faster.
