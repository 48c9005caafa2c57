"""The earlier system's clients against this server, and its flaws S1 to S9."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import httpx
import pytest

from pagefile.runs.schema.artifacts import check
from tests import ROOT
from tests.servers.http import HttpServer

pytestmark = pytest.mark.xdist_group("http-legacy")

MCR = {
    "_schema_version": "2.1",
    "op": "add",
    "type": "preference",
    "scope": "global",
    "content": "User prefers concise answers",
    "confidence": 0.9,
    "rationale": "stated in conversation",
    "source_refs": ["turn-1"],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    folder = tmp_path_factory.mktemp("legacy")
    with HttpServer(f"{folder}/old.db", {"durability": "process"}) as server:
        yield server


@pytest.fixture(scope="module")
def http(server: HttpServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.base, headers=server.headers, timeout=30) as client:
        yield client


def curl(server: HttpServer, *arguments: str) -> Any:
    """A documented command, but for the port and the key."""
    command = ["curl", "-s", *arguments[:-1], f"{server.base}{arguments[-1]}"]
    command += ["-H", f"Authorization: Bearer {server.key}"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return json.loads(ran.stdout)


JSON = ("-H", "Content-Type: application/json")


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
def test_the_documented_curl_commands_work(server: HttpServer) -> None:
    boot = {"objective": "Build a REST API", "acceptance_criteria": ["tests pass"]}
    run = curl(server, "-X", "POST", *JSON, "-d", json.dumps(boot), "/runs")
    ws = curl(server, f"/runs/{run['run_id']}")
    patch = {"patch": {"status": "BUSY", "next_action": "write tests"}, "expected_seq": 0}
    path = f"/runs/{run['run_id']}"
    done = curl(server, "-X", "PATCH", *JSON, "-d", json.dumps(patch), path)
    stale = curl(server, "-X", "PATCH", *JSON, "-d", json.dumps(patch), path)
    asked = {"mcrs": [MCR], "scope_filters": {}}
    batch = curl(server, "-X", "POST", *JSON, "-d", json.dumps(asked), f"{path}/memory/propose")
    decide = json.dumps({"batch_id": batch["batch_id"]})
    made = curl(server, "-X", "POST", *JSON, "-d", decide, f"{path}/memory/commit")
    pack = curl(server, "-X", "POST", f"{path}/snapshot")
    health = curl(server, "/health")

    assert run["status"] == "BOOT"
    check("working_set", ws)
    assert (done["ok"], done["ws"]["_update_seq"], done["error"]) == (True, 1, None)
    assert (stale["ok"], stale["detail"][:20]) == (False, "Conflict: LOCK_ERROR")
    assert (batch["ok"], batch["error"]) == (True, None)
    assert (made["ok"], len(made["committed_ids"])) == (True, 1)
    assert (pack["ok"], pack["pack_path"].endswith(".zip")) == (True, True)
    assert (health["status"], "service" in health, "version" in health) == ("ok", True, True)


class StateConflict(Exception):
    """Somebody was faster."""


class AgentClient:
    """As the earlier system's agent loop talks to it."""

    def __init__(self, http: httpx.Client) -> None:
        self._http = http
        self.run_id = ""

    def boot(self, objective: str, criteria: list[str]) -> str:
        body = {"objective": objective, "acceptance_criteria": criteria, "constraints": []}
        answer = self._http.post("/runs", json=body)
        answer.raise_for_status()
        self.run_id = answer.json()["run_id"]
        return self.run_id

    def state(self) -> dict[str, Any]:
        answer = self._http.get(f"/runs/{self.run_id}")
        answer.raise_for_status()
        ws: dict[str, Any] = answer.json()
        return ws

    def update(self, patch: dict[str, Any], expected_seq: int) -> dict[str, Any]:
        body = {"patch": patch, "expected_seq": expected_seq}
        answer = self._http.patch(f"/runs/{self.run_id}", json=body)
        if answer.status_code == 409:
            raise StateConflict(answer.json()["detail"])
        answer.raise_for_status()
        ws: dict[str, Any] = answer.json()["ws"]
        return ws

    def remember(self, mcrs: list[dict[str, Any]]) -> list[str]:
        proposed = self._http.post(f"/runs/{self.run_id}/memory/propose", json={"mcrs": mcrs})
        batch = proposed.json()["batch_id"]
        done = self._http.post(f"/runs/{self.run_id}/memory/commit", json={"batch_id": batch})
        ids: list[str] = done.json()["committed_ids"]
        return ids

    def snapshot(self) -> str:
        path: str = self._http.post(f"/runs/{self.run_id}/snapshot").json()["pack_path"]
        return path


def test_the_agent_loop_runs_to_its_end(http: httpx.Client) -> None:
    agent = AgentClient(http)
    agent.boot("Write a haiku", ["three lines"])
    for step in range(5):
        ws = agent.state()
        agent.update(
            {
                "status": "BUSY" if step < 4 else "DONE",
                "last_action_summary": f"step {step}",
                "sliding_context": [
                    *ws["sliding_context"],
                    {
                        "id": f"s{step}",
                        "content": f"line {step}",
                        "timestamp": "2026-01-01T00:00:00Z",
                        "priority": 5,
                    },
                ],
            },
            ws["_update_seq"],
        )
    with pytest.raises(StateConflict):
        agent.update({"status": "IDLE"}, 0)
    ids = agent.remember([MCR | {"content": "Haikus have three lines"}])
    pack = agent.snapshot()
    loaded = http.post("/runs/resume/load", json={"pack_path": pack, "new_run_id": "resumed"})

    final = agent.state()
    assert (final["status"], final["_update_seq"], len(final["sliding_context"])) == ("DONE", 5, 5)
    assert len(ids) == 1
    assert loaded.json()["ws"] == final | {"run_id": "resumed"}


def test_the_control_panels_calls_work(http: httpx.Client) -> None:
    run = http.post("/runs/boot", json={"objective": "Panel", "constraints": ["be brief"]}).json()
    path = f"/runs/{run['run_id']}"
    patch = {"_schema_version": "2.1", "expected_seq": 0, "set": {"status": "BUSY"}}
    stepped = http.post(f"{path}/step/update", json={"patch": patch}).json()
    proposed = http.post(f"{path}/memory/propose", json={"mcrs": [MCR, MCR]}).json()
    decide = {"batch_id": proposed["batch_id"]}
    refused = http.post(f"{path}/memory/commit", json=decide)
    token = http.post(f"{path}/milestone", json={"reason": "half way"}).json()["milestone_token"]
    passed = http.post(f"{path}/memory/commit", json=decide | {"milestone_token": token})
    found = http.get(f"{path}/memory/search", params={"q": "concise", "top_k": 8}).json()
    second = http.post(f"{path}/memory/propose", json={"mcrs": [MCR]}).json()["batch_id"]
    milestone = http.post(f"{path}/milestone", json={"memory_batch_id": second}).json()
    pack = http.post(f"{path}/resume/snapshot", json={"pointers": {"note": "x"}}).json()
    zipped = http.get(pack["download"])

    check("working_set", run["ws"])
    assert stepped["ws"]["_update_seq"] == 1
    assert stepped["context_brief"].startswith("# CONTEXT BRIEF")
    assert proposed["staged_count"] == 2
    assert refused.status_code == 403
    assert "milestone_token" in refused.json()["error"]
    assert (passed.json()["ok"], len(passed.json()["committed_ids"])) == (True, 2)
    fields = {"memory_id", "content", "confidence", "type", "scope", "status"}
    assert found["count"] == len(found["items"]) >= 2
    assert set(found["items"][0]) == fields
    assert len(milestone["committed_memory_ids"]) == 1
    assert {"pack_id", "pack_dir", "pack_zip", "manifest_path"} <= pack.keys()
    assert zipped.content[:2] == b"PK"


def test_a_search_without_a_question_gives_the_newest_items(http: httpx.Client) -> None:
    path = f"/runs/{http.post('/runs', json={'objective': 'x'}).json()['run_id']}"
    for content in ("Tea, not coffee", "Trains, not planes"):
        proposed = http.post(f"{path}/memory/propose", json={"mcrs": [MCR | {"content": content}]})
        http.post(f"{path}/memory/commit", json={"batch_id": proposed.json()["batch_id"]})
    newest = http.get(f"{path}/memory/search", params={"q": "", "top_k": 2}).json()
    nobodys = http.get(f"{path}/memory/search", params={"q": "", "scope": "user"}).json()

    assert [each["content"] for each in newest["items"]] == [
        "Trains, not planes",
        "Tea, not coffee",
    ]
    assert newest["count"] == 2
    assert nobodys["items"] == []


# The flaws


def test_runs_S01_keys_are_asked_for_on_loopback_and_no_path_of_the_server_is_read(
    server: HttpServer, http: httpx.Client, tmp_path: Path
) -> None:
    run = http.post("/runs", json={"objective": "x"}).json()["run_id"]
    outside = tmp_path / http.post(f"/runs/{run}/snapshot").json()["pack_path"]
    outside.write_bytes(b"PK")
    paths = [str(outside.parent / "other.zip"), "/etc/passwd", "../../x.zip", str(ROOT)]
    codes = {http.post("/runs/resume/load", json={"pack_path": p}).status_code for p in paths}

    assert httpx.get(f"{server.base}/runs/{run}").status_code == 401
    assert server.base.startswith("http://127.0.0.1")
    assert codes == {404}


def test_runs_S02_every_failure_has_its_status_and_one_envelope(http: httpx.Client) -> None:
    run = http.post("/runs", json={"objective": "x", "run_id": "s2"}).json()["run_id"]
    failures = [
        (409, http.post("/runs", json={"objective": "x", "run_id": "s2"})),
        (404, http.get("/runs/none")),
        (404, http.get("/runs/none/ws")),
        (422, http.post("/runs", json={"objective": ""})),
        (422, http.post("/runs", json={})),
        (409, http.patch(f"/runs/{run}", json={"patch": {}, "expected_seq": 9})),
        (422, http.patch(f"/runs/{run}", json={"patch": {"status": "ODD"}, "expected_seq": 0})),
        (413, http.post("/runs", json={"objective": "long " * 5_000})),
        (422, http.post(f"/runs/{run}/memory/propose", json={"mcrs": []})),
        (422, http.post(f"/runs/{run}/memory/propose", json={"mcrs": [{"op": "add"}]})),
        (404, http.post(f"/runs/{run}/memory/commit", json={"batch_id": "batch_x"})),
        (404, http.post(f"/runs/{run}/milestone", json={"memory_batch_id": "batch_x"})),
        (404, http.post("/runs/none/snapshot")),
    ]
    shapes = {
        (answer.headers["content-type"], *sorted({"ok", "error", "detail"} & answer.json().keys()))
        for _, answer in failures
    }

    assert [answer.status_code for _, answer in failures] == [status for status, _ in failures]
    assert shapes == {("application/problem+json", "detail", "error", "ok")}
    assert all(answer.json()["ok"] is False for _, answer in failures)


def test_runs_S03_reading_what_is_not_there_stores_nothing(
    server: HttpServer, http: httpx.Client
) -> None:
    before = http.get("/v1/store/head").json()
    for path in ("/runs/ghost", "/runs/ghost/ws", "/v1/runs/ghost/ledger", "/v1/threads/ghost"):
        assert http.get(path).status_code == 404
    http.get("/v1/threads/ghost/follow?seconds=0")

    assert http.get("/v1/store/head").json() == before


def test_runs_S04_everything_a_server_needs_is_inside_the_package() -> None:
    missing = [
        folder
        for folder in (ROOT / "src/pagefile").rglob("*")
        if folder.is_dir() and list(folder.glob("*.py")) and not (folder / "__init__.py").exists()
    ]
    build = (ROOT / "pyproject.toml").read_text(encoding="utf-8")

    assert missing == []
    assert 'packages = ["src/pagefile"]' in build
    assert "server = [" in build


def test_runs_S05_one_server_has_both_styles_of_paths_for_the_same_run(http: httpx.Client) -> None:
    http.post("/runs", json={"objective": "both", "run_id": "s5"})
    patch = {"_schema_version": "2.1", "expected_seq": 0, "set": {"status": "BUSY"}}
    http.post("/runs/s5/step/update", json={"patch": patch})
    http.patch("/runs/s5", json={"patch": {"status": "IDLE"}, "expected_seq": 1})
    http.patch("/v1/runs/s5", json={"set": {"status": "DONE"}, "expected_seq": 2})

    views = [http.get(path).json() for path in ("/runs/s5", "/runs/s5/ws", "/v1/runs/s5")]
    assert [(ws["status"], ws["_update_seq"]) for ws in views] == [("DONE", 3)] * 3


def test_runs_S06_a_write_that_waits_holds_up_nobody_who_reads(
    server: HttpServer, http: httpx.Client
) -> None:
    http.post("/runs", json={"objective": "wait", "run_id": "s6"})
    file = server.printed.split("Data")[1].split()[0]
    lock = apsw.Connection(file)
    lock.execute("BEGIN IMMEDIATE")
    try:
        slot = {"payload": 1, "from_id": "a", "to_id": "b"}
        with pytest.raises(httpx.ReadTimeout):
            http.post("/v1/threads/s6/slots", json=slot, timeout=httpx.Timeout(60, read=0.3))
        reads = [http.get("/v1/runs/s6").status_code for _ in range(20)]
    finally:
        lock.execute("ROLLBACK")
        lock.close()

    assert reads == [200] * 20
    assert http.post("/v1/threads/s6/slots", json=slot).status_code == 201


def test_runs_S07_every_operation_can_be_called_without_a_server_that_somebody_started(
    http: httpx.Client,
) -> None:
    document = http.get("/openapi.json").json()
    simple = [path for path, of in document["paths"].items() if "get" in of and "{" not in path]
    codes = {path: http.get(path).status_code for path in simple}

    assert len(simple) > 15
    assert {path: code for path, code in codes.items() if code not in (200, 404, 422)} == {}


def test_runs_S08_runs_are_listed_paged_deleted_followed_and_counted(http: httpx.Client) -> None:
    for number in range(3):
        http.post("/runs", json={"objective": "x", "run_id": f"s8-{number}"})
    pages: list[str] = []
    cursor: str | None = None
    while True:
        page = http.get("/v1/runs", params={"limit": 2} | ({"cursor": cursor} if cursor else {}))
        pages += page.json()["items"]
        cursor = page.json()["cursor"]
        if cursor is None:
            break
    tag = http.get("/v1/runs/s8-0").headers["etag"]
    events = http.get("/v1/runs/s8-0/ledger/follow?after=0&seconds=0").text
    gone = http.delete("/v1/runs/s8-2").json()

    assert {"s8-0", "s8-1", "s8-2"} <= set(pages)
    assert len(pages) == len(set(pages))
    assert tag == '"0"'
    assert "RUN_START" in events
    assert gone["deleted"] is True
    assert http.get("/runs/s8-2").status_code == 404
    assert "pagefile_http_request_duration_seconds" in http.get("/metrics").text


def test_runs_S09_importing_and_making_the_application_touches_nothing(tmp_path: Path) -> None:
    code = (
        "from pagefile.surfaces.http.app import make_app\n"
        "from pagefile.surfaces.http.config import ServerConfig\n"
        "make_app(ServerConfig())\n"
    )
    tmp_path.chmod(0o555)
    env = {"PYTHONPATH": str(ROOT / "src"), "LLM_TEMPERATURE": "warm", "PAGEFILE_URL": "\x01"}
    ran = subprocess.run(
        [sys.executable, "-B", "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True
    )

    assert (ran.returncode, ran.stderr) == (0, "")
    assert list(tmp_path.iterdir()) == []
