"""The seven artifacts of a run, field by field."""

from __future__ import annotations

from typing import Final

from pagefile.runs.schema.events import ledger_event
from pagefile.runs.schema.shapes import (
    NAME,
    REFERENCE,
    Fields,
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

SCHEMA_VERSION: Final = "2.1"
STATUSES: Final = ("BOOT", "IDLE", "BUSY", "WAITING_INPUT", "PAUSED", "DONE", "FAILED")
MOST_PINNED: Final = 10
MOST_PRIORITY: Final = 9

_VERSION: Final = Word((SCHEMA_VERSION,))
_NAME: Final = Text(NAME, least=1)
_REFERENCE: Final = Text(REFERENCE)
_CONTENT: Final = Text()
_SOME_CONTENT: Final = Text(least=1)
_OBJECT: Final = Free("object")
_TEXTS: Final = Items(_CONTENT)
_NAMES: Final = Items(_NAME)
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
