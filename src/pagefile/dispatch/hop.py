"""One step while it is taken: what the journal will say of it."""

from __future__ import annotations

from typing import Any

from pagefile.dispatch.activation import Activation
from pagefile.dispatch.draft import Draft


class Hop:
    """A step of one activation on its way into a draft."""

    __slots__ = ("act", "answered", "draft", "ended", "sends", "spent", "watches")

    def __init__(self, draft: Draft, act: Activation) -> None:
        self.draft = draft
        self.act = act
        #: Id, kind, thread, recipient, sender and the number of the slot, for each message.
        self.sends: list[list[Any]] = []
        #: 1 when the activation ended with this step.
        self.ended = 0
        #: The request that was answered, and the number of the slot; 0 when none was.
        self.answered: list[Any] | int = 0
        self.watches: list[list[Any]] = []
        self.spent = 0
