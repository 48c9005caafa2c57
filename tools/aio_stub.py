"""Writes `aio/_types.pyi`, what type checkers see of the async face.

    python -m tools.aio_stub

The stub is made from the sync signatures; a test fails when it is out of date.
"""

from __future__ import annotations

import inspect
from pathlib import Path

from pagefile.aio.derivation import SHOWN_AS_THEY_ARE, STEPPED
from pagefile.assembly.assembly import Assembly
from pagefile.context.buffer import ContextBuffer
from pagefile.context.registry import ThreadRegistry
from pagefile.context.thread import ThreadContext
from pagefile.handle import Pagefile
from pagefile.memory.facts.graph import StoredGraph
from pagefile.memory.facts.proposal import ProposedFacts
from pagefile.memory.facts.store import FactStore
from pagefile.memory.items.store import LongTermItems
from pagefile.memory.memory import Memory
from pagefile.runs.ledger import Ledger
from pagefile.runs.milestones import Episodes
from pagefile.runs.run import Knowledge, Run
from pagefile.runs.runs import Runs
from pagefile.store.store import Store

_CLASSES = (
    Store,
    ContextBuffer,
    ThreadContext,
    ThreadRegistry,
    LongTermItems,
    FactStore,
    StoredGraph,
    ProposedFacts,
    Memory,
    Ledger,
    Episodes,
    Knowledge,
    Run,
    Runs,
    Assembly,
    Pagefile,
)
#: What the async classes have that no sync method says.
_BESIDES: dict[type, tuple[str, ...]] = {
    ThreadContext: ("    def __aiter__(self) -> AsyncIterator[BufferSlot]: ...",),
    Ledger: ("    def __aiter__(self) -> AsyncIterator[dict[str, Any]]: ...",),
    Run: (
        "    run_id: str",
        "    user_id: str | None",
        "    config: RunConfig",
        "    ledger: AsyncLedger",
        "    episodes: AsyncEpisodes",
        "    memory: AsyncKnowledge",
    ),
}
TARGET = Path(__file__).parent.parent / "src/pagefile/aio/_types.pyi"
_HEADER = """# Made by `python -m tools.aio_stub` from the sync classes; do not edit.
import os
import pathlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import IO, Any

import msgspec
from msgspec import UNSET

from pagefile.store.batch import Append, Batch, Condition, Operation, Selector, Vector
from pagefile.context.appender import NewSlot
from pagefile.context.buffer import ContextBuffer
from pagefile.context.path import Path
from pagefile.store.engine import Near
from pagefile.context.registry import ThreadRegistry
from pagefile.context.residency import Eviction
from pagefile.context.slot import BufferSlot
from pagefile.context.thread import ThreadContext
from pagefile.handle import Pagefile
from pagefile.store.records import (
    Change,
    Commit,
    Document,
    Durability,
    Entry,
    Head,
    Page,
    Receipt,
    Report,
    Stats,
    StreamKind,
)
from pagefile.store.batch import Query
import threading
from collections.abc import AsyncIterator as AsyncIterator
from pagefile.memory.blocks import MemoryBlock
from pagefile.memory.privacy.importer import ImportReceipt, Lines
from pagefile.memory.consolidation.consolidation import ConsolidationReport
from pagefile.memory.episodes.duplicates import Duplicate
from pagefile.memory.episodes.episode import Episode
from pagefile.memory.episodes.store import TimeRange
from pagefile.memory.privacy.export import MemoryExport
from pagefile.memory.facts.fact import Fact
from pagefile.memory.facts.fact import Status as FactStatus
from pagefile.memory.facts.documents import Assertion
from pagefile.memory.facts.graph import Neighborhood, StoredGraph, Walk
from pagefile.memory.facts.view import History, Story
from pagefile.memory.facts.view import Group, Sight, Viewpoint
from pagefile.memory.facts.store import FactStore
from pagefile.memory.privacy.forget_receipt import ForgetReceipt
from pagefile.memory.facts.graph import Direction
from pagefile.memory.items.item import Status as ItemStatus
from pagefile.memory.recaller import EpisodeMatch, FactMatch, MemoryMatch
from pagefile.memory.recaller import MemoryKind
from pagefile.memory.memory import Memory
from pagefile.memory.episodes.episode import Message
from pagefile.memory.facts.plane import Kind
from pagefile.memory.provenance import MemoryProfile
from pagefile.memory.facts.proposal import Decision, ProposedFact, ProposedFacts
from pagefile.memory.provenance import Provenance
from pagefile.recall.arms.synchronizer import VectorsFollowed
from pagefile.store.batch import Put
from pagefile.memory.items.store import Beside, Committed, LongTermItems, Proposal
from pagefile.memory.items.item import MemoryItem, Revision, Status
from pagefile.memory.items.plan import Plan, Preview
from pagefile.memory.items.proposal import BatchPage, ItemBatch
from pagefile.memory.items.change import ItemType, Scope
from pagefile.memory.items.reader import Hit
from pagefile.recall.arms.synchronizer import VectorStatus
from pagefile.runs.config import RunConfig
from pagefile.runs.run import Knowledge
from pagefile.runs.milestones import Episodes, Milestone
from pagefile.runs.ledger import Ledger
from pagefile.runs.packs.format import PackLimits, PackReport, Progress
from pagefile.runs.rebuild import Rebuilt
from pagefile.runs.rebuild import Repaired
from pagefile.runs.run import Run
from pagefile.runs.runs import Runs
from pagefile.runs.patch import PatchResult, WorkingSet
from pagefile.runs.tokens import TokenCounter
from pagefile.assembly.assembly import Assembly
from pagefile.assembly.options import AssemblyOptions
from pagefile.assembly.prompt import Prompt
from pagefile.assembly.receipt import AssemblyReceipt, Verification
from pagefile.assembly.receipt import ReceiptPage
from pagefile.store.store import Store
"""


def stub() -> str:
    """The stub's text for the classes as they are now."""
    parts = [_HEADER]
    for sync in _CLASSES:
        name = f"Async{sync.__name__}"
        lines = [f"class {name}:", f"    def __init__(self, sync: {sync.__name__}) -> None: ..."]
        for method, function in inspect.getmembers(sync, inspect.isfunction):
            is_derived = not method.endswith("_async") and method not in STEPPED
            if not method.startswith("_") and is_derived:
                signature = str(inspect.signature(function))
                # A view that reads when it is looked at is handed out awaited too.
                given = signature.replace("-> 'ThreadContext", "-> 'AsyncThreadContext")
                given = given.replace("-> 'Run'", "-> 'AsyncRun'")
                lines.append(f"    async def {method}{given}: ...")
        for method, value in inspect.getmembers(sync, lambda member: isinstance(member, property)):
            if not method.startswith("_") and method not in SHOWN_AS_THEY_ARE:
                lines.append(f"    async def {method}{inspect.signature(value.fget)}: ...")
        lines += _BESIDES.get(sync, ())
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    TARGET.write_text(stub(), encoding="utf-8")
