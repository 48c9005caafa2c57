"""The library over HTTP: what is asked, what is answered, what is refused."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import httpx2
import msgspec
import pytest
from starlette.testclient import TestClient

from pagefile.errors import Invalid, Unavailable
from pagefile.handle import Admin
from pagefile.operations.answer import cut, number_in
from pagefile.store import codec
from pagefile.store.batch import Batch, Put
from pagefile.surfaces.access.tokens import TokenSettings
from pagefile.surfaces.http import idempotency, problems
from pagefile.surfaces.http import request as bodies
from pagefile.surfaces.http.app import Server, make_app
from pagefile.surfaces.http.call import Call, GroupReads, Tenants
from pagefile.surfaces.http.config import ServerConfig
from pagefile.surfaces.http.gate import Deadlines, Rates
from pagefile.surfaces.http.idempotency import Spool
from pagefile.surfaces.http.problems import Refused
from pagefile.surfaces.http.request import JSON
from pagefile.surfaces.http.server import Counters
from pagefile.surfaces.http.telemetry import Log, Metrics
from tests import ROOT

DEEP = b'{"payload":' + b"[" * 100_000
PROBLEM = "application/problem+json"
MCR = {
    "_schema_version": "2.1",
    "op": "add",
    "type": "fact",
    "scope": "global",
    "content": "water is wet",
    "confidence": 0.9,
    "rationale": "seen",
    "source_refs": [],
}

pytestmark = pytest.mark.filterwarnings(
    "ignore::pagefile.memory.privacy.isolation.IsolationWarning"
)


def config(folder: Path, **settings: Any) -> ServerConfig:
    return ServerConfig(
        url="memory:",
        local=True,
        packs_dir=f"{folder}/packs",
        log_level="error",
        **settings,
    )


def client_of(settings: ServerConfig) -> TestClient:
    return TestClient(make_app(settings), base_url="http://127.0.0.1:8000")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with client_of(config(tmp_path_factory.mktemp("http"))) as client:
        yield client


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """A server that lets nobody in without a key."""
    folder = tmp_path_factory.mktemp("keyed")
    with client_of(ServerConfig(url=f"{folder}/k.db", log_level="error")) as client:
        yield client


def boot(client: TestClient, **fields: Any) -> str:
    made = client.post("/v1/runs", json={"objective": "test it", **fields})
    assert made.status_code == 201, made.text
    run_id: str = made.json()["run_id"]
    return run_id


def append(client: TestClient, thread: str, payload: Any, **more: Any) -> httpx2.Response:
    body = {"payload": payload, "from_id": "user", "to_id": "agent", **more.pop("fields", {})}
    return client.post(f"/v1/threads/{thread}/slots", json=body, **more)


# Threads


def test_an_appended_slot_is_read_back_as_it_was_sent(client: TestClient) -> None:
    made = append(client, "t-roundtrip", {"text": "hi", "$odd": [1, None, "é"]})
    read = client.get("/v1/threads/t-roundtrip/slots/0")

    assert made.status_code == 201
    assert read.json() == made.json()
    assert read.json()["payload"] == {"text": "hi", "$odd": [1, None, "é"]}


def test_slots_are_paged_through_without_a_gap_or_a_repeat(client: TestClient) -> None:
    for number in range(7):
        append(client, "t-pages", number)
    seen: list[int] = []
    cursor = None
    while True:
        page = client.get(
            "/v1/threads/t-pages/slots",
            params={"limit": 3} | ({"cursor": cursor} if cursor else {}),
        ).json()
        seen += [slot["payload"] for slot in page["items"]]
        cursor = page["cursor"]
        if cursor is None:
            break

    assert seen == list(range(7))


def test_a_batch_of_slots_is_all_or_none(client: TestClient) -> None:
    good = {"payload": 1, "from_id": "a", "to_id": "b"}
    bad = client.post(
        "/v1/threads/t-batch/slots/batch", json={"slots": [good, good | {"to_id": ""}]}
    )
    gone = client.get("/v1/threads/t-batch")
    client.post("/v1/threads/t-batch/slots/batch", json={"slots": [good, good]})

    assert (bad.status_code, gone.status_code) == (422, 404)
    assert client.get("/v1/threads/t-batch").json()["length"] == 2


def test_a_fork_shares_what_was_there_and_grows_apart(client: TestClient) -> None:
    for number in range(3):
        append(client, "t-fork", number)
    child = client.post("/v1/threads/t-fork/fork", json={"at": 2}).json()
    append(client, child["thread_id"], "own")
    slots = client.get(f"/v1/threads/{child['thread_id']}/slots").json()["items"]

    assert [slot["payload"] for slot in slots] == [0, 1, "own"]
    assert client.get("/v1/threads/t-fork").json()["length"] == 3


def test_following_gives_every_slot_as_an_event_with_its_index(client: TestClient) -> None:
    for number in range(3):
        append(client, "t-follow", number)
    said = client.get("/v1/threads/t-follow/follow?after=-1&seconds=0").text
    later = client.get("/v1/threads/t-follow/follow?seconds=0", headers={"Last-Event-ID": "1"}).text

    assert re.findall(r"id: (\d+)", said) == ["0", "1", "2"]
    assert re.findall(r"id: (\d+)", later) == ["2"]
    assert said.endswith("event: end\ndata: {}\n\n")


def test_slots_are_shown_as_of_a_position(client: TestClient) -> None:
    first = append(client, "t-asof", "first").json()["position"]
    append(client, "t-asof", "second")
    then = client.get(f"/v1/threads/t-asof/slots?at={first}").json()["items"]

    assert [slot["payload"] for slot in then] == ["first"]


# Versions: ETag, If-Match, expected_seq


def test_a_working_set_that_is_known_is_not_sent_again(client: TestClient) -> None:
    run_id = boot(client)
    tag = client.get(f"/v1/runs/{run_id}").headers["etag"]
    again = client.get(f"/v1/runs/{run_id}", headers={"If-None-Match": tag})

    assert (tag, again.status_code, again.content) == ('"0"', 304, b"")


def test_a_patch_for_another_version_is_refused_with_both_numbers(client: TestClient) -> None:
    run_id = boot(client)
    patch = {"set": {"status": "BUSY"}, "expected_seq": 0}
    first = client.patch(f"/v1/runs/{run_id}", json=patch)
    second = client.patch(f"/v1/runs/{run_id}", json=patch)
    tagged = client.patch(f"/v1/runs/{run_id}", json={"set": {}}, headers={"If-Match": '"0"'})

    assert (first.status_code, first.headers["etag"]) == (200, '"1"')
    assert (second.status_code, second.json()["expected"], second.json()["current"]) == (409, 0, 1)
    assert tagged.status_code == 412


def test_a_block_is_replaced_only_at_the_version_that_was_named(client: TestClient) -> None:
    path = "/v1/blocks/persona"
    new = client.put(path, json={"content": "a"}, headers={"If-None-Match": "*"})
    again = client.put(path, json={"content": "b"}, headers={"If-None-Match": "*"})
    right = client.put(path, json={"content": "b"}, headers={"If-Match": new.headers["etag"]})

    assert (new.status_code, again.status_code, right.status_code) == (200, 412, 200)
    assert client.get(path).json()["content"] == "b"


def test_an_append_expects_a_length_by_header_or_body(client: TestClient) -> None:
    append(client, "t-len", 0)
    by_body = append(client, "t-len", 1, fields={"expected_len": 5})
    by_header = append(client, "t-len", 1, headers={"If-Match": '"5"'})
    both = append(client, "t-len", 1, headers={"If-Match": '"1"'}, fields={"expected_len": 2})
    right = append(client, "t-len", 1, headers={"If-Match": '"1"'})

    codes = [each.status_code for each in (by_body, by_header, both, right)]
    assert codes == [409, 412, 400, 201]


def test_a_working_set_is_read_as_it_was(client: TestClient) -> None:
    run_id = boot(client)
    position = client.get("/v1/store/head").json()["position"]
    client.patch(f"/v1/runs/{run_id}", json={"set": {"status": "BUSY"}, "expected_seq": 0})
    by_seq = client.get(f"/v1/runs/{run_id}?seq=0").json()["status"]
    by_position = client.get(f"/v1/runs/{run_id}?at={position}").json()["status"]

    assert (by_seq, by_position) == ("BOOT", "BOOT")
    assert client.get(f"/v1/runs/{run_id}").json()["status"] == "BUSY"


# Idempotency


def test_a_repeated_append_is_stored_once(client: TestClient) -> None:
    key = {"Idempotency-Key": "append-1"}
    first = append(client, "t-once", "x", headers=key)
    second = append(client, "t-once", "x", headers=key)
    other = append(client, "t-once", "y", headers=key)

    assert first.json() == second.json()
    assert other.status_code == 422
    assert client.get("/v1/threads/t-once").json()["length"] == 1


def test_a_repeated_request_is_answered_as_the_first_was(client: TestClient) -> None:
    key = {"Idempotency-Key": "boot-1"}
    first = client.post("/v1/runs", json={"objective": "once"}, headers=key)
    second = client.post("/v1/runs", json={"objective": "once"}, headers=key)
    other = client.post("/v1/runs", json={"objective": "twice"}, headers=key)

    assert (first.status_code, second.status_code, other.status_code) == (201, 201, 422)
    assert first.content == second.content
    assert second.headers["idempotent-replayed"] == "true"
    assert second.headers["location"] == first.headers["location"]


def test_an_upload_under_a_key_is_taken_in_once(client: TestClient) -> None:
    made = client.post(f"/v1/runs/{boot(client)}/packs").json()
    pack = client.get(made["download"]).content
    key = {"Idempotency-Key": "upload-1", "content-type": "application/zip"}
    first = client.post("/v1/packs?new_run_id=u-once", content=pack, headers=key)
    second = client.post("/v1/packs?new_run_id=u-once", content=pack, headers=key)
    unlike = client.post("/v1/packs?new_run_id=u-once", content=pack + b"x", headers=key)

    assert (first.status_code, second.status_code, unlike.status_code) == (201, 201, 422)
    assert second.content == first.content
    assert second.headers["idempotent-replayed"] == "true"


def test_an_answer_too_long_to_be_kept_is_told_by_its_code(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idempotency, "_MOST_BODY", 10)
    key = {"Idempotency-Key": "long-1"}
    first = client.post("/v1/runs", json={"objective": "long"}, headers=key)
    again = client.post("/v1/runs", json={"objective": "long"}, headers=key)

    assert (first.status_code, again.status_code) == (201, 409)
    assert again.json()["code"] == "already_done"


def test_a_body_in_pieces_leaves_a_spool_as_it_came() -> None:
    pieces = [bytes([n]) * 700_000 for n in range(4)]

    async def sent_and_given() -> tuple[bytes, int]:
        waiting = iter(pieces)

        async def receive() -> dict[str, Any]:
            piece = next(waiting)
            return {"type": "http.request", "body": piece, "more_body": piece is not pieces[-1]}

        spool, given, count = Spool(), b"", 0
        await spool.fill(receive, digest)
        while (message := await spool.receive())["type"] == "http.request":
            given += message["body"]
            count += 1
        spool.close()
        return given, count

    digest = hashlib.sha256()
    given, count = asyncio.run(sent_and_given())

    assert given == b"".join(pieces)
    assert count > 1
    assert digest.digest() == hashlib.sha256(given).digest()


def test_a_refused_request_is_refused_again_under_its_key(client: TestClient) -> None:
    run_id = boot(client)
    key = {"Idempotency-Key": "patch-1"}
    stale = {"set": {}, "expected_seq": 7}
    first = client.patch(f"/v1/runs/{run_id}", json=stale, headers=key)
    second = client.patch(f"/v1/runs/{run_id}", json=stale, headers=key)
    events = client.get(f"/v1/runs/{run_id}/ledger").json()["items"]

    assert (first.status_code, second.status_code) == (409, 409)
    assert [e["event_type"] for e in events] == ["RUN_START", "WS_UPDATE_REJECTED"]


def test_what_is_kept_of_an_answer_goes_with_the_user_it_is_about(client: TestClient) -> None:
    episode = {"session_id": "s", "user_id": "zoe", "input": "I live in Oslo", "id": "ep_zoe"}
    client.post("/v1/episodes", json=episode, headers={"Idempotency-Key": "ep-1"})
    names = client.get("/v1/store/names?kind=document&prefix=http/once/").json()["items"]
    kept = [client.get(f"/v1/store/document?name={name}").json() for name in names]
    client.post("/v1/forget", json={"user_id": "zoe"})
    left = [client.get(f"/v1/store/document?name={name}").json() for name in names]

    assert [each["user"] for each in kept].count("zoe") == 1
    assert [each["erased"] for each in left] == [each["user"] == "zoe" for each in kept]


# Refusals


def test_a_refusal_is_a_problem_that_also_says_ok_error_and_detail(client: TestClient) -> None:
    refused = client.get("/v1/runs/nobody")
    body = refused.json()

    assert (refused.status_code, refused.headers["content-type"]) == (404, PROBLEM)
    assert (body["ok"], body["code"], body["status"]) == (False, "not_found", 404)
    assert body["error"] == body["detail"] == "there is no run 'nobody': boot it, or list the runs"
    assert body["request_id"] == refused.headers["x-request-id"]


SLOT = b'{"payload": 1, "from_id": "a", "to_id": "b"}'
PACKED = gzip.compress(b'{"objective": "x"}')


@pytest.mark.parametrize(
    ("method", "path", "sent", "status", "code"),
    [
        ("GET", "/nowhere", {}, 404, "not_found"),
        ("DELETE", "/health", {}, 405, "method_not_allowed"),
        ("POST", "/v1/runs", {"content": b"{", "media": "application/json"}, 400, "bad_request"),
        ("POST", "/v1/runs", {"content": b"a=1", "media": "text/plain"}, 415, ""),
        ("POST", "/v1/runs", {"content": PACKED, "packed": "gzip"}, 415, "unsupported_media_type"),
        ("POST", "/v1/packs", {"content": PACKED, "packed": "br"}, 415, "unsupported_media_type"),
        ("POST", "/v1/threads/t/slots", {"content": PACKED, "packed": "gzip"}, 415, ""),
        ("POST", "/v1/threads/t/slots", {"content": SLOT, "packed": "gzip"}, 415, ""),
        ("POST", "/v1/threads/t/slots", {"content": SLOT, "packed": "br, identity"}, 415, ""),
        ("POST", "/v1/runs", {"content": b"{", "packed": "identity"}, 400, "bad_request"),
        ("POST", "/v1/threads/t/slots", {"content": DEEP, "media": "application/json"}, 400, ""),
        ("POST", "/v1/runs", {"content": b"{}", "media": "application/json"}, 422, "invalid"),
        ("GET", "/v1/runs?limit=0", {}, 422, "invalid"),
        ("GET", "/v1/runs?cursor=%00", {}, 422, "invalid"),
        ("GET", "/v1/facts?valid_at=yesterday", {}, 422, "invalid"),
    ],
)
def test_what_is_malformed_gets_its_status(
    client: TestClient, method: str, path: str, sent: dict[str, Any], status: int, code: str
) -> None:
    headers = {"content-type": sent.get("media", "application/json")} if sent else {}
    headers |= {"content-encoding": sent["packed"]} if "packed" in sent else {}
    refused = client.request(method, path, content=sent.get("content"), headers=headers)

    assert (refused.status_code, refused.headers["content-type"]) == (status, PROBLEM)
    assert not code or refused.json()["code"] == code


def test_whatever_can_be_read_can_be_asked_for_its_head(client: TestClient) -> None:
    run_id = boot(client)
    for path in ("/health", "/ready", f"/v1/runs/{run_id}", f"/v1/runs/{run_id}?seq=0", "/v1/runs"):
        whole, head = client.get(path), client.head(path)

        assert (head.status_code, head.content) == (200, b"")
        passing = ("x-request-id", "date")
        assert {name: head.headers[name] for name in head.headers if name not in passing} == {
            name: whole.headers[name] for name in whole.headers if name not in passing
        }
    known = client.head(f"/v1/runs/{run_id}", headers={"if-none-match": '"0"'})
    assert known.status_code == 304
    assert client.head("/v1/runs/nobody").status_code == 404
    assert client.head("/v1/threads/t/follow").status_code == 405


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/runs", "GET, HEAD, POST"),
        ("/v1/threads/t/slots", "GET, HEAD, POST"),
        ("/v1/threads/t/follow", "GET"),
        ("/v1/recall", "POST"),
        ("/health", "GET, HEAD"),
    ],
)
def test_a_method_that_is_not_there_is_told_which_are(
    client: TestClient, path: str, allowed: str
) -> None:
    refused = client.put(path)

    assert (refused.status_code, refused.headers["allow"]) == (405, allowed)


def test_a_body_that_is_too_large_is_refused_by_its_header_and_by_its_bytes(
    tmp_path: Path,
) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * 1_000

    with client_of(config(tmp_path, max_body_bytes=10_000)) as client:
        header = {"content-type": "application/json"}
        told = client.post("/v1/runs", content=b" " * 20_000, headers=header)
        hidden = client.post("/v1/runs", content=chunks(), headers=header)
        slot = client.post("/v1/threads/t/slots", content=chunks(), headers=header)
        fine = boot(client)

    assert [each.status_code for each in (told, hidden, slot)] == [413, 413, 413]
    assert fine


def large(values: int) -> dict[str, Any]:
    """A slot of many small values, in more bytes than are decoded at once."""
    return {"payload": ["x" * 200_000, *range(values)], "from_id": "a", "to_id": "b"}


@pytest.mark.parametrize("path", ["slots", "slots/batch"])
def test_a_body_of_too_many_values_is_refused_with_the_limit(tmp_path: Path, path: str) -> None:
    with client_of(config(tmp_path, max_body_values=1_000)) as client:

        def send(slot: dict[str, Any]) -> httpx2.Response:
            body = slot if path == "slots" else {"slots": [slot]}
            return client.post(f"/v1/threads/t/{path}", json=body)

        refused = send(large(1_000))
        told = refused.json()
        taken = send(large(980))
        # What stands in a text is no value, however it is written.
        text = send(large(0) | {"payload": 'a, [{"b": "\\' * 50_000})
        length = client.get("/v1/threads/t").json()["length"]

    assert (refused.status_code, told["code"], told["limit"]) == (413, "limit_exceeded", 1_000)
    assert "max_body_values" in told["detail"]
    assert (taken.status_code, text.status_code, length) == (201, 201, 2)


@pytest.mark.parametrize("step", ["decoded", "stored"])
@pytest.mark.parametrize("path", ["slots", "slots/batch"])
def test_others_are_answered_while_a_large_body_is_worked_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, step: str
) -> None:
    """The large one goes on when another has been answered, and no sooner."""
    begun, answered = threading.Event(), threading.Event()

    def held_up(given: object) -> None:
        if len(repr(given)) > 200_000:
            begun.set()
            assert answered.wait(60)

    if step == "decoded":
        decode = bodies.decoded

        def slowly(raw: bytes, shape: Any) -> Any:
            held_up(raw)
            return decode(raw, shape)

        monkeypatch.setattr(bodies, "decoded", slowly)
    else:
        encode = codec.encode

        def slowly_encoded(value: Any) -> Any:
            held_up(value)
            return encode(value)

        monkeypatch.setattr(codec, "encode", slowly_encoded)
    settings = config(tmp_path)
    settings = msgspec.structs.replace(settings, url=f"{tmp_path}/s.db", durability="process")
    with client_of(settings) as client, ThreadPoolExecutor(2) as pool:
        client.post("/v1/threads/t/slots", content=SLOT, headers={"content-type": JSON})
        body = large(10) if path == "slots" else {"slots": [large(10)]}
        sent = pool.submit(client.post, f"/v1/threads/t/{path}", json=body)
        try:
            assert begun.wait(60)
            other = pool.submit(client.get, "/v1/threads/t").result(60)
            is_first = not sent.done()
        finally:
            answered.set()
        last = sent.result(60)

    assert (other.status_code, is_first, last.status_code) == (200, True, 201)


def test_a_key_that_asks_too_often_is_told_when_to_come_again(tmp_path: Path) -> None:
    with client_of(config(tmp_path, rate_per_second=2)) as client:
        codes = [client.get("/v1/whoami").status_code for _ in range(6)]
        last = client.get("/v1/whoami")

    assert codes[:4] == [200] * 4
    assert (last.status_code, last.headers["retry-after"]) == (429, "1")


def test_a_bucket_of_tokens_fills_up_again_with_time() -> None:
    now = [0.0]
    rates = Rates(10, clock=lambda: now[0])
    for _ in range(20):
        rates.take("a")
    with pytest.raises(Refused):
        rates.take("a")
    rates.take("b")
    now[0] = 0.1
    rates.take("a")
    with pytest.raises(Refused):
        rates.take("a")


def test_tokens_of_a_long_pause_are_not_all_saved_up() -> None:
    now = [0.0]
    rates = Rates(10, clock=lambda: now[0])
    rates.take("a")
    now[0] = 1_000_000.0
    for _ in range(20):
        rates.take("a")
    with pytest.raises(Refused):
        rates.take("a")


def test_a_last_page_that_is_full_is_the_last() -> None:
    first, more = cut([1, 2, 3, 4], 0, 2)
    last, none = cut([1, 2, 3, 4], number_in(more), 2)

    assert (first, last, none) == ([1, 2], [3, 4], None)


def test_of_many_wrong_keys_from_one_address_most_are_told_to_wait(tmp_path: Path) -> None:
    settings = ServerConfig(
        url=f"{tmp_path}/keys.db", durability="process", log_level="error", failures_per_second=1
    )
    wrong = {"authorization": "Bearer pf_000000000000_" + "A" * 43}
    with client_of(settings) as client:
        codes = [client.get("/v1/whoami", headers=wrong).status_code for _ in range(4)]

    assert codes == [401, 401, 429, 429]


def test_a_block_that_takes_too_long_is_ended_and_others_are_not() -> None:
    async def story() -> list[str]:
        deadlines = Deadlines()
        said = []
        with deadlines.after(3_600):
            try:
                with deadlines.after(0.01) as short:
                    await asyncio.Event().wait()
            except TimeoutError:
                said.append(f"over {short.is_over}")
        with deadlines.after(0.01) as free:
            free.set(None)
            said.append("free")
        return said

    assert asyncio.run(story()) == ["over True", "free"]


def test_the_least_recently_used_idle_handle_is_let_go_and_busy_ones_never() -> None:
    async def story() -> list[bool]:
        with Admin("memory:") as admin:
            tenants = Tenants(admin, 2)
            busy = await tenants.lease("a")
            (await tenants.lease("b")).release()
            (await tenants.lease("c")).release()
            held = [tenants.at_hand(name) is not None for name in "abc"]
            with pytest.raises(Unavailable):
                await tenants.lease("d")
            busy.release()
            await tenants.close()
            return held

    assert asyncio.run(story()) == [True, False, True]


def test_documents_asked_for_at_once_are_read_together_and_a_failure_reaches_all() -> None:
    async def story() -> tuple[list[Any], list[Any]]:
        with Admin("memory:") as admin:
            store = admin.open("a").store
            store.commit(Batch([Put(f"d{n}", n) for n in range(3)]))
            reads = GroupReads(store)
            names = ["d0", "d1", "d1", "none", "d2"]
            found = await asyncio.gather(*(reads.get(name) for name in names))
            wrong = await asyncio.gather(
                *(reads.get(name) for name in ("d0", "")), return_exceptions=True
            )
        return [None if each is None else each.value for each in found], wrong

    values, wrong = asyncio.run(story())

    assert values == [0, 1, 1, None, 2]
    assert isinstance(wrong[1], Invalid)


# The rest of the library


def test_a_batch_needs_a_reviewer_or_a_token_and_is_undone(client: TestClient) -> None:
    run_id = boot(client)
    batch = client.post(f"/v1/runs/{run_id}/batches", json={"mcrs": [MCR]}).json()["batch_id"]
    added = client.get(f"/v1/batches/{batch}/preview").json()["added"]
    refused = client.post(f"/v1/batches/{batch}/commit")
    token = client.post(f"/v1/runs/{run_id}/tokens").json()["token"]
    done = client.post(f"/v1/batches/{batch}/commit", json={"token": token})
    found = client.get("/v1/items?q=water").json()["items"]
    undone = client.post(f"/v1/batches/{batch}/undo")

    assert len(added) == 1
    assert (refused.status_code, done.status_code, undone.status_code) == (403, 200, 200)
    assert found[0]["item"]["memory_id"] == done.json()["memory_ids"][0]
    assert client.get("/v1/items?q=water").json()["items"] == []


def test_recall_explains_itself_and_keeps_users_apart(client: TestClient) -> None:
    for user in ("ann", "bob"):
        said = {"session_id": "s", "user_id": user, "input": f"{user} lives in Lisbon"}
        client.post("/v1/episodes", json=said)
    found = client.post("/v1/recall", json={"query": "who lives where", "user_id": "ann"}).json()
    episode = found["items"][0]["episode"]
    why = client.get(f"/v1/memories/{episode['id']}/why?user_id=ann")

    assert {each["episode"]["user_id"] for each in found["items"]} == {"ann"}
    assert found["items"][0]["hit"]["matched"]
    assert why.json()["kind"] == "episode"
    assert client.get(f"/v1/memories/{episode['id']}/why?user_id=bob").status_code == 404


def test_facts_are_asked_for_at_a_time(client: TestClient) -> None:
    def said(city: str, since: str) -> dict[str, Any]:
        return {
            "subject": "Eve",
            "predicate": "lives_in",
            "object": city,
            "user_id": "eve",
            "valid_from": f"{since}-01-01T00:00:00Z",
        }

    ids = client.post("/v1/facts", json={"facts": [said("Rome", "2020"), said("Bern", "2024")]})
    then = client.get("/v1/facts?user_id=eve&valid_at=2021-06-01T00:00:00Z").json()["items"]
    now = client.get("/v1/facts?user_id=eve").json()["items"]
    client.post(f"/v1/facts/{ids.json()['ids'][1]}/retract", json={"user_id": "eve"})
    after = client.get("/v1/facts?user_id=eve").json()["items"]

    assert [fact["object"] for fact in (*then, *now, *after)] == ["Rome", "Bern", "Rome"]


def paged(client: TestClient, path: str, **params: Any) -> list[list[Any]]:
    """All pages of a listing, two items on each."""
    pages, cursor = [], None
    while True:
        asked = {**params, "limit": 2, **({"cursor": cursor} if cursor else {})}
        page = client.get(path, params=asked).json()
        pages.append(page["items"])
        cursor = page["cursor"]
        if cursor is None:
            return pages


def test_facts_are_paged_through_though_others_are_asserted_meanwhile(client: TestClient) -> None:
    def assert_(number: int) -> None:
        fact = {"subject": "Ivy", "predicate": "has", "object": f"cat {number}", "user_id": "ivy"}
        client.post("/v1/facts", json={"facts": [fact]})

    client.put("/v1/predicates/has", json={"kind": "multi"})
    for number in range(5):
        assert_(number)
    asked: dict[str, Any] = {"user_id": "ivy", "limit": 2}
    first = client.get("/v1/facts", params=asked).json()
    assert_(5)
    second = client.get("/v1/facts", params=asked | {"cursor": first["cursor"]}).json()
    third = client.get("/v1/facts", params=asked | {"cursor": second["cursor"]}).json()
    shown = [each["object"] for page in (first, second, third) for each in page["items"]]

    assert shown == [f"cat {number}" for number in (4, 3, 2, 1, 0)]
    assert third["cursor"] is None
    assert client.get("/v1/facts", params=asked | {"cursor": "bm8"}).status_code == 422


def test_episodes_and_duplicates_are_paged_through(client: TestClient) -> None:
    said = "copper kettles whistle loudly tonight"
    for number in range(5):
        episode = {"session_id": f"s{number % 2}", "input": said, "user_id": "gil"}
        episode |= {"id": f"gil-{number}", "occurred_at": f"2026-01-0{number + 1}T00:00:00Z"}
        client.post("/v1/episodes", json=episode)
    pages = paged(client, "/v1/episodes", user_id="gil")
    session = paged(client, "/v1/episodes", user_id="gil", session_id="s0")
    since = {"since": "2026-01-02T00:00:00Z", "until": "2026-01-04T00:00:00Z"}
    between = paged(client, "/v1/episodes", user_id="gil", **since)
    same = paged(client, "/v1/duplicates", user_id="gil")

    def ids(found: list[list[Any]], field: str = "id") -> list[list[str]]:
        return [[each[field].removeprefix("gil-") for each in page] for page in found]

    assert ids(pages) == [["4", "3"], ["2", "1"], ["0"]]
    assert ids(session) == [["4", "2"], ["0"]]
    assert ids(between) == [["3", "2"], ["1"]]
    assert sorted(each for page in ids(same, "key") for each in page) == ["1", "2", "3", "4"]
    assert client.get("/v1/episodes", params={"user_id": "hal"}).json()["items"] == []


def test_items_are_paged_through_by_words_and_by_age(client: TestClient) -> None:
    for number in range(5):
        change = MCR | {"scope": "user", "user_id": "jo", "content": f"likes tea number {number}"}
        body = {"mcrs": [change], "user_id": "jo"}
        batch = client.post("/v1/batches", json=body).json()["batch_id"]
        client.post(f"/v1/batches/{batch}/commit", json={"reviewer": "carl"})
    by_words = paged(client, "/v1/items", user_id="jo", scope="user", q="tea")
    by_age = paged(client, "/v1/items", user_id="jo", scope="user")

    assert [len(page) for page in by_words] == [2, 2, 1]
    assert len({each["item"]["memory_id"] for page in by_words for each in page}) == 5
    newest = [[each["item"]["content"][-1] for each in page] for page in by_age]
    assert newest == [["4", "3"], ["2", "1"], ["0"]]
    wrong = {"cursor": "bm8", "user_id": "jo"}
    assert client.get("/v1/items", params=wrong).status_code == 422


def test_packs_and_proposals_are_paged_through(client: TestClient) -> None:
    client.post("/v1/runs", json={"objective": "x", "run_id": "paged"})
    made = {client.post("/v1/runs/paged/packs").json()["pack_id"] for _ in range(3)}
    pages = paged(client, "/v1/packs")
    for each in ("Ann likes jam.", "Bob likes tea.", "Cleo likes figs."):
        episode = {"session_id": "s", "input": each, "user_id": "kit"}
        client.post("/v1/episodes", json=episode)
    client.post("/v1/consolidate")
    proposed = paged(client, "/v1/proposals", user_id="kit")
    everybody = paged(client, "/v1/proposals", everyone=True)

    assert all(len(page) <= 2 for page in [*pages, *proposed, *everybody])
    assert made <= {each["pack_id"] for page in pages for each in page}
    names = [each["fact"]["id"] for page in proposed for each in page]
    assert len(names) == len(set(names)) >= 3
    assert set(names) <= {each["fact"]["id"] for page in everybody for each in page}


def test_an_export_is_brought_in_again_after_it_was_forgotten_as_nothing(
    client: TestClient,
) -> None:
    said = {"session_id": "s", "user_id": "una", "input": "I like tea", "id": "ep_una"}
    client.post("/v1/episodes", json=said)
    lines = client.get("/v1/export?user_id=una").content
    dry = client.post("/v1/forget", json={"user_id": "una", "dry_run": True}).json()
    gone = client.post("/v1/forget", json={"user_id": "una"}).json()
    header = {"content-type": "application/x-ndjson"}
    back = client.post("/v1/import", content=lines, headers=header).json()
    torn = client.post("/v1/import", content=lines[:-20], headers=header)

    assert dry["counts"] == gone["counts"]
    assert back["records"] == 0
    assert back["forgotten"] >= 1
    assert torn.status_code == 422


def test_a_pack_is_downloaded_and_made_a_run_again(client: TestClient) -> None:
    run_id = boot(client)
    client.patch(f"/v1/runs/{run_id}", json={"set": {"next_action": "go"}, "expected_seq": 0})
    made = client.post(f"/v1/runs/{run_id}/packs").json()
    pack = client.get(made["download"])
    header = {"content-type": "application/zip"}
    report = client.post("/v1/packs/verify", content=pack.content, headers=header).json()
    again = client.post("/v1/packs?new_run_id=again", content=pack.content, headers=header)
    taken = client.post("/v1/packs?new_run_id=again", content=pack.content, headers=header)

    assert pack.headers["content-type"] == "application/zip"
    assert (report["run_id"], report["proved"]) == (run_id, True)
    assert again.json()["ws"]["next_action"] == "go"
    assert taken.status_code == 409
    assert client.delete(made["download"]).json() == {"ok": True}
    assert client.get(made["download"]).status_code == 404


def test_the_registry_answers_the_caller_once(client: TestClient) -> None:
    made = client.post("/v1/registry/threads", json={"initiator": "ann", "target": "clerk"}).json()
    called = client.post(
        f"/v1/registry/threads/{made['thread_id']}/call", json={"next_hop": "tool"}
    ).json()
    first = client.post(f"/v1/registry/threads/{called['thread_id']}/respond").json()
    second = client.post(f"/v1/registry/threads/{called['thread_id']}/respond").json()

    assert called["path"] == ["ann", "clerk", "tool"]
    assert first == {"name": "clerk", "thread_id": made["thread_id"]}
    assert second == {"name": None, "thread_id": None}


def test_milestones_are_episodes_of_the_run(client: TestClient) -> None:
    run_id = boot(client)
    made = client.post(f"/v1/runs/{run_id}/milestones", json={"reason": "half"}).json()
    listed = client.get(f"/v1/runs/{run_id}/episodes").json()["items"]
    episode = client.get(f"/v1/runs/{run_id}/episodes/{made['episode_id']}").json()
    events = client.get(f"/v1/runs/{run_id}/episodes/{made['episode_id']}/events").json()["items"]

    assert listed == [made["episode_id"]]
    assert episode["ws_after"]["run_id"] == run_id
    assert [event["event_type"] for event in events] == ["RUN_START"]
    assert client.get(f"/v1/runs/{run_id}/rebuild").json()["ok"] is True


def test_the_store_is_verified_against_a_head_kept_elsewhere(client: TestClient) -> None:
    head = client.get("/v1/store/head").json()
    right = client.post("/v1/store/verify", json=head).json()
    wrong = client.post("/v1/store/verify", json=head | {"digest": "00" * 32}).json()

    assert (right["ok"], wrong["ok"]) == (True, False)
    assert client.post("/v1/store/check").json()["ok"] is True
    assert client.get("/v1/store/stats").json()["engine"] == "memory"


# Operating it


def test_metrics_name_routes_and_nobody(client: TestClient) -> None:
    append(client, "t-very-secret-name", "x")
    told = client.get("/metrics").text

    assert 'route="/v1/threads/{thread_id}/slots"' in told
    assert "pagefile_http_request_duration_seconds_count" in told
    assert "t-very-secret-name" not in told
    assert "default" not in told


def test_what_a_worker_that_died_had_counted_still_counts_but_is_not_under_way(
    tmp_path: Path,
) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        pass
    left = Metrics()
    left.in_flight = 3
    left.observe("GET", call_for("/v1/whoami"), 0.1)
    raw = msgspec.json.encode(left.counted(gone.pid))
    (tmp_path / f"{gone.pid}.json").write_bytes(raw)
    (tmp_path / "torn.json").write_bytes(raw[:20])
    counting = Counters(str(tmp_path))
    counting.metrics.observe("GET", call_for("/v1/whoami"), 0.2)
    shown = counting.metrics.shown().decode()

    assert 'duration_seconds_count{method="GET",route="/v1/whoami",status="200"} 2.0' in shown
    assert "requests_in_flight 0.0" in shown


def call_for(route: str) -> Call:
    call = Call("id", "", ServerConfig(), {})
    call.route, call.status = route, 200
    return call


def test_every_request_has_an_id_of_its_own_or_the_callers(client: TestClient) -> None:
    made = [client.get("/health").headers["x-request-id"] for _ in range(2)]
    given = client.get("/health", headers={"X-Request-Id": "mine-7"})
    odd = client.get("/health", headers={"X-Request-Id": "a b\tc"})

    assert made[0] != made[1]
    assert given.headers["x-request-id"] == "mine-7"
    assert odd.headers["x-request-id"] != "a b\tc"


def test_logs_hold_ids_and_routes_and_no_payload(tmp_path: Path) -> None:
    written = io.StringIO()
    app: Any = make_app(config(tmp_path))
    server: Server = app._parts
    server.log = Log("info", written)
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        append(client, "t-log", {"password": "hunter2"}, headers={"X-Request-Id": "log-1"})
        client.get("/v1/runs/secret-run")
    lines = [json.loads(line) for line in written.getvalue().splitlines()]

    assert lines[0] | {"time": "", "duration_ms": 0} == {
        "time": "",
        "level": "info",
        "event": "request",
        "request_id": "log-1",
        "method": "POST",
        "route": "/v1/threads/{thread_id}/slots",
        "status": 201,
        "duration_ms": 0,
        "who": "local",
        "tenant": "default",
    }
    assert lines[1]["code"] == "not_found"
    assert "hunter2" not in written.getvalue()
    assert "secret-run" not in written.getvalue()


def test_health_and_readiness_need_no_key_and_say_what_both_servers_said(
    client: TestClient,
) -> None:
    health = client.get("/health").json()

    assert health["status"] == "ok"
    assert {"service", "version"} <= health.keys()
    assert client.get("/ready").status_code == 200


def test_browsers_elsewhere_are_answered_only_where_their_origin_is_named(
    tmp_path: Path,
) -> None:
    asking = {"Origin": "https://app.example", "Access-Control-Request-Method": "GET"}
    with client_of(config(tmp_path)) as closed:
        refused = closed.options("/v1/runs", headers=asking)
    named = ServerConfig(
        url="memory:", packs_dir=f"{tmp_path}/p", allow_origins=("https://app.example",)
    )
    with client_of(named) as opened:
        allowed = opened.options("/v1/runs", headers=asking)

    assert "access-control-allow-origin" not in refused.headers
    assert allowed.headers["access-control-allow-origin"] == "https://app.example"


def test_the_first_page_leads_to_the_documentation(client: TestClient) -> None:
    assert client.get("/", follow_redirects=False).headers["location"] == "/docs"


@pytest.mark.parametrize("path", ["/docs", "/redoc"])
def test_a_documentation_page_needs_nothing_from_elsewhere(path: str, keyed: TestClient) -> None:
    page = keyed.get(path)
    named = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    files = [keyed.get(urljoin(path, each)) for each in named if each != "data:,"]

    assert page.headers["content-type"].startswith("text/html")
    assert len(files) >= 2
    assert [each.status_code for each in files] == [200] * len(files)
    assert {each.headers["content-type"].partition(";")[0] for each in files} <= {
        "text/javascript",
        "text/css",
    }
    assert "://" not in page.text
    assert "script-src 'self';" in page.headers["content-security-policy"]


def test_only_the_files_of_the_pages_are_given_without_a_key(keyed: TestClient) -> None:
    assert keyed.get("/docs/assets/swagger-ui.css").headers["cache-control"] != "no-store"
    assert keyed.get("/docs/assets/../../pyproject.toml").status_code == 401
    assert keyed.get("/docs/assets/other.js").status_code == 401


def test_every_operation_stands_in_a_chapter_that_says_what_it_is_about(
    client: TestClient,
) -> None:
    document = client.get("/openapi.json").json()
    chapters = [tag["name"] for tag in document["tags"]]
    used = [op["tags"] for methods in document["paths"].values() for op in methods.values()]

    assert all(tag["description"] for tag in document["tags"])
    assert [tags for tags in used if len(tags) != 1] == []
    assert {tags[0] for tags in used} == set(chapters)


def test_every_route_is_in_the_reference(client: TestClient) -> None:
    page = (ROOT / "docs/reference/http.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\| `(\w+) (/\S*)` \|", page, re.MULTILINE))
    document = client.get("/openapi.json").json()
    real = {
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    }

    assert sorted(real - told) == []
    assert sorted(told - real) == []


def test_every_code_and_every_field_of_tokens_is_in_the_reference() -> None:
    page = (ROOT / "docs/reference/http.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d{3}) \| (.+?) \|", page, re.MULTILINE)
    codes = {(int(status), code) for status, told in rows for code in re.findall(r"`(\w+)`", told)}
    made = {(status, kind.code) for kind, status in problems._STATUS.items()}
    made |= {(409, idempotency.UNDER_WAY), (409, idempotency.ALREADY_DONE)}
    made |= set(problems.CODES.items())
    fields = page[page.index("Field of `TokenSettings`") :]
    fields = fields[: fields.index("\n\n")]

    assert sorted(made - codes) == []
    assert [each for each in TokenSettings.__struct_fields__ if f"`{each}`" not in fields] == []


def test_every_setting_of_a_server_is_in_the_reference() -> None:
    page = (ROOT / "docs/reference/http.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| ", page, re.MULTILINE)

    assert [name for name in ServerConfig.__struct_fields__ if name not in rows] == []


def test_one_episode_is_forgotten_and_the_others_stay(client: TestClient) -> None:
    for said in ("first", "second"):
        body = {"session_id": "s", "user_id": "ida", "input": said, "id": said}
        assert client.post("/v1/episodes", json=body).status_code == 201
    gone = client.post("/v1/forget", json={"user_id": "ida", "episode_id": "first"}).json()
    left = client.post("/v1/recall", json={"user_id": "ida", "query": "first second"}).json()

    assert gone["counts"]["episodes"] == 1
    assert [match["episode"]["id"] for match in left["items"]] == ["second"]
