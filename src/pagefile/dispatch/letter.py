"""A message on its way, what a handler returns, and what became of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from pagefile.errors import Invalid, shown
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


# Payloads that the organism itself sends: errors, ends without a reply, and watchers.


#: The sender of what the organism itself says, and the first name of its own listeners.
SYSTEM: Final = "system"
TODO: Final = "system.todo"
TODO_COMPLETE: Final = "system.todo-complete"
#: Longest text of an error that is passed on.
_MOST_TEXT = 500


class SystemError(msgspec.Struct, frozen=True):
    """What a caller gets in place of an answer. `listener` is whom it had called.

    `code` is one of routing, timeout, handler, worker, depth, budget, full and invalid.
    """

    code: str
    message: str
    retry_allowed: bool = True
    listener: str = ""


class NoReply(msgspec.Struct, frozen=True):
    """The listener ended without a reply."""

    listener: str


class TodoUntil(msgspec.Struct, frozen=True):
    """To `system.todo`: tell me when a payload of this type has come to my thread."""

    wait_for: str
    from_listener: str = ""
    description: str = ""


class TodoRegistered(msgspec.Struct, frozen=True):
    """The answer to `TodoUntil`."""

    id: str
    wait_for: str
    description: str = ""


class TodoComplete(msgspec.Struct, frozen=True):
    """To `system.todo-complete`: I am done with this watcher."""

    id: str


class TodoClosed(msgspec.Struct, frozen=True):
    """The answer to `TodoComplete`."""

    id: str
    was_raised: bool


#: Deliberately without names: who may not call a listener need not learn which ones there are.
ROUTING_ERROR: Final = SystemError("routing", "the message could not be delivered")
TIMEOUT_ERROR: Final = SystemError("timeout", "the listener did not answer in time")


def system_error(code: str, message: str, listener: str, *, retry_allowed: bool) -> SystemError:
    """An error payload whose text is bounded and can be stored."""
    plain = message.encode("utf-8", "replace").decode()
    return SystemError(code, plain[:_MOST_TEXT], retry_allowed, listener)


# What a handler returns: where its message goes.


class _ToCaller:
    """The address of whoever called; a class of its own, so that no name can be taken for it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "RESPOND_TO_CALLER"


RESPOND_TO_CALLER: Final = _ToCaller()


@dataclass(frozen=True, slots=True)
class HandlerResponse:
    """One message of a handler.

    `to` is the name of a listener, or None for whoever takes this type of
    payload. `HandlerResponse.respond(payload)` answers the caller and ends the
    activation.
    """

    payload: Any
    to: str | _ToCaller | None = None

    @classmethod
    def respond(cls, payload: Any) -> HandlerResponse:
        """An answer to the caller."""
        return cls(payload, RESPOND_TO_CALLER)

    @property
    def is_response(self) -> bool:
        """Whether it answers the caller."""
        return isinstance(self.to, _ToCaller)


# What a handler did through its handle: buffered, and committed with the acknowledgement.


class SlotEffect(msgspec.Struct, frozen=True):
    """A slot in the handler's own thread."""

    payload: Any
    to: str


class StateEffect(msgspec.Struct, frozen=True):
    """A document of the handler's own thread."""

    name: str
    value: Any


class WatchEffect(msgspec.Struct, frozen=True):
    """A watcher on the handler's own thread."""

    id: str
    wait_for: str
    from_listener: str
    description: str


class CloseEffect(msgspec.Struct, frozen=True):
    """The end of a watcher."""

    id: str


Effect = SlotEffect | StateEffect | WatchEffect | CloseEffect


class Effects:
    """The effects of one run of a handler, in their order."""

    __slots__ = ("made", "sent", "spent")

    def __init__(self) -> None:
        self.made: list[Effect] = []
        #: Payload and listener (or None for whoever takes it) of what it emitted.
        self.sent: list[tuple[Any, str | None]] = []
        self.spent = 0


# What became of one run of a handler.


class Failure(msgspec.Struct, frozen=True):
    """Why a run came to nothing. `pause` is None when no further try can help."""

    code: str
    message: str
    pause: float | None = None


class Stop(msgspec.Struct, frozen=True):
    """The end of a conversation's request, by order from outside."""

    code: str
    message: str
    #: It is committed apart from anything else.
    alone: bool = True


class Outcome(msgspec.Struct, eq=False, gc=False):
    """One run of a handler, ready to be committed."""

    letter: Letter
    responses: Sequence[HandlerResponse] = ()
    effects: Effects | None = None
    failure: Failure | None = None
    #: Not even the failure can be recorded: end the request without a slot.
    unrecorded: bool = False
    #: It is committed apart from others of its conversation.
    alone: bool = False


def responses_of(returned: Any) -> Sequence[HandlerResponse]:
    """What a handler returned, as a list of messages; an answer comes last.

    Raises:
        Invalid: it is something else.
    """
    if returned is None:
        return ()
    if type(returned) is HandlerResponse:
        return (returned,)
    if not isinstance(returned, (list, tuple)):
        raise Invalid(
            "returned", f"{shown(returned)} is no message", "return HandlerResponse(…) or None"
        )
    for at, response in enumerate(returned):
        if not isinstance(response, HandlerResponse):
            raise Invalid("returned", f"{shown(response)} is no message", "use HandlerResponse(…)")
        if response.is_response and at + 1 < len(returned):
            raise Invalid("returned", "an answer ends the activation", "put it last")
    return returned
