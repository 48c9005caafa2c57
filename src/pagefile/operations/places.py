"""Where the objects of the library hang on a handle."""

from __future__ import annotations

from collections.abc import Mapping

from pagefile.assembly.assembly import Assembly
from pagefile.context.buffer import ContextBuffer
from pagefile.context.registry import ThreadRegistry
from pagefile.handle import Pagefile
from pagefile.memory.facts.proposal import ProposedFacts
from pagefile.memory.facts.store import FactStore
from pagefile.memory.facts.stored_graph import StoredGraph
from pagefile.memory.items.store import LongTermItems
from pagefile.memory.memory import Memory
from pagefile.runs.knowledge import Knowledge
from pagefile.runs.ledger import Ledger
from pagefile.runs.milestones import Episodes
from pagefile.runs.run import Run
from pagefile.runs.runs import Runs
from pagefile.store.store import Store

#: From the handle on. "run" is `runs.open(run_id)`, with the `run_id` of the path.
PLACES: Mapping[type, str] = {
    Memory: "memory",
    FactStore: "memory.facts",
    StoredGraph: "memory.graph",
    ProposedFacts: "memory.proposals",
    LongTermItems: "items",
    Runs: "runs",
    Run: "run",
    Ledger: "run.ledger",
    Episodes: "run.episodes",
    Knowledge: "run.memory",
    ContextBuffer: "context",
    ThreadRegistry: "registry",
    Assembly: "assembly",
    Store: "store",
    Pagefile: "",
}
