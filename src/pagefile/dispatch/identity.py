"""Who speaks to an organism from outside, and what they hold in their hands afterwards."""

from __future__ import annotations

from typing import Any

import msgspec

from pagefile.dispatch.payloads import SystemError


class Identity(msgspec.Struct, frozen=True):
    """An authenticated caller. `user_id` is the partition that everything said is kept in.

    The program that lets callers in makes it; nothing in a message can change it.
    """

    name: str
    user_id: str | None = None


class Delivery(msgspec.Struct, frozen=True):
    """A message that was taken: stored, and delivered whatever happens.

    `thread_id` names the conversation; inject with it to go on. `place` is
    where its journal was, for whoever looks for the answer.
    """

    message_id: str
    thread_id: str
    place: int = 0


class Answer(msgspec.Struct, frozen=True):
    """What came back. `payload` is a `SystemError` when it `failed`, None without a reply."""

    payload: Any
    message_id: str
    thread_id: str

    @property
    def failed(self) -> bool:
        """Whether an error came back in place of an answer."""
        return isinstance(self.payload, SystemError)
