"""Which calls are traced, under which names, and what their spans tell.

Memory operations have the names of OpenTelemetry's conventions for generative
AI; what those have no word for stands under `pagefile.`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
STORE_ID = "gen_ai.memory.store.id"
RECORD_ID = "gen_ai.memory.record.id"
RECORD_COUNT = "gen_ai.memory.record.count"
CONVERSATION_ID = "gen_ai.conversation.id"
#: Content; never set unless it was asked for.
QUERY_TEXT = "gen_ai.memory.query.text"
RECORDS = "gen_ai.memory.records"
ERROR_TYPE = "error.type"

_MEMORY = ("pagefile.memory.memory:Memory", "pagefile.aio.memory:AsyncMemory")
_FACTS = ("pagefile.memory.facts.store:FactStore", "pagefile.aio.memory:AsyncFactStore")
_ITEMS = ("pagefile.memory.items.store:LongTermItems", "pagefile.aio:AsyncLongTermItems")
_ASSEMBLY = ("pagefile.assembly.assembly:Assembly", "pagefile.aio.memory:AsyncAssembly")
_STORE = ("pagefile.store.store:Store", "pagefile.aio:AsyncStore")
_MOST_CONTENT = 64_000
_MOST_RECORDS = 100


class Traced(msgspec.Struct, frozen=True):
    """Methods of one name, and the operation that each is."""

    places: tuple[str, ...]
    method: str
    operation: str
    #: The name of the first argument, when it is one that a span tells of.
    first: str = ""

    @property
    def is_memory(self) -> bool:
        """Whether the conventions have a word for it."""
        return not self.operation.startswith("pagefile.")


TRACED = (
    Traced(_MEMORY, "remember", "create_memory", "records"),
    Traced(_MEMORY, "remember_many", "create_memory", "records"),
    Traced(_MEMORY, "recall", "search_memory", "query"),
    Traced(_MEMORY, "recall_scored", "search_memory", "query"),
    Traced(_MEMORY, "recall_facts", "search_memory", "query"),
    Traced(_MEMORY, "recall_facts_scored", "search_memory", "query"),
    Traced(_MEMORY, "search", "search_memory", "query"),
    Traced(_MEMORY, "update_block", "upsert_memory", "id"),
    Traced(_MEMORY, "append_block", "update_memory", "id"),
    Traced(_MEMORY, "delete_block", "delete_memory", "id"),
    Traced(_MEMORY, "forget", "delete_memory"),
    Traced(_FACTS, "append", "create_memory", "records"),
    Traced(_FACTS, "append_many", "create_memory", "records"),
    Traced(_FACTS, "retract", "delete_memory", "id"),
    Traced(_ITEMS, "search", "search_memory", "query"),
    Traced(_ITEMS, "commit", "upsert_memory"),
    Traced(_ASSEMBLY, "assemble", "pagefile.assemble"),
    Traced(_MEMORY, "consolidate", "pagefile.consolidate"),
    Traced(_STORE, "commit", "pagefile.commit"),
    Traced(_STORE, "append", "pagefile.commit"),
    Traced(_STORE, "append_many", "pagefile.commit"),
    Traced((_STORE[0],), "commit_async", "pagefile.commit"),
    Traced((_STORE[0],), "append_async", "pagefile.commit"),
    Traced((_STORE[0],), "append_many_async", "pagefile.commit"),
)


def told_before(
    traced: Traced, target: Any, args: Sequence[Any], options: Mapping[str, Any], *, content: bool
) -> dict[str, Any]:
    """What a span tells when it begins."""
    told: dict[str, Any] = {OPERATION: traced.operation, PROVIDER: "pagefile"}
    if not traced.is_memory:
        told = {}
    tenant = tenant_of(target)
    if tenant:
        told[STORE_ID if traced.is_memory else "pagefile.tenant"] = tenant
    first = args[0] if args else None
    session = options.get("session_id") or getattr(first, "session_id", None)
    if isinstance(session, str):
        told[CONVERSATION_ID] = session
    if traced.first == "id":
        given = first if args else options.get("name", options.get("fact_id"))
        told |= {RECORD_ID: given} if isinstance(given, str) else {}
    query = options.get("query", first)
    if content and traced.first == "query" and isinstance(query, str):
        told[QUERY_TEXT] = query[:_MOST_CONTENT]
    if traced.operation == "pagefile.commit":
        told["pagefile.operations"] = len(getattr(first, "operations", ()))
    return told


def told_after(
    traced: Traced, args: Sequence[Any], result: Any, *, content: bool
) -> dict[str, Any]:
    """What a span tells when it ends well."""
    if traced.operation == "pagefile.commit":
        position = getattr(result, "position", None)
        return {} if position is None else {"pagefile.position": position}
    if traced.operation == "pagefile.assemble":
        receipt = result.receipt
        return {
            "pagefile.budget": receipt.budget,
            "pagefile.tokens": receipt.tokens,
            "pagefile.pieces": len(receipt.pieces),
        }
    if not traced.is_memory:
        return {}
    told: dict[str, Any] = {}
    if traced.operation == "delete_memory" and not traced.first:
        return {RECORD_COUNT: int(result)}
    if isinstance(result, str):
        told = {RECORD_ID: result, RECORD_COUNT: 1}
    elif isinstance(result, (list, tuple)):
        told = {RECORD_COUNT: len(result)}
    if content and traced.first in ("query", "records"):
        shown = result if traced.first == "query" else args[0] if args else ()
        records = shown if isinstance(shown, (list, tuple)) else [shown]
        told[RECORDS] = _records(records)
    return told


def tenant_of(target: Any) -> str:
    """The tenant of whatever was called, as far as it is known."""
    for _ in range(4):
        tenant = getattr(target, "tenant", None) or getattr(target, "_tenant", None)
        if isinstance(tenant, str):
            return tenant
        target = getattr(target, "_sync", None) or getattr(target, "_store", None)
    return ""


def _records(found: Sequence[Any]) -> str:
    shown: list[dict[str, Any]] = []
    size = 0
    for each in found[:_MOST_RECORDS]:
        record = _record(each)
        size += len(record["content"])
        if size > _MOST_CONTENT:
            break
        shown.append(record)
    return msgspec.json.encode(shown).decode()


def _record(each: Any) -> dict[str, Any]:
    value = getattr(each, "episode", None) or getattr(each, "fact", None) or each
    value = getattr(value, "item", value)
    record: dict[str, Any] = {"content": _content(each, value)}
    identity = getattr(value, "id", None) or getattr(value, "memory_id", None)
    if identity is not None:
        record["id"] = identity
    score = getattr(each, "score", None)
    return record if score is None else record | {"score": float(score)}


def _content(each: Any, value: Any) -> str:
    for holder, name in ((each, "text"), (value, "content")):
        text = getattr(holder, name, None)
        if isinstance(text, str):
            return text
    names = ("input", "output") if hasattr(value, "input") else ("subject", "predicate", "object")
    return " ".join(str(getattr(value, name, "")) for name in names).strip()
