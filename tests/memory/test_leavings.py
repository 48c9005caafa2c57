"""What is left of somebody: what others said beside them, shared texts, copies in files."""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import pagefile
from pagefile.context.appender import NewSlot
from pagefile.errors import Conflict, Forbidden
from pagefile.handle import Admin, Options
from pagefile.runs.config import RunConfig
from pagefile.runs.schema import artifacts
from pagefile.store.atomic_file import new_file
from pagefile.store.codec.sort_key import microseconds
from pagefile.surfaces.cli import main
from pagefile.surfaces.http.app import make_app
from pagefile.surfaces.http.config import ServerConfig
from pagefile.surfaces.mcp import Identity, mcp_service
from pagefile.surfaces.mcp.server import server_of
from pagefile.testing.backend import bytes_of_files
from pagefile.testing.memory.fixtures import kept
from tests.runs.ground import MCR, patch, slide
from tests.servers.mcp import Served, connected

pytestmark = pytest.mark.filterwarnings(
    "ignore::pagefile.memory.privacy.isolation.IsolationWarning"
)


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis", "manager"])
def pf(request: pytest.FixtureRequest, url_on: Callable[[str], str]) -> Iterator[pagefile.Pagefile]:
    with pagefile.open(url_on(request.param), durability=None) as handle:
        yield handle
        assert handle.verify().problems + handle.check().problems == ()


def say(pf: pagefile.Pagefile, thread: str, user: str | None, text: str, usage: str = "") -> None:
    pf.context.append(
        thread, {"text": text}, "user", "agent", usage_instructions=usage, user_id=user
    )


# The thread of a run


@pytest.mark.parametrize("number", [0, 205])
def test_a_user_s_run_is_refused_where_others_speak_at_either_end(
    pf: pagefile.Pagefile, number: int
) -> None:
    slots = [NewSlot({"text": "x"}, "user", "agent", user_id="ann") for _ in range(300)]
    slots[number] = NewSlot({"text": "y"}, "user", "agent", user_id="bob")
    pf.context.append_many("t", slots)
    with pytest.raises(Forbidden, match="others speak"):
        pf.runs.boot("x", thread_id="t", user_id="ann")

    assert pf.runs.list() == []


def test_what_others_said_in_the_middle_is_in_no_prompt_and_no_pack_of_a_user_s_run(
    tmp_path: Path,
) -> None:
    """Beyond what boot looks at, and after it: nothing depends on what it looked at."""
    with pagefile.open("memory:") as pf:
        for n in range(300):
            say(pf, "t", "bob" if n == 150 else "ann", "bobs secret" if n == 150 else f"ann {n}")
        run = pf.runs.boot("x", run_id="r1", thread_id="t", user_id="ann")
        say(pf, "t", "bob", "bobs secret, again")
        prompt = pf.assemble(run, "secret", budget=100_000)
        with zipfile.ZipFile(run.create_resume_pack(tmp_path)) as pack:
            packed = b"".join(pack.read(name) for name in pack.namelist())

    assert b"ann 299" in packed
    assert b"bobs secret" not in packed
    assert "ann 299" in str(prompt.messages)
    assert "bobs secret" not in str(prompt.messages)


# Usage texts


def texts_in(pf: pagefile.Pagefile) -> list[str]:
    names = pf.store.names("document", prefix="usage/")
    found = [each for name in names if (each := pf.store.get(name)) and not each.erased]
    return sorted(str(each.value) for each in found)


@pytest.mark.parametrize("user", ["ann", None])
def test_a_forgotten_session_takes_the_usage_texts_along_that_nothing_else_notes(
    pf: pagefile.Pagefile, user: str | None
) -> None:
    say(pf, "s1", user, "one", usage="only here")
    say(pf, "s1", user, "two", usage="in two threads")
    say(pf, "s2", user, "three", usage="in two threads")
    say(pf, "s1", "bob", "four", usage="only here")
    dry = pf.memory.forget(user_id=user, session_id="s1", dry_run=True)
    receipt = pf.memory.forget(user_id=user, session_id="s1")
    thread = pf.context.get_thread("s2")
    beside = pf.context.get_thread("s1")

    assert dry.counts == receipt.counts == {"slots": 2, "usage_texts": 1}
    # What another noted in the same thread is the other's: it has a text of its own.
    assert texts_in(pf) == ["in two threads", "only here"]
    assert thread is not None
    assert beside is not None
    assert thread[0].usage_text == "in two threads"
    assert [slot.usage_text for slot in beside if not slot.erased] == ["only here"]


@pytest.mark.parametrize("extent", [{"session_id": "s1"}, {}])
@pytest.mark.parametrize("later", ["s1", "s2"])
def test_what_is_forgotten_up_to_a_time_leaves_the_texts_of_what_stays(
    extent: dict[str, Any], later: str
) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)

    def clock() -> int:
        return microseconds(now)

    with pagefile.open("memory:", options=Options(clock=clock)) as pf:
        say(pf, "s1", "ann", "old", usage="of both")
        say(pf, "s1", "ann", "old", usage="of the old")
        now += timedelta(hours=2)
        say(pf, later, "ann", "new", usage="of both")
        pf.memory.forget(user_id="ann", before=now - timedelta(hours=1), **extent)

        assert texts_in(pf) == ["of both"]


# Packs


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[TestClient, pagefile.Pagefile, Path]]:
    config = ServerConfig(url=f"{tmp_path}/p.db", local=True, log_level="error")
    with (
        TestClient(make_app(config), base_url="http://127.0.0.1:8000") as client,
        pagefile.open(config.url) as pf,
    ):
        yield client, pf, config.packs


def packs_in(shelf: Path) -> list[str]:
    return sorted(file.name for file in shelf.rglob("*.zip"))


def test_forgetting_names_every_pack_that_was_made_of_the_user_s_runs(
    pf: pagefile.Pagefile, tmp_path: Path
) -> None:
    for user in ("ann", "bob"):
        run = pf.runs.boot("x", run_id=f"of-{user}", user_id=user, thread_id=f"t-{user}")
        say(pf, f"t-{user}", user, "hello")
        run.apply_patch(patch(0, next_action="go"))
    made = [pf.runs.open("of-ann").create_resume_pack(tmp_path) for _ in range(2)]
    pf.runs.open("of-bob").create_resume_pack(tmp_path)
    elsewhere = pf.runs.boot("x", run_id="too", user_id="ann").create_resume_pack(tmp_path)
    of_session = pf.memory.forget(user_id="ann", session_id="t-ann").receipt.remaining
    of_another = pf.memory.forget(user_id="bob", session_id="t-ann").receipt.remaining
    of_all = pf.memory.forget(user_id="ann").receipt.remaining
    again = pf.memory.forget(user_id="ann").receipt.remaining

    for told, files in ((of_session, made), (of_all, [elsewhere])):
        steps = [step for step in told if "pack " in step]
        assert len(steps) == len(files)
        assert all(any(file.stem.partition("_")[2] in step for step in steps) for file in files)
    assert [step for step in (*of_another, *again) if "pack " in step] == []


@pytest.mark.parametrize("front", ["library", "command line"])
@pytest.mark.parametrize("look", ["/v1/packs", "/v1/packs/{}", "make another"])
def test_a_server_lets_go_of_packs_of_what_was_forgotten_elsewhere(
    served: tuple[TestClient, pagefile.Pagefile, Path], front: str, look: str
) -> None:
    client, pf, shelf = served
    made: dict[str, Any] = {}
    for user in ("ann", "bob"):
        pf.runs.boot("x", run_id=f"of-{user}", user_id=user)
        made[user] = client.post(f"/v1/runs/of-{user}/packs").json()["pack_id"]
    # Nobody's run, in a thread where she spoke: her slots are in its pack.
    say(pf, "t", "ann", "hello")
    pf.runs.boot("x", run_id="nobodys", thread_id="t")
    client.post("/v1/runs/nobodys/packs")
    if front == "library":
        pf.memory.forget(user_id="ann")
    else:
        assert main(["forget", "--user", "ann", "--yes", "--url", pf.url]) == 0
    before = len(packs_in(shelf))
    if look == "make another":
        client.post("/v1/runs/of-bob/packs")
    else:
        client.get(look.format(made["ann"]))

    assert before == 3
    assert {name.partition("_")[0] for name in packs_in(shelf)} == {"of-bob"}
    assert client.get(f"/v1/packs/{made['ann']}").status_code == 404
    assert client.get(f"/v1/packs/{made['bob']}").status_code == 200


def test_over_http_the_receipt_names_no_pack_that_it_removed_itself(
    served: tuple[TestClient, pagefile.Pagefile, Path], tmp_path: Path
) -> None:
    client, pf, shelf = served
    run = pf.runs.boot("x", run_id="of-ann", user_id="ann")
    client.post("/v1/runs/of-ann/packs")
    elsewhere = run.create_resume_pack(tmp_path / "mine")
    told = client.post("/v1/forget", json={"user_id": "ann"}).json()["receipt"]["remaining"]
    steps = [step for step in told if "pack " in step]

    assert packs_in(shelf) == []
    assert len(steps) == 1
    assert elsewhere.stem.removeprefix("of-ann_") in steps[0]


# Slots of nobody beside a user's


def test_forgetting_names_the_threads_where_nobody_s_slots_stay_beside_the_user_s(
    pf: pagefile.Pagefile,
) -> None:
    spoke: dict[str, list[str | None]] = {
        "mixed": ["ann", None, "ann"],
        "hers": ["ann", "ann"],
        "of two": ["ann", "bob"],
        "nobody's": [None],
        "mixed, of bob": ["bob", None],
    }
    for thread, users in spoke.items():
        for user in users:
            say(pf, thread, user, "hello")
    would = pf.memory.forget(user_id="ann", dry_run=True).receipt.remaining
    done = pf.memory.forget(user_id="ann").receipt.remaining
    taken = pf.memory.forget(session_id="mixed")

    for told in (would, done):
        steps = [step for step in told if "without a user" in step]
        assert len(steps) == 1
        assert "thread 'mixed' " in steps[0]
        assert "forget(session_id='mixed')" in steps[0]
    assert taken.counts == {"slots": 1}
    assert not pf.context.thread_exists("mixed")


def test_forgetting_a_session_or_a_time_names_the_thread_too_and_twice_nothing() -> None:
    with pagefile.open("memory:") as pf:
        for thread in ("one", "two"):
            say(pf, thread, "ann", "hello")
            say(pf, thread, None, "hello, ann")
        later = datetime.now(UTC) + timedelta(hours=1)
        of_one = pf.memory.forget(user_id="ann", session_id="one").receipt.remaining
        of_then = pf.memory.forget(user_id="ann", before=later).receipt.remaining
        again = pf.memory.forget(user_id="ann").receipt.remaining

    assert [step.split()[1] for step in of_one] == ["'one'"]
    assert [step.split()[1] for step in of_then] == ["'two'"]
    assert again == ()


def test_of_many_such_threads_the_first_are_named_and_the_rest_counted() -> None:
    with pagefile.open("memory:") as pf:
        for n in range(23):
            say(pf, f"t{n:02}", "ann", "hello")
            say(pf, f"t{n:02}", None, "hello, ann")
        steps = pf.memory.forget(user_id="ann").receipt.remaining

    assert len(steps) == 21
    assert "'t19'" in steps[19]
    assert steps[20].startswith("3 more threads")


# A run of which part is forgotten


def test_a_run_that_loses_a_part_and_stays_is_told_so_in_the_same_commit(
    pf: pagefile.Pagefile,
) -> None:
    run = pf.runs.boot("o", run_id="r1", user_id="ann", config=RunConfig(ws_max_tokens=200))
    run.apply_patch(patch(0, sliding_context=[slide(n, n, 90) for n in range(9)]))
    left = len(run.evicted())
    run.milestone("first")
    run.apply_patch(patch(1, next_action="later"))
    pf.runs.boot("o", run_id="whole", user_id="bob")
    before = pf.store.read("ledger/r1")[-1].time
    rehearsed = pf.memory.forget(user_id="ann", before=before, dry_run=True)
    assert run.ledger.tail(1)[0]["event_type"] == "WS_UPDATE_APPLIED"
    forgotten = pf.memory.forget(user_id="ann", before=before)
    event = run.ledger.tail(1)[0]
    position = forgotten.receipt.position
    assert position is not None
    changed = pf.store.changes(position - 1, limit=1)[0].touched

    assert rehearsed == forgotten
    assert event["event_type"] == "RUN_ERASED"
    assert event["payload"] == {
        "reason": f"forgotten: 3 events, 2 states, {left} evicted items, 1 milestones"
    }
    assert {"ledger/r1"} <= {one.name for one in changed if one.action == "append"}
    artifacts.check("ledger_event", event)
    assert pf.runs.open("r1").load()["next_action"] == "later"
    assert run.milestone("after").episode_id
    assert run.rebuild().since == 2
    assert [e["event_type"] for e in pf.runs.open("whole").ledger] == ["RUN_START"]


@pytest.mark.parametrize("session", [None, "t"])
def test_a_run_that_goes_on_keeps_its_working_set_however_old_that_is(
    pf: pagefile.Pagefile, session: str | None
) -> None:
    run = pf.runs.boot("o", run_id="r1", user_id="ann", thread_id="t")
    run.apply_patch(patch(0, next_action="long ago"))
    ended = pf.runs.boot("o", run_id="r2", user_id="ann", thread_id="t")
    ended.apply_patch(patch(0, next_action="over"))
    run.milestone("today")
    before = pf.store.read("ledger/r1")[-1].time
    would = pf.memory.forget(user_id="ann", session_id=session, before=before, dry_run=True)
    done = pf.memory.forget(user_id="ann", session_id=session, before=before)
    opened = pf.runs.open("r1")

    assert (would, would.counts) == (done, done.counts)
    assert (done.counts["runs"], done.counts["versions"]) == (1, 1)
    assert pf.runs.list() == ["r1"]
    assert all(entry.erased for entry in pf.store.read("ledger/r2"))
    assert opened.load()["next_action"] == "long ago"
    assert opened.ledger.tail(1)[0]["event_type"] == "RUN_ERASED"
    assert opened.apply_patch(patch(1, next_action="now")).ok
    assert opened.rebuild().since == 1


def test_a_run_that_is_forgotten_whole_gets_no_event(pf: pagefile.Pagefile) -> None:
    run = pf.runs.boot("o", run_id="r1", user_id="ann")
    run.apply_patch(patch(0, next_action="x"))
    pf.memory.forget(user_id="ann")

    assert not pf.runs.exists("r1")
    assert not any(entry.kind == "RUN_ERASED" for entry in pf.store.read("ledger/r1"))


def test_a_forgotten_session_takes_what_left_the_working_sets_of_its_runs(
    pf: pagefile.Pagefile,
) -> None:
    run = pf.runs.boot(
        "o", run_id="r1", user_id="ann", thread_id="t", config=RunConfig(ws_max_tokens=200)
    )
    run.apply_patch(patch(0, sliding_context=[slide(n, n, 90) for n in range(9)]))
    pf.runs.boot("o", run_id="r2", user_id="ann", thread_id="other")
    assert run.evicted()
    pf.memory.forget(user_id="ann", session_id="t")

    assert [name for name in pf.store.names("log") if name.endswith("/r1")] == []
    assert pf.runs.list() == ["r2"]


# What requests leave


def test_no_request_leaves_a_name_or_a_word_of_the_user_behind_not_even_the_one_that_forgets(
    served: tuple[TestClient, pagefile.Pagefile, Path], tmp_path: Path
) -> None:
    client, pf, _ = served
    word = "zyqcanary"

    def key(name: str) -> dict[str, str]:
        return {"idempotency-key": f"{word}-{name}"}

    slot = {"payload": word, "from_id": word, "to_id": word, "user_id": word}
    run = {"objective": word, "run_id": f"{word}-run", "user_id": word}
    episode = {"session_id": word, "user_id": word, "input": word, "id": f"{word}-episode"}
    fact = {"subject": word, "predicate": "likes", "object": word, "user_id": word}
    asked = [
        client.post(f"/v1/threads/{word}/slots", json=slot, headers=key("slot")),
        client.post(f"/v1/threads/{word}/fork", json={"new_id": f"{word}-f"}, headers=key("fork")),
        client.post(f"/v1/threads/{word}-gone/slots", json=slot, headers=key("gone")),
        client.delete(f"/v1/threads/{word}-gone", headers=key("delete")),
        client.post(f"/v1/threads/{word}-erased/slots", json=slot, headers=key("erased")),
        client.delete(f"/v1/threads/{word}-erased?erase=true", headers=key("erase")),
        client.post("/v1/runs", json=run, headers=key("run")),
        client.post("/v1/episodes", json=episode, headers=key("episode")),
        client.post("/v1/facts", json={"facts": [fact]}, headers=key("fact")),
        client.put(
            f"/v1/blocks/{word}", json={"content": word, "user_id": word}, headers=key("block")
        ),
        client.post("/v1/forget", json={"user_id": word, "dry_run": True}, headers=key("dry")),
    ]
    gone = client.post("/v1/forget", json={"user_id": word}, headers=key("forget"))
    again = client.post("/v1/forget", json={"user_id": word}, headers=key("forget"))
    kept = [
        str(each.value)
        for name in pf.store.names("document", prefix="http/")
        for each in pf.store.history(name)
        if not each.erased
    ]
    # The dry run, its record and this one's claim were written after; the next erasure pays.
    pf.store.erase([])
    found = [name for name, raw in bytes_of_files(tmp_path) if word.encode() in raw]

    assert [one.text for one in asked if one.status_code >= 300] == []
    assert word in gone.text
    assert again.json()["counts"] == gone.json()["counts"]
    assert again.headers["idempotent-replayed"] == "true"
    assert word not in again.text
    assert [line for line in kept if word in line] == []
    assert found == []


def holding(folder: Path, word: str) -> list[str]:
    return [name for name, raw in bytes_of_files(folder) if word.encode() in raw.lower()]


def kept_with(pf: pagefile.Pagefile, word: str) -> list[str]:
    """The streams whose name has the word, the erased ones too."""
    return [name for kind in ("log", "document") for name in pf.store.names(kind) if word in name]


def test_no_command_leaves_a_name_or_a_word_of_the_user_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    word, store, beside = "zyqcanary", tmp_path / "store", tmp_path / "beside"
    store.mkdir()
    beside.mkdir()
    monkeypatch.setenv("PAGEFILE_EMBEDDER", "none")
    scope = ["--url", f"{store}/s.db", "--user", word, "--json"]
    change = json.dumps(patch(0, next_action=word, constraints=[word]))
    commands = [
        ["add", f"I am {word}.", "--id", f"{word}-e", "--session", word, "--consolidate"],
        ["add", "--fact", word, "likes", word],
        ["add", "--block", word, word],
        ["update", f"{word}-e", f"I was {word}."],
        ["update", "--block", word, f"{word} again"],
        ["threads", "append", word, word],
        ["threads", "fork", word, "--id", f"{word}-f"],
        ["threads", "append", f"{word}-gone", word],
        ["threads", "delete", f"{word}-gone", "--yes"],
        ["runs", "boot", word, "--id", f"{word}-r", "--criterion", word, "--thread", word],
        ["runs", "patch", f"{word}-r", change],
        ["runs", "milestone", f"{word}-r", "--reason", word],
        ["runs", "fork", f"{word}-r", "--id", f"{word}-r2"],
        ["runs", "repair", f"{word}-r"],
        ["ledger", f"{word}-r", "--export", f"{beside}/ledger.jsonl"],
        ["import", f"{beside}/ledger.jsonl", "--ledger", "--run", f"{word}-r3"],
        ["pack", "create", f"{word}-r", f"{beside}/packs"],
        ["runs", "delete", f"{word}-r2", "--yes"],
        ["prompt", word, f"Where is {word}?"],
        ["search", word],
        ["export", f"{beside}/export.jsonl"],
        ["import", f"{beside}/export.jsonl"],
        ["reindex"],
    ]
    ended = {" ".join(each): main([*each, *scope]) for each in commands}
    [pack] = (beside / "packs").iterdir()
    ended["restore"] = main(["restore", str(pack), "--id", f"{word}-r4", *scope])
    before = holding(store, word)
    ended["forget"] = main(["forget", "--yes", *scope])
    told = json.loads(capsys.readouterr().out.splitlines()[-1])["data"]["receipt"]
    with pagefile.open(store / "s.db") as pf:
        names = kept_with(pf, word)

    assert {each: status for each, status in ended.items() if status} == {}
    assert before != []
    assert told["level"] == "bytes"
    assert names == []
    assert holding(store, word) == []


@pytest.mark.parametrize("compat", [None, "reference"])
def test_no_tool_of_mcp_leaves_a_name_or_a_word_of_the_user_behind(
    compat: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    word = "zyqcanary"
    monkeypatch.setenv("PAGEFILE_EMBEDDER", "none")
    with Admin(tmp_path / "s.db") as admin:
        every = Identity("default", word, frozenset({"read", "write", "admin"}))
        with connected(server_of(mcp_service(admin, compat=compat), every)) as client:
            if compat is None:
                call_all_tools(client, word)
            else:
                entity = {"name": word, "entityType": word, "observations": [word]}
                relation = {"from": word, "to": word, "relationType": word}
                noted = {"entityName": word, "contents": [f"{word} again"]}
                client.call("create_entities", entities=[entity, entity | {"name": f"{word}2"}])
                client.call("create_relations", relations=[relation])
                client.call("add_observations", observations=[noted])
                client.call("delete_entities", entityNames=[f"{word}2"])
        before = holding(tmp_path, word)
        pf = admin.open("default")
        told = pf.memory.forget(user_id=word)
        names = kept_with(pf, word)

        assert before != []
        assert told.receipt.level == "bytes"
        assert names == []
        assert holding(tmp_path, word) == []


def call_all_tools(client: Served, word: str) -> None:
    """Every tool of MCP that writes, with the word wherever a text or a name is taken."""
    added = client.call("add_memory", text=f"I am {word}.", session_id=word)
    fact = {"subject": word, "predicate": word, "object": word}
    noted = client.call("add_memory", fact=fact)
    client.call("update_memory", memory_id=added["id"], text=f"I was {word}.")
    newer = client.call("update_memory", memory_id=noted["id"], text=f"{word} again")
    client.call("forget", memory_id=newer["id"])
    client.call("append_message", thread_id=word, text=word, sender=word, recipient=word, key=word)
    payload = {word: word}
    client.call("append_message", thread_id=f"{word}-2", payload=payload, key=f"{word}-2")
    client.call("get_context", query=f"Who is {word}?", thread_id=word)
    changes = [{"op": "add", "content": word, "rationale": word, "source_refs": [f"{word}/0"]}]
    batch = client.call("propose_memory", changes=changes)
    client.call("commit_memory", batch_id=batch["batch_id"], reviewer=word)
    client.call("propose_memory", changes=changes)


def test_no_artifact_of_a_run_leaves_a_word_of_the_user_behind(
    pf: pagefile.Pagefile, tmp_path: Path
) -> None:
    word = "zyqcanary"
    run = pf.runs.boot(word, [word], [word], user_id=word, run_id=f"{word}-r", thread_id=word)
    events: dict[str, dict[str, Any]] = {
        "STEP_REQUEST": {"ws_seq": 0, "model": word, "context_brief": word},
        "MODEL_ACTION": {"action": {word: word}, "raw": {word: word}},
        "TOOL_CALL": {"tool_name": word, "arguments": {word: word}},
        "TOOL_RESULT": {"tool_name": word, "ok": True, "result": word},
        "MODEL_UPDATE": {"expected_seq": 0, "ws_patch": {word: word}, "mcrs": [word]},
        "ERROR": {"error_type": word, "message": word, "details": {word: word}},
    }
    for kind, payload in events.items():
        run.log(kind, payload, writer_id=word, parent_event_id=word)
    ref = {"type": "file", "id": word, "path": word}
    pinned = {"id": word, "content": word}
    for seq in range(3):
        fields = {
            "artifact_refs": [ref],
            "blockers": [word],
            "last_action_summary": word,
            "pinned_context": [pinned],
            "sliding_context": [slide(n, n) | {"content": f"{word} {n}"} for n in range(9)],
        }
        assert run.apply_patch(patch(seq, **fields), writer_id=word).ok
    assert not run.apply_patch(patch(0, next_action=word), writer_id=word).ok
    request = {**MCR, "content": word, "rationale": word, "scope": "user", "user_id": word}
    for number in range(3):
        batch = pf.items.propose(
            [request | {"content": f"{word} {number}"}], run_id=run.run_id, user_id=word
        ).batch_id
        if number == 0:
            run.milestone(word, memory_batch_id=batch, next_entry_point=word, writer_id=word)
        elif number == 1:
            pf.items.abort(batch)
        else:
            pf.items.commit(batch, reviewer=word)
            pf.items.undo(batch, reviewer=word)
    run.rollback(1, writer_id=word)
    pf.runs.fork(run.run_id, new_run_id=f"{word}-fork")
    before = [line for line in kept(pf) if word in line]
    receipt = pf.memory.forget(user_id=word).receipt

    assert len(before) > 20
    assert kept_with(pf, word) == []
    assert [line for line in kept(pf) if word in line] == []
    if receipt.level == "bytes":  # On a file; the bytes of the others are the contract's.
        assert holding(tmp_path, word) == []


# Files for people

_EXPORTS = """
import os, resource, signal, sys
from pathlib import Path
import pagefile
from pagefile.client import transport
from pagefile.memory.episodes.episode import Episode
from pagefile.store.atomic_file import new_file
from pagefile.surfaces.cli import main

way, folder = sys.argv[1], Path(sys.argv[2])
store = str(folder / "s.db")
text = os.urandom(200_000).hex()
with pagefile.open(store, durability="process") as pf:
    pf.memory.remember(Episode(session_id="s", user_id="ann", input=text))
    run = pf.runs.boot("x", run_id="r1", user_id="ann")
    for _ in range(8):
        run.log("ERROR", {"error_type": "x", "message": os.urandom(25_000).hex()})
out = folder / "out"
out.mkdir()
made = out / "made"
pf = pagefile.open(store)

def downloaded():
    with transport.sink(made) as file:
        file.write(text.encode())

ways = {
    "export": lambda: pf.memory.export(user_id="ann").write(made),
    "ledger": lambda: main(["ledger", "r1", "--export", str(made), "--url", store]),
    "pack": lambda: pf.runs.open("r1").create_resume_pack(out),
    "download": downloaded,
}
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
no_limit = resource.getrlimit(resource.RLIMIT_FSIZE)
pf.runs.open("r1").brief()
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, no_limit[1]))
try:
    failed = bool(ways[way]())
except (pagefile.Unavailable, OSError) as error:
    failed = True
left = os.listdir(out)
resource.setrlimit(resource.RLIMIT_FSIZE, no_limit)
ways[way]()
(file,) = out.iterdir()
print(failed, left, oct(file.stat().st_mode & 0o777), file.stat().st_size > 100_000, flush=True)
"""


@pytest.mark.parametrize("way", ["export", "ledger", "pack", "download"])
def test_a_file_that_could_not_be_written_leaves_nothing_and_its_name_free(
    way: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _EXPORTS, way, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        umask=0,
    )
    assert done.stdout.splitlines()[-1:] == ["True [] 0o600 True"], done.stderr


def test_a_file_that_another_made_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    writing = new_file(tmp_path / "x")
    writing.__enter__().write(b"ours")
    (tmp_path / "x").write_bytes(b"theirs")
    with pytest.raises(Conflict):
        writing.__exit__(None, None, None)
    with new_file(tmp_path / "x", replaces=True) as file:
        file.write(b"newer")

    assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == [("x", b"newer")]
