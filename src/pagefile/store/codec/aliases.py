"""Names in data of classes that have moved. A stored name never changes; a module's name may."""

from __future__ import annotations

from typing import Final

#: The module that classes of this package are stored under, the one they are in now, and which.
_MOVED_FROM: Final[tuple[tuple[str, str, str], ...]] = (
    ("pagefile.assembly.recording", "pagefile.assembly.receipt", "ReceiptPage"),
    (
        "pagefile.batch",
        "pagefile.store.batch",
        "Absent Append Batch CountBelow CreatedAt Delete Drop Fork LengthBelow LengthIs "
        "Prune Put Selector Unchanged Vector VersionIs",
    ),
    ("pagefile.content", "pagefile.store.records", "Content"),
    ("pagefile.context.shared", "pagefile.context.shared_backend", "BackendConfig"),
    ("pagefile.copying", "pagefile.store.log.copy", "CopyReport"),
    ("pagefile.dispatch.claims", "pagefile.dispatch.intake", "OpenConversation"),
    ("pagefile.dispatch.dead_letter", "pagefile.dispatch.conversation", "DeadLetter"),
    ("pagefile.dispatch.identity", "pagefile.dispatch.journal", "Answer Delivery Identity"),
    ("pagefile.dispatch.life", "pagefile.dispatch.lifecycle", "Remaining"),
    ("pagefile.dispatch.limits", "pagefile.dispatch.listener", "DispatchLimits"),
    ("pagefile.dispatch.overview", "pagefile.dispatch.organism", "Overview WorkerView"),
    (
        "pagefile.dispatch.payloads",
        "pagefile.dispatch.letter",
        "NoReply SystemError TodoClosed TodoComplete TodoRegistered TodoUntil",
    ),
    ("pagefile.dispatch.pool", "pagefile.dispatch.workers.pool", "ProcessPool"),
    ("pagefile.dispatch.response", "pagefile.dispatch.letter", "HandlerResponse"),
    ("pagefile.dispatch.retry", "pagefile.dispatch.listener", "Retry"),
    ("pagefile.dispatch.yaml_node", "pagefile.dispatch.organism_file", "Problem"),
    ("pagefile.engine", "pagefile.store.engine", "Hit Limits RawCommit Row Sealed Stream Wiped"),
    ("pagefile.memory.block", "pagefile.memory.blocks", "MemoryBlock"),
    ("pagefile.memory.bringing", "pagefile.memory.privacy.importer", "ImportReceipt"),
    ("pagefile.memory.change", "pagefile.memory.items.change", "Change"),
    (
        "pagefile.memory.consolidation_policy",
        "pagefile.memory.consolidation.consolidation",
        "ConsolidationPolicy",
    ),
    (
        "pagefile.memory.consolidation_report",
        "pagefile.memory.consolidation.consolidation",
        "ConsolidationReport",
    ),
    ("pagefile.memory.duplicates", "pagefile.memory.episodes.duplicates", "Duplicate"),
    ("pagefile.memory.episode", "pagefile.memory.episodes.episode", "Episode"),
    ("pagefile.memory.extraction.completion", "pagefile.memory.extraction.chat", "Completion"),
    ("pagefile.memory.fact", "pagefile.memory.facts.fact", "Closing Fact"),
    (
        "pagefile.memory.fact_documents",
        "pagefile.memory.facts.documents",
        "Assertion StoredAssertion",
    ),
    ("pagefile.memory.fact_history", "pagefile.memory.facts.view", "History Rectangle Story"),
    ("pagefile.memory.fact_kinds", "pagefile.memory.facts.view", "Kinds"),
    ("pagefile.memory.fact_view", "pagefile.memory.facts.view", "Sight Viewpoint"),
    ("pagefile.memory.graph", "pagefile.memory.facts.graph", "Edge Path"),
    ("pagefile.memory.item", "pagefile.memory.items.item", "Cause MemoryItem Revision"),
    ("pagefile.memory.items", "pagefile.memory.items.store", "Committed Proposal"),
    ("pagefile.memory.lexical", "pagefile.memory.items.reader", "Hit"),
    ("pagefile.memory.match", "pagefile.memory.recaller", "EpisodeMatch FactMatch MemoryMatch"),
    (
        "pagefile.memory.message",
        "pagefile.memory.episodes.episode",
        "Image Message Role ToolCall ToolDef",
    ),
    ("pagefile.memory.plan", "pagefile.memory.items.plan", "Difference Plan Preview"),
    ("pagefile.memory.plane", "pagefile.memory.facts.plane", "Claim Window"),
    ("pagefile.memory.profile", "pagefile.memory.provenance", "MemoryProfile"),
    ("pagefile.memory.proposal", "pagefile.memory.items.proposal", "BatchPage ItemBatch"),
    ("pagefile.memory.proposed_fact", "pagefile.memory.facts.proposal", "ProposedFact"),
    ("pagefile.memory.use", "pagefile.memory.provenance", "Use Uses"),
    ("pagefile.memory.vector_follower", "pagefile.recall.arms.synchronizer", "VectorsFollowed"),
    ("pagefile.query", "pagefile.store.batch", "Query"),
    ("pagefile.recall.arms.keeper", "pagefile.recall.arms.synchronizer", "VectorStatus"),
    ("pagefile.recall.catalogue", "pagefile.recall.records", "Catalogue Model"),
    ("pagefile.recall.entry", "pagefile.recall.records", "IndexEntry"),
    ("pagefile.recall.question", "pagefile.recall.text.question", "Named Question"),
    ("pagefile.recall.time_words", "pagefile.recall.text.dates", "TimeWords"),
    (
        "pagefile.records",
        "pagefile.store.records",
        "Change Commit Document Entry Head Page Problem Receipt Report Stats Touched",
    ),
    ("pagefile.runs.episodes", "pagefile.runs.milestones", "Milestone"),
    ("pagefile.runs.pack_format", "pagefile.runs.packs.format", "PackReport"),
    ("pagefile.runs.repair", "pagefile.runs.rebuild", "Repaired"),
)

#: The name that a class of this package is stored under, and where the class is now.
MOVED: Final[dict[str, str]] = {
    f"{stored}:{name}": f"{now}:{name}"
    for stored, now, names in _MOVED_FROM
    for name in names.split()
}
