"""Runs: one working set for many writers, and a ledger that tells all of it."""

from __future__ import annotations

import asyncio
import io
import json
import os
import random
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

import pagefile
import pagefile.aio
from pagefile import Batch, Put, Selector
from pagefile.errors import Conflict, Corrupt, Forbidden, Invalid, LimitExceeded, NotFound
from pagefile.runs.config import RunConfig, Secret
from pagefile.runs.ledger import require_lines
from pagefile.runs.run import Run
from pagefile.runs.runs import Runs
from pagefile.runs.schema import artifacts
from pagefile.surfaces.cli import main
from tests.runs.ground import MCR, agree, kinds, lines_left, patch, released, slide, started

SOAK = os.environ.get("PAGEFILE_SOAK") == "1"


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis", "manager"])
def url(request: pytest.FixtureRequest, url_on: Callable[[str], str]) -> str:
    return url_on(request.param)


@pytest.fixture
def pf(url: str) -> Iterator[pagefile.Pagefile]:
    with pagefile.open(url, durability=None) as handle:
        yield handle
        assert handle.verify().problems + handle.check().problems == ()


@pytest.fixture
def runs(pf: pagefile.Pagefile) -> Runs:
    return Runs(pf.store)


@pytest.fixture
def run(runs: Runs) -> Run:
    return runs.boot("Ship it", ["tests pass"], ["no new dependency"], run_id="r1")


# The working set


def test_a_booted_run_has_all_fields_and_its_first_event(run: Run) -> None:
    ws = run.load()
    (event,) = list(run.ledger)

    assert (ws["_update_seq"], ws["status"], ws["objective"]) == (0, "BOOT", "Ship it")
    assert len(ws) == 16
    assert (event["event_type"], event["sequence_id"]) == ("RUN_START", 1)
    assert event["payload"]["config"]["ws_max_tokens"] == 2_000


def test_runs_W07_an_existing_run_is_never_reset(runs: Runs, run: Run) -> None:
    run.apply_patch(patch(0, status="BUSY"))
    with pytest.raises(Conflict, match="exists"):
        runs.boot("Something else", run_id="r1")

    assert run.load()["status"] == "BUSY"


def test_a_patch_is_applied_and_recorded_in_one_commit(pf: pagefile.Pagefile, run: Run) -> None:
    before = pf.store.head().position
    result = run.apply_patch(patch(0, next_action="build", status="BUSY"))

    assert result.ok
    assert result.new_ws == run.load()
    assert (run.load()["next_action"], run.load()["_update_seq"]) == ("build", 1)
    assert pf.store.head().position == before + 1
    assert kinds(run) == ["RUN_START", "WS_UPDATE_APPLIED"]


def test_runs_L03_a_stale_patch_is_refused_with_both_numbers_and_recorded(run: Run) -> None:
    run.apply_patch(patch(0, status="BUSY"))
    result = run.apply_patch(patch(0, status="DONE"))
    refusal = run.ledger.tail(1)[0]

    assert (result.ok, result.code) == (False, "conflict")
    assert result.error == "LOCK_ERROR expected_seq=0 current_seq=1"
    assert refusal["event_type"] == "WS_UPDATE_REJECTED"
    assert refusal["payload"]["current_seq"] == 1
    assert run.load()["status"] == "BUSY"


@pytest.mark.parametrize(
    "wrong",
    [
        {"set": {}},
        patch(0, status="NAPPING"),
        patch(0, run_id="other"),
        patch(0, sliding_context=[slide(1) | {"timestamp": "not-a-date"}]),
        patch(0, sliding_context=[slide(1), slide(1)]),
        patch(0, sliding_context=[slide(1) | {"priority": 10}]),
        patch(-1),
        patch(0) | {"extra": 1},
        "patch",
        None,
    ],
)
def test_runs_L03_a_wrong_patch_is_refused_recorded_and_changes_nothing(
    run: Run, wrong: Any
) -> None:
    before = run.load()
    result = run.apply_patch(wrong)

    assert (result.ok, result.code) == (False, "invalid")
    assert result.error is not None
    assert result.error.startswith("patch schema: ")
    assert run.load() == before
    assert kinds(run)[-1] == "WS_UPDATE_REJECTED"


def test_list_operations_change_one_item_without_resending_all(run: Run) -> None:
    ops = {"_schema_version": "2.1", "expected_seq": 0}
    run.apply_patch(
        ops | {"ops": [{"op": "append", "field": "sliding_context", "items": [slide(1), slide(2)]}]}
    )
    changed = slide(2) | {"content": "new"}
    run.apply_patch(
        ops
        | {"expected_seq": 1}
        | {"ops": [{"op": "upsert", "field": "sliding_context", "items": [changed, slide(3)]}]}
    )
    result = run.apply_patch(
        ops
        | {"expected_seq": 2}
        | {"ops": [{"op": "remove", "field": "sliding_context", "ids": ["s1"]}]}
    )

    assert result.ok
    assert [item["id"] for item in run.load()["sliding_context"]] == ["s2", "s3"]
    assert run.load()["sliding_context"][0]["content"] == "new"


LISTS: dict[str, tuple[Any, Any]] = {
    "acceptance_criteria": ("old", "new"),
    "constraints": ("old", "new"),
    "blockers": ("old", "new"),
    "artifact_refs": ({"type": "file", "id": "old"}, {"type": "url", "id": "new"}),
    "pinned_context": ({"id": "old", "content": "c"}, {"id": "new", "content": "c"}),
    "sliding_context": (slide(1) | {"id": "old"}, slide(2) | {"id": "new"}),
}


@pytest.mark.parametrize("field", LISTS)
def test_runs_W09_every_operation_works_on_every_list(field: str) -> None:
    old, new = LISTS[field]
    changed = old | {"content": "other"} if "content" in old else old
    changed = old | {"type": "url"} if field == "artifact_refs" else changed
    with pagefile.open("memory:") as handle:
        run = handle.runs.boot("Ship it")

        def after(op: str, **what: Any) -> Any:
            result = run.update(lambda _: {"ops": [{"op": op, "field": field, **what}]})
            assert result.ok, result
            return run.load()[field]

        assert after("append", items=[old]) == [old]
        assert after("upsert", items=[new, changed]) == [changed, new]
        assert after("remove", ids=["old"]) == [new]
        missing = run.update(lambda _: {"ops": [{"op": "remove", "field": field, "ids": ["old"]}]})
        assert missing.code == "invalid"
        assert run.rebuild()


def test_two_references_of_one_id_are_refused_however_they_come(run: Run) -> None:
    refs = [{"type": "file", "id": "plan"}, {"type": "url", "id": "plan"}]
    at_once = run.apply_patch(patch(0, artifact_refs=refs))
    run.apply_patch(patch(0, artifact_refs=refs[:1]))
    append = {"op": "append", "field": "artifact_refs", "items": refs[1:]}
    one_more = run.update(lambda _: {"ops": [append]})

    assert (at_once.code, one_more.code) == ("invalid", "invalid")
    assert run.load()["artifact_refs"] == refs[:1]


def test_what_a_caller_holds_is_not_what_is_stored(run: Run) -> None:
    result = run.apply_patch(patch(0, blockers=["a"]))
    assert result.new_ws is not None
    result.new_ws["blockers"].append("forged")
    run.load()["blockers"].append("forged")
    after = run.apply_patch(patch(1, status="BUSY"))

    assert after.new_ws is not None
    assert after.new_ws["blockers"] == run.load()["blockers"] == ["a"]


# Eviction


def test_runs_W04_an_overfull_patch_succeeds_and_tells_what_left(runs: Runs) -> None:
    run = runs.boot("Fit", config=RunConfig(ws_max_tokens=300))
    items = [slide(n, priority=n % 10, size=60) for n in range(40)]
    result = run.apply_patch(patch(0, sliding_context=items, last_action_summary="y" * 200))
    kept = {item["id"] for item in run.load()["sliding_context"]}
    gone = {item["id"] for item in result.evicted}

    assert result.ok
    assert kept
    assert gone
    assert kept | gone == {item["id"] for item in items}
    assert set(run.ledger.tail(1)[0]["payload"]["evicted"]) == gone
    assert {item["id"] for item in run.evicted()} == gone


def test_runs_W06_what_left_is_found_and_brought_back(runs: Runs) -> None:
    run = runs.boot("Fit", config=RunConfig(ws_max_tokens=200))
    rare = slide(0, priority=0) | {"content": "the password policy of Oslo"}
    run.apply_patch(patch(0, sliding_context=[rare, *(slide(n, 9, 150) for n in range(1, 8))]))
    found = run.find_evicted("oslo policy")
    run.update(lambda ws: {"sliding_context": []})
    back = run.page_in("s0")

    assert [item["id"] for item in found] == ["s0"]
    assert back.ok
    assert [item["content"] for item in run.load()["sliding_context"]] == [rare["content"]]
    with pytest.raises(NotFound):
        run.page_in("never")


def test_pinned_items_rotate_out_are_kept_and_folded(runs: Runs) -> None:
    run = runs.boot("Pin", config=RunConfig(pinned_context_max_items=2))
    pins = [{"id": f"p{n}", "content": f"pin {n}"} for n in range(3)]
    result = run.apply_patch(patch(0, pinned_context=pins))

    assert [item["id"] for item in result.evicted] == ["p0"]
    assert [item["id"] for item in run.load()["pinned_context"]] == ["p1", "p2"]
    assert run.rebuild().difference == {}
    assert run.page_in("p0").ok
    assert [item["id"] for item in run.load()["pinned_context"]] == ["p2", "p0"]
    assert run.rebuild().difference == {}


@pytest.mark.parametrize("most", [10, 20])
def test_runs_W09_the_eleventh_pinned_item_rotates_the_first_out(runs: Runs, most: int) -> None:
    run = runs.boot("Pin", config=RunConfig(pinned_context_max_items=most))
    for n in range(11):
        pin = {"id": f"p{n}", "content": "c"}
        op = {"op": "append", "field": "pinned_context", "items": [pin]}
        result = run.update(lambda _, op=op: {"ops": [op]})  # type: ignore[misc]

    assert [item["id"] for item in result.evicted] == ["p0"]
    assert run.ledger.tail(1)[0]["payload"]["unpinned"] == ["p0"]
    assert [item["id"] for item in run.load()["pinned_context"]] == [f"p{n}" for n in range(1, 11)]
    assert run.rebuild()


def test_an_item_that_would_leave_again_at_once_is_not_paged_in(runs: Runs) -> None:
    run = runs.boot("Fit", config=RunConfig(ws_max_tokens=300))
    items = [slide(0, 0, 100), *(slide(n, 9, 100) for n in range(1, 12))]
    run.apply_patch(patch(0, sliding_context=items))
    before, left = run.load(), run.evicted()
    refused = run.page_in("s0")

    assert left[-1]["id"] == "s0"
    assert (refused.ok, refused.code) == (False, "limit_exceeded")
    assert refused.error is not None
    assert "limited to 300" in refused.error
    assert run.load() == before
    assert run.evicted() == left
    assert kinds(run)[-1] == "WS_UPDATE_REJECTED"


def test_an_item_that_can_push_out_a_lesser_one_is_paged_in(runs: Runs) -> None:
    run = runs.boot("Fit", config=RunConfig(ws_max_tokens=300))
    run.apply_patch(patch(0, sliding_context=[slide(n, n, 200) for n in range(10)]))
    best = run.evicted()[0]["id"]
    run.update(lambda ws: {"sliding_context": [slide(n, 0, 200) for n in range(20, 23)]})
    back = run.page_in(best)

    assert back.ok
    assert best in [item["id"] for item in run.load()["sliding_context"]]


def test_a_pinned_item_has_no_way_back_where_nothing_is_pinned(runs: Runs) -> None:
    run = runs.boot("Pin", config=RunConfig(pinned_context_max_items=0))
    run.apply_patch(patch(0, pinned_context=[{"id": "p0", "content": "c"}]))

    assert run.page_in("p0").code == "limit_exceeded"
    assert len(run.evicted()) == 1


def test_the_brief_keeps_to_the_run_s_budget_with_memories_in_it(runs: Runs) -> None:
    run = runs.boot("Fit", config=RunConfig(ws_max_tokens=400))
    run.apply_patch(patch(0, sliding_context=[slide(n, n, 60) for n in range(5)]))
    memories = [
        {"memory_id": f"m{n}", "content": "likes tea " * 8, "confidence": 0.9} for n in range(40)
    ]
    brief = run.brief(ltm_results=memories)

    assert (len(brief) + 3) // 4 <= 400
    assert "memory_id=m0" in brief
    assert "left out" in brief
    assert all(f"- {n} xx" in brief for n in range(5))


def test_a_fixed_part_that_cannot_fit_is_refused_with_the_numbers(run: Run) -> None:
    result = run.apply_patch(patch(0, next_action="z" * 20_000))

    assert (result.ok, result.code) == (False, "limit_exceeded")
    assert result.error is not None
    assert result.error.startswith("WS_SIZE_ERROR: ")
    assert kinds(run)[-1] == "WS_UPDATE_REJECTED"


def test_a_run_that_cannot_fit_is_not_booted(runs: Runs) -> None:
    with pytest.raises(LimitExceeded):
        runs.boot("z" * 20_000, run_id="big")

    assert not runs.exists("big")


# Ledger


def test_events_of_the_agent_are_checked_numbered_and_filtered(run: Run) -> None:
    first = run.log("TOOL_CALL", {"tool_name": "search", "arguments": {"q": "x"}})
    run.log("TOOL_RESULT", {"tool_name": "search", "ok": True})
    with pytest.raises(Invalid):
        run.log("TOOL_RESULT", {"tool_name": "search"})
    with pytest.raises(Invalid):
        run.log("DANCE", {})

    assert first == 2
    assert kinds(run) == ["RUN_START", "TOOL_CALL", "TOOL_RESULT", "ERROR", "ERROR"]
    assert [e["sequence_id"] for e in run.ledger] == [1, 2, 3, 4, 5]
    assert [e["payload"] for e in run.ledger.read(event_type="TOOL_RESULT")] == [
        {"tool_name": "search", "ok": True}
    ]
    assert [e["event_type"] for e in run.ledger.read(after=1, limit=1)] == ["TOOL_CALL"]


def test_a_ledger_is_exported_as_lines_that_are_events(run: Run) -> None:
    run.apply_patch(patch(0, status="BUSY"))
    file = io.StringIO()
    count = run.ledger.export_jsonl(file)
    events = list(require_lines(file.getvalue().splitlines()))

    assert count == 2
    assert events == list(run.ledger)
    with pytest.raises(Invalid, match="line 1"):
        list(require_lines(["{"]))


def test_runs_L04_an_exported_ledger_becomes_a_run_elsewhere(run: Run, tmp_path: Path) -> None:
    run.apply_patch(patch(0, status="BUSY", sliding_context=[slide(1)]))
    run.apply_patch(patch(0))
    run.apply_patch(patch(1, status="DONE"))
    run.rollback(1)
    path = tmp_path / "ledger.jsonl"
    with path.open("w", encoding="utf-8") as file:
        run.ledger.export_jsonl(file)
    with pagefile.open("memory:") as other:
        made = other.runs.import_jsonl(path, new_run_id="made")
        taken = other.runs.open("made")

        assert taken.load() == run.load() | {"run_id": "made"}
        assert [taken.at(n)["status"] for n in range(4)] == ["BOOT", "BUSY", "DONE", "BUSY"]
        assert list(made.ledger)[:-1] == [e | {"run_id": "made"} for e in run.ledger]
        assert made.rebuild()
        assert made.apply_patch(patch(3, status="FAILED")).ok
        with pytest.raises(Conflict):
            other.runs.import_jsonl(path, new_run_id="made")
        before = other.store.head()
        lines = path.read_text().splitlines(keepends=True)
        for damaged in (lines[1:], lines[:1] + lines[2:], ["{}\n"], [], [*lines, "x"]):
            path.write_text("".join(damaged))
            with pytest.raises(Invalid):
                other.runs.import_jsonl(path, new_run_id="never")
        path.write_bytes(b"\xff\xfe")
        with pytest.raises(Invalid):
            other.runs.import_jsonl(path)
        with pytest.raises(Invalid):
            other.runs.import_jsonl(tmp_path / "missing")

        assert other.store.head() == before


def exported(run: Run, path: Path) -> Path:
    with path.open("w", encoding="utf-8") as file:
        run.ledger.export_jsonl(file)
    return path


def test_runs_W06_an_imported_run_finds_what_left_and_its_milestones(
    pf: pagefile.Pagefile, tmp_path: Path
) -> None:
    run = pf.runs.boot("Fit", config=RunConfig(ws_max_tokens=300, pinned_context_max_items=1))
    pins = [{"id": f"p{n}", "content": f"pin {n}"} for n in range(3)]
    run.apply_patch(patch(0, sliding_context=[slide(n, n, 60) for n in range(9)]))
    run.milestone("first", next_entry_point="pin it")
    run.apply_patch(patch(1, pinned_context=pins), writer_id="someone")
    batch = run.memory.propose([MCR]).batch_id
    run.milestone("second", memory_batch_id=batch)
    path = exported(run, tmp_path / "l.jsonl")
    with pagefile.open("memory:") as other:
        made = other.runs.import_jsonl(path, new_run_id="made", user_id="ann")
        child = other.runs.open("made")

        assert made.evicted() == run.evicted()
        assert {item["id"] for item in made.evicted()} >= {"p0", "p1", "s0"}
        assert made.episodes.list() == run.episodes.list()
        for episode_id in run.episodes.list():
            assert child.episodes.get(episode_id) == run.episodes.get(episode_id)
            theirs, ours = (each.episodes.events(episode_id) for each in (run, child))
            assert [event["event_id"] for event in theirs] == [event["event_id"] for event in ours]
        assert made.user_id == child.user_id == "ann"
        assert child.page_in("p0").ok
        assert child.milestone("third").first_sequence_id == len(run.ledger) + 1
        assert child.rebuild()
        other.memory.forget(user_id="ann")
        assert not other.runs.exists("made")


def test_a_run_that_was_forgotten_is_not_imported_for_its_user_again(tmp_path: Path) -> None:
    with pagefile.open("memory:") as pf:
        path = exported(pf.runs.boot("o", run_id="r1", user_id="ann"), tmp_path / "l.jsonl")
        pf.memory.forget(user_id="ann")

        with pytest.raises(Forbidden, match="forgotten"):
            pf.runs.import_jsonl(path, user_id="ann")
        assert pf.runs.list() == []


def test_an_import_names_the_line_that_is_no_event_or_does_not_follow(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    with pagefile.open("memory:") as pf:
        run = pf.runs.boot("o")
        run.apply_patch(patch(0, status="BUSY"))
        run.apply_patch(patch(1, status="DONE"))
        lines = exported(run, path).read_text().splitlines()
        before = pf.store.head()
        again = json.dumps(json.loads(lines[0]) | {"sequence_id": 3})
        for wrong in ('{"event_type": "X"}', "5", lines[2].replace("WS_UPDATE", "X"), again):
            path.write_text("\n".join([*lines[:2], wrong]))
            with pytest.raises(Invalid) as refused:
                pf.runs.import_jsonl(path)

            assert refused.value.field == "line 3"
        assert pf.store.head() == before


def test_the_command_line_verifies_a_pack(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pack = run.create_resume_pack(tmp_path)
    good = main(["pack", "verify", str(pack), "--json"])
    told = json.loads(capsys.readouterr().out)
    pack.write_bytes(pack.read_bytes()[:-30])
    bad = main(["pack", "verify", str(pack)])

    assert (good, told["data"]["run_id"]) == (0, "r1")
    assert bad not in (0, 1)
    assert capsys.readouterr().err.strip() != ""


def test_runs_L10_secrets_are_in_no_byte_of_the_store(tmp_path: Path) -> None:
    path, secret = tmp_path / "s.db", "hunter2-very-secret"
    with pagefile.open(path) as handle:
        run = Runs(handle.store).boot(
            "Keep it", settings={"api_key": secret, "llm": {"token": secret, "model": "m"}}
        )
        run.apply_patch(patch(0, next_action=Secret(secret)))
        run.log("MODEL_ACTION", {"action": {"password": secret, "do": "x"}})
        run.log("TOOL_CALL", {"tool_name": "t", "arguments": {"x": Secret(secret)}})
        assert run.load()["next_action"] == "[redacted]"
        assert run.rebuild()
    raw = b"".join(file.read_bytes() for file in tmp_path.iterdir())

    assert raw.count(secret.encode()) == 0
    assert b'"model":"m"' in raw


# History


def test_runs_W14_every_state_can_be_read_compared_and_made_current_again(run: Run) -> None:
    run.apply_patch(patch(0, status="BUSY", blockers=["one"]))
    run.apply_patch(patch(1, status="DONE", blockers=[]))
    result = run.rollback(1)

    assert run.at(1)["status"] == "BUSY"
    assert run.diff(0, 1) != {}
    assert run.diff(1, 1) == {}
    assert result.ok
    assert (run.load()["status"], run.load()["_update_seq"]) == ("BUSY", 3)
    assert run.at(2)["status"] == "DONE"
    assert run.rebuild()
    for seq in (9, -1):
        with pytest.raises((NotFound, Invalid)):
            run.at(seq)


def test_a_fork_begins_where_its_parent_stood_and_goes_its_own_way(runs: Runs, run: Run) -> None:
    run.apply_patch(patch(0, status="BUSY"))
    run.apply_patch(patch(1, status="DONE"))
    child = runs.fork("r1", at=1, new_run_id="r2")
    child.apply_patch(patch(0, status="FAILED"))

    assert (child.at(0)["status"], child.at(0)["run_id"]) == ("BUSY", "r2")
    assert run.load()["status"] == "DONE"
    assert runs.open("r2").load()["status"] == "FAILED"
    assert [e["payload"] for e in child.ledger.read(event_type="RUN_FORKED")] == [
        {"parent_run_id": "r1", "at_seq": 1}
    ]
    assert child.rebuild()


def test_runs_W06_a_fork_finds_what_had_left_when_it_was_made(
    pf: pagefile.Pagefile, tmp_path: Path
) -> None:
    run = pf.runs.boot("Fit", run_id="r1", config=RunConfig(ws_max_tokens=260))
    for n in range(8):
        run.update(lambda _, n=n: {"sliding_context": [slide(9 * n + k, k, 90) for k in range(9)]})  # type: ignore[misc]
    parents = [
        run,
        pf.runs.fork("r1"),
        pf.runs.restore_from_pack(run.create_resume_pack(tmp_path), "r2"),
        pf.runs.import_jsonl(exported(run, tmp_path / "l.jsonl")),
    ]
    for parent in parents:
        seq = parent.load()["_update_seq"]
        assert pf.runs.fork(parent.run_id).evicted() == parent.evicted() == run.evicted()
        if seq:
            early = pf.runs.fork(parent.run_id, at=seq - 3)
            left = run.ledger.read(event_type="WS_UPDATE_APPLIED")[: seq - 3]
            ids = [item for event in left for item in event["payload"]["evicted"]]
            assert [item["id"] for item in early.evicted()] == ids[::-1]
    child = pf.runs.fork("r1", at=4, new_run_id="child")
    had = child.evicted()
    child.update(lambda _: {"sliding_context": []})
    pf.runs.delete("r1")

    assert child.page_in(had[0]["id"]).ok
    assert child.evicted() == had
    assert pf.runs.fork("child", at=0).evicted() == had
    assert child.rebuild()


def test_runs_are_listed_opened_and_deleted(runs: Runs, run: Run) -> None:
    runs.boot("Other", run_id="r0")
    run.apply_patch(patch(0, status="BUSY"))

    assert runs.list() == ["r0", "r1"]
    assert runs.list(after="r0") == ["r1"]
    assert runs.open("r1").load() == run.load()
    assert (runs.delete("r1"), runs.delete("r1")) == (True, False)
    assert runs.list() == ["r0"]
    with pytest.raises(NotFound):
        runs.open("r1")
    with pytest.raises(NotFound):
        run.load()
    with pytest.raises(NotFound):
        run.rollback(0)
    with pytest.raises(NotFound):
        run.apply_patch("nonsense")  # type: ignore[arg-type]
    assert len(run.ledger) == 0


@pytest.mark.parametrize("run_id", ["", "../x", "a/b", "x" * 65, "a b", 5, "é"])
def test_runs_R03_an_id_is_safe_everywhere_or_refused(runs: Runs, run_id: Any) -> None:
    with pytest.raises(Invalid):
        runs.boot("x", run_id=run_id)
    with pytest.raises(Invalid):
        runs.open(run_id)

    assert runs.list() == []


def test_transitions_are_checked_where_a_run_asks_for_it(runs: Runs) -> None:
    run = runs.boot("Strict", config=RunConfig(check_transitions=True))
    run.apply_patch(patch(0, status="BUSY"))
    run.apply_patch(patch(1, status="DONE"))
    result = run.apply_patch(patch(2, status="BOOT"))

    assert not result.ok
    assert "DONE cannot become BOOT" in (result.error or "")


# Many writers


def test_a_thread_that_loses_the_race_tries_again(run: Run, runs: Runs) -> None:
    def add(name: str) -> None:
        mine = runs.open("r1")
        for n in range(25):
            added = f"{name}{n}"

            def change(ws: dict[str, Any], added: str = added) -> dict[str, Any]:
                return {"blockers": [*ws["blockers"], added]}

            assert mine.update(change).ok

    threads = [threading.Thread(target=add, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    ws = run.load()

    assert (ws["_update_seq"], len(set(ws["blockers"]))) == (100, 100)
    assert run.rebuild()


WRITER = """
import sys, pagefile
with pagefile.open(sys.argv[1]) as pf:
    run = pf.runs.open("r1")
    seen = run.load()["_update_seq"]
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(int(sys.argv[2])):
        text = f"{sys.argv[3]} {n}"
        # All have seen the same state, so of the first patches one wins.
        change = {"last_action_summary": text}
        first = {"_schema_version": "2.1", "expected_seq": seen, "set": change}
        result = run.apply_patch(first) if n == 0 else None
        if not result:
            assert result is None or result.code == "conflict", result
            result = run.update(lambda ws: change)
        assert result.ok, result
        print(result.new_ws["_update_seq"], text, sep="\\t", flush=True)
"""


def acknowledged(lines: Iterable[str]) -> list[tuple[int, str]]:
    """Number and text of each patch that a writer was told to be stored."""
    return [(int(seq), text) for seq, text in (line.split("\t") for line in lines)]


def assert_all_there(run: Run, told: list[tuple[int, str]]) -> None:
    """Each acknowledged text stands under its number, in the ledger and in the history."""
    applied = run.ledger.read(event_type="WS_UPDATE_APPLIED", limit=10_000)
    texts = {
        event["payload"]["new_seq"]: event["payload"]["patch"]["set"]["last_action_summary"]
        for event in applied
    }

    assert len(dict(told)) == len(told)
    assert dict(told).items() <= texts.items()
    assert all(run.at(seq)["last_action_summary"] == text for seq, text in told)
    assert agree(run)


@pytest.mark.parametrize(
    ("engine", "writers"),
    [("sqlite", 2), ("sqlite", 4), ("sqlite", 8), ("postgres", 8), ("redis", 8)],
)
def test_runs_W01_processes_lose_no_acknowledged_patch(
    url_on: Callable[[str], str], engine: str, writers: int
) -> None:
    path, each = url_on(engine), 20 if engine == "sqlite" else 8
    with pagefile.open(path) as handle:
        run = handle.runs.boot("Share", run_id="r1")
        printed = released([started(WRITER, path, str(each), str(n)) for n in range(writers)])
        told = acknowledged(line for one in printed for line in one.splitlines())
        refused = run.ledger.read(event_type="WS_UPDATE_REJECTED", limit=10_000)

        assert sorted(seq for seq, _ in told) == list(range(1, writers * each + 1))
        assert run.load()["_update_seq"] == writers * each
        assert len(refused) >= writers - 1
        assert {event["payload"]["code"] for event in refused} == {"conflict"}
        assert_all_there(run, told)
        assert handle.verify().problems == ()


@pytest.mark.parametrize(
    ("engine", "writers", "rounds"),
    [("sqlite", 2, 3), ("sqlite", 4, 2), ("sqlite", 8, 1), ("postgres", 3, 1), ("redis", 3, 1)],
)
def test_runs_W03_killed_writers_leave_a_run_that_agrees_with_its_ledger(
    url_on: Callable[[str], str], engine: str, writers: int, rounds: int
) -> None:
    path, dice, told = url_on(engine), random.Random(writers), []
    with pagefile.open(path) as handle:
        handle.runs.boot("Survive", run_id="r1")
    for number in range(rounds):
        processes = [started(WRITER, str(path), "4000", f"{number}-{n}") for n in range(writers)]
        for one in processes:
            assert one.stdout is not None
            assert one.stdin is not None
            assert one.stdout.readline() == "ready\n"
            one.stdin.write("go\n")
            one.stdin.flush()
        # All are at work before the first dies, at whatever moment that is.
        lines = [one.stdout.readline() for one in processes if one.stdout is not None]
        dice.shuffle(processes)
        for one in processes:
            with suppress(subprocess.TimeoutExpired):
                one.wait(timeout=dice.random() / 20)
            one.kill()
        for one in processes:
            lines += lines_left(one)
        told += acknowledged(line.rstrip("\n") for line in lines if line.endswith("\n"))
        with pagefile.open(path) as handle:
            run = handle.runs.open("r1")

            assert run.load()["_update_seq"] >= max(told)[0]
            assert_all_there(run, told)
            assert handle.verify().problems + handle.check().problems == ()


# The fold

_TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=30)
_SLIDES = st.lists(
    st.builds(slide, st.integers(0, 30), st.integers(0, 9), st.integers(0, 200)),
    min_size=1,
    max_size=8,
    unique_by=lambda item: str(item["id"]),
)
_PINS = st.builds(
    lambda n, text: {"id": f"p{n}", "content": text or "c"}, st.integers(0, 5), _TEXTS
)
_NEW: dict[str, st.SearchStrategy[Any]] = {
    "sliding_context": _SLIDES,
    "pinned_context": st.lists(_PINS, min_size=1, max_size=2, unique_by=lambda pin: pin["id"]),
    "artifact_refs": st.builds(lambda n: [{"type": "file", "id": f"a{n}"}], st.integers(0, 3)),
    "blockers": st.lists(_TEXTS, min_size=1, max_size=2, unique=True),
}


class Folding(RuleBasedStateMachine):
    """A run to which anything may happen; whatever does, its ledger tells it."""

    @initialize(most=st.sampled_from([0, 2, 10]))
    def boot(self, most: int) -> None:
        self.handle = pagefile.open("memory:")
        self.folder = tempfile.TemporaryDirectory()
        config = RunConfig(ws_max_tokens=300, pinned_context_max_items=most)
        self.run = self.handle.runs.boot("Fold", config=config)
        self.events = 1

    def seq(self) -> int:
        seq: int = self.run.load()["_update_seq"]
        return seq

    def patched(self, change: dict[str, Any]) -> None:
        given = {"_schema_version": "2.1", "expected_seq": self.seq(), **change}
        result = self.run.apply_patch(given)
        self.events += 1

        assert kinds(self.run)[-1] == ("WS_UPDATE_APPLIED" if result else "WS_UPDATE_REJECTED")

    @rule(text=_TEXTS, items=_SLIDES)
    def whole_fields(self, text: str, items: list[Any]) -> None:
        self.patched({"set": {"next_action": text, "sliding_context": items}})

    @rule(op=st.sampled_from(["append", "upsert"]), field=st.sampled_from([*_NEW]), data=st.data())
    def items_come(self, op: str, field: str, data: st.DataObject) -> None:
        self.patched({"ops": [{"op": op, "field": field, "items": data.draw(_NEW[field])}]})

    @rule(field=st.sampled_from([*_NEW]), data=st.data())
    def items_go(self, field: str, data: st.DataObject) -> None:
        there = [each if field == "blockers" else each["id"] for each in self.run.load()[field]]
        ids = [data.draw(st.sampled_from(there))] if there else ["none"]
        self.patched({"ops": [{"op": "remove", "field": field, "ids": ids}]})

    @rule()
    def refused(self) -> None:
        self.run.apply_patch(patch(self.seq() + 1))
        self.run.apply_patch({"nonsense": True})
        self.events += 2

    @rule(data=st.data())
    def paged_in(self, data: st.DataObject) -> None:
        if left := self.run.evicted():
            item = data.draw(st.sampled_from(left))
            back = self.run.page_in(item["id"])
            self.events += 1
            now = self.run.load()

            held = [each["id"] for each in (*now["pinned_context"], *now["sliding_context"])]
            assert not back or item["id"] in held

    @rule(data=st.data())
    def rolled_back(self, data: st.DataObject) -> None:
        self.run.rollback(data.draw(st.integers(0, self.seq())))
        self.events += 1

    @rule()
    def milestone(self) -> None:
        assert self.run.milestone().episode_id in self.run.episodes.list()
        self.events += 1

    @rule(data=st.data())
    def forked(self, data: st.DataObject) -> None:
        self.run = self.handle.runs.fork(self.run.run_id, data.draw(st.integers(0, self.seq())))
        self.events = 2

    @rule(by_pack=st.booleans())
    def moved(self, by_pack: bool) -> None:
        was, left = self.run.load(), self.run.evicted()
        if by_pack:
            pack = self.run.create_resume_pack(self.folder.name)
            self.run = self.handle.runs.restore_from_pack(pack)
        else:
            path = exported(self.run, Path(self.folder.name, "l.jsonl"))
            self.run = self.handle.runs.import_jsonl(path)
            # What a fork was given by its parent is not in its own ledger.
            left = left[: len(self.run.evicted())]
        self.events += 1

        assert self.run.load() == was | {"run_id": self.run.run_id}
        assert self.run.evicted() == left
        assert all(self.run.episodes.get(each) for each in self.run.episodes.list())

    @invariant()
    def all_is_told(self) -> None:
        assert len(self.run.ledger) == self.events
        assert self.run.rebuild().difference == {}
        assert (len(self.run.brief()) + 3) // 4 <= 300

    def teardown(self) -> None:
        self.folder.cleanup()
        self.handle.close()


def test_runs_L04_the_ledger_folds_to_the_working_set_whatever_happens() -> None:
    run_state_machine_as_test(
        Folding,
        settings=settings(
            max_examples=600 if SOAK else 20,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            phases=(Phase.explicit, Phase.reuse, Phase.generate),
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_runs_W04_every_one_of_500_overfull_patches_of_a_run_succeeds() -> None:
    """Texts of ordinary length in every fixed field, as in the case that always failed."""
    dice = random.Random(4)
    with pagefile.open("memory:") as handle:
        run = handle.runs.boot("Fit", ["it fits"], config=RunConfig(ws_max_tokens=600))
        for seq in range(500):
            items = [slide(n, dice.randint(0, 9), dice.randint(40, 200)) for n in range(30)]
            dice.shuffle(items)
            result = run.apply_patch(
                patch(
                    seq,
                    next_action="n" * dice.randint(0, 80),
                    last_action_summary="s" * dice.randint(0, 100),
                    blockers=["b" * dice.randint(1, 60)] * dice.randint(0, 4),
                    sliding_context=items,
                )
            )
            kept = run.load()["sliding_context"]

            assert result.ok, result
            assert result.evicted
            assert len(kept) + len(result.evicted) == 30
            assert (len(run.brief()) + 3) // 4 <= 600
        assert run.rebuild()


def test_a_run_can_be_awaited(url: str) -> None:
    async def story() -> tuple[Any, list[str], str]:
        async with pagefile.aio.open(url) as pf:
            run = await pf.runs.boot("Await", run_id="r")
            await run.apply_patch(patch(0, status="BUSY"))
            again = await pf.runs.open("r")
            await again.update(lambda ws: {"status": "DONE"})
            kinds = [event["event_type"] async for event in run.ledger]
            return (await run.load())["_update_seq"], kinds, (await again.milestone()).episode_id

    seq, kinds, episode = asyncio.run(story())

    assert (seq, kinds) == (2, ["RUN_START", "WS_UPDATE_APPLIED", "WS_UPDATE_APPLIED"])
    assert episode.startswith("ep_")


# Episodes


def test_runs_R11_a_milestone_tells_exactly_what_happened_since_the_last(run: Run) -> None:
    run.apply_patch(patch(0, status="BUSY"))
    first = run.milestone("halfway", next_entry_point="go on")
    run.apply_patch(patch(1, status="DONE"))
    run.log("TOOL_CALL", {"tool_name": "t"})
    second = run.milestone("done")
    told = run.episodes.get(second.episode_id)

    assert run.episodes.list() == [first.episode_id, second.episode_id]
    assert [e["event_type"] for e in run.episodes.events(first.episode_id)] == [
        "RUN_START",
        "WS_UPDATE_APPLIED",
    ]
    assert [e["event_type"] for e in run.episodes.events(second.episode_id)] == [
        "WS_UPDATE_APPLIED",
        "TOOL_CALL",
    ]
    assert told["ws_before"]["status"] == "BUSY"
    assert told["ws_after"]["status"] == "DONE"
    assert "- TOOL_CALL: 1" in told["summary"]
    assert run.episodes.diff(first.episode_id, second.episode_id) == run.diff(1, 2)
    with pytest.raises(NotFound):
        run.episodes.get("ep_none")


def test_runs_M10_a_milestone_whose_memory_cannot_be_committed_leaves_nothing(run: Run) -> None:
    before = len(run.ledger)
    with pytest.raises(NotFound):
        run.milestone(memory_batch_id="batch_unknown")

    assert (len(run.ledger), run.episodes.list()) == (before + 1, [])
    assert run.ledger.tail(1)[0]["payload"]["error_type"] == "not_found"


# What it proposes to remember


def wish(op: str, content: str, **fields: Any) -> dict[str, Any]:
    return {
        "_schema_version": "2.1",
        "op": op,
        "type": "fact",
        "scope": "global",
        "content": content,
        "confidence": 0.9,
        "rationale": "seen",
        "source_refs": [],
        **fields,
    }


def test_a_milestone_commits_memory_with_its_episode(pf: pagefile.Pagefile) -> None:
    run = pf.runs.boot("Learn", run_id="r1")
    batch = run.memory.propose([wish("add", "Oslo has trams", memory_id="trams")])
    before = pf.store.head().position
    made = run.milestone("learned", memory_batch_id=batch.batch_id)

    assert pf.store.head().position == before + 1
    assert made.committed_memory_ids == ("trams",)
    assert run.episodes.get(made.episode_id)["memory_commits"] == ["trams"]
    assert [hit.item.memory_id for hit in pf.items.search("trams")] == ["trams"]
    assert kinds(run) == ["RUN_START", "MEMORY_PROPOSE", "MEMORY_COMMIT", "MILESTONE"]


def test_every_step_of_memory_leaves_its_event(pf: pagefile.Pagefile) -> None:
    run = pf.runs.boot("Learn", run_id="r1")
    kept = run.memory.propose([wish("add", "kept")]).batch_id
    dropped = run.memory.propose([wish("add", "dropped")]).batch_id
    run.memory.commit(kept, token=run.memory.issue_token())
    run.memory.abort(dropped)
    run.memory.undo(kept, reviewer="carl")

    assert kinds(run)[1:] == [
        "MEMORY_PROPOSE",
        "MEMORY_PROPOSE",
        "MEMORY_TOKEN",
        "MEMORY_COMMIT",
        "MEMORY_ABORT",
        "MEMORY_UNDO",
    ]
    assert {b.batch_id: b.status for b in run.memory.list_batches()} == {
        kept: "undone",
        dropped: "aborted",
    }


def test_what_is_decided_outside_a_run_is_in_its_ledger_and_its_packs(
    pf: pagefile.Pagefile, tmp_path: Path
) -> None:
    run = pf.runs.boot("o", run_id="r1", user_id="ann")
    batches = [run.memory.propose([MCR | {"content": f"fact {n}"}]).batch_id for n in range(2)]
    done = pf.items.commit(batches[0], reviewer="bob")
    pf.items.commit(batches[0], reviewer="bob")
    pf.items.abort(batches[1])
    pack = run.create_resume_pack(tmp_path)
    pf.items.undo(batches[0], reviewer="bob")
    events = [event for event in run.ledger if event["writer_id"] == "items"]

    assert [(event["event_type"], event["payload"]) for event in events] == [
        ("MEMORY_COMMIT", {"batch_id": batches[0], "memory_ids": list(done.memory_ids)}),
        ("MEMORY_ABORT", {"batch_id": batches[1]}),
        ("MEMORY_UNDO", {"batch_id": batches[0]}),
    ]
    for event in events:
        artifacts.check("ledger_event", event)
    assert pf.runs.verify_pack(pack).items == 1
    assert run.rebuild()


def test_a_decision_about_a_batch_of_a_run_that_is_gone_makes_no_ledger(
    pf: pagefile.Pagefile,
) -> None:
    run = pf.runs.boot("o", run_id="r1")
    batch = run.memory.propose([MCR]).batch_id
    pf.runs.delete("r1")
    pf.items.commit(batch, reviewer="bob")

    assert not pf.store.has_log("ledger/r1")


def test_runs_M03_a_batch_belongs_to_the_run_that_proposed_it(pf: pagefile.Pagefile) -> None:
    mine, other = pf.runs.boot("a", run_id="a"), pf.runs.boot("b", run_id="b")
    batch = mine.memory.propose([wish("add", "x")]).batch_id
    for refused in (
        lambda: other.memory.commit(batch, reviewer="eve"),
        lambda: other.memory.abort(batch),
        lambda: other.milestone(memory_batch_id=batch),
        lambda: mine.memory.commit(batch),
    ):
        with pytest.raises(Forbidden):
            refused()

    assert kinds(other) == ["RUN_START", "ERROR", "ERROR", "ERROR"]
    assert [e["payload"]["details"]["operation"] for e in other.ledger.tail(3)] == [
        "commit",
        "abort",
        "milestone",
    ]
    assert pf.items.search("x") == []


# Input that breaks a rule, and runs that end meanwhile


def deep_list() -> list[Any]:
    deep: list[Any] = []
    for _ in range(3_000):
        deep = [deep]
    return deep


def bad_counts() -> list[Any]:
    return ["x", None, True, 1.5, -1, float("nan"), -(10**5_000), deep_list()]


@pytest.mark.parametrize("bad", bad_counts(), ids=lambda value: type(value).__name__)
def test_a_number_that_is_none_is_invalid_wherever_it_is_given(run: Run, bad: Any) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: run.at(bad),
        lambda: run.rollback(bad),
        lambda: run.evicted(limit=bad),
        lambda: run.find_evicted("x", limit=bad),
        lambda: run.update(lambda _: {}, attempts=bad),
        lambda: run.ledger.tail(bad),
        lambda: run.ledger.read(bad),
        lambda: run.ledger.read(bad, event_type="ERROR"),
        lambda: run.ledger.read(limit=bad, event_type="ERROR"),
        lambda: run.brief(min_confidence=bad),
    ]
    for call in calls:
        with pytest.raises(Invalid):
            call()
    # Of these a rollback and an update would have changed the run: their refusals are told.
    assert kinds(run) == ["RUN_START", "ERROR", "ERROR"]


def test_arguments_of_a_wrong_type_are_invalid_and_change_nothing(
    pf: pagefile.Pagefile, runs: Runs, run: Run
) -> None:
    wrong: Any = 7
    memory = {"memory_id": "m", "content": "c", "confidence": 0.9}
    calls: list[Callable[[], Any]] = [
        lambda: runs.boot("o", config=wrong),
        lambda: runs.boot("o", settings=wrong),
        lambda: runs.boot("o", config=RunConfig(check_transitions=wrong)),
        lambda: runs.boot("o", config=RunConfig(token_counter=[wrong])),  # type: ignore[arg-type]
        lambda: runs.list(after=wrong),
        lambda: run.update(wrong),
        lambda: run.update(lambda _: wrong),
        lambda: run.log("ERROR", wrong),
        lambda: run.find_evicted(wrong),
        lambda: run.page_in(wrong),
        lambda: run.ledger.export_jsonl(wrong),
        lambda: run.brief(ltm_results=wrong),
        lambda: run.brief(ltm_results=[wrong]),
        *(lambda gone=field: run.brief(ltm_results=[memory | {gone: None}]) for field in memory),
    ]
    before = run.load()
    for call in calls:
        with pytest.raises(Invalid):
            call()
    # What would have changed the run leaves its refusal, and nothing else.
    assert set(kinds(run)[1:]) <= {"ERROR"}
    assert run.load() == before


@pytest.mark.parametrize(
    ("event_type", "payload"),
    [
        ("RUN_START", {"config": {}, "working_set": {}}),
        ("RUN_FORKED", {"parent_run_id": "r0", "at_seq": 1}),
        ("WS_UPDATE_APPLIED", {"new_seq": 1}),
        ("WS_UPDATE_REJECTED", {"error": "x"}),
        ("WS_ROLLBACK", {"to_seq": 5, "new_seq": 1}),
        ("MILESTONE", {"reason": "x"}),
        ("MEMORY_PROPOSE", {"batch_id": "b", "count": 1}),
        ("MEMORY_COMMIT", {"batch_id": "b", "memory_ids": []}),
        ("MEMORY_TOKEN", {"ttl_seconds": 1}),
        ("MEMORY_ABORT", {"batch_id": "b"}),
        ("MEMORY_UNDO", {"batch_id": "b"}),
        ("RESUME_SNAPSHOT", {"pack_id": "p"}),
        ("RUN_RESTORED", {"pack_id": "p", "parent_run_id": "r0"}),
        ("WS_REPAIRED", {"damaged_seq": 1, "new_seq": 2}),
        ("RUN_ERASED", {"reason": "x"}),
    ],
)
def test_nobody_logs_an_event_that_the_run_is_folded_from(
    run: Run, event_type: str, payload: dict[str, Any]
) -> None:
    with pytest.raises(Invalid, match="own"):
        run.log(event_type, payload)

    assert run.rebuild()
    assert run.milestone().episode_id in run.episodes.list()


def test_a_run_that_was_deleted_gets_no_new_ledger(pf: pagefile.Pagefile, run: Run) -> None:
    stale = patch(0, status="BUSY")
    run.load()
    pf.runs.delete("r1")

    calls: list[Callable[[], Any]] = [
        lambda: run.log("TOOL_CALL", {"tool_name": "t"}),
        lambda: run.apply_patch(stale),
        lambda: run.apply_patch({}),
        lambda: run.memory.propose([]),
        lambda: run.rebuild(),
        lambda: run.milestone(),
    ]
    for call in calls:
        with pytest.raises(NotFound, match="no run"):
            call()
    assert not pf.store.has_log("ledger/r1")


def test_the_history_of_a_run_that_was_deleted_is_not_found(runs: Runs, run: Run) -> None:
    run.apply_patch(patch(0, next_action="ask"))
    runs.delete(run.run_id)

    with pytest.raises(NotFound, match="there is no run"):
        run.at(0)
    with pytest.raises(NotFound, match="there is no run"):
        run.diff(0, 1)


def test_a_run_deleted_just_before_its_event_is_stored_gets_no_new_ledger(
    pf: pagefile.Pagefile, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "require", lambda: pf.runs.delete("r1"))
    with pytest.raises(NotFound, match="no run"):
        run.log("TOOL_CALL", {"tool_name": "t"})

    assert not pf.store.has_log("ledger/r1")


def test_an_erased_user_is_not_named_again_by_a_run_that_is_still_open(tmp_path: Path) -> None:
    with pagefile.open(tmp_path / "runs.db") as pf:
        run = pf.runs.boot("o", run_id="r1", user_id="zebra")
        pf.store.erase(Selector(user="zebra"))
        with pytest.raises(NotFound):
            run.log("TOOL_CALL", {"tool_name": "t"})

        for file in tmp_path.glob("runs.db*"):
            assert b"zebra" not in file.read_bytes()


def test_a_deletion_leaves_nothing_of_what_came_in_between(
    pf: pagefile.Pagefile, runs: Runs, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = runs._episodes

    def raced(run_id: str) -> Iterator[str]:
        found = list(listed(run_id))
        if not run.episodes.list():
            run.milestone()
        return iter(found)

    monkeypatch.setattr(runs, "_episodes", raced)

    assert runs.delete("r1")
    assert pf.store.names("document", prefix="episode/r1/") == []


def test_a_rebuild_compares_what_was_there_at_one_moment(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = run.now

    def raced() -> Any:
        found = now()
        run.update(lambda _: {"next_action": "later"})
        return found

    monkeypatch.setattr(run, "now", raced)

    assert run.rebuild()


def test_a_ledger_with_a_gap_says_so_instead_of_a_wrong_state(
    pf: pagefile.Pagefile, run: Run
) -> None:
    for seq in range(4):
        run.apply_patch(patch(seq, next_action=f"n{seq}"))
    run.rollback(2)
    pf.store.erase(Selector(log="ledger/r1", first=2, last=3))

    with pytest.raises(Corrupt, match="gap after sequence 1"):
        run.rebuild()
    run.milestone()
    assert run.rebuild().since == 5
    assert len(list(run.ledger)) == 7
    pf.store.erase(Selector(log="ledger/r1", first=6, last=6))
    assert run.episodes.list() == []
    assert run.milestone().first_sequence_id == 1


def test_a_ledger_is_folded_from_the_milestone_after_what_was_erased(
    pf: pagefile.Pagefile,
) -> None:
    run = pf.runs.boot("o", run_id="r1", config=RunConfig(pinned_context_max_items=1))
    run.apply_patch(patch(0, status="BUSY"))
    run.milestone("first")
    run.apply_patch(patch(1, status="DONE"))
    run.milestone("second")
    run.apply_patch(patch(2, next_action="rest"))
    for pin in ("a", "b"):
        op = {"op": "append", "field": "pinned_context", "items": [{"id": pin, "content": "c"}]}
        assert run.update(lambda _, op=op: {"ops": [op]}).ok  # type: ignore[misc]
    pf.store.erase(Selector(log="ledger/r1", first=0, last=1))
    opened = pf.runs.open("r1")
    rebuilt = opened.rebuild()

    assert (bool(rebuilt), rebuilt.since) == (True, 1)
    assert run.rebuild()
    pf.store.erase(Selector(log="ledger/r1", first=3, last=3))
    assert opened.rebuild().since == 2
    second = opened.episodes.list()[1]
    pf.store.erase(Selector(document=f"episode/r1/{second}"))
    with pytest.raises(Corrupt, match="gap after sequence 1"):
        opened.rebuild()


def test_an_erased_event_that_changed_nothing_shortens_no_proof(
    pf: pagefile.Pagefile, run: Run
) -> None:
    run.log("TOOL_CALL", {"tool_name": "t"})
    run.apply_patch(patch(0, status="BUSY"))
    run.milestone()
    pf.store.erase(Selector(log="ledger/r1", first=1, last=1))
    rebuilt = run.rebuild()

    assert (bool(rebuilt), rebuilt.since) == (True, 0)


def test_a_ledger_whose_last_change_was_erased_says_so(pf: pagefile.Pagefile, run: Run) -> None:
    run.apply_patch(patch(0, status="BUSY"))
    pf.store.erase(Selector(log="ledger/r1", first=1, last=1))

    with pytest.raises(Corrupt, match="gap after sequence 0"):
        run.rebuild()


@pytest.mark.parametrize("forged", [False, True])
def test_a_checkpoint_is_held_to_its_digest(tmp_path: Path, forged: bool) -> None:
    path = tmp_path / "s.db"
    with pagefile.open(path) as pf:
        run = pf.runs.boot("o", run_id="r1")
        run.apply_patch(patch(0, next_action="here"))
        episode = f"episode/r1/{run.milestone().episode_id}"
        pf.store.erase(Selector(log="ledger/r1", first=0, last=1))
        if forged:
            found = pf.store.get(episode)
            assert found is not None
            body = found.value
            body["ws_after"]["next_action"] = "gone"
            pf.store.commit(Batch([Put(episode, body, kind="episode", notes=found.notes)]))

        if forged:
            with pytest.raises(Corrupt, match="no milestone"):
                run.rebuild()
        else:
            assert run.rebuild()


def test_pinned_items_beyond_the_limit_leave_and_can_come_back(runs: Runs) -> None:
    run = runs.boot("o", config=RunConfig(pinned_context_max_items=2))
    pinned = [{"id": f"p{n}", "content": f"fact {n}"} for n in range(3)]
    result = run.apply_patch(patch(0, pinned_context=pinned, sliding_context=[slide(1)]))

    assert [item["id"] for item in result.evicted] == ["p0"]
    assert [item["id"] for item in run.evicted()] == ["p0"]
    assert run.rebuild()
    assert run.page_in("p0").ok
    assert [item["id"] for item in run.load()["pinned_context"]] == ["p2", "p0"]
    assert run.rebuild()


def test_an_item_with_the_longest_id_can_leave_and_come_back(runs: Runs) -> None:
    run = runs.boot("o", config=RunConfig(ws_max_tokens=1_500))
    long_id = "é" * 1_024
    run.apply_patch(patch(0, sliding_context=[slide(1, 1, 3_000) | {"id": long_id}]))
    result = run.update(
        lambda _: {"ops": [{"op": "append", "field": "sliding_context", "items": [big()]}]}
    )

    run.update(lambda _: {"sliding_context": []})

    assert [item["id"] for item in result.evicted] == [long_id]
    assert run.page_in(long_id).ok


def big() -> dict[str, Any]:
    return slide(2, 9, 4_000)


def test_the_newest_of_very_many_are_the_newest(runs: Runs) -> None:
    run = runs.boot("o", config=RunConfig(ws_max_tokens=200))
    for first in (0, 6_000):
        items = [slide(n) | {"id": f"s{n:05}"} for n in range(first, first + 6_000)]
        run.update(lambda _, new=items: {"sliding_context": new})  # type: ignore[misc]
    left = run._store.length(f"evicted/{run.run_id}")
    newest = run.evicted(limit=3)

    assert left > 10_000
    assert run.evicted(limit=10_000)[:3] == newest
    with pytest.raises(Invalid):
        run.evicted(limit=10_001)
    run.update(lambda _: {"sliding_context": []})
    assert run.page_in("s00000").ok
    assert run.ledger.tail(20_000) == list(run.ledger)


def test_events_of_a_type_are_the_same_from_either_end(run: Run) -> None:
    for number in range(12):
        run.log("TOOL_CALL", {"tool_name": str(number)})
        run.log("TOOL_RESULT", {"tool_name": str(number), "ok": True})
    everything = list(run.ledger)

    for after in range(len(everything) + 2):
        wanted = [e for e in everything[after:] if e["event_type"] == "TOOL_CALL"]
        assert run.ledger.read(after, event_type="TOOL_CALL") == wanted
        assert run.ledger.read(after, event_type="TOOL_CALL", limit=3) == wanted[:3]


def test_what_became_of_a_patch_is_true_when_it_was_applied() -> None:
    with pagefile.open("memory:") as pf:
        run = pf.runs.boot("x", [], [])
        applied = run.update(lambda _: {"next_action": "go"})
        refused = run.apply_patch({"set": {"next_action": "no version, no sequence"}})

    assert applied
    assert not refused
