"""One step while it is taken: what the journal will say of it."""

from __future__ import annotations

from typing import Any

import msgspec

from pagefile.dispatch.activation import Activation
from pagefile.dispatch.draft import Draft


class Hop(msgspec.Struct, eq=False, gc=False):
    """A step of one activation on its way into a draft."""

    draft: Draft
    act: Activation
    #: Id, kind, thread, recipient, sender and the number of the slot, for each message.
    sends: list[list[Any]] = []
    #: 1 when the activation ended with this step.
    ended: int = 0
    #: The request that was answered, and the number of the slot; 0 when none was.
    answered: list[Any] | int = 0
    watches: list[list[Any]] = []
    spent: int = 0
