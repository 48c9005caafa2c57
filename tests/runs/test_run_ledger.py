"""The ledger of a run: each flaw of the earlier system's audit log, and how it is beaten."""

from __future__ import annotations

import inspect
import itertools
import random
import shutil
import zipfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import apsw
import pytest
from starlette.testclient import TestClient

import pagefile
from pagefile.engines import open_engine
from pagefile.errors import Conflict, Invalid, NotFound, PagefileError, Unavailable
from pagefile.handle import Admin, Options
from pagefile.runs.config import RunConfig
from pagefile.runs.ledger import Ledger, require_lines
from pagefile.runs.milestones import Episodes
from pagefile.runs.run import Knowledge, Run
from pagefile.runs.runs import Runs
from pagefile.surfaces.cli import main
from pagefile.surfaces.http.app import make_app
from pagefile.surfaces.http.config import ServerConfig
from pagefile.surfaces.mcp import resources
from pagefile.surfaces.mcp.caller import Identity
from pagefile.surfaces.mcp.service import Places, Service
from pagefile.testing.faults import FaultyEngine
from tests.crash.disk import DiskFaults
from tests.runs.ground import (
    MCR,
    agree,
    handle_on,
    kinds,
    patch,
    released,
    slide,
    started,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore::pagefile.memory.privacy.isolation.IsolationWarning"
)


@pytest.fixture(params=["memory", "sqlite", "postgres", "redis", "manager"])
def engine(request: pytest.FixtureRequest, url_on: Callable[[str], str]) -> Iterator[FaultyEngine]:
    faulty = FaultyEngine(open_engine(url_on(request.param), Options()))
    yield faulty
    faulty.close()


class Ground:
    """A run with something in every corner, so that every operation has something to do."""

    def __init__(self, pf: pagefile.Pagefile, folder: Path, run_id: str = "r1") -> None:
        self.pf = pf
        self.folder = folder
        self.new = f"{run_id}-new"
        self.run = pf.runs.boot("Do it", run_id=run_id, config=RunConfig(ws_max_tokens=400))
        items = [slide(n, size=100) for n in range(20)]
        self.run.apply_patch(patch(0, sliding_context=items))
        self.run.apply_patch(patch(1, sliding_context=[]))
        self.staged = self.run.memory.propose([MCR]).batch_id
        self.true = self.run.memory.propose([MCR]).batch_id
        self.run.memory.commit(self.true, reviewer="carl")
        self.episode = self.run.milestone().episode_id
        self.pack = self.run.create_resume_pack(folder / "packs")
        self.on_shelf = ""
        self.exported = folder / f"{run_id}.jsonl"
        with self.exported.open("w", encoding="utf-8") as file:
            self.run.ledger.export_jsonl(file)

    @property
    def evicted(self) -> str:
        item_id: str = self.run.evicted(limit=1)[0]["id"]
        return item_id


Operation = Callable[[Ground], Any]
NONE: list[str] = []
#: Every operation that changes a run: what it does, and the events that tell it.
ACCEPTED: dict[str, tuple[Operation, list[str]]] = {
    "Run.apply_patch": (
        lambda g: g.run.apply_patch(patch(2, status="BUSY")),
        ["WS_UPDATE_APPLIED"],
    ),
    "Run.update": (lambda g: g.run.update(lambda _: {"status": "BUSY"}), ["WS_UPDATE_APPLIED"]),
    "Run.log": (lambda g: g.run.log("TOOL_CALL", {"tool_name": "t"}), ["TOOL_CALL"]),
    "Run.record": (
        lambda g: g.run.record("TOOL_CALL", {"tool_name": "t"}, "api"),
        ["TOOL_CALL"],
    ),
    "Run.page_in": (lambda g: g.run.page_in(g.evicted), ["WS_UPDATE_APPLIED"]),
    "Run.rollback": (lambda g: g.run.rollback(1), ["WS_ROLLBACK"]),
    "Run.milestone": (lambda g: g.run.milestone(), ["MILESTONE"]),
    "Run.create_resume_pack": (
        lambda g: g.run.create_resume_pack(g.folder / "packs"),
        ["RESUME_SNAPSHOT"],
    ),
    "Episodes.create": (
        lambda g: g.run.episodes.create(memory_batch_id=g.staged),
        ["MEMORY_COMMIT", "MILESTONE"],
    ),
    "Knowledge.propose": (lambda g: g.run.memory.propose([MCR]), ["MEMORY_PROPOSE"]),
    "Knowledge.issue_token": (lambda g: g.run.memory.issue_token(), ["MEMORY_TOKEN"]),
    "Knowledge.commit": (
        lambda g: g.run.memory.commit(g.staged, reviewer="carl"),
        ["MEMORY_COMMIT"],
    ),
    "Knowledge.abort": (lambda g: g.run.memory.abort(g.staged), ["MEMORY_ABORT"]),
    "Knowledge.undo": (lambda g: g.run.memory.undo(g.true), ["MEMORY_UNDO"]),
}
#: The same operations, asked for what cannot be.
REFUSED: dict[str, tuple[Operation, list[str]]] = {
    "Run.apply_patch": (lambda g: g.run.apply_patch(patch(0)), ["WS_UPDATE_REJECTED"]),
    "Run.update": (lambda g: g.run.update(lambda _: None), ["ERROR"]),  # type: ignore[arg-type, return-value]
    "Run.log": (lambda g: g.run.log("DANCE", {}), ["ERROR"]),
    "Run.page_in": (lambda g: g.run.page_in("never"), ["ERROR"]),
    "Run.rollback": (lambda g: g.run.rollback(99), ["ERROR"]),
    "Run.milestone": (lambda g: g.run.milestone(memory_batch_id="b"), ["ERROR"]),
    "Run.create_resume_pack": (lambda g: g.run.create_resume_pack(g.exported), ["ERROR"]),
    "Episodes.create": (lambda g: g.run.episodes.create(memory_batch_id="b"), ["ERROR"]),
    "Knowledge.propose": (lambda g: g.run.memory.propose([{"op": "add"}]), ["ERROR"]),
    "Knowledge.issue_token": (lambda g: g.run.memory.issue_token(ttl_seconds=0), ["ERROR"]),
    "Knowledge.commit": (lambda g: g.run.memory.commit(g.staged), ["ERROR"]),
    "Knowledge.abort": (lambda g: g.run.memory.abort(g.true), ["ERROR"]),
    "Knowledge.undo": (lambda g: g.run.memory.undo(g.staged), ["ERROR"]),
    "Runs.fork": (lambda g: g.pf.runs.fork("r1", 99), ["ERROR"]),
}
#: Operations that make a run: the run is given, and its last events tell where it is from.
MAKES: dict[str, tuple[Callable[[Ground], Run], list[str]]] = {
    "Runs.boot": (lambda g: g.pf.runs.boot("x", run_id=g.new), ["RUN_START"]),
    "Runs.fork": (lambda g: g.pf.runs.fork("r1", new_run_id=g.new), ["RUN_START", "RUN_FORKED"]),
    "Runs.restore_from_pack": (
        lambda g: g.pf.runs.restore_from_pack(g.pack, new_run_id=g.new),
        ["RUN_RESTORED"],
    ),
    "Runs.import_jsonl": (
        lambda g: g.pf.runs.import_jsonl(g.exported, new_run_id=g.new),
        ["RUN_FORKED"],
    ),
}
#: Operations that look, or that have a test of their own (`Run.repair`, `Runs.delete`).
OTHERS = {
    *("Run.at", "Run.brief", "Run.diff", "Run.evicted", "Run.find_evicted", "Run.load"),
    *("Run.now", "Run.rebuild", "Run.require", "Run.stored", "Run.version_of"),
    *("Run.commit", "Run.recording", "Run.repair", "Runs.delete"),
    *("Runs.exists", "Runs.list", "Runs.open", "Runs.verify_pack"),
    *("Episodes.diff", "Episodes.events", "Episodes.get", "Episodes.list"),
    *("Knowledge.list_batches", "Knowledge.preview"),
    *("Ledger.entries", "Ledger.event", "Ledger.export_jsonl", "Ledger.last_of_type"),
    *("Ledger.of_type", "Ledger.read", "Ledger.tail", "Ledger.whole"),
}


def test_runs_L01_no_public_operation_is_missing_here() -> None:
    public = {
        f"{room.__name__}.{name}"
        for room in (Run, Runs, Episodes, Knowledge, Ledger)
        for name, method in inspect.getmembers(room, inspect.isfunction)
        if not name.startswith("_")
    }

    assert public == ACCEPTED.keys() | REFUSED.keys() | MAKES.keys() | OTHERS
    assert MAKES.keys() == TAKEN.keys() | {"Runs.fork"}
    assert ACCEPTED.keys() - REFUSED.keys() == {"Run.record"}  # For the room itself: it is `log`.


@pytest.mark.parametrize("name", ACCEPTED)
def test_runs_L01_every_operation_leaves_exactly_its_event(
    engine: FaultyEngine, tmp_path: Path, name: str
) -> None:
    ground = Ground(handle_on(engine), tmp_path)
    operation, expected = ACCEPTED[name]
    before = kinds(ground.run)
    operation(ground)

    assert kinds(ground.run) == before + expected
    assert agree(ground.run)


@pytest.mark.parametrize("name", REFUSED)
def test_runs_L01_every_refusal_leaves_exactly_its_event_and_nothing_else(
    engine: FaultyEngine, tmp_path: Path, name: str
) -> None:
    ground = Ground(handle_on(engine), tmp_path)
    operation, expected = REFUSED[name]
    before, position, ws = kinds(ground.run), ground.pf.store.head().position, ground.run.load()
    try:
        refused = operation(ground)
    except PagefileError as error:
        told = error.code
    else:
        assert not refused
        told = refused.code
    event = ground.run.ledger.tail(1)[0]

    assert kinds(ground.run) == before + expected
    assert event["payload"].get("code", event["payload"].get("error_type")) == told
    assert (ground.pf.store.head().position, ground.run.load()) == (position + 1, ws)


@pytest.mark.parametrize("name", MAKES)
def test_runs_L01_a_run_that_is_made_tells_where_it_is_from(
    engine: FaultyEngine, tmp_path: Path, name: str
) -> None:
    ground = Ground(handle_on(engine), tmp_path)
    operation, expected = MAKES[name]
    before = kinds(ground.run)
    made = operation(ground)

    assert kinds(made)[-len(expected) :] == expected
    assert kinds(ground.run) == before
    assert made.rebuild()


#: What makes runs, asked for an id that is taken.
TAKEN: dict[str, Operation] = {
    "Runs.boot": lambda g: g.pf.runs.boot("x", run_id="r1"),
    "Runs.restore_from_pack": lambda g: g.pf.runs.restore_from_pack(g.pack, "r1"),
    "Runs.import_jsonl": lambda g: g.pf.runs.import_jsonl(g.exported, new_run_id="r1"),
}


@pytest.mark.parametrize("name", TAKEN)
def test_runs_L01_a_refused_birth_leaves_no_event_in_the_run_that_has_the_id(
    engine: FaultyEngine, tmp_path: Path, name: str
) -> None:
    """It may be another user's: whoever guesses an id has no say in its ledger."""
    ground = Ground(handle_on(engine), tmp_path)
    head, ws = ground.pf.store.head(), ground.run.load()
    with pytest.raises(Conflict, match="exists"):
        TAKEN[name](ground)

    assert ground.pf.store.head() == head
    assert ground.run.load() == ws


def test_runs_L01_a_deletion_is_told_by_the_store_as_the_ledger_goes_too(
    engine: FaultyEngine, tmp_path: Path
) -> None:
    ground = Ground(handle_on(engine), tmp_path)
    position = ground.pf.store.head().position
    ground.pf.runs.delete("r1")
    (change,) = ground.pf.store.changes(position)
    touched = {(one.action, one.name) for one in change.touched}

    # The ledger's name goes with its last event: it may name a person.
    assert {("delete", "run/r1"), ("drop", None)} <= touched


@pytest.mark.parametrize("name", ACCEPTED | MAKES)
def test_runs_L01_an_event_that_cannot_be_stored_fails_the_operation(
    engine: FaultyEngine, tmp_path: Path, name: str
) -> None:
    ground = Ground(handle_on(engine), tmp_path)
    operation = (ACCEPTED | MAKES)[name][0]
    files, before = sorted((tmp_path / "packs").iterdir()), kinds(ground.run)
    position = ground.pf.store.head().position
    engine.fail_before(10)
    with pytest.raises(Unavailable):
        operation(ground)
    engine.fail_before(0)

    assert (kinds(ground.run), ground.pf.store.head().position) == (before, position)
    assert sorted((tmp_path / "packs").iterdir()) == files
    assert not ground.pf.runs.exists(ground.new)


def test_runs_L01_a_refusal_that_cannot_be_stored_says_so(
    engine: FaultyEngine, tmp_path: Path
) -> None:
    ground = Ground(handle_on(engine), tmp_path)
    engine.fail_before(10)
    refused = ground.run.apply_patch(patch(0))
    with pytest.raises(Unavailable) as raised:
        ground.run.log("TOOL_CALL", {"tool_name": "t"})
    with pytest.raises(NotFound) as rolled:
        ground.run.rollback(99)
    engine.fail_before(0)

    assert refused.error is not None
    assert "could not be recorded" in refused.error
    for error in (raised.value, rolled.value):
        assert "could not be recorded" in error.__notes__[0]


# Over HTTP: every operation of the document that is about runs

_JSONL = {"content-type": "application/x-ndjson"}
_ZIP = {"content-type": "application/zip"}
_OLD = {"mcrs": [MCR]}
#: The request for each operation, and the events it leaves in the run it is about.
OVER_HTTP: dict[str, tuple[Callable[[Ground], dict[str, Any]], list[str]]] = {
    "POST /v1/runs": (lambda g: {"json": {"objective": "x", "run_id": g.new}}, ["RUN_START"]),
    "GET /v1/runs": (lambda g: {}, NONE),
    "GET /v1/runs/{run_id}": (lambda g: {}, NONE),
    "PATCH /v1/runs/{run_id}": (
        lambda g: {"json": {"expected_seq": 2, "set": {"status": "BUSY"}}},
        ["WS_UPDATE_APPLIED"],
    ),
    "DELETE /v1/runs/{run_id}": (lambda g: {}, NONE),
    "POST /v1/runs/{run_id}/fork": (
        lambda g: {"json": {"new_run_id": g.new}},
        ["RUN_START", "RUN_FORKED"],
    ),
    "POST /v1/runs/{run_id}/rollback": (lambda g: {"json": {"seq": 1}}, ["WS_ROLLBACK"]),
    "GET /v1/runs/{run_id}/diff": (lambda g: {"params": {"a": 0, "b": 1}}, NONE),
    "GET /v1/runs/{run_id}/rebuild": (lambda g: {}, NONE),
    "POST /v1/runs/{run_id}/repair": (lambda g: {}, NONE),  # Nothing is wrong with it.
    "GET /v1/runs/{run_id}/evicted": (lambda g: {}, NONE),
    "POST /v1/runs/{run_id}/evicted/{item_id}/page-in": (lambda g: {}, ["WS_UPDATE_APPLIED"]),
    "GET /v1/runs/{run_id}/brief": (lambda g: {}, NONE),
    "GET /v1/runs/{run_id}/ledger": (lambda g: {}, NONE),
    "POST /v1/runs/{run_id}/ledger": (
        lambda g: {"json": {"event_type": "TOOL_CALL", "payload": {"tool_name": "t"}}},
        ["TOOL_CALL"],
    ),
    "GET /v1/runs/{run_id}/ledger/follow": (lambda g: {"params": {"seconds": 0}}, NONE),
    "POST /v1/runs/{run_id}/milestones": (lambda g: {}, ["MILESTONE"]),
    "GET /v1/runs/{run_id}/episodes": (lambda g: {}, NONE),
    "GET /v1/runs/{run_id}/episodes/{episode_id}": (lambda g: {}, NONE),
    "GET /v1/runs/{run_id}/episodes/{episode_id}/events": (lambda g: {}, NONE),
    "POST /v1/runs/{run_id}/batches": (lambda g: {"json": _OLD}, ["MEMORY_PROPOSE"]),
    "POST /v1/runs/{run_id}/tokens": (lambda g: {}, ["MEMORY_TOKEN"]),
    "POST /v1/runs/{run_id}/packs": (lambda g: {}, ["RESUME_SNAPSHOT"]),
    "POST /v1/runs/import": (
        lambda g: {
            "params": {"new_run_id": g.new},
            "content": g.exported.read_bytes(),
            "headers": _JSONL,
        },
        ["RUN_FORKED"],
    ),
    "GET /v1/packs": (lambda g: {}, NONE),
    "POST /v1/packs": (
        lambda g: {
            "params": {"new_run_id": g.new},
            "content": g.pack.read_bytes(),
            "headers": _ZIP,
        },
        ["RUN_RESTORED"],
    ),
    "POST /v1/packs/verify": (
        lambda g: {"content": g.pack.read_bytes(), "headers": _ZIP},
        NONE,
    ),
    "GET /v1/packs/{pack_id}": (lambda g: {}, NONE),
    "DELETE /v1/packs/{pack_id}": (lambda g: {}, NONE),
    "POST /v1/batches": (lambda g: {"json": _OLD}, NONE),  # It is no run's.
    "GET /v1/batches": (lambda g: {}, NONE),
    "GET /v1/batches/{batch_id}": (lambda g: {}, NONE),
    "GET /v1/batches/{batch_id}/preview": (lambda g: {}, NONE),
    "POST /v1/batches/{batch_id}/commit": (
        lambda g: {"json": {"reviewer": "carl"}},
        ["MEMORY_COMMIT"],
    ),
    "POST /v1/batches/{batch_id}/abort": (lambda g: {}, ["MEMORY_ABORT"]),
    "POST /v1/batches/{batch_id}/undo": (lambda g: {}, ["MEMORY_UNDO"]),
    "POST /runs": (lambda g: {"json": {"objective": "x", "run_id": g.new}}, ["RUN_START"]),
    "POST /runs/boot": (lambda g: {"json": {"objective": "x", "run_id": g.new}}, ["RUN_START"]),
    "GET /runs/{run_id}": (lambda g: {}, NONE),
    "GET /runs/{run_id}/ws": (lambda g: {}, NONE),
    "PATCH /runs/{run_id}": (
        lambda g: {"json": {"expected_seq": 2, "patch": {"status": "BUSY"}}},
        ["WS_UPDATE_APPLIED"],
    ),
    "POST /runs/{run_id}/step/update": (
        lambda g: {"json": {"patch": patch(2, status="BUSY")}},
        ["WS_UPDATE_APPLIED"],
    ),
    "POST /runs/{run_id}/milestone": (lambda g: {}, ["MILESTONE", "MEMORY_TOKEN"]),
    "POST /runs/{run_id}/memory/propose": (lambda g: {"json": _OLD}, ["MEMORY_PROPOSE"]),
    "POST /runs/{run_id}/memory/commit": (
        lambda g: {"json": {"batch_id": g.staged, "allow_outside_milestone": True}},
        ["MEMORY_COMMIT"],
    ),
    "GET /runs/{run_id}/memory/search": (lambda g: {}, NONE),
    "POST /runs/{run_id}/snapshot": (lambda g: {}, ["RESUME_SNAPSHOT"]),
    "POST /runs/{run_id}/resume/snapshot": (lambda g: {}, ["RESUME_SNAPSHOT"]),
    "POST /runs/resume/load": (
        lambda g: {"json": {"pack_path": g.on_shelf, "new_run_id": g.new}},
        ["RUN_RESTORED"],
    ),
}
#: Requests that are refused, and the event that tells it.
REFUSED_OVER_HTTP: dict[str, tuple[dict[str, Any], int, list[str]]] = {
    "PATCH /v1/runs/{run_id}": (
        {"json": {"expected_seq": 0, "set": {}}},
        409,
        ["WS_UPDATE_REJECTED"],
    ),
    "PATCH /runs/{run_id}": (
        {"json": {"expected_seq": 0, "patch": {}}},
        409,
        ["WS_UPDATE_REJECTED"],
    ),
    "POST /runs/{run_id}/step/update": ({"json": {"patch": {}}}, 422, ["WS_UPDATE_REJECTED"]),
    "POST /v1/runs/{run_id}/rollback": ({"json": {"seq": 99}}, 404, ["ERROR"]),
    "POST /v1/runs/{run_id}/fork": ({"json": {"at": 99}}, 404, ["ERROR"]),
    "POST /v1/runs/{run_id}/ledger": ({"json": {"event_type": "DANCE"}}, 422, ["ERROR"]),
    "POST /v1/runs/{run_id}/milestones": ({"json": {"memory_batch_id": "b"}}, 404, ["ERROR"]),
    "POST /runs/{run_id}/milestone": ({"json": {"memory_batch_id": "b"}}, 404, ["ERROR"]),
    "POST /v1/runs/{run_id}/batches": ({"json": {"mcrs": [{"op": "x"}]}}, 422, ["ERROR"]),
    "POST /runs/{run_id}/memory/propose": ({"json": {"mcrs": [{"op": "x"}]}}, 422, ["ERROR"]),
    "POST /runs/{run_id}/memory/commit": ({"json": {"batch_id": "b"}}, 404, ["ERROR"]),
    "POST /v1/batches/{batch_id}/commit": ({}, 403, ["ERROR"]),
    "POST /v1/runs/{run_id}/tokens": ({"json": {"ttl_seconds": 0}}, 422, ["ERROR"]),
}


class Served:
    """A server, and on the same file a handle that makes a run for each request."""

    def __init__(self, client: TestClient, pf: pagefile.Pagefile, folder: Path) -> None:
        self.client = client
        self.url = f"{folder}/served.db"
        self._pf = pf
        self._folder = folder
        self._numbers = itertools.count(1)

    def ground(self) -> Ground:
        ground = Ground(self._pf, self._folder, f"r{next(self._numbers)}")
        made = self.client.post(f"/v1/runs/{ground.run.run_id}/packs")
        assert made.status_code == 201, made.text
        ground.on_shelf = made.json()["pack_id"]
        return ground

    def packs(self) -> list[Path]:
        return list((self._folder / "shelf").rglob("*.zip"))

    def asked(self, ground: Ground, name: str, request: dict[str, Any]) -> Any:
        method, path = name.split(" ")
        filled = path.format(
            run_id=ground.run.run_id,
            item_id=ground.evicted,
            episode_id=ground.episode,
            batch_id=ground.true if path.endswith("undo") else ground.staged,
            pack_id=ground.on_shelf,
        )
        return self.client.request(method, filled, **request)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    config = ServerConfig(
        url=f"{folder}/served.db",
        local=True,
        durability="process",
        packs_dir=f"{folder}/shelf",
        max_packs=1_000,
        log_level="error",
    )
    with (
        TestClient(make_app(config), base_url="http://127.0.0.1:8000") as client,
        pagefile.open(config.url, durability="process") as pf,
    ):
        yield Served(client, pf, folder)


def test_runs_L01_no_operation_over_http_is_missing_here(served: Served) -> None:
    about_runs = ("/v1/runs", "/runs", "/v1/packs", "/v1/batches")
    offered = {
        f"{method.upper()} {path}"
        for path, methods in served.client.get("/openapi.json").json()["paths"].items()
        if path.startswith(about_runs)
        for method in methods
    }

    assert offered == OVER_HTTP.keys()


@pytest.mark.parametrize("name", OVER_HTTP)
def test_runs_L01_every_operation_over_http_leaves_exactly_its_event(
    served: Served, name: str
) -> None:
    ground = served.ground()
    request, expected = OVER_HTTP[name]
    before, position = kinds(ground.run), ground.pf.store.head().position
    answer = served.asked(ground, name, request(ground))
    assert answer.status_code < 300, answer.text
    if not name.startswith("DELETE /v1/runs"):
        makes = ground.pf.runs.exists(ground.new)
        run = ground.pf.runs.open(ground.new) if makes else ground.run
        after = kinds(run)[-len(expected) :] if makes else kinds(run)[len(before) :]

        assert after == expected
        assert kinds(ground.run) == before + (NONE if makes else expected)
    assert not name.startswith("GET") or ground.pf.store.head().position == position


@pytest.mark.parametrize("name", REFUSED_OVER_HTTP)
def test_runs_L01_every_refusal_over_http_leaves_exactly_its_event(
    served: Served, name: str
) -> None:
    ground = served.ground()
    request, status, expected = REFUSED_OVER_HTTP[name]
    before, ws = kinds(ground.run), ground.run.load()
    answer = served.asked(ground, name, request)

    assert (answer.status_code, answer.json()["ok"]) == (status, False)
    assert (kinds(ground.run), ground.run.load()) == (before + expected, ws)


@pytest.fixture(scope="module")
def mcp(served: Served) -> Iterator[tuple[Service, Identity]]:
    rights = frozenset({"read", "write", "admin"})
    with Admin(served.url, options=Options(durability="process")) as admin:
        yield Service(Places(admin)), Identity("default", rights=rights)


def test_runs_L01_what_a_run_proposes_over_mcp_is_in_its_ledger_too(
    served: Served, mcp: tuple[Service, Identity]
) -> None:
    ground = served.ground()
    service, identity = mcp
    before = kinds(ground.run)
    change = {"op": "add", "content": "wet", "rationale": "seen"}
    given = {"changes": [change], "run_id": ground.run.run_id}
    made: Any = service.call(identity, "propose_memory", given)[0]
    service.call(identity, "commit_memory", {"batch_id": made.batch_id, "reviewer": "carl"})

    assert kinds(ground.run) == [*before, "MEMORY_PROPOSE", "MEMORY_COMMIT"]


# L2 to L9


def test_runs_L02_packs_made_through_every_front_hold_the_whole_ledger(
    served: Served, mcp: tuple[Service, Identity], tmp_path: Path
) -> None:
    ground = served.ground()
    run_id, url = ground.run.run_id, served.url
    service, identity = mcp
    sent = tmp_path / "mcp.zip"
    makers: dict[str, Callable[[], Any]] = {
        "library": lambda: ground.run.create_resume_pack(tmp_path / "library"),
        "command line": lambda: main(
            ["pack", "create", run_id, str(tmp_path / "cli"), "--url", url]
        ),
        "v1": lambda: served.client.post(f"/v1/runs/{run_id}/packs"),
        "snapshot": lambda: served.client.post(f"/runs/{run_id}/snapshot"),
        "resume/snapshot": lambda: served.client.post(f"/runs/{run_id}/resume/snapshot"),
        "MCP": lambda: sent.write_bytes(
            resources.read(service.caller(identity), f"{resources.SCHEME}packs/{run_id}").blob
        ),
    }
    for name, make in makers.items():
        events, there = list(ground.run.ledger), {*served.packs(), *tmp_path.rglob("*.zip")}
        make()
        (pack,) = {*served.packs(), *tmp_path.rglob("*.zip")} - there
        with zipfile.ZipFile(pack) as archive:
            lines = archive.read("ledger.jsonl").decode().splitlines()

        assert list(require_lines(lines)) == events, name
        assert kinds(ground.run)[-1] == "RESUME_SNAPSHOT"


def fail_at(engine: FaultyEngine, number: int, moment: str, operation: Callable[[], Any]) -> bool:
    """Let the engine fail at its n-th call of `apply`; whether there was one."""
    made = len(engine.groups)
    apply = engine.apply

    def failing(items: Any) -> Any:
        if len(engine.groups) - made == number:
            engine.fail_before() if moment == "before" else engine.fail_after()
        return apply(items)

    engine.apply = failing  # type: ignore[method-assign]
    try:
        with suppress(PagefileError):
            operation()
    finally:
        engine.apply = apply  # type: ignore[method-assign]
    return len(engine.groups) - made > number


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("name", ["memory", "sqlite", "postgres", "redis", "manager"])
def test_runs_L05_whatever_commit_fails_ledger_and_working_set_agree(
    url_on: Callable[[str], str], tmp_path: Path, name: str, moment: str
) -> None:
    """Each operation, failing at each of its commits: never one without the other."""
    engine = FaultyEngine(open_engine(url_on(name), Options()))
    pf, numbers = handle_on(engine), itertools.count(1)
    seen = 0
    every = [*ACCEPTED.values(), *REFUSED.values(), *MAKES.values()]
    is_server = name in ("postgres", "redis", "manager")
    for operation in every[::6] if is_server else every:
        commit, is_more = 0, True
        while is_more:
            ground = Ground(pf, tmp_path, f"r{next(numbers)}")
            is_more = fail_at(engine, commit, moment, partial(operation[0], ground))
            again = pf.runs.open(ground.run.run_id)

            assert agree(again)
            assert again.apply_patch(patch(again.load()["_update_seq"], status="IDLE"))
            assert not pf.runs.exists(ground.new) or pf.runs.open(ground.new).rebuild()
            commit, seen = commit + 1, seen + is_more
    engine.close()

    assert seen > (3 if is_server else 25)


def test_runs_L05_a_store_that_writes_one_after_the_other_would_be_found_out(
    tmp_path: Path,
) -> None:
    """The test above can fail: an engine without transactions leaves the working set alone."""
    engine = FaultyEngine(open_engine("memory:", Options()), "missing_transaction")
    run = handle_on(engine).runs.boot("x", run_id="r1")
    inner, calls = engine._engine.apply, itertools.count()

    def half(items: Any) -> Any:
        if next(calls) == 1:
            raise Unavailable("the disk failed, as arranged", "retry")
        return inner(items)

    engine._engine.apply = half  # type: ignore[method-assign]
    with suppress(Unavailable):
        run.apply_patch(patch(0, status="BUSY"))
    engine._engine.apply = inner  # type: ignore[method-assign]

    assert not agree(run)


@pytest.mark.parametrize("call", ["write", "sync"])
def test_runs_L05_a_disk_that_fails_in_the_middle_leaves_them_in_agreement(
    tmp_path: Path, call: Any
) -> None:
    with DiskFaults() as faults:
        for skip in range(6):
            path = tmp_path / f"{skip}.db"
            with pagefile.open(path, options=Options(vfs=faults.name)) as pf:
                run = pf.runs.boot("x", run_id="r1")
                run.apply_patch(patch(0, next_action="kept"))
                faults.fail(call, "io", skip=skip, times=1)
                for seq in range(1, 4):
                    with suppress(Unavailable):
                        run.apply_patch(patch(seq, next_action="y" * 5_000))
                faults.heal()
            with pagefile.open(path) as pf:
                again = pf.runs.open("r1")

                assert agree(again)
                assert again.at(1)["next_action"] == "kept"
                assert pf.verify().problems + pf.check().problems == ()
        assert faults.raised > 0


def test_runs_L06_a_torn_end_leaves_whole_events_and_the_next_stands_right_behind(
    tmp_path: Path,
) -> None:
    """The journal cut anywhere, and with bytes of a write that never ended behind the cut."""
    path, chance = tmp_path / "whole.db", random.Random(7)
    with pagefile.open(path, durability="process") as pf:
        run = pf.runs.boot("x", run_id="r1")
        for seq in range(30):
            run.apply_patch(patch(seq, next_action="n" * chance.randrange(3_000)))
            run.log("TOOL_CALL", {"tool_name": f"t{seq}"})
        events = list(run.ledger)
        journal = path.with_name("whole.db-wal").read_bytes()
        shutil.copyfile(path, tmp_path / "base")
    lengths = set()
    for number in range(40):
        torn = tmp_path / f"torn-{number}.db"
        shutil.copyfile(tmp_path / "base", torn)
        cut = chance.randrange(32, len(journal))
        junk = chance.randbytes(chance.randrange(5_000)) if number % 2 else b""
        torn.with_name(f"{torn.name}-wal").write_bytes(journal[:cut] + junk)
        with pagefile.open(torn) as pf:
            if not pf.runs.exists("r1"):
                assert pf.store.length("ledger/r1") == 0  # Cut before the first event.
                continue
            again = pf.runs.open("r1")
            found = list(again.ledger)

            assert found == events[: len(found)]
            assert agree(again)
            assert again.log("TOOL_CALL", {"tool_name": "next"}) == len(found) + 1
            assert again.ledger.tail(1)[0]["payload"] == {"tool_name": "next"}
            assert pf.verify().problems + pf.check().problems == ()
        lengths.add(len(found))

    assert len(lengths) > 10


def test_runs_L06_a_torn_line_of_an_export_is_named_and_nothing_of_it_is_taken_in(
    tmp_path: Path,
) -> None:
    with pagefile.open("memory:") as pf:
        ground = Ground(pf, tmp_path)
        whole = ground.exported.read_bytes()
        last = whole.rstrip(b"\n").count(b"\n") + 1
        ground.exported.write_bytes(whole[:-40])
        before = pf.store.head()
        with pytest.raises(Invalid, match=f"line {last}"):
            pf.runs.import_jsonl(ground.exported, new_run_id="torn")

        assert pf.store.head() == before


def test_runs_L07_a_number_that_a_caller_gives_is_refused_everywhere(served: Served) -> None:
    ground = served.ground()
    run_id, before = ground.run.run_id, kinds(ground.run)
    event = {"event_type": "TOOL_CALL", "payload": {"tool_name": "t"}}
    over_http = served.client.post(f"/v1/runs/{run_id}/ledger", json=event | {"sequence_id": 99})
    lines = ground.exported.read_text().splitlines(keepends=True)
    ground.exported.write_text("".join(lines[:2] + lines[1:]))
    with pytest.raises(Invalid, match="line 3"):
        ground.pf.runs.import_jsonl(ground.exported)
    for field in ("sequence_id", "_update_seq"):
        with pytest.raises(Invalid):
            ground.run.log("TOOL_CALL", {"tool_name": "t", field: 99})
    refused = ground.run.apply_patch(patch(2, _update_seq=99))

    assert (over_http.status_code, refused.code) == (422, "invalid")
    assert "sequence_id" not in inspect.signature(ground.run.log).parameters
    assert kinds(ground.run) == [*before, "ERROR", "ERROR", "WS_UPDATE_REJECTED"]


LOGGER = """
import sys, pagefile
with pagefile.open(sys.argv[1]) as pf:
    run = pf.runs.open("r1")
    print("ready", flush=True)
    sys.stdin.readline()
    for n in range(int(sys.argv[2])):
        print(run.log("TOOL_CALL", {"tool_name": f"{sys.argv[3]}-{n}"}), flush=True)
"""


def test_runs_L07_numbers_have_no_gap_and_no_twin_with_eight_writers(
    url_on: Callable[[str], str],
) -> None:
    url, each = url_on("sqlite"), 25
    with pagefile.open(url) as pf:
        run = pf.runs.boot("x", run_id="r1")
        writers = [started(LOGGER, url, str(each), str(n)) for n in range(8)]
        told = [[int(number) for number in printed.split()] for printed in released(writers)]
        events = list(run.ledger)
        names = {e["sequence_id"]: e["payload"].get("tool_name") for e in events}

        assert sorted(itertools.chain(*told)) == list(range(2, 8 * each + 2))
        assert [e["sequence_id"] for e in events] == list(range(1, 8 * each + 2))
        for writer, numbers in enumerate(told):
            assert [names[n] for n in numbers] == [f"{writer}-{n}" for n in range(each)]


class Counting(FaultyEngine):
    """An engine that counts how often it is asked, and for how many rows."""

    asked = 0
    rows_read = 0

    def __getattribute__(self, name: str) -> Any:
        if name in ("apply", "rows", "find", "stream", "head", "commits", "names"):
            self.asked += 1
        return super().__getattribute__(name)

    def rows(self, *arguments: Any) -> Any:
        found = super().rows(*arguments)
        self.rows_read += len(found)
        return found


def test_runs_L07_the_next_number_costs_the_same_however_long_the_ledger() -> None:
    engine = Counting(open_engine("memory:", Options()))
    run = handle_on(engine).runs.boot("x", run_id="r1")
    costs = []
    for _ in range(3):
        for _ in range(500):
            run.log("TOOL_CALL", {"tool_name": "t"})
        engine.asked = engine.rows_read = 0
        run.log("TOOL_CALL", {"tool_name": "t"})
        costs.append((engine.asked, engine.rows_read))

    assert costs == [costs[0]] * 3
    assert costs[0][1] == 0


BOOTER = """
import sys, pagefile
from pagefile.errors import Conflict
with pagefile.open(sys.argv[1]) as pf:
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        run = pf.runs.boot(f"booted by {sys.argv[2]}", run_id="r1")
        print("won", flush=True)
    except Conflict:
        run = pf.runs.open("r1")
    for n in range(5):
        print(run.log("TOOL_CALL", {"tool_name": sys.argv[2]}), flush=True)
"""


@pytest.mark.parametrize("name", ["sqlite", "postgres", "redis"])
def test_runs_L08_of_eight_who_create_one_ledger_one_wins_and_nothing_is_wiped(
    url_on: Callable[[str], str], name: str
) -> None:
    url = url_on(name)
    with pagefile.open(url) as pf:
        told = [each.split() for each in released([started(BOOTER, url, str(n)) for n in range(8)])]
        run = pf.runs.open("r1")
        calls = [e["payload"].get("tool_name") for e in run.ledger]
        (winner,) = [n for n, each in enumerate(told) if "won" in each]
        numbers = [int(number) for each in told for number in each if number != "won"]

        assert sorted(numbers) == list(range(2, 42))
        assert run.load()["objective"] == f"booted by {winner}"
        assert kinds(run) == ["RUN_START"] + ["TOOL_CALL"] * 40
        assert sorted(calls[1:]) == sorted(str(n) for n in range(8) for _ in range(5))


TAMPERINGS = {
    "changed": """UPDATE records SET body = CAST(replace(CAST(body AS TEXT), 't39', 't99') AS BLOB)
                  WHERE id = :a""",
    "dropped": "DELETE FROM records WHERE id = :a",
    "swapped": """UPDATE records SET number = number + 1000 WHERE id IN (:a, :b);
                  UPDATE records SET number = 1100 - number WHERE id IN (:a, :b)""",
    "renamed": "UPDATE records SET kind = 'TOOL_RESULT' WHERE id = :a",
    "backdated": "UPDATE records SET time_us = time_us - 3600000000 WHERE id = :a",
}


@pytest.mark.parametrize("how", TAMPERINGS)
def test_runs_L09_an_event_changed_behind_the_store_s_back_is_named(
    tmp_path: Path, how: str
) -> None:
    path = tmp_path / "t.db"
    with pagefile.open(path) as pf:
        run = pf.runs.boot("x", run_id="r1")
        for n in range(98):
            run.log("TOOL_CALL", {"tool_name": f"t{n}"})
        head = pf.store.head()
        assert pf.verify(head=head)
    connection = apsw.Connection(str(path))
    of_ledger = "FROM records r JOIN streams s ON s.id = r.stream WHERE s.name = 'ledger/r1'"
    # Numbers 40 and 60 add up to 100, so that each takes the place of the other.
    (a,), (b,) = connection.execute(f"SELECT r.id {of_ledger} AND r.number IN (40, 60)")
    connection.execute(TAMPERINGS[how], {"a": a, "b": b})
    connection.close()
    with pagefile.open(path) as pf:
        found = pf.verify(head=head)

        assert not found
        # At its own commit; where there is none any more, at the next.
        place = 42 if how == "dropped" else 41
        assert place in {problem.position for problem in found.problems}, found.problems


def test_runs_L09_events_are_read_filtered_followed_and_exported(served: Served) -> None:
    ground = served.ground()
    run, at = ground.run, f"/v1/runs/{ground.run.run_id}/ledger"
    events, get = list(run.ledger), served.client.get
    proposals = [e for e in events if e["event_type"] == "MEMORY_PROPOSE"]
    pages, cursor = [], None
    while True:
        page = get(at, params={"limit": 3} | ({"cursor": cursor} if cursor else {})).json()
        pages += page["items"]
        if (cursor := page["cursor"]) is None:
            break
    followed = get(f"{at}/follow", params={"after": 2, "seconds": 0}).text

    assert run.ledger.read() == events == pages
    assert run.ledger.tail(2) == events[-2:] == get(at, params={"tail": 2}).json()["items"]
    assert run.ledger.read(event_type="MEMORY_PROPOSE") == proposals
    assert get(at, params={"event_type": "MEMORY_PROPOSE"}).json()["items"] == proposals
    assert followed.count("event: event") == len(events) - 2
    assert list(require_lines(ground.exported.read_text().splitlines())) == events[:-1]
