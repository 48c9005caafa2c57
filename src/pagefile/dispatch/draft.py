"""What one conversation wants to commit: operations, conditions, and what follows from them."""

from __future__ import annotations

from typing import Any

import msgspec

from pagefile.context.names import THREADS
from pagefile.context.slot import LANE, payload_type_of
from pagefile.dispatch.activation import Activation
from pagefile.dispatch.conversation import Conversation
from pagefile.dispatch.letter import Letter
from pagefile.dispatch.outcome import Outcome, Stop
from pagefile.store.batch import NO_NOTES, Append, Condition, Operation

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
