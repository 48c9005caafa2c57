"""Pagefile: virtual memory for AI agents.

One crash-safe store for what an agent saw, what it is doing and what it knows.
Importing this defines names and does nothing else.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
from pagefile.store.batch import (
    Absent,
    Append,
    Batch,
    CountBelow,
    CreatedAt,
    Delete,
    Drop,
    Fork,
    LengthBelow,
    LengthIs,
    Prune,
    Put,
    Query,
    Selector,
    Unchanged,
    Vector,
    VersionIs,
)
from pagefile.store.codec import Record, register
from pagefile.store.engine import Limits
from pagefile.store.records import (
    Change,
    Commit,
    Document,
    Entry,
    Head,
    Page,
    Receipt,
    Report,
    Stats,
)
from pagefile.store.store import Store

if TYPE_CHECKING:
    from pagefile.assembly.assembly import Assembly
    from pagefile.assembly.options import AssemblyOptions
    from pagefile.assembly.prompt import Prompt
    from pagefile.assembly.receipt import AssemblyReceipt
    from pagefile.context.appender import NewSlot
    from pagefile.context.buffer import ContextBuffer
    from pagefile.context.conversations import Conversations, Expired, Sweep, Sweeper
    from pagefile.context.path import Path
    from pagefile.context.registry import ThreadRegistry
    from pagefile.context.residency import Eviction
    from pagefile.context.shared_backend import (
        BackendConfig,
        SharedBackend,
        get_context_buffer,
        get_registry,
        get_shared_backend,
        reset_context_buffer,
        reset_registry,
        reset_shared_backend,
    )
    from pagefile.context.slot import (
        BufferSlot,
        HandlerMetadata,
        SlotMetadata,
        slot_to_handler_metadata,
    )
    from pagefile.context.thread import ThreadContext
    from pagefile.memory.blocks import MemoryBlock
    from pagefile.memory.consolidation.consolidation import ConsolidationPolicy, ConsolidationReport
    from pagefile.memory.consolidation.consolidator import Consolidator
    from pagefile.memory.consolidation.worker import ConsolidationWorker
    from pagefile.memory.documents import new_id
    from pagefile.memory.episodes.episode import Episode, Image, Message, Role, ToolCall, ToolDef
    from pagefile.memory.extraction.chat import ChatClient
    from pagefile.memory.extraction.model import ChatExtractor
    from pagefile.memory.extraction.rules import RuleExtractor
    from pagefile.memory.facts.fact import Fact
    from pagefile.memory.facts.graph import FactGraph
    from pagefile.memory.facts.proposal import ProposedFact
    from pagefile.memory.facts.store import FactStore
    from pagefile.memory.items.store import LongTermItems
    from pagefile.memory.memory import Memory
    from pagefile.memory.privacy.export import MemoryExport
    from pagefile.memory.privacy.forget_receipt import ForgetReceipt
    from pagefile.memory.privacy.isolation import IsolationWarning
    from pagefile.memory.provenance import MemoryProfile, Provenance
    from pagefile.memory.recaller import EpisodeMatch, FactMatch
    from pagefile.runs.config import RunConfig, Secret
    from pagefile.runs.patch import PatchResult
    from pagefile.runs.run import Run
    from pagefile.runs.runs import Runs

__version__ = "0.1.0"

__all__ = [
    "Absent",
    "Admin",
    "Append",
    "Assembly",
    "AssemblyOptions",
    "AssemblyReceipt",
    "BackendConfig",
    "Batch",
    "BufferSlot",
    "Change",
    "ChatClient",
    "ChatExtractor",
    "Commit",
    "Conflict",
    "ConsolidationPolicy",
    "ConsolidationReport",
    "ConsolidationWorker",
    "Consolidator",
    "ContextBuffer",
    "Conversations",
    "Corrupt",
    "CountBelow",
    "Delete",
    "Document",
    "Drop",
    "Entry",
    "Episode",
    "EpisodeMatch",
    "Eviction",
    "Expired",
    "Fact",
    "FactGraph",
    "FactMatch",
    "FactStore",
    "Forbidden",
    "ForgetReceipt",
    "Fork",
    "HandlerMetadata",
    "Head",
    "Image",
    "Invalid",
    "IsolationWarning",
    "CreatedAt",
    "LengthBelow",
    "LengthIs",
    "LimitExceeded",
    "Limits",
    "LongTermItems",
    "Memory",
    "MemoryBlock",
    "MemoryExport",
    "MemoryProfile",
    "Message",
    "NewSlot",
    "NotFound",
    "Options",
    "Page",
    "Pagefile",
    "PagefileError",
    "PatchResult",
    "Path",
    "Prompt",
    "ProposedFact",
    "Provenance",
    "Prune",
    "Put",
    "Query",
    "Receipt",
    "Record",
    "Report",
    "Role",
    "RuleExtractor",
    "Run",
    "RunConfig",
    "Runs",
    "Secret",
    "Selector",
    "SharedBackend",
    "SlotMetadata",
    "Stats",
    "Store",
    "Sweep",
    "Sweeper",
    "ThreadContext",
    "ThreadRegistry",
    "ToolCall",
    "ToolDef",
    "Unavailable",
    "Unchanged",
    "Unsupported",
    "Vector",
    "VersionIs",
    "get_context_buffer",
    "get_registry",
    "get_shared_backend",
    "new_id",
    "open",
    "register",
    "reset_context_buffer",
    "reset_registry",
    "reset_shared_backend",
    "slot_to_handler_metadata",
]

#: Where names are that not everybody needs; their modules are loaded when they are asked for.
_ELSEWHERE = {
    "Assembly": "pagefile.assembly.assembly",
    "AssemblyOptions": "pagefile.assembly.options",
    "AssemblyReceipt": "pagefile.assembly.receipt",
    "BackendConfig": "pagefile.context.shared_backend",
    "BufferSlot": "pagefile.context.slot",
    "ChatClient": "pagefile.memory.extraction.chat",
    "ChatExtractor": "pagefile.memory.extraction.model",
    "ConsolidationPolicy": "pagefile.memory.consolidation.consolidation",
    "ConsolidationReport": "pagefile.memory.consolidation.consolidation",
    "ConsolidationWorker": "pagefile.memory.consolidation.worker",
    "Consolidator": "pagefile.memory.consolidation.consolidator",
    "ContextBuffer": "pagefile.context.buffer",
    "Conversations": "pagefile.context.conversations",
    "Sweeper": "pagefile.context.conversations",
    "Episode": "pagefile.memory.episodes.episode",
    "EpisodeMatch": "pagefile.memory.recaller",
    "Eviction": "pagefile.context.residency",
    "Expired": "pagefile.context.conversations",
    "Fact": "pagefile.memory.facts.fact",
    "FactGraph": "pagefile.memory.facts.graph",
    "FactMatch": "pagefile.memory.recaller",
    "FactStore": "pagefile.memory.facts.store",
    "ForgetReceipt": "pagefile.memory.privacy.forget_receipt",
    "HandlerMetadata": "pagefile.context.slot",
    "Image": "pagefile.memory.episodes.episode",
    "IsolationWarning": "pagefile.memory.privacy.isolation",
    "LongTermItems": "pagefile.memory.items.store",
    "Memory": "pagefile.memory.memory",
    "MemoryBlock": "pagefile.memory.blocks",
    "MemoryExport": "pagefile.memory.privacy.export",
    "MemoryProfile": "pagefile.memory.provenance",
    "Message": "pagefile.memory.episodes.episode",
    "NewSlot": "pagefile.context.appender",
    "PatchResult": "pagefile.runs.patch",
    "Path": "pagefile.context.path",
    "Prompt": "pagefile.assembly.prompt",
    "ProposedFact": "pagefile.memory.facts.proposal",
    "Provenance": "pagefile.memory.provenance",
    "Role": "pagefile.memory.episodes.episode",
    "RuleExtractor": "pagefile.memory.extraction.rules",
    "Run": "pagefile.runs.run",
    "RunConfig": "pagefile.runs.config",
    "Runs": "pagefile.runs.runs",
    "Secret": "pagefile.runs.config",
    "SharedBackend": "pagefile.context.shared_backend",
    "SlotMetadata": "pagefile.context.slot",
    "Sweep": "pagefile.context.conversations",
    "ThreadContext": "pagefile.context.thread",
    "ThreadRegistry": "pagefile.context.registry",
    "ToolCall": "pagefile.memory.episodes.episode",
    "ToolDef": "pagefile.memory.episodes.episode",
    "get_context_buffer": "pagefile.context.shared_backend",
    "get_registry": "pagefile.context.shared_backend",
    "get_shared_backend": "pagefile.context.shared_backend",
    "new_id": "pagefile.memory.documents",
    "reset_context_buffer": "pagefile.context.shared_backend",
    "reset_registry": "pagefile.context.shared_backend",
    "reset_shared_backend": "pagefile.context.shared_backend",
    "slot_to_handler_metadata": "pagefile.context.slot",
}


def __getattr__(name: str) -> Any:
    if name not in _ELSEWHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_ELSEWHERE[name]), name)
    globals()[name] = value
    return value
