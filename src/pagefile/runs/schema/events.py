"""The events of a ledger: what every one has, and the payload of each type."""

from __future__ import annotations

from typing import Final

from pagefile.runs.schema.shapes import (
    NAME,
    Either,
    Fields,
    Flag,
    Free,
    Items,
    Maybe,
    Moment,
    Shape,
    Text,
    When,
    Whole,
    Word,
)

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
