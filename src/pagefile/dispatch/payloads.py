"""Payloads that the organism itself sends: errors, ends without a reply, and watchers."""

from __future__ import annotations

from typing import Final

import msgspec

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
