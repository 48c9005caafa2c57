"""A message on its way to a listener."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from pagefile.store import codec
from pagefile.store.records import Entry

#: Whether values of a class can never change, for those met so far.
_FIXED: dict[type, bool] = {}
_MOST_TYPES = 4_096
LetterKind = Literal["request", "call", "self", "reply", "error"]


class Letter(msgspec.Struct, eq=False, gc=False):
    """One message in the inbox of one activation.

    `entry` is the slot it was recorded as, in the thread that receives it.
    """

    id: str
    kind: LetterKind
    thread: str
    to: str
    sender: str
    attempts: int = 0
    #: Not before this moment of the machine's clock; 0 is at once.
    due_us: int = 0
    entry: Entry | None = None
    #: The payload itself, when nobody can change it.
    value: Any = None

    def keep(self, entry: Entry, payload: Any) -> None:
        """It is recorded: as this entry, made from this payload."""
        self.entry = entry
        cls = type(payload)
        fixed = _FIXED.get(cls)
        if fixed is None:
            # Asked for every message; finding out means reading a class's annotations.
            if len(_FIXED) >= _MOST_TYPES:
                _FIXED.clear()
            fixed = _FIXED[cls] = codec.is_deeply_immutable(cls)
        if fixed:
            self.value = payload

    @property
    def payload(self) -> Any:
        """What the handler gets: nothing that it does to it reaches the record."""
        if self.value is not None:
            return self.value
        assert self.entry is not None
        return self.entry.value
