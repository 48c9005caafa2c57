"""What became of one run of a handler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from pagefile.dispatch.effects import Effects
from pagefile.dispatch.letter import Letter
from pagefile.dispatch.response import HandlerResponse
from pagefile.errors import Invalid, shown


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
