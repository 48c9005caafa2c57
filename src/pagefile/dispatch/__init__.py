"""Dispatch: typed messages between listeners, each recorded once, delivered until done.

Read in this order:

listener, response, payloads, identity, limits, retry
                          what callers build
organism, components, lifecycle
                          all of it in one process
letter, journal, conversation, activation, hop, steps
                          one step of a conversation
intake, draft, outbox, effects, outcome
                          from messages to commits
dispatcher, scheduler     whose turn it is
workers/                  who runs handlers: threads, processes, clusters; and which processes
                          are alive
claims, dead_letter, retention, watchers, answers
                          taking over, giving up, letting go, waiting
own_thread, usage, names, thread_ids
                          what a handler has, and where things are stored
events, metrics, overview
                          watching it
organism_file, yaml_node  organism.yaml
xml/                      payloads as XML
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pagefile.dispatch.claims import OpenConversation
    from pagefile.dispatch.dead_letter import DeadLetter
    from pagefile.dispatch.events import (
        AgentStateEvent,
        MessageReceivedEvent,
        MessageSentEvent,
        MissedEvent,
        ThreadEvent,
    )
    from pagefile.dispatch.identity import Answer, Delivery, Identity
    from pagefile.dispatch.lifecycle import Remaining
    from pagefile.dispatch.limits import DispatchLimits
    from pagefile.dispatch.listener import Listener
    from pagefile.dispatch.organism import Organism
    from pagefile.dispatch.organism_file import OrganismFile, check, load
    from pagefile.dispatch.overview import Overview, WorkerView, organisms_of, overview_of
    from pagefile.dispatch.own_thread import OwnThread
    from pagefile.dispatch.payloads import (
        ROUTING_ERROR,
        TIMEOUT_ERROR,
        NoReply,
        SystemError,
        TodoClosed,
        TodoComplete,
        TodoRegistered,
        TodoUntil,
    )
    from pagefile.dispatch.response import HandlerResponse
    from pagefile.dispatch.retry import Refused, Retry
    from pagefile.dispatch.workers.pool import ProcessPool
    from pagefile.dispatch.yaml_node import Problem

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
    "dead_letter": ("DeadLetter",),
    "events": (
        "AgentStateEvent",
        "MessageReceivedEvent",
        "MessageSentEvent",
        "MissedEvent",
        "ThreadEvent",
    ),
    "identity": ("Answer", "Delivery", "Identity"),
    "limits": ("DispatchLimits",),
    "listener": ("Listener",),
    "claims": ("OpenConversation",),
    "lifecycle": ("Remaining",),
    "organism": ("Organism",),
    "organism_file": ("OrganismFile", "check", "load"),
    "overview": ("Overview", "WorkerView", "organisms_of", "overview_of"),
    "yaml_node": ("Problem",),
    "own_thread": ("OwnThread",),
    "payloads": (
        "ROUTING_ERROR",
        "TIMEOUT_ERROR",
        "NoReply",
        "SystemError",
        "TodoClosed",
        "TodoComplete",
        "TodoRegistered",
        "TodoUntil",
    ),
    "workers.pool": ("ProcessPool",),
    "response": ("HandlerResponse",),
    "retry": ("Refused", "Retry"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            value = getattr(import_module(f"{__name__}.{module}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
