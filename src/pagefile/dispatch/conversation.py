"""A conversation: everything that one request from outside sets in motion, in one process's hands.

The state here is a fold of the conversation's journal. Only the owner, whose
version of the conversation's document is the newest, can commit to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from pagefile.context.path import Path
from pagefile.dispatch.letter import Failure, Letter
from pagefile.dispatch.listener import CONVERSATIONS, DEAD, DEAD_AT, ENDED, JOURNALS, OPEN
from pagefile.errors import Conflict, NotFound
from pagefile.store.batch import Batch, Delete, Put, Query, VersionIs
from pagefile.store.codec.decoder import convert
from pagefile.store.records import Document
from pagefile.store.store import Store

if TYPE_CHECKING:
    from pagefile.dispatch.letter import Outcome, Stop


# One call on its way: from the message that opened it to the one that answers it.


class Watcher(msgspec.Struct):
    """What an activation waits to see on its thread."""

    id: str
    wait_for: str
    from_listener: str = ""
    description: str = ""
    raised: bool = False

    def matches(self, payload_type: str, sender: str) -> bool:
        """The type's whole name, or its class's; never part of it."""
        if self.from_listener and self.from_listener != sender:
            return False
        if self.wait_for == payload_type:
            return True
        return payload_type.rpartition(":")[2].rpartition(".")[2] == self.wait_for


class Activation(msgspec.Struct, eq=False, gc=False):
    """The state of one call; `caller` is the thread that waits for its answer, if any."""

    thread: str
    listener: str
    caller: str | None
    #: Who called whom, down to the listener itself.
    names: tuple[str, ...]
    inbox: deque[Letter] = msgspec.field(default_factory=deque)
    running: Letter | None = None
    #: It stands in the schedule, or waits for its time.
    queued: bool = False
    #: The threads it called and has no answer from.
    calls: set[str] = set()
    watchers: dict[str, Watcher] | None = None

    @property
    def depth(self) -> int:
        """How many calls stand above it, itself included."""
        return len(self.names) - 2

    @property
    def is_done(self) -> bool:
        """Nothing is left that could make it say anything."""
        return not self.inbox and not self.calls and self.running is None


def nudge_of(watchers: dict[str, Watcher] | None) -> str:
    """What the metadata says about raised watchers; empty when none is."""
    raised = [watcher for watcher in (watchers or {}).values() if watcher.raised]
    if not raised:
        return ""
    lines = ["SYSTEM NOTE: what you were waiting for has come."]
    for watcher in raised:
        source = f" from {watcher.from_listener}" if watcher.from_listener else ""
        about = f" ({watcher.description})" if watcher.description else ""
        lines.append(
            f"- {watcher.wait_for}{source}{about}: when you are done with it, "
            f'send TodoComplete(id="{watcher.id}")'
        )
    return "\n".join(lines)


class Conversation:
    """The state of one conversation; its id is that of its first thread."""

    def __init__(self, thread: str, organism: str, initiator: str, user: str | None) -> None:
        self.thread = thread
        self.organism = organism
        self.initiator = initiator
        self.user = user
        self.document = CONVERSATIONS + thread
        self.journal = JOURNALS + thread
        #: The version of the document under which this process owns it.
        self.version = 0
        #: Where the journal of what is not over begins, and how much of it was seen.
        self.begins = 0
        self.seen = 0
        #: Entries of the journal beyond what was seen that are this process's own.
        self.own: set[int] = set()
        self.deaths = 0
        self.activations: dict[str, Activation] = {}
        #: Requests from outside, the first of which is being worked on.
        self.requests: deque[Letter] = deque()
        self.messages = 0
        self.spent = 0
        #: What handlers came to, waiting for its turn to be committed.
        self.outcomes: deque[Outcome | Stop] = deque()
        self.in_flight = False
        self.lost = False
        #: Others wrote to the journal: read it before the next step.
        self.stale = False

    @property
    def is_idle(self) -> bool:
        """Every request is answered."""
        return not self.requests

    def path_of_first(self, listener: str) -> Path:
        """Where the first activation of a request stands."""
        return Path((self.organism, self.initiator, listener), self.thread)

    def path_of(self, act: Activation) -> Path:
        """Where an activation stands."""
        return Path(act.names, self.thread, act.caller)

    def start_next(self) -> Activation | None:
        """Let the next request begin, if there is one and nothing else is under way."""
        if not self.requests or self.thread in self.activations:
            return None
        letter = self.requests[0]
        self.messages = 1
        self.spent = 0
        names = (self.organism, self.initiator, letter.to)
        act = Activation(self.thread, letter.to, None, names)
        act.inbox.append(letter)
        self.activations[self.thread] = act
        return act

    def open_call(self, caller: Activation, thread: str, listener: str) -> Activation:
        """A new activation for one call."""
        act = Activation(thread, listener, caller.thread, (*caller.names, listener))
        caller.calls.add(thread)
        self.activations[thread] = act
        return act

    def release(self, act: Activation) -> list[str]:
        """End an activation and all that it called; their threads."""
        gone: list[str] = []
        todo = [act]
        while todo:
            one = todo.pop()
            if self.activations.pop(one.thread, None) is None:
                continue
            gone.append(one.thread)
            todo += [self.activations[t] for t in one.calls if t in self.activations]
        if act.caller is not None and (above := self.activations.get(act.caller)) is not None:
            above.calls.discard(act.thread)
        return gone

    def wrote(self, index: int) -> None:
        """An entry of the journal is this process's own; others may have come before it."""
        self.own.add(index)
        while self.seen in self.own:
            self.own.discard(self.seen)
            self.seen += 1
        if self.own:
            self.stale = True

    def afresh(self) -> Conversation:
        """The same conversation before anything of its journal was read."""
        new = Conversation(self.thread, self.organism, self.initiator, self.user)
        new.version, new.begins, new.seen = self.version, self.begins, self.begins
        new.deaths = self.deaths
        return new

    def adopt(self, read: Conversation, running: Iterable[str]) -> None:
        """Take over the state that was read anew; handlers of `running` letters go on."""
        self.activations, self.requests = read.activations, read.requests
        self.messages, self.spent = read.messages, read.spent
        self.seen, self.own = read.seen, set()
        ids = set(running)
        for act in self.activations.values():
            if act.inbox and act.inbox[0].id in ids:
                act.running = act.inbox.popleft()

    def waiting(self) -> Iterable[Letter]:
        """Every letter that is not done with."""
        for act in self.activations.values():
            if act.running is not None:
                yield act.running
            yield from act.inbox


class ConversationDocument(msgspec.Struct, frozen=True):
    """What the document of a conversation says. No owner: whoever comes first may have it."""

    organism: str
    initiator: str
    owner: str = ""
    begins: int = 0
    deaths: int = 0
    #: How long the journal was at the last takeover; who gets no further counts as a death.
    reached: int = 0
    ended_us: int = 0

    def put(self, thread: str, user: str | None) -> Put:
        """The next version of the document."""
        keys: dict[str, Any]
        if self.ended_us:
            keys = {ENDED: (self.organism, self.ended_us)}
        else:
            keys = {OPEN: (self.organism, self.owner)}
        return Put(
            CONVERSATIONS + thread,
            msgspec.structs.asdict(self),
            user=user,
            kind="conversation",
            tenant_keys=keys,
        )


# Messages that nobody could handle: kept, listed, and sent again.


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
        found = store.read("thread/" + self.thread_id, self.slot, self.slot + 1)
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
