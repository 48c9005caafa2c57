"""The seven artifacts of a run, field by field."""

from __future__ import annotations

from typing import Final

from pagefile.runs.schema.shapes import (
    NAME,
    REFERENCE,
    Either,
    Fields,
    Flag,
    Free,
    Items,
    Maybe,
    Moment,
    Never,
    Number,
    Shape,
    Table,
    Text,
    When,
    Whole,
    Word,
)

# The events of a ledger: what every one has, and the payload of each type.


_NAME: Final = Text(NAME, least=1)
_LABEL: Final = Text(NAME)
_CONTENT: Final = Text()
_OBJECT: Final = Free("object")
_NUMBER: Final = Whole()
_NAMES: Final = Items(_NAME)


def _payload(required: dict[str, Shape], optional: dict[str, Shape] | None = None) -> Fields:
    return Fields(required, optional or {})


PAYLOADS: Final[dict[str, Fields]] = {
    "RUN_START": _payload(
        {"config": _OBJECT}, {"working_set": _OBJECT, "parent": Either(_NAME, _OBJECT)}
    ),
    "STEP_REQUEST": _payload({"ws_seq": _NUMBER}, {"model": _LABEL, "context_brief": _CONTENT}),
    "MODEL_ACTION": _payload({"action": _OBJECT}, {"raw": _OBJECT}),
    "TOOL_CALL": _payload({"tool_name": _LABEL}, {"arguments": _OBJECT}),
    "TOOL_RESULT": _payload({"tool_name": _LABEL, "ok": Flag()}, {"result": Free()}),
    "MODEL_UPDATE": _payload(
        {"expected_seq": _NUMBER}, {"ws_patch": _OBJECT, "mcrs": Free("array")}
    ),
    "WS_UPDATE_APPLIED": _payload(
        {"new_seq": _NUMBER},
        {"patch": _OBJECT, "evicted": _NAMES, "unpinned": _NAMES, "tokens": _NUMBER},
    ),
    "WS_UPDATE_REJECTED": _payload(
        {"error": _CONTENT},
        {"code": _LABEL, "expected_seq": _NUMBER, "current_seq": _NUMBER},
    ),
    "ERROR": _payload({"error_type": _LABEL, "message": _CONTENT}, {"details": _OBJECT}),
    "MILESTONE": _payload(
        {"reason": _CONTENT}, {"episode_id": _LABEL, "next_entry_point": _CONTENT}
    ),
    "MEMORY_PROPOSE": _payload(
        {"batch_id": _NAME, "count": _NUMBER}, {"scope": Either(_NAME, _OBJECT)}
    ),
    "MEMORY_COMMIT": _payload({"batch_id": _NAME, "memory_ids": _NAMES}, {"milestone": _NAME}),
    "MEMORY_TOKEN": _payload({"ttl_seconds": _NUMBER}),
    "MEMORY_ABORT": _payload({"batch_id": _NAME}),
    "MEMORY_UNDO": _payload({"batch_id": _NAME}),
    "RESUME_SNAPSHOT": _payload({"pack_id": _NAME}, {"pointers": _OBJECT}),
    "RUN_RESTORED": _payload({"pack_id": _NAME, "parent_run_id": _NAME}, {"thread_id": _NAME}),
    "RUN_FORKED": _payload({"parent_run_id": _NAME, "at_seq": _NUMBER}),
    "WS_ROLLBACK": _payload({"to_seq": _NUMBER, "new_seq": _NUMBER}),
    "WS_REPAIRED": _payload({"damaged_seq": _NUMBER, "new_seq": _NUMBER}, {"reason": _CONTENT}),
    "RUN_ERASED": _payload({"reason": _CONTENT}),
}


def ledger_event(version: Shape) -> Fields:
    """One event. The payload is closed, and its shape follows from the type."""
    return Fields(
        {
            "_schema_version": version,
            "event_id": _NAME,
            "parent_event_id": Maybe(_LABEL),
            "sequence_id": Maybe(Whole(least=1)),
            "event_type": Word(tuple(PAYLOADS)),
            "timestamp": Moment(),
            "writer_id": _NAME,
            "task_id": _NAME,
            "thread_id": _NAME,
            "run_id": _NAME,
            "payload": _OBJECT,
        },
        whens=tuple(
            When("event_type", (name,), {"payload": shape}) for name, shape in PAYLOADS.items()
        ),
    )


SCHEMA_VERSION: Final = "2.1"
STATUSES: Final = ("BOOT", "IDLE", "BUSY", "WAITING_INPUT", "PAUSED", "DONE", "FAILED")
MOST_PINNED: Final = 10
MOST_PRIORITY: Final = 9

_VERSION: Final = Word((SCHEMA_VERSION,))
_REFERENCE: Final = Text(REFERENCE)
_SOME_CONTENT: Final = Text(least=1)
_TEXTS: Final = Items(_CONTENT)
_SOURCES: Final = Items(Text(REFERENCE, least=1))

_ARTIFACT_REFS: Final = Items(
    Fields(
        {"type": _NAME, "id": _NAME},
        {
            "path": _REFERENCE,
            "sha256": Text(64, 64, "^[0-9A-Fa-f]{64}", "give 64 hexadecimal digits"),
        },
        name="artifact_ref",
    ),
    unique_ids=True,
)
_PINNED: Final = Items(
    Fields({"id": _NAME, "content": _SOME_CONTENT}, {"source_ref": _REFERENCE}, name="pinned_item"),
    MOST_PINNED,
    unique_ids=True,
)
_SLIDING: Final = Items(
    Fields(
        {
            "id": _NAME,
            "content": _SOME_CONTENT,
            "timestamp": Moment(),
            "priority": Whole(most=MOST_PRIORITY),
        },
        name="sliding_item",
    ),
    unique_ids=True,
)

WORKING_SET: Final = Fields(
    {
        "_schema_version": _VERSION,
        "_update_seq": Whole(),
        "task_id": _NAME,
        "thread_id": _NAME,
        "run_id": _NAME,
        "status": Word(STATUSES),
        "objective": _SOME_CONTENT,
        "acceptance_criteria": _TEXTS,
        "current_stage": _SOME_CONTENT,
        "next_action": _CONTENT,
        "constraints": _TEXTS,
        "artifact_refs": _ARTIFACT_REFS,
        "blockers": _TEXTS,
        "last_action_summary": _CONTENT,
        "pinned_context": _PINNED,
        "sliding_context": _SLIDING,
    }
)
#: What only the store changes: identity, version, and what the run is for.
PROTECTED: Final = (
    "_schema_version",
    "_update_seq",
    "task_id",
    "thread_id",
    "run_id",
    "objective",
)
PATCHABLE: Final = tuple(name for name in WORKING_SET.required if name not in PROTECTED)
PATCH_FIELDS: Final = Fields(optional={name: WORKING_SET.required[name] for name in PATCHABLE})

#: Lists that operations change. A text in a list of texts is its own id.
_TEXT_LISTS: Final = ("acceptance_criteria", "constraints", "blockers")
_ITEM_LISTS: Final = ("artifact_refs", "pinned_context", "sliding_context")


def _operation() -> Fields:
    no_ids: dict[str, Shape] = {"ids": Never()}
    no_items: dict[str, Shape] = {"items": Never()}
    return Fields(
        {"op": Word(("append", "upsert", "remove")), "field": Word((*_TEXT_LISTS, *_ITEM_LISTS))},
        {"items": Free("array"), "ids": Free("array")},
        name="operation",
        whens=(
            When("field", _TEXT_LISTS, {"items": _TEXTS, "ids": _TEXTS}),
            *(
                When("field", (name,), {"items": WORKING_SET.required[name], "ids": _NAMES})
                for name in _ITEM_LISTS
            ),
            When("op", ("append", "upsert"), no_ids, ("items",)),
            When("op", ("remove",), no_items, ("ids",)),
        ),
    )


WS_PATCH: Final = Fields(
    {"_schema_version": _VERSION, "expected_seq": Whole()},
    {"set": PATCH_FIELDS, "ops": Items(_operation())},
    any_of=("set", "ops"),
)

EPISODE: Final = Fields(
    {
        "_schema_version": _VERSION,
        "episode_id": _NAME,
        "created_at": Moment(),
        "summary": _CONTENT,
        "ws_before": _OBJECT,
        "ws_after": _OBJECT,
        "memory_commits": Items(Text(NAME)),
        "next_entry_point": _CONTENT,
    }
)

_MEMORY_TYPE: Final = Word(("fact", "preference", "policy", "decision", "invariant"))
_MEMORY_SCOPE: Final = Word(("user", "project", "global"))
_CONFIDENCE: Final = Number(0, 1)

MCR: Final = Fields(
    {
        "_schema_version": _VERSION,
        "op": Word(("add", "supersede", "deprecate", "noop")),
        "type": _MEMORY_TYPE,
        "scope": _MEMORY_SCOPE,
        "content": _SOME_CONTENT,
        "confidence": _CONFIDENCE,
        "rationale": _SOME_CONTENT,
        "source_refs": _SOURCES,
    },
    {
        "supersedes": _NAMES,
        "target_memory_id": _NAME,
        "memory_id": _NAME,
        "user_id": _NAME,
        "project_id": _NAME,
        "created_at": Moment(),
        "updated_at": Moment(),
    },
    whens=(
        When("op", ("supersede",), {"supersedes": Items(_NAME, least=1)}, ("supersedes",)),
        When("op", ("deprecate",), {}, ("target_memory_id",)),
    ),
    defaults={"source_refs": [], "supersedes": []},
)

MEMORY_ITEM: Final = Fields(
    {
        "_schema_version": _VERSION,
        "memory_id": Text(NAME, least=3),
        "type": _MEMORY_TYPE,
        "scope": _MEMORY_SCOPE,
        "content": _SOME_CONTENT,
        "confidence": _CONFIDENCE,
        "status": Word(("active", "deprecated", "inactive")),
        "source_refs": Items(_REFERENCE),
        "created_at": Moment(),
        "updated_at": Moment(),
    },
    {
        "user_id": Maybe(Text(NAME)),
        "project_id": Maybe(Text(NAME)),
        "supersedes": Items(Text(NAME)),
    },
    defaults={"supersedes": []},
)

RESUME_PACK_MANIFEST: Final = Fields(
    {
        "_schema_version": _VERSION,
        "pack_id": _NAME,
        "created_at": Moment(),
        "compatible_engine_versions": Items(_NAME, least=1),
        "files": Table(
            Text(REFERENCE, least=1),
            Text(64, 64, "^[0-9a-f]{64}", "give 64 hexadecimal digits in lower case"),
        ),
        "pointers": _OBJECT,
    }
)

ARTIFACTS: Final[dict[str, Fields]] = {
    "working_set": WORKING_SET,
    "ws_patch": WS_PATCH,
    "ledger_event": ledger_event(_VERSION),
    "episode": EPISODE,
    "mcr": MCR,
    "memory_item": MEMORY_ITEM,
    "resume_pack_manifest": RESUME_PACK_MANIFEST,
}
