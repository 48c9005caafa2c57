"""What the library can do, and the operation that does it over HTTP; or why there is none."""

from __future__ import annotations

import inspect
import json

import pytest

from pagefile.assembly.assembly import Assembly
from pagefile.context.buffer import ContextBuffer
from pagefile.context.registry import ThreadRegistry
from pagefile.memory.facts.store import FactStore
from pagefile.memory.items.store import LongTermItems
from pagefile.memory.memory import Memory
from pagefile.runs.ledger import Ledger
from pagefile.runs.milestones import Episodes
from pagefile.runs.run import Run
from pagefile.runs.runs import Runs
from pagefile.store.store import Store
from pagefile.surfaces.http.openapi import document

# Reasons why a method has no operation.
COMMITS = "raw commits would go around the rules of threads, runs and memory"
LIFE = "the server opens and closes its handles itself"
CODE = "it takes or gives a Python object that does not travel"
PROCESS = "it is about one process, not about what is stored"
DANGER = "it would empty a whole tenant; done with the library or the command line"
INNER = "it is a step of another method, for the library's own use"

STORE: dict[str, str] = {
    "append": COMMITS,
    "fill_vectors": INNER,
    "keep_vectors": INNER,
    "nearest": INNER,
    "remove_vectors": INNER,
    "vector_numbers": INNER,
    "commit": COMMITS,
    "commit_entries": COMMITS,
    "update": COMMITS,
    "validate": COMMITS,
    "erase": "POST /v1/forget",
    "changes": "GET /v1/store/changes",
    "check": "POST /v1/store/check",
    "find": "GET /v1/threads/{thread_id}/slots",
    "get": "GET /v1/store/document",
    "get_many": "GET /v1/store/document",
    "created": "GET /v1/store/log",
    "has_log": "GET /v1/store/names",
    "head": "GET /v1/store/head",
    "history": "GET /v1/store/document/history",
    "length": "GET /v1/store/log",
    "names": "GET /v1/store/names",
    "read": "GET /v1/store/log",
    "stats": "GET /v1/store/stats",
    "verify": "POST /v1/store/verify",
    "wait": "GET /v1/threads/{thread_id}/follow",
}
CONTEXT: dict[str, str] = {
    "append": "POST /v1/threads/{thread_id}/slots",
    "append_many": "POST /v1/threads/{thread_id}/slots/batch",
    "clear": DANGER,
    "close": LIFE,
    "delete_thread": "DELETE /v1/threads/{thread_id}",
    "erase_thread": "DELETE /v1/threads/{thread_id}",
    "follow": "GET /v1/threads/{thread_id}/follow",
    "fork": "POST /v1/threads/{thread_id}/fork",
    "get_or_create_thread": CODE,
    "get_stats": "GET /v1/store/stats",
    "get_thread": "GET /v1/threads/{thread_id}",
    "get_thread_slots": "GET /v1/threads/{thread_id}/slots",
    "handle": CODE,
    "pin": "PUT /v1/threads/{thread_id}/pin",
    "sweep": PROCESS,
    "thread_exists": "GET /v1/threads/{thread_id}",
    "unpin": "DELETE /v1/threads/{thread_id}/pin",
}
REGISTRY: dict[str, str] = {
    "cleanup": "DELETE /v1/registry/threads/{thread_id}",
    "clear": DANGER,
    "close": LIFE,
    "debug_dump": DANGER.replace("empty", "show"),
    "extend_chain": "POST /v1/registry/threads/{thread_id}/call",
    "get_or_create": "POST /v1/registry/paths",
    "get_table_for_thread": "GET /v1/registry/threads/{thread_id}",
    "get_table_root": "GET /v1/registry/root",
    "initialize_root": "PUT /v1/registry/root",
    "initialize_table_root": "PUT /v1/registry/root",
    "lookup": "GET /v1/registry/threads/{thread_id}",
    "path": "GET /v1/registry/threads/{thread_id}",
    "prune_for_response": "POST /v1/registry/threads/{thread_id}/respond",
    "register_thread": "POST /v1/registry/threads",
    "start_chain": "POST /v1/registry/threads",
}
RUNS: dict[str, str] = {
    "boot": "POST /v1/runs",
    "delete": "DELETE /v1/runs/{run_id}",
    "exists": "GET /v1/runs/{run_id}",
    "fork": "POST /v1/runs/{run_id}/fork",
    "import_jsonl": "POST /v1/runs/import",
    "list": "GET /v1/runs",
    "open": "GET /v1/runs/{run_id}",
    "restore_from_pack": "POST /v1/packs",
    "verify_pack": "POST /v1/packs/verify",
}
RUN: dict[str, str] = {
    "apply_patch": "PATCH /v1/runs/{run_id}",
    "at": "GET /v1/runs/{run_id}",
    "brief": "GET /v1/runs/{run_id}/brief",
    "commit": CODE,
    "create_resume_pack": "POST /v1/runs/{run_id}/packs",
    "diff": "GET /v1/runs/{run_id}/diff",
    "evicted": "GET /v1/runs/{run_id}/evicted",
    "find_evicted": "GET /v1/runs/{run_id}/evicted",
    "load": "GET /v1/runs/{run_id}",
    "log": "POST /v1/runs/{run_id}/ledger",
    "milestone": "POST /v1/runs/{run_id}/milestones",
    "now": INNER,
    "page_in": "POST /v1/runs/{run_id}/evicted/{item_id}/page-in",
    "rebuild": "GET /v1/runs/{run_id}/rebuild",
    "repair": "POST /v1/runs/{run_id}/repair",
    "record": INNER,
    "recording": INNER,
    "require": INNER,
    "rollback": "POST /v1/runs/{run_id}/rollback",
    "stored": INNER,
    "update": CODE,
    "version_of": INNER,
}
LEDGER: dict[str, str] = {
    "entries": INNER,
    "event": INNER,
    "export_jsonl": "GET /v1/runs/{run_id}/ledger",
    "last_of_type": "GET /v1/runs/{run_id}/ledger",
    "of_type": "GET /v1/runs/{run_id}/ledger",
    "read": "GET /v1/runs/{run_id}/ledger",
    "tail": "GET /v1/runs/{run_id}/ledger",
    "whole": INNER,
}
MILESTONES: dict[str, str] = {
    "create": "POST /v1/runs/{run_id}/milestones",
    "diff": "GET /v1/runs/{run_id}/diff",
    "events": "GET /v1/runs/{run_id}/episodes/{episode_id}/events",
    "get": "GET /v1/runs/{run_id}/episodes/{episode_id}",
    "list": "GET /v1/runs/{run_id}/episodes",
}
ITEMS: dict[str, str] = {
    "abort": "POST /v1/batches/{batch_id}/abort",
    "batch": "GET /v1/batches/{batch_id}",
    "close": LIFE,
    "commit": "POST /v1/batches/{batch_id}/commit",
    "get": "GET /v1/items/{memory_id}",
    "history": "GET /v1/items/{memory_id}/history",
    "issue_token": "POST /v1/runs/{run_id}/tokens",
    "list_batches": "GET /v1/batches",
    "plan_commit": INNER,
    "preview": "GET /v1/batches/{batch_id}/preview",
    "propose": "POST /v1/batches",
    "search": "GET /v1/items",
    "undo": "POST /v1/batches/{batch_id}/undo",
}
MEMORY: dict[str, str] = {
    "append_block": "POST /v1/blocks/{name}/append",
    "block": "GET /v1/blocks/{name}",
    "block_history": "GET /v1/blocks/{name}/history",
    "close": LIFE,
    "consolidate": "POST /v1/consolidate",
    "delete_block": "DELETE /v1/blocks/{name}",
    "duplicates": "GET /v1/duplicates",
    "episode": "GET /v1/episodes/{episode_id}",
    "export": "GET /v1/export",
    "forget": "POST /v1/forget",
    "import_": "POST /v1/import",
    "profile": "GET /v1/profile",
    "recall": "POST /v1/recall",
    "recall_facts": "POST /v1/recall/facts",
    "recall_facts_scored": "POST /v1/recall/facts",
    "recall_scored": "POST /v1/recall",
    "reindex": "POST /v1/store/reindex",
    "remember": "POST /v1/episodes",
    "remember_many": "POST /v1/episodes/batch",
    "search": "POST /v1/search",
    "session_messages": "GET /v1/sessions/{session_id}/messages",
    "snapshot": "GET /v1/export",
    "sync_vectors": "POST /v1/store/vectors/sync",
    "update_block": "PUT /v1/blocks/{name}",
    "users": "GET /v1/users",
    "vector_status": "GET /v1/store/vectors",
    "vectors_followed": PROCESS,
    "why": "GET /v1/memories/{memory_id}/why",
    "working": "GET /v1/blocks",
}
FACTS: dict[str, str] = {
    "alias": "PUT /v1/aliases/{name}",
    "aliases": "GET /v1/aliases",
    "all_facts": DANGER.replace("empty", "show"),
    "append": "POST /v1/facts",
    "append_many": "POST /v1/facts",
    "assertion": "GET /v1/facts/{fact_id}",
    "assertions": "GET /v1/export",
    "close": LIFE,
    "count": "GET /v1/profile",
    "count_holding": "GET /v1/profile",
    "overview": "GET /v1/profile",
    "declare": "PUT /v1/predicates/{predicate}",
    "delete": "POST /v1/forget",
    "derived_from": "GET /v1/memories/{memory_id}/why",
    "documents_of": INNER,
    "export": "GET /v1/export",
    "facts_from": "GET /v1/graph/neighbors",
    "facts_to": "GET /v1/graph/neighbors",
    "group_of": INNER,
    "history": "GET /v1/facts/history",
    "holding": INNER,
    "plan_retraction": INNER,
    "query": "GET /v1/facts",
    "recall_text": "POST /v1/recall/facts",
    "restore": "POST /v1/import",
    "retract": "POST /v1/facts/{fact_id}/retract",
    "unalias": "DELETE /v1/aliases/{name}",
    "viewpoint": INNER,
    "why": "GET /v1/facts/{fact_id}",
}
ASSEMBLY: dict[str, str] = {
    "assemble": "POST /v1/context",
    "close": LIFE,
    "receipt": "GET /v1/context/receipts/{receipt_id}",
    "receipts": "GET /v1/context/receipts",
    "verify_receipt": "POST /v1/context/receipts/{receipt_id}/verify",
}
PARTS: dict[type, dict[str, str]] = {
    Store: STORE,
    ContextBuffer: CONTEXT,
    ThreadRegistry: REGISTRY,
    Runs: RUNS,
    Run: RUN,
    Ledger: LEDGER,
    Episodes: MILESTONES,
    LongTermItems: ITEMS,
    Memory: MEMORY,
    FactStore: FACTS,
    Assembly: ASSEMBLY,
}
REASONS = {COMMITS, LIFE, CODE, PROCESS, DANGER, DANGER.replace("empty", "show"), INNER}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_every_public_method_has_an_operation_or_a_reason(part: type) -> None:
    public = {
        name
        for name, _ in inspect.getmembers(part, inspect.isfunction)
        if not name.startswith("_") and not name.endswith("_async")
    }

    assert sorted(public ^ PARTS[part].keys()) == []


def test_every_operation_that_is_named_here_is_in_the_document() -> None:
    paths = document()["paths"]
    offered = {f"{method.upper()} {path}" for path, methods in paths.items() for method in methods}
    named = {operation for methods in PARTS.values() for operation in methods.values()}

    assert sorted(named - REASONS - offered) == []


def test_no_shape_of_the_document_is_named_after_a_module() -> None:
    made = document()

    assert [name for name in made["components"]["schemas"] if "." in name] == []
    assert "schemas/pagefile." not in json.dumps(made)
