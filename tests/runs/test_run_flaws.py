"""Working set and episodes: flaws of the earlier system, and how each is beaten."""

from __future__ import annotations

import inspect
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

import pagefile
from pagefile.errors import Conflict, Corrupt, Invalid, LimitExceeded, NotFound, PagefileError
from pagefile.runs.config import RunConfig
from pagefile.runs.run import Run
from pagefile.runs.schema import artifacts, compiler
from pagefile.runs.tokens import register_counter
from pagefile.store.batch import Batch, Put, Selector
from pagefile.store.codec.decoder import convert
from pagefile.surfaces.cli import main
from pagefile.surfaces.http.app import make_app
from pagefile.surfaces.http.config import ServerConfig
from tests.runs.ground import MCR, agree, change_newest, kinds, patch, released, slide, started


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis", "manager"])
def pf(request: pytest.FixtureRequest, url_on: Callable[[str], str]) -> Iterator[pagefile.Pagefile]:
    with pagefile.open(url_on(request.param), durability=None) as handle:
        yield handle


def client_on(path: Path) -> TestClient:
    """A server on that file."""
    config = ServerConfig(url=str(path), local=True, durability="process", log_level="error")
    return TestClient(make_app(config), base_url="http://127.0.0.1:8000")


# W2: what readers see

WRITER = """
import sys, pagefile
from concurrent.futures import ThreadPoolExecutor
def write(name):
    with pagefile.open(sys.argv[1]) as pf:
        run = pf.runs.open("r1")
        for n in range(int(sys.argv[2])):
            text = f"{name} {n} " * 200
            assert run.update(lambda ws: {"last_action_summary": text, "next_action": text})
print("ready", flush=True)
sys.stdin.readline()
with ThreadPoolExecutor(8) as pool:
    list(pool.map(write, sys.argv[3]))
"""
READER = """
import sys, pagefile
from pagefile.runs.schema import artifacts
with pagefile.open(sys.argv[1]) as pf:
    run, seen, last = pf.runs.open("r1"), set(), int(sys.argv[2])
    print("ready", flush=True)
    sys.stdin.readline()
    while last not in seen:
        ws = run.load()
        artifacts.check("working_set", ws)
        assert ws["next_action"] == ws["last_action_summary"], "half of a patch"
        assert not seen or ws["_update_seq"] >= max(seen), "back in time"
        seen.add(ws["_update_seq"])
    print(len(seen))
"""


@pytest.mark.parametrize(
    ("name", "writers", "each"),
    [
        ("sqlite", list("abcdefgh"), 20),
        # Servers do not see who is a process and who a thread with a handle of its own.
        ("postgres", ["abcd", "efgh"], 6),
        ("redis", ["abcd", "efgh"], 6),
    ],
)
def test_runs_W02_readers_beside_eight_writers_see_whole_documents_only(
    url_on: Callable[[str], str], tmp_path: Path, name: str, writers: list[str], each: int
) -> None:
    url = url_on(name)
    with pagefile.open(url) as pf:
        run = pf.runs.boot("x", run_id="r1", config=RunConfig(ws_max_tokens=20_000))
        processes = [started(WRITER, url, str(each), names) for names in writers]
        readers = [started(READER, url, str(8 * each)) for _ in range(2)]
        counts = released(processes + readers)[-2:]
        left = {file.name for file in tmp_path.iterdir()} - {"store.db"}

        assert all(int(count) > 1 for count in counts)
        assert agree(run)
        # Nothing is written beside the file and moved in its place: no half-written one is left.
        assert left <= {"store.db-wal", "store.db-shm", "store.db-gate"}


# W11: one convention for refusals


WRONG_PATCHES: dict[str, Any] = {
    "none at all": None,
    "a text": "patch",
    "no set": {"_schema_version": "2.1", "expected_seq": 0},
    "another version": patch(0) | {"_schema_version": "1.0"},
    "a stale number": patch(7),
    "a number below 0": patch(-1),
    "a field that is not patched": patch(0, run_id="x"),
    "an unknown status": patch(0, status="NAPPING"),
    "a transition that is none": patch(0, status="DONE"),
    "no time": patch(0, sliding_context=[slide(1) | {"timestamp": "noon"}]),
    "two of one id": patch(0, sliding_context=[slide(1), slide(1)]),
    "an unknown operation": patch(0) | {"ops": [{"op": "dance", "field": "blockers"}]},
    "what is not there": patch(0)
    | {"ops": [{"op": "remove", "field": "blockers", "ids": ["none"]}]},
    "too much": patch(0, next_action="z" * 50_000),
    "too many": patch(0, blockers=["b"] * 100_000),
    "a surrogate": patch(0, next_action="\ud800"),
    "not a number": patch(0, next_action=math.nan),
    "very deep": patch(0, next_action=json.loads("[" * 500 + "]" * 500)),
}
#: All that a result can say; a surface needs no other case.
RETURNED = {Conflict.code, Invalid.code, LimitExceeded.code}


@pytest.mark.parametrize("what", WRONG_PATCHES)
def test_runs_W11_a_refused_patch_is_returned_with_a_code_from_a_closed_list(
    pf: pagefile.Pagefile, what: str
) -> None:
    run = pf.runs.boot("x", run_id="r1", config=RunConfig(check_transitions=True))
    result = run.apply_patch(WRONG_PATCHES[what])

    assert (result.ok, bool(result), result.new_ws, result.evicted) == (False, False, None, ())
    assert result.code in RETURNED
    assert result.error
    assert run.ledger.tail(1)[0]["payload"]["code"] == result.code


#: What Python says by itself when nobody looked at an argument.
UNTYPED = (
    TypeError,
    ValueError,
    LookupError,
    AttributeError,
    ArithmeticError,
    RuntimeError,
    OSError,
)


def told(odd: object) -> str:
    return "a long number" if type(odd) is int and odd > 10**100 else f"{odd!r:.40}"


class Opaque:
    """What nothing can be made of."""


ODD: list[Any] = [
    *(None, True, 7, -1, 10**5_000, 1.5, math.nan, "", "x", "../x", "\ud800", "a\x00b", b"x"),
    *([], [7], {}, {"a": Opaque()}, {7}, Opaque(), Opaque, "y" * 100_000),
]
#: Arguments that are right, for those that have to be given.
GIVEN: dict[str, dict[str, Any]] = {
    "run.update": {"change": lambda ws: {}},
    "run.log": {"event_type": "TOOL_CALL", "payload": {"tool_name": "t"}},
    "run.record": {"event_type": "TOOL_CALL", "payload": {"tool_name": "t"}, "writer_id": "w"},
    "run.find_evicted": {"text": "x"},
    "run.page_in": {"item_id": "x"},
    "run.at": {"seq": 0},
    "run.version_of": {"seq": 0},
    "run.diff": {"a": 0, "b": 0},
    "run.rollback": {"seq": 0},
    "run.create_resume_pack": {"directory": "packs"},
    "run.ledger.tail": {"count": 1},
    "run.ledger.of_type": {"event_type": "ERROR"},
    "run.ledger.last_of_type": {"event_type": "ERROR"},
    "run.ledger.export_jsonl": {"file": None},
    "run.episodes.get": {"episode_id": "e"},
    "run.episodes.events": {"episode_id": "e"},
    "run.episodes.diff": {"a": "e", "b": "e"},
    "run.memory.propose": {"mcrs": [MCR]},
    "run.memory.preview": {"batch_id": "b"},
    "run.memory.commit": {"batch_id": "b"},
    "run.memory.abort": {"batch_id": "b"},
    "run.memory.undo": {"batch_id": "b"},
    "runs.boot": {"objective": "x"},
    "runs.open": {"run_id": "r1"},
    "runs.exists": {"run_id": "r1"},
    "runs.fork": {"run_id": "r1"},
    "runs.delete": {"run_id": "none"},
    "runs.restore_from_pack": {"path": "none"},
    "runs.verify_pack": {"path": "none"},
    "runs.import_jsonl": {"path": "none"},
}
#: For the rooms of runs among themselves: they take values that these rooms have made.
INNER = {
    *("run.commit", "run.recording", "run.require"),
    *("run.ledger.entries", "run.ledger.event", "run.ledger.whole"),
}


def public_methods(run: Run, pf: pagefile.Pagefile) -> Iterator[tuple[str, Callable[..., Any]]]:
    rooms = {
        "run": run,
        "run.ledger": run.ledger,
        "run.episodes": run.episodes,
        "run.memory": run.memory,
        "runs": pf.runs,
    }
    for room, held in rooms.items():
        for name, method in inspect.getmembers(held, inspect.ismethod):
            if not name.startswith("_") and f"{room}.{name}" not in INNER:
                yield f"{room}.{name}", method


def test_runs_W11_every_other_refusal_is_raised_with_its_fact_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each argument of each public method, replaced by what it cannot be, one after the other."""
    monkeypatch.chdir(tmp_path)
    wrong: list[str] = []
    asked = refused = 0
    with pagefile.open("memory:") as pf:
        run = pf.runs.boot("x", run_id="r1")
        for name, method in public_methods(run, pf):
            if name == "run.apply_patch":
                continue
            for parameter in inspect.signature(method).parameters:
                for odd in ODD:
                    if odd is Opaque and parameter in ("change", "progress"):
                        continue  # It can be called; what comes of it is the caller's.
                    asked += 1
                    try:
                        made = method(**GIVEN.get(name, {}) | {parameter: odd})
                        if inspect.isgenerator(made):
                            list(made)
                    except PagefileError as error:
                        refused += 1
                        if not (error.fact and error.next_step and error.code != "error"):
                            wrong.append(f"{name}({parameter}={told(odd)}): {error!r}")
                        if isinstance(error, Invalid) and not error.field:
                            wrong.append(f"{name}({parameter}={told(odd)}): no field")
                    except UNTYPED as error:
                        wrong.append(f"{name}({parameter}={told(odd)}): {error!r:.120}")
        assert run.rebuild()

    assert not wrong, "\n".join(wrong)
    assert refused > asked / 2


# W13: validated once, counted once


class CountingCounter:
    """Counts characters, and how often it was asked to."""

    name = "counting"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def count(self, text: str) -> int:
        self.asked.append(text)
        return len(text) // 4 + 1


COUNTER = CountingCounter()


def full_run(pf: pagefile.Pagefile) -> Run:
    register_counter(COUNTER)
    config = RunConfig(ws_max_tokens=20_000, token_counter=COUNTER.name)
    run = pf.runs.boot("x", run_id="r1", config=config)
    assert run.apply_patch(patch(0, sliding_context=[slide(n, size=200) for n in range(95)]))
    return run


def test_runs_W13_a_small_patch_counts_only_what_it_changed(pf: pagefile.Pagefile) -> None:
    run = full_run(pf)
    costs = []
    for seq in range(1, 6):
        COUNTER.asked.clear()
        assert run.apply_patch(patch(seq, next_action=f"step {seq}"))
        costs.append(list(COUNTER.asked))

    assert max(map(len, costs)) <= 2
    assert not any("x" * 200 in text for cost in costs for text in cost)


def test_runs_W13_a_small_patch_is_validated_alone_and_nothing_is_compiled_again(
    pf: pagefile.Pagefile, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = full_run(pf)
    run.apply_patch(patch(1, next_action="warm"))
    looked_at: list[int] = []
    compiled_shapes: list[object] = []
    compile_test = compiler.compile_test

    def sized(value: Any, shape: Any) -> Any:
        looked_at.append(len(json.dumps(value)))
        return convert(value, shape)

    def noted(shape: Any) -> Any:
        compiled_shapes.append(shape)
        return compile_test(shape)

    monkeypatch.setattr(compiler, "convert", sized)
    monkeypatch.setattr(artifacts, "compile_test", noted)
    for seq in range(2, 12):
        assert run.apply_patch(patch(seq, next_action=f"step {seq}"))

    # The patch and its event, once each; the 95 items, 25 kB of them, not at all.
    assert len(looked_at) == 20
    assert max(looked_at) < 1_000
    assert compiled_shapes == []


# W14: history


def test_runs_W14_every_state_is_read_compared_and_restored_over_http(tmp_path: Path) -> None:
    with client_on(tmp_path / "h.db") as client:
        client.post("/v1/runs", json={"objective": "x", "run_id": "r1"})
        for seq in range(3):
            body = {"expected_seq": seq, "set": {"next_action": f"step {seq}"}}
            assert client.patch("/v1/runs/r1", json=body).status_code == 200
        states = [client.get("/v1/runs/r1", params={"seq": n}).json() for n in range(4)]
        changed = client.get("/v1/runs/r1/diff", params={"a": 1, "b": 3}).json()
        back = client.post("/v1/runs/r1/rollback", json={"seq": 1}).json()["ws"]
        after = [client.get("/v1/runs/r1", params={"seq": n}).json() for n in range(5)]

    assert [ws["next_action"] for ws in states] == ["", "step 0", "step 1", "step 2"]
    assert changed["next_action"] == {"from": "step 0", "to": "step 2"}
    assert (back["next_action"], back["_update_seq"]) == ("step 0", 4)
    assert after == [*states, back]


# W16: a damaged working set


DAMAGES = {
    "emptied": b"",
    "half of it": b'{"_schema_version":"2.1","_upd',
    "noise": bytes(range(256)),
    "another document": b'{"a":1}',
    "no document": b"[]",
}


def damaged_store(path: Path, body: bytes) -> dict[str, Any]:
    """A store with one run that is damaged and one that is not; what the first one was."""
    with pagefile.open(path, durability="process") as pf:
        run = pf.runs.boot("Do it", run_id="r1", config=RunConfig(ws_max_tokens=400))
        pf.runs.boot("Another", run_id="r2")
        items = [slide(n, size=100) for n in range(20)]
        run.apply_patch(patch(0, sliding_context=items, status="BUSY"))
        run.rollback(0)
        run.apply_patch(patch(2, sliding_context=items[:5], next_action="go on"))
        before = run.load()
    change_newest(path, "run/r1", "body = ?", body)
    return before


@pytest.mark.parametrize("how", DAMAGES)
def test_runs_W16_a_damaged_working_set_says_so_and_comes_back_from_the_ledger(
    tmp_path: Path, how: str
) -> None:
    path = tmp_path / "d.db"
    before = damaged_store(path, DAMAGES[how])
    with pagefile.open(path, durability="process") as pf:
        run = pf.runs.open("r1")
        with pytest.raises(Corrupt, match=r"repair\(\)"):
            run.load()
        with pytest.raises(Corrupt):
            run.update(lambda _: {"status": "DONE"})
        position = pf.store.head().position
        repaired = run.repair()
        event = run.ledger.tail(1)[0]

        assert repaired.repaired
        assert repaired.found
        assert run.load() == repaired.ws == before | {"_update_seq": 4}
        assert pf.store.head().position == position + 1
        assert (event["event_type"], event["payload"]["damaged_seq"]) == ("WS_REPAIRED", 3)
        assert agree(run)
        assert run.apply_patch(patch(4, status="DONE"))
        assert pf.runs.open("r2").load()["objective"] == "Another"
        # Once is enough, and the run can travel: its pack leaves the damaged state out.
        assert not run.repair().repaired
        restored = pf.runs.restore_from_pack(run.create_resume_pack(tmp_path), new_run_id="r3")
        assert restored.rebuild()
        with pytest.raises(NotFound):
            restored.at(3)
        # What was damaged is named until it is erased.
        assert [p.what for p in pf.verify().problems] == ["document 'run/r1' number 4 was changed"]
        pf.store.erase(Selector(document="run/r1", first=4, last=4))
        assert pf.verify()


def test_runs_W16_a_change_that_still_reads_well_is_found_and_repaired(tmp_path: Path) -> None:
    path = tmp_path / "d.db"
    before = damaged_store(path, b"")
    forged = json.dumps(before | {"next_action": "send the money"}).encode()
    change_newest(path, "run/r1", "body = ?", forged)
    with pagefile.open(path) as pf:
        run = pf.runs.open("r1")
        believed, told = run.load()["next_action"], run.rebuild()
        repaired = run.repair()

        assert (believed, bool(told)) == ("send the money", False)
        assert repaired.found == "next_action not as the ledger tells"
        assert run.load()["next_action"] == "go on"


def test_runs_W16_a_restored_run_is_repaired_with_ids_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "d.db"
    with pagefile.open(path, durability="process") as pf:
        run = pf.runs.boot("Do it", run_id="r1", thread_id="t1", user_id="u")
        pf.context.append("t1", {"text": "hello"}, "user", "agent", user_id="u")
        run.apply_patch(patch(0, next_action="go"))
        pack = run.create_resume_pack(tmp_path)
        before = pf.runs.restore_from_pack(pack, new_run_id="r2").load()
    change_newest(path, "run/r2", "body = ?", b"")
    with pagefile.open(path) as pf:
        again = pf.runs.open("r2")
        again.repair()

        assert again.load() == before | {"_update_seq": 2}
        assert (again.load()["run_id"], again.load()["thread_id"] != "t1") == ("r2", True)
        assert again.user_id == "u"


def test_runs_W16_what_the_ledger_does_not_tell_is_refused_and_rolled_back_by_hand(
    tmp_path: Path,
) -> None:
    path = tmp_path / "d.db"
    damaged_store(path, b"")
    with pagefile.open(path, durability="process") as pf:
        run = pf.runs.open("r1")
        told = len(run.ledger)
        pf.store.erase(Selector(log="ledger/r1", first=told - 1, last=told - 1))
        with pytest.raises(Corrupt, match="roll back"):
            run.repair()
        rolled = run.rollback(1)

        assert rolled
        assert run.load()["status"] == "BUSY"
        assert kinds(run)[-2:] == ["ERROR", "WS_ROLLBACK"]


def damage_on(engine: str, url: str) -> None:
    """Damage the newest working set of run r1, the only document, on a server."""
    if engine == "postgres":
        import psycopg

        address, _, schema = url.partition("?schema=")
        newest = "SELECT max(number) FROM records WHERE kind = 'working_set'"
        with psycopg.connect(
            address, options=f"-c search_path={schema} -c pagefile.tenant=default"
        ) as connection:
            connection.execute(
                f"UPDATE records SET body = '' WHERE kind = 'working_set' AND number = ({newest})"
            )
        return
    import redis

    address, _, prefix = url.partition("?prefix=")
    with redis.Redis.from_url(address) as link:
        for key in link.scan_iter(f"{prefix}:*:r:*"):
            rows: Any = link.hgetall(key)
            if b"working_set" in rows.get(b"2", b""):
                link.hset(key, "2", rows[b"2"].replace(b'{"_schema', b"{!_schema"))


@pytest.mark.parametrize("engine", ["postgres", "redis"])
def test_runs_W16_a_server_s_damaged_working_set_is_repaired_too(
    url_on: Callable[[str], str], engine: str
) -> None:
    url = url_on(engine)
    with pagefile.open(url) as pf:
        before = pf.runs.boot("Do it", run_id="r1").update(lambda _: {"status": "BUSY"}).new_ws
    assert before is not None
    damage_on(engine, url)
    with pagefile.open(url) as pf:
        run = pf.runs.open("r1")
        with pytest.raises(Corrupt):
            run.load()
        run.repair()

        assert run.load() == before | {"_update_seq": 2}
        assert agree(run)


def test_runs_W16_over_http_it_is_a_500_with_a_problem_and_other_runs_are_served(
    tmp_path: Path,
) -> None:
    path = tmp_path / "d.db"
    before = damaged_store(path, b'{"_schema_version":"2.1"')
    with client_on(path) as client:
        for at in ("/v1/runs/r1", "/runs/r1", "/runs/r1/ws", "/v1/runs/r1?seq=3"):
            answer = client.get(at)

            assert (answer.status_code, answer.json()["code"]) == (500, "corrupt"), at
            assert answer.headers["content-type"] == "application/problem+json"
            assert "repair()" in answer.json()["detail"]
        body = {"expected_seq": 3, "set": {"status": "DONE"}}
        assert client.patch("/v1/runs/r1", json=body).json()["code"] == "corrupt"
        assert client.get("/v1/runs/r2").json()["objective"] == "Another"
        assert client.get("/v1/runs").json()["items"] == ["r1", "r2"]
        assert client.get("/v1/runs/r1/ledger").status_code == 200
        repaired = client.post("/v1/runs/r1/repair")

        assert (repaired.status_code, repaired.json()["repaired"]) == (200, True)
        assert client.get("/v1/runs/r1").json() == before | {"_update_seq": 4}


def test_runs_W16_the_command_line_names_it_and_repairs_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "d.db"
    damaged_store(path, b"")

    def said(*arguments: str) -> tuple[int, str]:
        status = main([*arguments, "--url", str(path)])
        written = capsys.readouterr()
        return status, written.out + written.err

    listed, shown = said("runs", "list"), said("runs", "show", "r1")
    repaired, again = said("runs", "repair", "r1"), said("runs", "show", "r1")

    assert listed[0] == 0
    assert "CORRUPT" in listed[1]
    assert "Another" in listed[1]
    assert shown[0] not in (0, 1)
    assert "repair" in shown[1]
    assert (repaired[0], again[0]) == (0, 0)
    assert "go on" in again[1]


# R11: episodes


def test_runs_R11_an_episode_has_every_event_since_the_last_however_many(tmp_path: Path) -> None:
    """More than 200, which is all that the earlier system looked at; the same over HTTP."""
    path = tmp_path / "e.db"
    with pagefile.open(path, durability="process") as pf:
        run = pf.runs.boot("x", run_id="r1")
        first = run.milestone("begin")
        for n in range(450):
            run.log("TOOL_CALL", {"tool_name": f"t{n}"})
        second = run.milestone("end")
        third = run.milestone("at once")
        told = [e["payload"].get("tool_name") for e in run.episodes.events(second.episode_id)]
        kept = run.episodes.get(second.episode_id)
    with client_on(path) as client:
        at = "/v1/runs/r1/episodes"
        listed = client.get(at).json()["items"]
        shown = client.get(f"{at}/{second.episode_id}").json()
        events = client.get(f"{at}/{second.episode_id}/events").json()["items"]
        unknown = client.get(f"{at}/ep_none")

    assert told == [f"t{n}" for n in range(450)]
    assert "- TOOL_CALL: 450" in kept["summary"]
    assert (second.first_sequence_id, second.last_sequence_id) == (3, 452)
    assert (third.first_sequence_id, third.last_sequence_id) == (454, 453)
    assert listed == [made.episode_id for made in (first, second, third)]
    assert shown == kept
    assert [e["payload"]["tool_name"] for e in events] == told
    assert unknown.status_code == 404


@pytest.mark.parametrize("forger", ["of its content", "of its digest too", "with an editor"])
def test_runs_R11_an_episode_that_was_changed_is_not_believed(tmp_path: Path, forger: str) -> None:
    from pagefile.runs.milestones import digest_of

    path = tmp_path / "e.db"
    with pagefile.open(path, durability="process") as pf:
        run = pf.runs.boot("Prove", run_id="r1")
        made = run.milestone()
        stored = run.episodes._document(made.episode_id)
        assert made.digest == digest_of(stored.value) == stored.notes["digest"]
        forged = stored.value | {"summary": "nothing happened"}
        notes = dict(stored.notes)
        if forger == "of its digest too":
            notes["digest"] = digest_of(forged)
        if forger != "with an editor":
            pf.store.commit(Batch([Put(stored.name, forged, kind="episode", notes=notes)]))
    if forger == "with an editor":
        change_newest(path, stored.name, "body = ?", json.dumps(forged).encode())
    with pagefile.open(path) as pf, pytest.raises(Corrupt, match="digest"):
        pf.runs.open("r1").episodes.get(made.episode_id)
