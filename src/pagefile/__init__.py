"""Pagefile: virtual memory for AI agents.

One crash-safe store for what an agent saw, what it is doing and what it knows.
Importing this defines names and does nothing else.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from pagefile.batch import (
    Absent,
    Append,
    Batch,
    CountBelow,
    Delete,
    Drop,
    Fork,
    LengthBelow,
    LengthIs,
    Prune,
    Put,
    Selector,
    Unchanged,
    VersionIs,
)
from pagefile.codec import Record, register
from pagefile.engine import Limits
from pagefile.errors import (
    Conflict,
    Corrupt,
    Forbidden,
    Invalid,
    LimitExceeded,
    NotFound,
    PagefileError,
    Unavailable,
    Unsupported,
)
from pagefile.handle import Admin, Options, Pagefile, open
from pagefile.query import Query
from pagefile.records import Change, Commit, Document, Entry, Head, Page, Receipt, Report, Stats
from pagefile.store import Store

if TYPE_CHECKING:
    from pagefile.context.appender import NewSlot
    from pagefile.context.buffer import ContextBuffer
    from pagefile.context.path import Path
    from pagefile.context.registry import ThreadRegistry
    from pagefile.context.residency import Eviction
    from pagefile.context.singleton import (
        get_context_buffer,
        get_registry,
        reset_context_buffer,
        reset_registry,
    )
    from pagefile.context.slot import (
        BufferSlot,
        HandlerMetadata,
        SlotMetadata,
        slot_to_handler_metadata,
    )
    from pagefile.context.thread import ThreadContext
    from pagefile.memory.items import LongTermItems
    from pagefile.runs.config import RunConfig
    from pagefile.runs.redaction import Secret
    from pagefile.runs.result import PatchResult
    from pagefile.runs.run import Run
    from pagefile.runs.runs import Runs

__version__ = "0.1.0"

__all__ = [
    "Absent",
    "Admin",
    "Append",
    "Batch",
    "BufferSlot",
    "Change",
    "Commit",
    "Conflict",
    "ContextBuffer",
    "Corrupt",
    "CountBelow",
    "Delete",
    "Document",
    "Drop",
    "Entry",
    "Eviction",
    "Forbidden",
    "Fork",
    "HandlerMetadata",
    "Head",
    "Invalid",
    "LengthBelow",
    "LengthIs",
    "LimitExceeded",
    "Limits",
    "LongTermItems",
    "NewSlot",
    "NotFound",
    "Options",
    "Page",
    "Pagefile",
    "PagefileError",
    "PatchResult",
    "Path",
    "Prune",
    "Put",
    "Query",
    "Receipt",
    "Record",
    "Report",
    "Run",
    "RunConfig",
    "Runs",
    "Secret",
    "Selector",
    "SlotMetadata",
    "Stats",
    "Store",
    "ThreadContext",
    "ThreadRegistry",
    "Unavailable",
    "Unchanged",
    "Unsupported",
    "VersionIs",
    "get_context_buffer",
    "get_registry",
    "open",
    "register",
    "reset_context_buffer",
    "reset_registry",
    "slot_to_handler_metadata",
]

#: Where names are that not everybody needs; their modules are loaded when they are asked for.
_ELSEWHERE = {
    "BufferSlot": "pagefile.context.slot",
    "ContextBuffer": "pagefile.context.buffer",
    "Eviction": "pagefile.context.residency",
    "HandlerMetadata": "pagefile.context.slot",
    "LongTermItems": "pagefile.memory.items",
    "NewSlot": "pagefile.context.appender",
    "PatchResult": "pagefile.runs.result",
    "Path": "pagefile.context.path",
    "Run": "pagefile.runs.run",
    "RunConfig": "pagefile.runs.config",
    "Runs": "pagefile.runs.runs",
    "Secret": "pagefile.runs.redaction",
    "SlotMetadata": "pagefile.context.slot",
    "ThreadContext": "pagefile.context.thread",
    "ThreadRegistry": "pagefile.context.registry",
    "get_context_buffer": "pagefile.context.singleton",
    "get_registry": "pagefile.context.singleton",
    "reset_context_buffer": "pagefile.context.singleton",
    "reset_registry": "pagefile.context.singleton",
    "slot_to_handler_metadata": "pagefile.context.slot",
}


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_ELSEWHERE[name]), name)
    globals()[name] = value
    return value
