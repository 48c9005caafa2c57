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
    "Change",
    "Commit",
    "Conflict",
    "Corrupt",
    "CountBelow",
    "Delete",
    "Document",
    "Drop",
    "Entry",
    "Forbidden",
    "Fork",
    "Head",
    "Invalid",
    "LengthBelow",
    "LengthIs",
    "LimitExceeded",
    "Limits",
    "NotFound",
    "Options",
    "Page",
    "Pagefile",
    "PagefileError",
    "Prune",
    "Put",
    "Query",
    "Receipt",
    "Record",
    "Report",
    "Selector",
    "Stats",
    "Store",
    "Unavailable",
    "Unchanged",
    "Unsupported",
    "VersionIs",
    "open",
    "register",
]
