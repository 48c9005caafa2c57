"""Pagefile: virtual memory for AI agents.

One crash-safe store for what an agent saw, what it is doing and what it knows.
Importing this defines names and does nothing else.
"""

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
    "NewSlot",
    "NotFound",
    "Options",
    "Page",
    "Pagefile",
    "PagefileError",
    "Path",
    "Prune",
    "Put",
    "Query",
    "Receipt",
    "Record",
    "Report",
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
