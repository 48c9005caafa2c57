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
from pagefile.dispatch.activation import Activation
from pagefile.dispatch.letter import Letter
from pagefile.dispatch.names import CONVERSATIONS, ENDED, JOURNALS, OPEN
from pagefile.store.batch import Put

if TYPE_CHECKING:
    from pagefile.dispatch.outcome import Outcome, Stop


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
