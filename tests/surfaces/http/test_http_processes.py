"""Real servers in processes of their own: starting, crowding, slowness, ending."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

import pagefile
from pagefile.errors import Unavailable
from pagefile.surfaces.http.config import ServerConfig
from pagefile.surfaces.http.server import GRACE_SECONDS, serve
from tests import ROOT
from tests.servers.http import HttpServer
from tests.servers.ports import free_port

pytestmark = pytest.mark.xdist_group("http-processes")

CROWD = 1_000
WORKERS = 8
WRITERS, PATCHES = 8, 5


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    folder = tmp_path_factory.mktemp("http")
    settings = {"body_seconds": 1.0, "rate_per_second": 0, "max_body_bytes": 100_000}
    with HttpServer(f"{folder}/served.db", settings) as server:
        yield server


def test_the_first_start_says_where_the_data_is_and_shows_a_key_once(tmp_path: Path) -> None:
    url = f"{tmp_path}/first.db"
    with HttpServer(url) as first:
        key = first.key
        who = httpx.get(f"{first.base}/v1/whoami", headers=first.headers).json()
        made = httpx.post(
            f"{first.base}/v1/runs",
            json={"objective": "survive", "run_id": "r"},
            headers=first.headers,
        )
    status = first.stop()
    with HttpServer(url) as second:
        again = httpx.get(
            f"{second.base}/v1/runs/r", headers={"authorization": f"Bearer {key}"}
        ).json()

    assert url in first.printed
    assert f"{first.base}/docs" in first.printed
    assert (who["tenant"], who["rights"]) == ("default", ["admin", "read", "write"])
    assert (made.status_code, status) == (201, 0)
    assert "pf_" not in second.printed
    assert again["objective"] == "survive"


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
def test_the_commands_of_the_guide_lead_to_a_first_recall(server: HttpServer) -> None:
    page = (ROOT / "docs/howto/serve.md").read_text(encoding="utf-8").replace("\\\n", "")
    commands = [line[2:] for line in page.splitlines() if line.startswith("$ curl")]
    said = []
    for command in commands:
        if "follow" in command:
            continue  # It goes on until it is stopped.
        whole = command.replace("localhost:8000", server.base)
        if "$KEY" not in whole:
            whole += ' -H "authorization: Bearer $KEY"'
        env = {"KEY": server.key, "PATH": os.environ["PATH"]}
        ran = subprocess.run(whole, shell=True, env=env, capture_output=True, text=True, timeout=60)
        said.append(json.loads(ran.stdout))

    remembered, recalled, run, patched = said
    assert recalled["items"][0]["episode"]["id"] == remembered["id"]
    assert (run["run_id"], patched["ws"]["next_action"]) == ("trip", "ask for dates")


def test_the_command_takes_tokens_and_limits_from_the_environment(tmp_path: Path) -> None:
    signer = ec.generate_private_key(ec.SECP256R1())
    jwk = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(signer.public_key()))
    (tmp_path / "jwks.json").write_text(json.dumps({"keys": [jwk | {"kid": "k", "alg": "ES256"}]}))
    claims = {"iss": "https://issuer", "aud": "pf", "exp": time.time() + 600, "org": "acme"}
    token = jwt.encode(claims | {"sub": "ann"}, signer, "ES256", {"kid": "k"})
    port = free_port()
    env = {each: os.environ[each] for each in os.environ if not each.startswith("PAGEFILE_")}
    env |= {
        "PAGEFILE_JWT_JWKS": "jwks.json",
        "PAGEFILE_JWT_ISSUER": "https://issuer",
        "PAGEFILE_JWT_AUDIENCE": "pf",
        "PAGEFILE_JWT_TENANT_CLAIM": "org",
        "PAGEFILE_JWT_DEFAULT_RIGHTS": "read, write",
        "PAGEFILE_SERVER_PORT": "1",
        "PAGEFILE_SERVER_DURABILITY": "process",
        "PAGEFILE_SERVER_MAX_BODY_BYTES": "2048",
        "PAGEFILE_SERVER_ALLOW_ORIGINS": "https://app.example",
        "PAGEFILE_SERVER_LOG_LEVEL": "error",
    }
    command = [sys.executable, "-m", "pagefile", "serve", "--port", str(port)]
    held = {"authorization": f"Bearer {token}", "origin": "https://app.example"}
    with subprocess.Popen(command, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL) as process:
        try:
            base = f"http://127.0.0.1:{port}"
            _wait_until_ready(base, process)
            who = httpx.get(f"{base}/v1/whoami", headers=held)
            large = httpx.post(f"{base}/v1/runs", json={"objective": "x" * 3_000}, headers=held)
        finally:
            process.terminate()

    told = who.json()
    assert (told["tenant"], told["user_id"], told["rights"]) == ("acme", "ann", ["read", "write"])
    assert who.headers["access-control-allow-origin"] == "https://app.example"
    assert large.status_code == 413


def _wait_until_ready(base: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until and process.poll() is None:
        with contextlib.suppress(httpx.TransportError):
            if httpx.get(f"{base}/ready").status_code == 200:
                return
    raise AssertionError("the server did not start")


def test_a_worker_that_dies_is_replaced_and_the_log_says_both(tmp_path: Path) -> None:
    settings = {"workers": 2, "durability": "process", "log_level": "info"}
    with HttpServer(f"{tmp_path}/two.db", settings) as server:

        def told(event: str) -> list[dict[str, Any]]:
            lines = map(json.loads, server.errors.splitlines())
            return [line for line in lines if line["event"] == event]

        until = time.monotonic() + 60
        while len(told("worker started")) < 2 and time.monotonic() < until:
            time.sleep(0.05)
        children = {line["pid"] for line in told("worker started")}
        died = min(children)
        os.kill(died, signal.SIGKILL)
        while len(told("worker started")) < 3 and time.monotonic() < until:
            with contextlib.suppress(httpx.TransportError):
                httpx.get(f"{server.base}/health")
        [replaced] = {line["pid"] for line in told("worker started")} - children
        [said] = told("server")
        asked = [httpx.get(f"{server.base}/ready").status_code for _ in range(10)]

    assert (said["level"], said["message"][:20]) == ("error", "Unexpected exit from")
    assert replaced != died
    assert set(asked) == {200}


def test_whichever_worker_is_asked_tells_the_counts_of_all(tmp_path: Path) -> None:
    def counted(base: str) -> int:
        text = httpx.get(f"{base}/metrics").text
        found = re.findall(r'_seconds_count{method="GET",route="/v1/whoami".*} (\d+)', text)
        return int(found[0]) if found else 0

    options = {"workers": 2, "local": True, "durability": "process"}
    with HttpServer(f"{tmp_path}/two.db", options) as two:
        workers: list[str] = []
        until = time.monotonic() + 60
        while len(set(workers)) < 2 and time.monotonic() < until:
            workers.append(httpx.get(f"{two.base}/v1/whoami").headers["x-request-id"][:12])
        # They tell each other once a second, so one of them may be behind for a while.
        told: set[int] = set()
        while told != {len(workers)} and time.monotonic() < until:
            told = {counted(two.base) for _ in range(10)}

    assert told == {len(workers)}


def test_a_slow_body_is_given_up_and_others_are_served_meanwhile(server: HttpServer) -> None:
    head = (
        "POST /v1/{} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {server.key}\r\ncontent-length: 500\r\n\r\n "
    )
    with contextlib.ExitStack() as stack:
        slow = []
        for path in ("runs", "threads/t/slots"):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            connection.settimeout(30)
            connection.sendall(head.format(path).encode())
            slow.append(connection)
        meanwhile = httpx.get(f"{server.base}/v1/whoami", headers=server.headers)
        answers = [connection.recv(4_096) for connection in slow]

    assert meanwhile.status_code == 200
    assert [answer.split(b"\r\n")[0] for answer in answers] == [b"HTTP/1.1 408 Request Timeout"] * 2


def test_an_endless_body_is_cut_off(server: HttpServer) -> None:
    def endless() -> Iterator[bytes]:
        while True:
            yield b"x" * 10_000

    header = server.headers | {"content-type": "application/json"}
    try:
        refused = httpx.post(
            f"{server.base}/v1/runs", content=endless(), headers=header
        ).status_code
    except httpx.TransportError:
        refused = 413  # The connection was closed on us while we still sent.

    assert refused == 413
    assert httpx.get(f"{server.base}/health").status_code == 200


def test_a_thousand_connections_at_once_are_all_answered(server: HttpServer) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 4_096)), hard))
    httpx.post(
        f"{server.base}/v1/runs", json={"objective": "x", "run_id": "crowd"}, headers=server.headers
    )
    request = (
        "GET /v1/runs/crowd HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        f"authorization: Bearer {server.key}\r\nconnection: close\r\n\r\n"
    ).encode()

    async def ask(everybody: asyncio.Barrier) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await everybody.wait()  # Nobody asks before all are connected.
        writer.write(request)
        answer = await reader.read()
        writer.close()
        return answer

    async def crowd() -> list[bytes]:
        everybody = asyncio.Barrier(CROWD)
        return await asyncio.gather(*(ask(everybody) for _ in range(CROWD)))

    answers = asyncio.run(crowd())

    assert Counter(answer.split(b"\r\n")[0] for answer in answers) == {b"HTTP/1.1 200 OK": CROWD}
    assert httpx.get(f"{server.base}/health").status_code == 200


def test_a_stream_shows_what_another_connection_appends(server: HttpServer) -> None:
    slot = {"payload": "hello", "from_id": "a", "to_id": "b"}
    path = f"{server.base}/v1/threads/live"
    seen: list[str] = []
    with httpx.stream("GET", f"{path}/follow?after=-1", headers=server.headers, timeout=30) as said:
        for line in said.iter_lines():
            if line == ": following":
                httpx.post(f"{path}/slots", json=slot, headers=server.headers)
            if line.startswith("data:"):
                seen.append(json.loads(line[5:])["payload"])
                break

    assert seen == ["hello"]


def test_a_server_that_is_told_to_stop_ends_its_streams_and_is_not_held_up(tmp_path: Path) -> None:
    options = {"local": True, "mounts": ["pagefile.surfaces.combined:mcp_mount"]}
    with HttpServer(f"{tmp_path}/stop.db", options) as server:
        began = 0.0
        follow = f"{server.base}/v1/threads/live/follow"
        accepted = {"accept": "application/json, text/event-stream"}
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}}
        hello["clientInfo"] = {"name": "x", "version": "1"}
        asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
        session = httpx.post(f"{server.base}/mcp", headers=accepted, json=asked).headers
        accepted["mcp-session-id"] = session["mcp-session-id"]
        seen: list[str] = []
        with (
            httpx.stream("GET", f"{server.base}/mcp", headers=accepted, timeout=30) as notices,
            httpx.stream("GET", follow, timeout=30) as said,
        ):
            for line in said.iter_lines():
                if line == ": following":
                    os.kill(server.pid, signal.SIGTERM)
                    began = time.monotonic()
                seen.append(line)
        status = server.stop()
        took, told = time.monotonic() - began, server.errors

    assert (notices.status_code, status) == (200, 0)
    assert took < GRACE_SECONDS
    assert seen[-3:] == ["event: end", 'data: {"stopping":true}', ""]
    # A worker that does not end in time is killed, and the log says so.
    assert "killing" not in told.lower()


def test_requests_under_way_when_a_server_is_told_to_stop_are_seen_through(tmp_path: Path) -> None:
    url = f"{tmp_path}/seen.db"
    slot = b'{"payload":"x","from_id":"a","to_id":"b"}'
    with HttpServer(url, {"local": True}) as server, contextlib.ExitStack() as stack:
        head = (
            "POST /v1/threads/t/slots HTTP/1.1\r\nhost: 127.0.0.1\r\n"
            f"content-type: application/json\r\ncontent-length: {len(slot)}\r\n\r\n"
        ).encode()
        waiting = []
        for _ in range(20):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            connection.settimeout(30)
            connection.sendall(head + slot[:10])
            waiting.append(connection)
        httpx.get(f"{server.base}/health")  # Answered, so the heads before it were read.
        os.kill(server.pid, signal.SIGTERM)
        for connection in waiting:
            connection.sendall(slot[10:])
        answers = [connection.recv(4_096) for connection in waiting]
        status = server.stop()
    with pagefile.open(url) as pf:
        stored = pf.store.length("thread/t")

    assert [answer.split(b"\r\n")[0] for answer in answers] == [b"HTTP/1.1 201 Created"] * 20
    assert (stored, status) == (20, 0)


def test_a_port_that_is_taken_is_refused_also_by_a_server_of_ours(tmp_path: Path) -> None:
    with HttpServer(f"{tmp_path}/first.db", {"local": True}) as first:
        config = ServerConfig(url=f"{tmp_path}/second.db", port=first.port, local=True)
        with pytest.raises(Unavailable, match="cannot be bound"):
            serve(config)

    assert not (tmp_path / "second.db").exists()


def test_a_server_ends_with_the_process_that_started_it(tmp_path: Path) -> None:
    with HttpServer(f"{tmp_path}/orphan.db", {"local": True}) as server:
        os.kill(server.pid, signal.SIGKILL)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", server.port), timeout=1).close()
            except OSError:
                break
            time.sleep(0.1)
        else:
            raise AssertionError("a worker without a parent still serves")


def test_eight_processes_on_one_file_lose_no_update_and_nobody_is_locked_out(
    tmp_path: Path,
) -> None:
    url = f"{tmp_path}/many.db"
    options: dict[str, Any] = {"workers": WORKERS, "durability": "process"}
    with HttpServer(url, options) as server:
        statuses, acknowledged = asyncio.run(_patch_all(server))
    with pagefile.open(url) as pf:
        final = pf.runs.open("r").load()["_update_seq"]
        slots = pf.store.length("thread/t")
        proved = bool(pf.runs.open("r").rebuild())

    assert set(statuses) <= {200, 201, 409}
    assert sorted(acknowledged) == list(range(1, WRITERS * PATCHES + 1))
    assert (final, slots, proved) == (WRITERS * PATCHES, WRITERS * PATCHES, True)
    assert "locked" not in server.errors


async def _patch_all(server: HttpServer) -> tuple[Counter[int], list[int]]:
    statuses: Counter[int] = Counter()
    acknowledged: list[int] = []

    async def write(number: int) -> None:
        # A connection for each request, so that every worker gets its share.
        limits = httpx.Limits(max_keepalive_connections=0)
        async with httpx.AsyncClient(
            base_url=server.base, headers=server.headers, limits=limits, timeout=60
        ) as client:
            done = 0
            while done < PATCHES:
                seq = (await client.get("/v1/runs/r")).json()["_update_seq"]
                body = {"set": {"next_action": f"{number}/{done}"}, "expected_seq": seq}
                answer = await client.patch("/v1/runs/r", json=body)
                statuses[answer.status_code] += 1
                if answer.status_code == 200:
                    acknowledged.append(answer.json()["ws"]["_update_seq"])
                    done += 1
                    slot = {"payload": done, "from_id": "w", "to_id": "x"}
                    stored = await client.post("/v1/threads/t/slots", json=slot)
                    statuses[stored.status_code] += 1

    async with httpx.AsyncClient(base_url=server.base, headers=server.headers) as client:
        await client.post("/v1/runs", json={"objective": "x", "run_id": "r"})
    await asyncio.gather(*(write(number) for number in range(WRITERS)))
    return statuses, acknowledged
