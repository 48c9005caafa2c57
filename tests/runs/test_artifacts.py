"""The artifacts of a run: compiled checks, published schemas, and that both say the same."""

from __future__ import annotations

import copy
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta, timezone
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from pagefile.errors import Invalid
from pagefile.runs.schema import json_schema
from pagefile.runs.schema.artifacts import (
    PATCHABLE,
    PROTECTED,
    SCHEMA_VERSION,
    STATUSES,
    check,
    check_fields,
    parse_time,
    schema,
)
from pagefile.runs.schema.definitions import ARTIFACTS, PAYLOADS
from pagefile.runs.schema.shapes import (
    DEPTH,
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
    Whole,
    Word,
)

NOW = "2026-01-31T09:30:00Z"
SHA = "0123456789abcdef" * 4
NAMES = [
    "working_set",
    "ws_patch",
    "ledger_event",
    "episode",
    "mcr",
    "memory_item",
    "resume_pack_manifest",
]

# What the published files cannot say; `check` refuses these, and a validator does not.
BEYOND_JSON_SCHEMA = ("unique ids", "lone surrogates", "depth", "values that are not in JSON")
UNIQUE_ID_LISTS = ("artifact_refs", "pinned_context", "sliding_context")

SLIDING = {"id": "s1", "content": "seen", "timestamp": NOW, "priority": 5}
PINNED = {"id": "p", "content": "c"}
EMPTY_SET: dict[str, Any] = {
    "_schema_version": "2.1",
    "_update_seq": 0,
    "task_id": "task",
    "thread_id": "thread",
    "run_id": "run",
    "status": "BOOT",
    "objective": "Ship it",
    "acceptance_criteria": [],
    "current_stage": "BOOT",
    "next_action": "",
    "constraints": [],
    "artifact_refs": [],
    "blockers": [],
    "last_action_summary": "",
    "pinned_context": [],
    "sliding_context": [],
}
FULL_SET = EMPTY_SET | {
    "_update_seq": 7,
    "acceptance_criteria": ["tests pass", "tests pass"],
    "constraints": ["no network", ""],
    "artifact_refs": [
        {"type": "file", "id": "a1", "path": "out/a.txt", "sha256": SHA.upper()},
        {"type": "url", "id": "a2"},
    ],
    "blockers": ["review"],
    "pinned_context": [{"id": "p1", "content": "always", "source_ref": "slot:1"}],
    "sliding_context": [SLIDING, {**SLIDING, "id": "s2", "priority": 0.0}],
}


def patch(**fields: Any) -> dict[str, Any]:
    return {"_schema_version": "2.1", "expected_seq": 0, **fields}


def event(kind: str, payload: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "_schema_version": "2.1",
        "event_id": "3f0c",
        "parent_event_id": None,
        "sequence_id": None,
        "event_type": kind,
        "timestamp": NOW,
        "writer_id": "api",
        "task_id": "task",
        "thread_id": "thread",
        "run_id": "run",
        "payload": payload,
    } | fields


EPISODE = {
    "_schema_version": "2.1",
    "episode_id": "ep_1",
    "created_at": NOW,
    "summary": "",
    "ws_before": {},
    "ws_after": EMPTY_SET,
    "memory_commits": [],
    "next_entry_point": "",
}
MCR = {
    "_schema_version": "2.1",
    "op": "add",
    "type": "fact",
    "scope": "user",
    "content": "prefers metric",
    "confidence": 1,
    "rationale": "said so",
    "source_refs": [],
}
ITEM = {
    "_schema_version": "2.1",
    "memory_id": "mem",
    "type": "policy",
    "scope": "global",
    "content": "no force push",
    "confidence": 0.5,
    "status": "active",
    "source_refs": [],
    "created_at": NOW,
    "updated_at": NOW,
}
MANIFEST = {
    "_schema_version": "2.1",
    "pack_id": "pack_1",
    "created_at": NOW,
    "compatible_engine_versions": ["any/2.1.0"],
    "files": {},
    "pointers": {},
}

V21_EVENTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "RUN_START": ({"config": {"model": "m", "nested": [1, None, True, 0.5]}}, {}),
    "STEP_REQUEST": ({"ws_seq": 0}, {"model": "m", "context_brief": "# Brief"}),
    "MODEL_ACTION": ({"action": {}}, {"raw": {}}),
    "TOOL_CALL": ({"tool_name": "t"}, {"arguments": {"a": 1}}),
    "TOOL_RESULT": ({"tool_name": "t", "ok": True}, {"result": None}),
    "MODEL_UPDATE": ({"expected_seq": 0}, {"ws_patch": {}, "mcrs": [{}]}),
    "WS_UPDATE_APPLIED": ({"new_seq": 1}, {}),
    "WS_UPDATE_REJECTED": ({"error": "LOCK_ERROR"}, {}),
    "ERROR": ({"error_type": "E", "message": ""}, {"details": {}}),
    "MILESTONE": ({"reason": "done"}, {"episode_id": "ep_1"}),
}
NEW_EVENTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "RUN_START": ({"config": {}}, {"working_set": EMPTY_SET, "parent": "run-0"}),
    "WS_UPDATE_APPLIED": (
        {"new_seq": 1},
        {"patch": {}, "evicted": ["s1"], "unpinned": ["p1"], "tokens": 12},
    ),
    "WS_UPDATE_REJECTED": (
        {"error": "e"},
        {"code": "conflict", "expected_seq": 1, "current_seq": 2},
    ),
    "MILESTONE": ({"reason": "done"}, {"next_entry_point": "go on"}),
    "MEMORY_PROPOSE": ({"batch_id": "b", "count": 2}, {"scope": {"user_id": "u"}}),
    "MEMORY_COMMIT": ({"batch_id": "b", "memory_ids": ["m"]}, {"milestone": "ep_1"}),
    "MEMORY_TOKEN": ({"ttl_seconds": 300}, {}),
    "MEMORY_ABORT": ({"batch_id": "b"}, {}),
    "MEMORY_UNDO": ({"batch_id": "b"}, {}),
    "RESUME_SNAPSHOT": ({"pack_id": "p"}, {"pointers": {"ledger_last_seq": 3}}),
    "RUN_RESTORED": ({"pack_id": "p", "parent_run_id": "r"}, {"thread_id": "t"}),
    "RUN_FORKED": ({"parent_run_id": "r", "at_seq": 0}, {}),
    "WS_ROLLBACK": ({"to_seq": 1, "new_seq": 3}, {}),
    "WS_REPAIRED": ({"damaged_seq": 2, "new_seq": 3}, {"reason": "no JSON"}),
    "RUN_ERASED": ({"reason": "asked"}, {}),
}
EVENTS = [
    (kind, payload)
    for table in (V21_EVENTS, NEW_EVENTS)
    for kind, (least, more) in table.items()
    for payload in (least, least | more)
]
ACCEPTED: list[tuple[str, dict[str, Any]]] = [
    ("working_set", EMPTY_SET),
    ("working_set", FULL_SET),
    ("working_set", EMPTY_SET | {"_update_seq": 3.0}),
    ("ws_patch", patch(set={})),
    ("ws_patch", patch(set={name: FULL_SET[name] for name in PATCHABLE})),
    ("ws_patch", patch(ops=[])),
    ("ws_patch", patch(ops=[{"op": "append", "field": "sliding_context", "items": [SLIDING]}])),
    ("ws_patch", patch(ops=[{"op": "upsert", "field": "blockers", "items": ["review"]}])),
    ("ws_patch", patch(set={}, ops=[{"op": "remove", "field": "pinned_context", "ids": ["p1"]}])),
    *[("ledger_event", event(kind, payload)) for kind, payload in EVENTS],
    ("ledger_event", event("RUN_START", {"config": {}}, parent_event_id="e0", sequence_id=1)),
    ("episode", EPISODE),
    ("episode", EPISODE | {"summary": "two steps", "memory_commits": ["mem", ""]}),
    ("mcr", MCR),
    ("mcr", MCR | {"op": "supersede", "supersedes": ["m"], "memory_id": "m2", "user_id": "u"}),
    ("mcr", MCR | {"op": "deprecate", "target_memory_id": "m", "project_id": "p"}),
    ("mcr", MCR | {"op": "noop", "created_at": NOW, "updated_at": NOW, "supersedes": []}),
    ("memory_item", ITEM),
    ("memory_item", ITEM | {"user_id": None, "project_id": "p", "supersedes": ["m"]}),
    ("resume_pack_manifest", MANIFEST),
    ("resume_pack_manifest", MANIFEST | {"files": {"ws.json": SHA}, "pointers": {"last": 3}}),
]


@cache
def validator(name: str) -> Any:
    published = schema(name)
    Draft202012Validator.check_schema(published)
    return Draft202012Validator(published)


Path_ = tuple[str | int, ...]


def published_path(name: str, document: Any) -> Path_ | None:
    """Where the first error is, by the published file and any validator; None when it passes."""
    paths = [tuple(error.absolute_path) for error in validator(name).iter_errors(document)]
    return min(paths, default=None)


def repeated_ids(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    """The first exception: places where an id is there already, in lists of items."""
    if isinstance(value, dict):
        for name, each in value.items():
            field = value.get("field") if name == "items" else name
            if field in UNIQUE_ID_LISTS and isinstance(each, list):
                ids = [item.get("id") if isinstance(item, dict) else None for item in each]
                for i, found in enumerate(ids):
                    if isinstance(found, str) and found in ids[:i]:
                        yield (*path, name, i, "id")
            yield from repeated_ids(each, (*path, name))
    elif isinstance(value, list):
        for i, each in enumerate(value):
            yield from repeated_ids(each, (*path, i))


def refused_at(name: str, document: Any) -> str | None:
    """The field that `check` names, or None when it accepts."""
    try:
        check(name, document)
    except Invalid as error:
        return error.field
    return None


def expected_at(name: str, document: Any) -> str | None:
    paths = [*repeated_ids(document)] if name in ("working_set", "ws_patch") else []
    published = published_path(name, document)
    if published is not None:
        paths.append(published)
    return ".".join(map(str, min(paths))) or "<root>" if paths else None


# Every field


@pytest.mark.parametrize(("name", "document"), ACCEPTED)
def test_documents_minimal_and_full_are_accepted_by_both(
    name: str, document: dict[str, Any]
) -> None:
    check(name, document)

    assert published_path(name, document) is None


@pytest.mark.parametrize(
    ("name", "document"),
    [pytest.param(n, d, id=n) for n, d in dict(ACCEPTED).items()],
)
def test_no_field_of_an_artifact_goes_unchecked(name: str, document: dict[str, Any]) -> None:
    """A value that no field but a free one takes, put in place of each."""
    free = {"result"}
    for field in document:
        odd = document | {field: {"\u2020": 1.5}}
        if field not in {"payload", "pointers", "config", "ws_before", "ws_after", *free}:
            assert refused_at(name, odd) is not None, field
        assert refused_at(name, odd) == expected_at(name, odd), field


def long(characters: int) -> str:
    return "x" * characters


SET_REFUSALS: list[tuple[str, Any, str]] = [
    ("_schema_version", "2.0", "_schema_version"),
    ("_schema_version", 2.1, "_schema_version"),
    ("_update_seq", -1, "_update_seq"),
    ("_update_seq", True, "_update_seq"),
    ("_update_seq", 0.5, "_update_seq"),
    ("_update_seq", 2**53, "_update_seq"),
    ("task_id", "", "task_id"),
    ("thread_id", 7, "thread_id"),
    ("run_id", long(1_025), "run_id"),
    ("status", "boot", "status"),
    ("status", ["BOOT"], "status"),
    ("objective", "", "objective"),
    ("objective", long(1_000_001), "objective"),
    ("acceptance_criteria", "one", "acceptance_criteria"),
    ("acceptance_criteria", ["a", 1], "acceptance_criteria.1"),
    ("current_stage", "", "current_stage"),
    ("next_action", None, "next_action"),
    ("constraints", ["c"] * 10_001, "constraints"),
    ("constraints", [None], "constraints.0"),
    ("artifact_refs", [{"type": "file"}], "artifact_refs.0"),
    ("artifact_refs", [{"type": "", "id": "a"}], "artifact_refs.0.type"),
    ("artifact_refs", [{"type": "f", "id": "a", "path": 1}], "artifact_refs.0.path"),
    ("artifact_refs", [{"type": "f", "id": "a", "sha256": SHA[1:]}], "artifact_refs.0.sha256"),
    ("artifact_refs", [{"type": "f", "id": "a", "sha256": "g" * 64}], "artifact_refs.0.sha256"),
    ("artifact_refs", [{"type": "f", "id": "a", "size": 1}], "artifact_refs.0"),
    ("blockers", {}, "blockers"),
    ("last_action_summary", 1, "last_action_summary"),
    ("pinned_context", [{"id": "p", "content": ""}], "pinned_context.0.content"),
    ("pinned_context", [PINNED | {"source_ref": 1}], "pinned_context.0.source_ref"),
    ("pinned_context", [{"id": f"p{i}", "content": "c"} for i in range(11)], "pinned_context"),
    ("sliding_context", [SLIDING | {"id": ""}], "sliding_context.0.id"),
    ("sliding_context", [SLIDING | {"timestamp": "not-a-date"}], "sliding_context.0.timestamp"),
    ("sliding_context", [SLIDING | {"priority": 10}], "sliding_context.0.priority"),
    ("sliding_context", [SLIDING | {"priority": "5"}], "sliding_context.0.priority"),
    ("sliding_context", [SLIDING | {"source_ref": "s"}], "sliding_context.0"),
    ("sliding_context", [SLIDING, "text"], "sliding_context.1"),
]


@pytest.mark.parametrize(("field", "value", "at"), SET_REFUSALS)
def test_a_wrong_field_of_a_working_set_is_named_by_its_path(
    field: str, value: Any, at: str
) -> None:
    document = FULL_SET | {field: value}

    assert refused_at("working_set", document) == at == expected_at("working_set", document)


@pytest.mark.parametrize(
    ("field", "value", "at"), [row for row in SET_REFUSALS if row[0] in PATCHABLE]
)
def test_a_patch_is_refused_where_the_working_set_would_be(field: str, value: Any, at: str) -> None:
    with pytest.raises(Invalid) as caught:
        check_fields({field: value})

    assert caught.value.field == at
    assert refused_at("ws_patch", patch(set={field: value})) == f"set.{at}"


APPEND = {"op": "append", "field": "sliding_context", "items": [SLIDING]}
REMOVE = {"op": "remove", "field": "artifact_refs", "ids": ["a1"]}
PROPOSED = {"batch_id": "b", "count": 1}
OTHER_REFUSALS: list[tuple[str, dict[str, Any], str]] = [
    ("ws_patch", patch(), "<root>"),
    ("ws_patch", patch(set={"objective": "x"}), "set"),
    ("ws_patch", patch(set={}, expected_seq=-1), "expected_seq"),
    ("ws_patch", patch(set=[]), "set"),
    ("ws_patch", patch(ops=[APPEND | {"op": "merge"}]), "ops.0.op"),
    ("ws_patch", patch(ops=[APPEND | {"field": "status"}]), "ops.0.field"),
    ("ws_patch", patch(ops=[APPEND | {"ids": ["s1"]}]), "ops.0.ids"),
    ("ws_patch", patch(ops=[APPEND | {"items": ["text"]}]), "ops.0.items.0"),
    ("ws_patch", patch(ops=[APPEND | {"field": "blockers"}]), "ops.0.items.0"),
    ("ws_patch", patch(ops=[{"op": "append", "field": "blockers"}]), "ops.0"),
    ("ws_patch", patch(ops=[APPEND | {"op": "remove"}]), "ops.0"),
    ("ws_patch", patch(ops=[REMOVE | {"ids": [""]}]), "ops.0.ids.0"),
    ("ws_patch", patch(ops=[REMOVE | {"items": []}]), "ops.0.items"),
    ("ledger_event", event("NO_SUCH", {}), "event_type"),
    ("ledger_event", event("RUN_START", {}), "payload"),
    ("ledger_event", event("RUN_START", {"config": {}, "x": 1}), "payload"),
    ("ledger_event", event("STEP_REQUEST", {"ws_seq": -1}), "payload.ws_seq"),
    ("ledger_event", event("TOOL_RESULT", {"tool_name": "t", "ok": 1}), "payload.ok"),
    ("ledger_event", event("MODEL_UPDATE", {"expected_seq": 0, "mcrs": {}}), "payload.mcrs"),
    ("ledger_event", event("RUN_START", {"config": {}}, sequence_id=0), "sequence_id"),
    ("ledger_event", event("RUN_START", {"config": {}}, parent_event_id=1), "parent_event_id"),
    ("ledger_event", event("RUN_START", {"config": {}}, timestamp="now"), "timestamp"),
    ("ledger_event", event("RUN_START", {"config": {}, "parent": 1}), "payload.parent"),
    ("ledger_event", event("MEMORY_PROPOSE", PROPOSED | {"scope": ""}), "payload.scope"),
    ("episode", EPISODE | {"episode_id": ""}, "episode_id"),
    ("episode", EPISODE | {"created_at": "2026-01-31"}, "created_at"),
    ("episode", EPISODE | {"ws_before": None}, "ws_before"),
    ("episode", EPISODE | {"memory_commits": [1]}, "memory_commits.0"),
    ("mcr", MCR | {"op": "supersede"}, "<root>"),
    ("mcr", MCR | {"op": "supersede", "supersedes": []}, "supersedes"),
    ("mcr", MCR | {"op": "deprecate"}, "<root>"),
    ("mcr", MCR | {"confidence": 1.1}, "confidence"),
    ("mcr", MCR | {"confidence": True}, "confidence"),
    ("mcr", MCR | {"source_refs": [""]}, "source_refs.0"),
    ("mcr", MCR | {"rationale": ""}, "rationale"),
    ("memory_item", ITEM | {"memory_id": "ab"}, "memory_id"),
    ("memory_item", ITEM | {"status": "gone"}, "status"),
    ("memory_item", ITEM | {"rationale": "because"}, "<root>"),
    ("memory_item", ITEM | {"updated_at": "yesterday"}, "updated_at"),
    (
        "resume_pack_manifest",
        MANIFEST | {"compatible_engine_versions": []},
        "compatible_engine_versions",
    ),
    ("resume_pack_manifest", MANIFEST | {"files": {"a": SHA.upper()}}, "files.a"),
    ("resume_pack_manifest", MANIFEST | {"files": {"": SHA}}, "files"),
    ("resume_pack_manifest", MANIFEST | {"pointers": []}, "pointers"),
]


@pytest.mark.parametrize(("name", "document", "at"), OTHER_REFUSALS)
def test_a_wrong_document_is_refused_at_the_same_place_by_both(
    name: str, document: dict[str, Any], at: str
) -> None:
    assert refused_at(name, document) == at == expected_at(name, document)


@pytest.mark.parametrize("name", NAMES)
def test_every_required_field_is_missed(name: str) -> None:
    document = dict(ACCEPTED)[name]
    for field in ARTIFACTS[name].required:
        with pytest.raises(Invalid, match=f"^<root>: .*{field} is missing: give {field}"):
            check(name, {key: value for key, value in document.items() if key != field})


@pytest.mark.parametrize("kind", PAYLOADS)
def test_every_field_of_a_payload_is_required_or_not_as_the_table_says(kind: str) -> None:
    tables = [table[kind] for table in (V21_EVENTS, NEW_EVENTS) if kind in table]
    required = set(tables[0][0])
    optional = {name for _, more in tables for name in more}

    assert (set(PAYLOADS[kind].required), set(PAYLOADS[kind].optional)) == (required, optional)


def test_the_first_error_in_path_order_is_the_one_reported() -> None:
    wrong = FULL_SET | {
        "status": "?",
        "sliding_context": [SLIDING | {"priority": -1, "timestamp": ""}] * 2,
        "next_action": 1,
    }

    assert refused_at("working_set", wrong) == "next_action"
    assert refused_at("working_set", wrong | {"next_action": ""}) == "sliding_context.0.priority"
    assert refused_at("working_set", wrong | {"more": 1}) == "<root>"


def test_a_refusal_says_the_fact_and_what_to_give() -> None:
    with pytest.raises(Invalid) as caught:
        check_fields({"sliding_context": [SLIDING | {"priority": 12}]})

    assert str(caught.value) == (
        "sliding_context.0.priority: 12 is no such number: give a whole number from 0 to 9"
    )


@pytest.mark.parametrize("name", ["", "working_set.v2.1", "../errors", None, ["mcr"]])
def test_an_unknown_artifact_is_refused(name: Any) -> None:
    with pytest.raises(Invalid, match="is no artifact"):
        check(name, {})
    with pytest.raises(Invalid, match="is no artifact"):
        schema(name)


def test_the_fields_of_a_working_set_are_protected_or_patchable() -> None:
    assert sorted((*PROTECTED, *PATCHABLE)) == sorted(EMPTY_SET)
    assert STATUSES == ("BOOT", "IDLE", "BUSY", "WAITING_INPUT", "PAUSED", "DONE", "FAILED")


@pytest.mark.parametrize("name", PROTECTED)
def test_a_patch_may_not_set_a_protected_field(name: str) -> None:
    with pytest.raises(Invalid, match=f"^<root>: '{name}' is not a field here"):
        check_fields({name: EMPTY_SET[name]})


def test_fields_may_come_in_any_mapping() -> None:
    check_fields(MappingProxyType({"status": "BUSY"}))

    with pytest.raises(Invalid, match=r"^status: "):
        check_fields(MappingProxyType({"status": "busy"}))
    with pytest.raises(Invalid, match=r"^<root>: .* is no object"):
        check_fields([("status", "BUSY")])  # type: ignore[arg-type]


# What the published files cannot say


@pytest.mark.parametrize("field", UNIQUE_ID_LISTS)
def test_beyond_json_schema_ids_are_unique_in_their_list(field: str) -> None:
    item = FULL_SET[field][0]
    items = [item, item | {"id": "other"}, item]

    assert refused_at("working_set", FULL_SET | {field: items}) == f"{field}.2.id"
    operation = {"op": "upsert", "field": field, "items": items}
    assert refused_at("ws_patch", patch(ops=[operation])) == "ops.0.items.2.id"
    assert published_path("working_set", FULL_SET | {field: items}) is None


@pytest.mark.parametrize(
    ("name", "document", "at"),
    [
        ("working_set", EMPTY_SET | {"objective": "\ud800"}, "objective"),
        ("working_set", EMPTY_SET | {"constraints": ["ok", "\udfff"]}, "constraints.1"),
        ("ledger_event", event("RUN_START", {"config": {"a": ["\ud800"]}}), "payload.config.a.0"),
        ("ledger_event", event("RUN_START", {"config": {"\ud800": 1}}), "payload.config"),
        ("ledger_event", event("RUN_ERASED", {"reason": "\ud800"}), "payload.reason"),
        ("resume_pack_manifest", MANIFEST | {"files": {"\ud800": SHA}}, "files"),
    ],
)
def test_beyond_json_schema_lone_surrogates_are_refused(
    name: str, document: dict[str, Any], at: str
) -> None:
    assert refused_at(name, document) == at


def test_the_rest_of_unicode_is_accepted() -> None:
    check("working_set", EMPTY_SET | {"objective": "\x00 \U0001f600 e\u0301 \u2028"})


def nested(levels: int) -> Any:
    value: Any = {}
    for _ in range(levels - 1):
        value = {"a": value}
    return value


def test_beyond_json_schema_depth_is_bounded() -> None:
    check("episode", EPISODE | {"ws_before": nested(DEPTH)})
    refused = refused_at("episode", EPISODE | {"ws_before": nested(DEPTH + 1)})

    assert refused == ".".join(["ws_before", *["a"] * DEPTH])
    assert refused_at("episode", EPISODE | {"ws_before": nested(5_000)}) == refused


@pytest.mark.parametrize(
    "value",
    [(1,), {1}, b"b", datetime.now(UTC), float("nan"), float("inf"), {1: 2}, object(), 1j],
    ids=lambda value: type(value).__name__,
)
def test_beyond_json_schema_values_that_are_not_in_json_are_refused(value: Any) -> None:
    result = event("TOOL_RESULT", {"tool_name": "t", "ok": True, "result": value})

    assert refused_at("ledger_event", result) == "payload.result"
    assert refused_at("working_set", EMPTY_SET | {"constraints": value}) == "constraints"
    assert refused_at("mcr", MCR | {"confidence": value}) == "confidence"


def test_a_tuple_is_no_list_wherever_it_stands() -> None:
    assert (
        refused_at("working_set", FULL_SET | {"sliding_context": (SLIDING,)}) == "sliding_context"
    )
    assert refused_at("ws_patch", patch(ops=(APPEND,))) == "ops"
    assert refused_at("mcr", MCR | {"source_refs": ("a",)}) == "source_refs"


def test_large_numbers_in_free_values_are_kept() -> None:
    check("ledger_event", event("RUN_START", {"config": {"n": 2**70, "x": 1e300, "t": True}}))


# Published and compiled say the same

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
MOMENTS = st.builds(
    lambda at, minutes, ending: at.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0") + minutes + ending,
    st.datetimes(min_value=datetime(1, 1, 1)),
    st.sampled_from(["", ".5", ".123456", ".000000001"]),
    st.sampled_from(["Z", "z", "+00:00", "-07:30", "+23:59"]),
)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXTS,
)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)


@cache
def documents_of(shape: Shape) -> st.SearchStrategy[Any]:
    """Valid values of a shape, but that ids in a list may repeat."""
    match shape:
        case Text():
            if shape.pattern:
                return st.from_regex(shape.pattern.replace("^", r"\A") + r"\Z")
            return TEXTS.map(lambda text: text.ljust(shape.least, "x"))
        case Moment():
            return MOMENTS
        case Word():
            return st.sampled_from(shape.choices)
        case Whole():
            whole = st.integers(shape.least, min(shape.most, 2**53 - 1))
            return whole | st.sampled_from([float(shape.least), float(min(shape.most, 2**50))])
        case Number():
            return st.floats(shape.least, shape.most) | st.integers(shape.least, shape.most)
        case Flag():
            return st.booleans()
        case Maybe():
            return st.none() | documents_of(shape.shape)
        case Either():
            return documents_of(shape.text) | documents_of(shape.free)
        case Free():
            kinds: dict[str, st.SearchStrategy[Any]] = {
                "object": st.dictionaries(TEXTS, JSON, max_size=3),
                "array": st.lists(JSON, max_size=3),
            }
            return kinds.get(shape.kind, JSON)
        case Items():
            return st.lists(documents_of(shape.each), min_size=shape.least, max_size=3)
        case Table():
            return st.dictionaries(
                documents_of(shape.names), documents_of(shape.values), max_size=3
            )
        case Fields() if shape.whens:
            return st.one_of([documents_of(case) for case in cases_of(shape)])
        case Fields():
            return fields_of(shape)
        case _:
            raise AssertionError(shape)


def fields_of(shape: Fields) -> st.SearchStrategy[dict[str, Any]]:
    optional = {k: documents_of(v) for k, v in shape.optional.items() if not isinstance(v, Never)}
    found = st.fixed_dictionaries(
        {k: documents_of(v) for k, v in shape.required.items()}, optional=optional
    )
    return found.filter(lambda d: not shape.any_of or any(name in d for name in shape.any_of))


def cases_of(shape: Fields) -> Iterator[Fields]:
    """The object in each combination of the words that its conditions turn on."""
    named = list(dict.fromkeys(when.field for when in shape.whens))
    combinations: list[tuple[str, ...]] = [()]
    for name in named:
        word = shape.shapes[name]
        assert isinstance(word, Word)
        combinations = [(*before, choice) for before in combinations for choice in word.choices]
    for case in combinations:
        found = shape.resolve(case)
        fixed = dict(zip(named, case, strict=True))
        required = {k: Word((fixed[k],)) if k in fixed else v for k, v in found.required.items()}
        yield Fields(required, found.optional, any_of=found.any_of)


ODD_VALUES = [
    None, True, False, 0, 0.0, 1, -1, 9, 10, 9.0, 9.5, 1.5, 2**53, 2**70, -(2**70), 1e300, "", "x",
    "2.1", "BOOT", "append", "remove", "supersede", "blockers", "sliding_context", "RUN_START", SHA,
    SHA.upper(), SHA + "\n", NOW, NOW + "\n", "2026-02-29T00:00:00Z", "2024-02-29T00:00:00Z",
    "2026-01-31T09:30:00", "2026-01-31", "2026-13-01T00:00:00Z", "2026-01-31T24:00:00Z",
    "２026-01-31T09:30:00Z", [], {}, [1], ["x"], {"x": 1}, {"id": "x"}, "x" * 1_025,
    [SLIDING, SLIDING], [{"id": "x", "content": "c"}] * 11, [{"type": "t", "id": "x"}] * 2,
]  # fmt: skip


def places_in(value: Any, path: Path_ = ()) -> Iterator[Path_]:
    yield path
    children: Iterable[tuple[Any, Any]] = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        children = enumerate(value)
    for name, each in children:
        yield from places_in(each, (*path, name))


def mutate(document: Any, draw: Any) -> Any:
    """One random change: replace, remove, add or repeat."""
    document = copy.deepcopy(document)
    path = draw(st.sampled_from([*places_in(document)]))
    odd = copy.deepcopy(draw(st.sampled_from(ODD_VALUES)))
    if not path:
        return odd if draw(st.integers(0, 9)) == 0 else document
    parent = document
    for step in path[:-1]:
        parent = parent[step]
    change = draw(st.sampled_from(["replace", "replace", "remove", "add", "repeat"]))
    target = parent[path[-1]]
    if change == "remove":
        del parent[path[-1]]
    elif change == "add" and isinstance(target, dict):
        target[draw(st.sampled_from(["x", "ids", "items", "set", "id", "supersedes"]))] = odd
    elif change == "repeat" and isinstance(parent, list):
        parent.append(target)
    else:
        parent[path[-1]] = odd
    return document


@pytest.mark.parametrize("name", NAMES)
def test_valid_documents_are_accepted_by_both(name: str) -> None:
    @settings(max_examples=100)
    @given(documents_of(ARTIFACTS[name]))
    def agree(document: Any) -> None:
        assert published_path(name, document) is None
        assert refused_at(name, document) == expected_at(name, document)

    agree()


@pytest.mark.parametrize("name", NAMES)
def test_changed_documents_are_refused_by_both_at_the_same_place(name: str) -> None:
    refused = 0

    @settings(max_examples=300)
    @given(st.data())
    def agree(data: st.DataObject) -> None:
        nonlocal refused
        document = data.draw(documents_of(ARTIFACTS[name]))
        for _ in range(data.draw(st.integers(1, 3))):
            document = mutate(document, data.draw)
        found = refused_at(name, document)

        assert found == expected_at(name, document)
        refused += found is not None

    agree()
    assert refused > 50


def test_fields_are_checked_as_those_of_a_patch() -> None:
    @settings(max_examples=200)
    @given(st.data())
    def agree(data: st.DataObject) -> None:
        document = mutate(data.draw(documents_of(ARTIFACTS["ws_patch"])), data.draw)
        fields = document.get("set") if isinstance(document, dict) else None
        alone: str | None = None
        try:
            check_fields(fields)  # type: ignore[arg-type]
        except Invalid as error:
            alone = "set" if error.field == "<root>" else f"set.{error.field}"

        assert refused_at("ws_patch", patch(set=fields)) == alone

    agree()


# The files


@pytest.mark.parametrize("name", NAMES)
def test_the_published_file_is_what_the_definitions_make(name: str) -> None:
    folder = Path(json_schema.__file__).parent / "published"
    text = (folder / json_schema.file_name(name)).read_text(encoding="utf-8")

    assert text == json_schema.to_text(json_schema.make_schema(name)), (
        "run python -m pagefile.runs.schema.json_schema"
    )
    assert schema(name) == json.loads(text)


def test_there_are_seven_files_with_our_ids() -> None:
    folder = Path(json_schema.__file__).parent / "published"

    assert list(ARTIFACTS) == NAMES
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        f"{name}.v{SCHEMA_VERSION}.schema.json" for name in NAMES
    )
    assert [schema(name)["$id"] for name in NAMES] == [
        f"urn:pagefile:schema:{name}:2.1" for name in NAMES
    ]


BOUNDS = {
    "string": ("maxLength", "enum", "const"),
    "array": ("maxItems",),
    "integer": ("maximum",),
    "object": ("additionalProperties", "maxProperties"),
}


def test_everything_in_a_published_file_is_closed_and_bounded() -> None:
    def unbounded(node: Any, at: str) -> Iterator[str]:
        if isinstance(node, dict):
            kinds = node.get("type", [])
            for kind in [kinds] if isinstance(kinds, str) else kinds:
                if kind in BOUNDS and not any(bound in node for bound in BOUNDS[kind]):
                    yield f"{at}: {kind}"
            for key, each in node.items():
                yield from unbounded(each, f"{at}/{key}")
        elif isinstance(node, list):
            for i, each in enumerate(node):
                yield from unbounded(each, f"{at}/{i}")

    assert [found for name in NAMES for found in unbounded(schema(name), name)] == []


def test_a_schema_is_the_callers_own() -> None:
    schema("mcr").clear()

    assert schema("mcr")["title"] == "mcr 2.1"


def test_importing_the_package_leaves_runs_alone() -> None:
    code = "import sys, pagefile; print([m for m in sys.modules if 'pagefile.runs' in m])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)

    assert ran.stdout == "[]\n"


# Times


@pytest.mark.parametrize(
    ("text", "microseconds"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00z", 0),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T19:00:00-05:00", 0),
        ("1970-01-01T00:00:00-00:00", 0),
        ("1970-01-01T00:00:00.5Z", 500_000),
        ("1970-01-01T00:00:00.123456789+00:00", 123_456),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("2016-12-31T23:59:60Z", 1_483_228_800_000_000),
        ("0001-01-01T00:00:00+23:59", -62_135_683_140_000_000),
        ("9999-12-31T23:59:59-23:59", 253_402_387_139_000_000),
    ],
)
def test_a_time_is_counted_in_microseconds_since_1970(text: str, microseconds: int) -> None:
    assert parse_time(text) == microseconds


@pytest.mark.parametrize(
    "text",
    [
        "", "now", "not-a-date", "2026-01-31", "2026-01-31T09:30:00", "2026-01-31 09:30:00Z",
        "2026-01-31T09:30Z", "2026-1-31T09:30:00Z", "2026-02-30T09:30:00Z", "2026-00-10T09:30:00Z",
        "2025-02-29T09:30:00Z", "1900-02-29T09:30:00Z", "2026-04-31T09:30:00Z",
        "2026-01-31T24:00:00Z", "2026-01-31T09:60:00Z", "2026-01-31T09:30:61Z",
        "2026-01-31T09:30:60Z", "2026-01-31T09:30:00.Z", "2026-01-31T09:30:00+0100",
        "2026-01-31T09:30:00+24:00", "2026-01-31T09:30:00+01", "2026-01-31T09:30:00ZZ",
        "2026-01-31T09:30:00Z\n", " 2026-01-31T09:30:00Z", "0000-01-01T00:00:00Z",
        "２026-01-31T09:30:00Z", "2026-01-31T09:30:00." + "1" * 64 + "Z", None, 0, b"2026",
    ],
)  # fmt: skip
def test_what_is_no_time_is_refused_by_all(text: Any) -> None:
    with pytest.raises(Invalid, match=r"^updated_at: .* is no date-time: give an RFC 3339"):
        parse_time(text, "updated_at")
    assert refused_at("memory_item", ITEM | {"updated_at": text}) == "updated_at"
    assert published_path("memory_item", ITEM | {"updated_at": text}) == ("updated_at",)


@given(
    st.datetimes(min_value=datetime(2, 1, 1), max_value=datetime(9998, 1, 1)),
    st.integers(-1_439, 1_439),
)
def test_every_time_of_the_standard_library_is_read_as_it_meant(at: datetime, minutes: int) -> None:
    aware = at.replace(tzinfo=timezone(timedelta(minutes=minutes)))

    since = aware - datetime(1970, 1, 1, tzinfo=UTC)
    assert parse_time(aware.isoformat()) == since // timedelta(microseconds=1)


@given(st.integers(0, 9_999), st.integers(0, 13), st.integers(0, 32))
def test_every_day_of_the_calendar_is_a_day_and_no_other(year: int, month: int, day: int) -> None:
    text = f"{year:04}-{month:02}-{day:02}"
    try:
        real = bool(datetime.strptime(text, "%Y-%m-%d"))
    except ValueError:
        real = False

    document = ITEM | {"created_at": f"{text}T00:00:00Z"}
    assert (refused_at("memory_item", document) is None) == real
    assert (published_path("memory_item", document) is None) == real


def test_the_published_pattern_is_in_the_language_of_ecma_262() -> None:
    pattern = schema("episode")["$defs"]["date_time"]["pattern"]

    assert re.search(r"\(\?P|\\[AZdw]|\$", pattern) is None
