"""Dispatch: typed messages between listeners, each recorded once, delivered until done.

Read in this order:

listener       what callers declare: names, payloads, limits, retries
letter         a message, what a handler returns, and what became of it
organism       all of it in one process; `lifecycle` starts and drains it
conversation   everything that one request sets in motion
intake         taking messages in, and whose a conversation is
steps          the rules of a step; `journal` takes them to commits and back
dispatcher     the conversations of this process
workers/       whose turn it is, and who runs handlers: threads, processes, clusters
events         watching it
organism_file  organism.yaml
xml/           payloads as XML
kinds          what this room stores
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pagefile.dispatch.conversation import DeadLetter
    from pagefile.dispatch.events import (
        AgentStateEvent,
        MessageReceivedEvent,
        MessageSentEvent,
        MissedEvent,
        ThreadEvent,
    )
    from pagefile.dispatch.intake import OpenConversation
    from pagefile.dispatch.journal import Answer, Delivery, Identity
    from pagefile.dispatch.letter import (
        ROUTING_ERROR,
        TIMEOUT_ERROR,
        HandlerResponse,
        NoReply,
        SystemError,
        TodoClosed,
        TodoComplete,
        TodoRegistered,
        TodoUntil,
    )
    from pagefile.dispatch.lifecycle import Remaining
    from pagefile.dispatch.listener import DispatchLimits, Listener, Refused, Retry
    from pagefile.dispatch.organism import Organism, Overview, WorkerView, organisms_of, overview_of
    from pagefile.dispatch.organism_file import OrganismFile, Problem, check, load
    from pagefile.dispatch.workers.own_thread import OwnThread
    from pagefile.dispatch.workers.pool import ProcessPool

__all__ = [
    "ROUTING_ERROR",
    "TIMEOUT_ERROR",
    "AgentStateEvent",
    "Answer",
    "DeadLetter",
    "Delivery",
    "DispatchLimits",
    "HandlerResponse",
    "Identity",
    "Listener",
    "MessageReceivedEvent",
    "MessageSentEvent",
    "MissedEvent",
    "NoReply",
    "OpenConversation",
    "Organism",
    "OrganismFile",
    "Overview",
    "OwnThread",
    "Problem",
    "ProcessPool",
    "Refused",
    "Remaining",
    "Retry",
    "SystemError",
    "ThreadEvent",
    "TodoClosed",
    "TodoComplete",
    "TodoRegistered",
    "TodoUntil",
    "WorkerView",
    "check",
    "load",
    "organisms_of",
    "overview_of",
]

#: Where the names are; their modules are loaded when they are asked for.
_MODULES = {
    "conversation": ("DeadLetter",),
    "events": (
        "AgentStateEvent",
        "MessageReceivedEvent",
        "MessageSentEvent",
        "MissedEvent",
        "ThreadEvent",
    ),
    "intake": ("OpenConversation",),
    "journal": (
        "Answer",
        "Delivery",
        "Identity",
    ),
    "letter": (
        "HandlerResponse",
        "NoReply",
        "ROUTING_ERROR",
        "SystemError",
        "TIMEOUT_ERROR",
        "TodoClosed",
        "TodoComplete",
        "TodoRegistered",
        "TodoUntil",
    ),
    "lifecycle": ("Remaining",),
    "listener": (
        "DispatchLimits",
        "Listener",
        "Refused",
        "Retry",
    ),
    "organism": (
        "Organism",
        "Overview",
        "WorkerView",
        "organisms_of",
        "overview_of",
    ),
    "organism_file": (
        "OrganismFile",
        "Problem",
        "check",
        "load",
    ),
    "workers.own_thread": ("OwnThread",),
    "workers.pool": ("ProcessPool",),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            value = getattr(import_module(f"{__name__}.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
