"""Who is who at the server's door, and what a key for repeats may do and tell."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.responses import JSONResponse
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pagefile.errors import Unavailable
from pagefile.handle import Admin
from pagefile.store.batch import Batch, Put
from pagefile.surfaces.access.identity import Identity
from pagefile.surfaces.access.keys import KeyStore
from pagefile.surfaces.access.tokens import TokenSettings
from pagefile.surfaces.combined import mcp_mount
from pagefile.surfaces.http import idempotency
from pagefile.surfaces.http.app import Mounted, make_app
from pagefile.surfaces.http.config import ServerConfig

Sign = Callable[..., dict[str, str]]

pytestmark = [
    pytest.mark.filterwarnings("ignore::pagefile.memory.privacy.isolation.IsolationWarning"),
    pytest.mark.xdist_group("http-security"),
]


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Sign]:
    """The file with an issuer's keys, and how it signs."""
    path = tmp_path_factory.mktemp("issuer") / "jwks.json"
    signer = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    jwk = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(signer.public_key()))
    path.write_text(json.dumps({"keys": [jwk | {"kid": "k", "alg": "RS256", "use": "sig"}]}))

    def sign(tenant: str = "acme", **claims: Any) -> dict[str, str]:
        usual = {"iss": "i", "aud": "a", "exp": time.time() + 600, "scope": "read write"}
        text = jwt.encode(usual | {"tenant": tenant} | claims, signer, "RS256", {"kid": "k"})
        return {"authorization": f"Bearer {text}"}

    return str(path), sign


@contextmanager
def serving(path: Path, **settings: Any) -> Iterator[TestClient]:
    config = ServerConfig(
        url=str(path / "s.db"), durability="process", log_level="error", **settings
    )
    with TestClient(make_app(config), base_url="http://127.0.0.1:8000") as client:
        yield client


def key(tenant_admin: Admin, *rights: str, user_id: str | None = None) -> dict[str, str]:
    made = KeyStore(tenant_admin).create("default", rights, user_id=user_id)
    return {"authorization": f"Bearer {made.secret}"}


def once(name: str) -> dict[str, str]:
    return {"idempotency-key": name}


# One caller is not another

_LONG = "spiffe://prod.example.com/ns/agents-production/sa/customer-facing/"


@pytest.mark.parametrize(
    ("user_claim", "ann", "bob"),
    [
        ("sub", {"sub": f"{_LONG}ann"}, {"sub": f"{_LONG}bob"}),
        ("email", {"email": "ann@x"}, {"email": "bob@x"}),
    ],
)
def test_no_token_is_given_what_another_was_answered(
    issuer: tuple[str, Sign],
    tmp_path: Path,
    user_claim: str,
    ann: dict[str, str],
    bob: dict[str, str],
) -> None:
    jwks, sign = issuer
    tokens = TokenSettings(jwks=jwks, issuer="i", audience="a", user_claim=user_claim)
    body = {"objective": "call the bank"}
    with serving(tmp_path, tokens=tokens) as client:
        first = client.post("/v1/runs", json=body, headers=sign(**ann) | once("1"))
        again = client.post("/v1/runs", json=body, headers=sign(**ann, iat=1) | once("1"))
        other = client.post("/v1/runs", json=body, headers=sign(**bob) | once("1"))
        names = {client.get("/v1/whoami", headers=sign(**who)).json()["name"] for who in (ann, bob)}

    assert again.json() == first.json()
    assert again.headers["idempotent-replayed"] == "true"
    assert other.status_code == 201
    assert "idempotent-replayed" not in other.headers
    assert other.json()["run_id"] != first.json()["run_id"]
    assert len(names) == 2


def test_a_tenant_does_not_use_up_the_rate_of_another(
    issuer: tuple[str, Sign], tmp_path: Path
) -> None:
    jwks, sign = issuer
    tokens = TokenSettings(jwks=jwks, issuer="i", audience="a")
    with serving(tmp_path, tokens=tokens, rate_per_second=1) as client:
        evil = [client.get("/v1/whoami", headers=sign("evil", sub="x")) for _ in range(9)]
        acme = client.get("/v1/whoami", headers=sign("acme", sub="x"))

    assert 429 in {each.status_code for each in evil}
    assert acme.status_code == 200


def test_no_name_and_key_together_look_like_another_name_and_key(
    issuer: tuple[str, Sign], tmp_path: Path
) -> None:
    jwks, sign = issuer
    tokens = TokenSettings(jwks=jwks, issuer="i", audience="a")
    slot = {"payload": 1, "from_id": "a", "to_id": "b"}
    with serving(tmp_path, tokens=tokens) as client:
        for thread, sub, repeat in (("t", "a:b", "c"), ("u", "a", "b:c")):
            path = f"/v1/threads/{thread}/slots"
            made = client.post(path, json=slot, headers=sign(sub=sub) | once(repeat))
            assert made.status_code == 201, made.text


def test_callers_who_differ_in_anything_that_counts_have_another_principal() -> None:
    rights = frozenset({"read"})
    callers = [
        Identity("key:1", "acme", rights),  # type: ignore[arg-type]
        Identity("key:1", "other", rights),  # type: ignore[arg-type]
        Identity("key:1", "acme", rights, "ann"),  # type: ignore[arg-type]
        Identity("key:1", "acme", rights, "", "x"),  # type: ignore[arg-type]
        Identity("key:1", "acme", rights, None, "x"),  # type: ignore[arg-type]
    ]

    assert len({each.principal for each in callers}) == len(callers)
    assert callers[0].principal == Identity("key:1", "acme", frozenset()).principal


def test_of_two_requests_at_once_with_one_key_one_is_done(tmp_path: Path) -> None:
    with serving(tmp_path, local=True) as client, ThreadPoolExecutor(2) as pool:
        made = []

        def start(key: str, together: threading.Barrier) -> Any:
            together.wait(60)
            body = {"initiator": "a", "target": "b"}
            return client.post("/v1/registry/threads", json=body, headers={"idempotency-key": key})

        for number in range(30):
            together = threading.Barrier(2)
            both = [pool.submit(start, f"k-{number}", together) for _ in range(2)]
            answers = [each.result(60) for each in both]
            assert {each.status_code for each in answers} <= {201, 409}
            made.append({each.json()["thread_id"] for each in answers if each.is_success})

    assert [len(ids) for ids in made] == [1] * 30


def test_what_is_mounted_is_given_no_body_of_too_many_values(tmp_path: Path) -> None:
    config = ServerConfig(
        url=str(tmp_path / "s.db"),
        durability="process",
        log_level="error",
        local=True,
        max_body_values=1_000,
    )
    app = make_app(config, [mcp_mount(config)])
    said = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        refused, taken = (
            client.post(
                "/mcp",
                json=said | {"params": {"_meta": {"x": ["y" * 200_000, *range(count)]}}},
                headers={"accept": "application/json, text/event-stream"},
            )
            for count in (1_000, 900)
        )

    assert (refused.status_code, refused.json()["limit"]) == (413, 1_000)
    assert taken.status_code != 413


def test_junk_tokens_do_not_hold_up_keys_while_the_issuer_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The issuer says nothing before the good caller is answered, with one thread for all."""
    monkeypatch.setattr("pagefile.surfaces.access.tokens._FETCH_SECONDS", 300)
    url = f"{tmp_path}/s.db"
    with Admin(url) as admin:
        good = {"authorization": f"Bearer {KeyStore(admin).create('default').secret}"}
    with ThreadPoolExecutor(9) as pool, socket.create_server(("127.0.0.1", 0)) as issuer:
        where = f"http://127.0.0.1:{issuer.getsockname()[1]}/jwks"
        tokens = TokenSettings(jwks=where, issuer="i", audience="a")
        config = ServerConfig(
            url=url, durability="process", log_level="error", tokens=tokens, threads=1
        )
        with TestClient(make_app(config), base_url="http://127.0.0.1:8000") as client:

            def ask(headers: dict[str, str]) -> int:
                return client.get("/v1/threads", headers=headers).status_code

            header = base64.urlsafe_b64encode(b'{"alg":"RS256","kid":"k"}').decode()
            waiting = [
                pool.submit(ask, {"authorization": f"Bearer {header}.e30.{n}AAA"}) for n in range(8)
            ]
            asked, _ = issuer.accept()
            try:
                answered = pool.submit(ask, good).result(60)
                undecided = [each for each in waiting if not each.done()]
            finally:
                asked.close()
                issuer.close()
            ended = {each.result(60) for each in waiting}

    assert answered == 200
    assert len(undecided) == 8
    assert ended == {503}


def test_wrong_keys_shut_nobody_out_who_has_a_right_one(tmp_path: Path) -> None:
    with Admin(str(tmp_path / "s.db")) as admin:
        bob = key(admin, "read")
    with serving(tmp_path, failures_per_second=1) as client:
        wrong = [{"authorization": f"Bearer pf_{n:012x}_{'x' * 43}"} for n in range(9)]
        codes = [client.get("/v1/whoami", headers=each).status_code for each in wrong]
        right = client.get("/v1/whoami", headers=bob).status_code

    assert (codes[0], codes[-1], right) == (401, 429, 200)


def test_a_key_that_is_known_does_not_make_another_beside_it_right(tmp_path: Path) -> None:
    with serving(tmp_path) as client, Admin(str(tmp_path / "s.db")) as admin:
        good = key(admin, "read")["authorization"]
        alone = [client.get("/v1/runs", headers={"authorization": good}) for _ in range(2)]
        pairs = [("Bearer pf_wrong", good), (good, "Bearer pf_wrong"), (good, good)]
        both = [
            client.get("/v1/runs", headers=[("authorization", each) for each in pair])
            for pair in pairs
        ]

    assert [answer.status_code for answer in alone] == [200] * 2
    assert [answer.status_code for answer in both] == [401] * 3


# A key for repeats: never twice


class Slow:
    """An application that is done when it is told to be, and counts how often it was."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.done = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.to_thread(self.may_end.wait)
        self.done += 1
        await JSONResponse({"done": self.done}, 201)(scope, receive, send)


@contextmanager
def slow_server(path: Path, slow: Slow) -> Iterator[TestClient]:
    settings: dict[str, Any] = {"local": True, "body_seconds": 5.0, "request_seconds": 0.1}
    config = ServerConfig(
        url=str(path / "s.db"), durability="process", log_level="error", **settings
    )
    app = make_app(config, [Mounted("/slow", slow)])
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        try:
            yield client
        finally:
            slow.may_end.set()


def until_settled(client: TestClient, name: str) -> Any:
    ends = time.monotonic() + 60
    while True:
        answer = client.post("/slow", headers=once(name))
        if answer.status_code != 409 or time.monotonic() > ends:
            return answer


def test_a_request_that_took_too_long_is_done_once_and_a_repeat_gets_its_answer(
    tmp_path: Path,
) -> None:
    slow = Slow()
    with slow_server(tmp_path, slow) as client:
        first = client.post("/slow", headers=once("k"))
        meanwhile = client.post("/slow", headers=once("k"))
        slow.may_end.set()
        repeat = until_settled(client, "k")

    assert (first.status_code, first.json()["outcome"]) == (503, "unknown")
    assert (meanwhile.status_code, meanwhile.json()["code"]) == (409, "under_way")
    assert (repeat.status_code, repeat.json()) == (201, {"done": 1})
    assert repeat.headers["idempotent-replayed"] == "true"
    assert slow.done == 1


def test_what_a_server_that_died_left_undecided_is_not_done_again_unasked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    died = Slow()
    with slow_server(tmp_path, died) as client:
        client.post("/slow", headers=once("k"))
        with Admin(str(tmp_path / "s.db")) as admin:
            left = _records(admin)
    slow = Slow()
    slow.may_end.set()
    with Admin(str(tmp_path / "s.db")) as admin, slow_server(tmp_path, slow) as client:
        # As if the first had ended here: what it stored since is taken back.
        for name, value in left.items():
            admin.open("default").store.commit(Batch([Put(name, value)]))
        soon = client.post("/slow", headers=once("k"))
        monkeypatch.setattr(idempotency, "_now_us", lambda: time.time_ns() // 1_000 + 3_600 * 10**6)
        later = client.post("/slow", headers=once("k"))
        others = client.post("/slow", headers=once("new"))
        monkeypatch.setattr(
            idempotency, "_now_us", lambda: time.time_ns() // 1_000 + 90_000 * 10**6
        )
        next_day = client.post("/slow", headers=once("k"))

    assert (soon.status_code, "under way" in soon.text) == (409, True)
    assert (later.status_code, later.json()["outcome"]) == (409, "unknown")
    assert "use a new key" in later.json()["detail"]
    assert (others.status_code, next_day.status_code) == (201, 201)


def _records(admin: Admin) -> dict[str, Any]:
    store = admin.open("default").store
    found = [store.get(name) for name in store.names("document", prefix="http/once/")]
    return {each.name: each.value for each in found if each is not None and not each.erased}


class Failing:
    """An application that fails, nobody knows how far it came."""

    calls = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.calls += 1
        raise RuntimeError("in the middle")


def test_a_request_that_failed_in_the_middle_is_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = Failing()
    config = ServerConfig(
        url=str(tmp_path / "s.db"), durability="process", log_level="error", local=True
    )
    app = make_app(config, [Mounted("/failing", failing)])
    with TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False) as client:
        codes = [client.post("/failing", headers=once("k")).status_code for _ in range(2)]
        monkeypatch.setattr(idempotency, "_now_us", lambda: time.time_ns() // 1_000 + 3_600 * 10**6)
        codes.append(client.post("/failing", headers=once("k")).status_code)

    assert (codes, failing.calls) == ([500, 409, 409], 1)


class Impatient:
    """Sends the same request again the moment it has seen the last of an answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.repeats: list[tuple[int, bool]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body = (await receive())["body"]

        async def given() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                is_replayed = (b"idempotent-replayed", b"true") in message["headers"]
                self.repeats.append((message["status"], is_replayed))

        async def passed(message: Message) -> None:
            await send(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                await self._app(dict(scope), given, noted)

        await self._app(dict(scope), given, passed)


def test_a_repeat_right_behind_the_answer_gets_that_answer(tmp_path: Path) -> None:
    config = ServerConfig(
        url=str(tmp_path / "s.db"), durability="process", log_level="error", local=True
    )
    impatient = Impatient(make_app(config))
    with TestClient(impatient, base_url="http://127.0.0.1:8000") as client:
        made = client.post("/v1/runs", json={"objective": "x"}, headers=once("k"))

    assert made.status_code == 201
    assert impatient.repeats == [(201, True)]


# A key for repeats: nothing of the forgotten


def test_no_answer_to_a_question_is_kept(tmp_path: Path) -> None:
    slot = {"payload": "I am ill", "from_id": "user", "to_id": "x", "user_id": "ann"}
    with serving(tmp_path, local=True) as client:
        client.post("/v1/threads/t/slots", json=slot)
        asked = client.post("/v1/context", json={"thread_id": "t"}, headers=once("q"))
        client.post("/v1/forget", json={"user_id": "ann"})
        again = client.post("/v1/context", json={"thread_id": "t"}, headers=once("q"))
        with Admin(str(tmp_path / "s.db")) as admin:
            assert _records(admin) == {}

    assert "I am ill" in asked.text
    assert "I am ill" not in again.text
    assert "idempotent-replayed" not in again.headers


def test_nothing_is_left_that_a_forgotten_request_could_be_guessed_from(tmp_path: Path) -> None:
    body = {"content": "HIV positive", "user_id": "ann"}
    with serving(tmp_path, local=True) as client:
        made = client.put("/v1/blocks/note", json=body, headers=once("k"))
        again = client.put("/v1/blocks/note", json=body, headers=once("k"))
        other = client.put("/v1/blocks/note", json=body | {"content": "x"}, headers=once("k"))
        gone = client.post("/v1/forget", json={"user_id": "ann"}, headers=once("f"))
        same = client.post("/v1/forget", json={"user_id": "ann"}, headers=once("f"))
        late = client.put("/v1/blocks/note", json=body, headers=once("k"))
        note = client.get("/v1/blocks/note?user_id=ann")
    assert [each.status_code for each in (made, again, other)] == [200, 200, 422]
    told = gone.json()
    told["receipt"]["removed"] = []
    assert (same.json(), same.headers["idempotent-replayed"]) == (told, "true")
    assert (late.status_code, "forgotten" in late.text, note.status_code) == (409, True, 404)

    with Admin(str(tmp_path / "s.db")) as admin:
        store = admin.open("default").store
        names = store.names("document", prefix="http/once/")
        left = [each for name in names for each in store.history(name) if not each.erased]
    assert len(left) == 3  # Two claims, and the answer that says how much was forgotten.
    for each in left:
        salt, fingerprint = each.value.get("salt", ""), each.value["fingerprint"]
        guesses = (
            (("PUT", "/v1/blocks/note", ""), body),
            (("POST", "/v1/forget", ""), {"user_id": "ann"}),
        )
        for what, guess in guesses:
            sent = json.dumps(guess, separators=(",", ":")).encode()
            text = salt.encode() + repr(what).encode() + sent
            assert fingerprint != hashlib.sha256(text).hexdigest()


class Recovering:
    """An application that stores nothing at first, and says so."""

    calls = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.calls += 1
        if self.calls == 1:
            raise Unavailable("the store is away", "try again")
        await JSONResponse({"calls": self.calls}, 201)(scope, receive, send)


def test_a_request_that_certainly_stored_nothing_may_be_sent_again(tmp_path: Path) -> None:
    config = ServerConfig(
        url=str(tmp_path / "s.db"), durability="process", log_level="error", local=True
    )
    app = make_app(config, [Mounted("/recovering", Recovering())])
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        codes = [client.post("/recovering", headers=once("k")).status_code for _ in range(3)]

    assert codes == [503, 201, 201]


def test_what_is_kept_of_a_request_about_two_users_tells_nothing_of_the_other(
    tmp_path: Path,
) -> None:
    episodes = [
        {"session_id": "s", "input": "Ann is ill", "user_id": "ann", "id": "ep_a"},
        {"session_id": "s", "input": "Bob is well", "user_id": "bob", "id": "ep_b"},
        {"session_id": "s", "input": "It rains", "id": "ep_c"},
    ]
    with serving(tmp_path, local=True) as client:
        body = {"episodes": episodes}
        made = client.post("/v1/episodes/batch", json=body, headers=once("k"))
        again = client.post("/v1/episodes/batch", json=body, headers=once("k"))
        with Admin(str(tmp_path / "s.db")) as admin:
            [kept] = _records(admin).values()

    assert (made.status_code, again.json()) == (201, made.json())
    assert kept["has_body"] is False


def test_what_is_kept_of_a_pack_that_was_loaded_goes_with_the_user_of_the_run(
    tmp_path: Path,
) -> None:
    run = {"objective": "treat Ann", "run_id": "r", "user_id": "ann"}
    with serving(tmp_path, local=True) as client:
        client.post("/v1/runs", json=run)
        pack = client.post("/v1/runs/r/packs").json()["pack_id"]
        loaded = client.post("/runs/resume/load", json={"pack_path": pack}, headers=once("k"))
        client.post("/v1/forget", json={"user_id": "ann"})
        with Admin(str(tmp_path / "s.db")) as admin:
            left = _records(admin)

    assert "treat Ann" in loaded.text
    assert left == {}


# Forgetting what nobody named


def test_nothing_of_nobody_is_forgotten_unless_nobody_is_meant(tmp_path: Path) -> None:
    with Admin(str(tmp_path / "s.db")) as admin:
        boss, ann = (
            key(admin, "read", "write", "admin"),
            key(admin, "admin", "write", user_id="ann"),
        )
    episode = {"session_id": "s", "input": "it rains", "id": "ep"}

    def forget(body: dict[str, Any] | None, who: dict[str, str] = boss) -> Any:
        return client.post("/v1/forget", json=body, headers=who)

    with serving(tmp_path) as client:
        client.post("/v1/episodes", json=episode, headers=boss)
        unsaid = [forget(None), forget({}), forget({"dry_run": True})]
        both = forget({"nobody": True, "user_id": "ann"})
        bound = forget({"nobody": True}, ann)
        there = client.get("/v1/episodes/ep", headers=boss)
        own = [forget({}, ann), forget({"user_id": None}, ann)]
        part = forget({"session_id": "other"})
        meant = [forget({"user_id": None, "dry_run": True}), forget({"nobody": True})]
        gone = client.get("/v1/episodes/ep", headers=boss)

    assert [each.status_code for each in (*unsaid, both, bound)] == [422, 422, 422, 422, 403]
    assert unsaid[0].json()["field"] == "user_id"
    assert there.status_code == 200
    assert [each.status_code for each in (*own, part, *meant)] == [200] * 5
    assert (meant[0].json()["count"], meant[1].json()["count"] > 0) == (
        meant[1].json()["count"],
        True,
    )
    assert gone.status_code == 404


# Who was refused, where, and why

ASKED_MCP = {"accept": "application/json, text/event-stream"}
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "x", "version": "1"},
}


def test_every_refusal_leaves_an_entry_that_says_where_and_why(tmp_path: Path) -> None:
    with Admin(str(tmp_path / "s.db")) as admin:
        boss, reader = key(admin, "read", "write", "admin"), key(admin, "read")
    config = ServerConfig(url=str(tmp_path / "s.db"), durability="process", log_level="error")

    def rpc(method: str, params: dict[str, Any], **headers: str) -> Any:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return client.post("/mcp", json=body, headers=reader | ASKED_MCP | headers)

    app = make_app(config, [mcp_mount(config)])
    with TestClient(app, base_url="http://127.0.0.1:8000") as client:
        nobody = client.get("/v1/runs/private-name")
        may_not = client.post("/v1/threads/private-name/slots", json={}, headers=reader)
        nowhere = client.get("/private-name")
        host = rpc("initialize", HELLO, host="evil.example")
        origin = rpc("initialize", HELLO, origin="https://evil.example")
        session = rpc("initialize", HELLO).headers["mcp-session-id"]
        tool = {"name": "add_memory", "arguments": {"text": "private-name"}}
        called = rpc("tools/call", tool, **{"mcp-session-id": session})
        listed = client.get("/v1/refusals", headers=boss)
        counted = client.get("/metrics", headers=boss).text

    told = [each["refusal"] for each in listed.json()["items"]]
    assert "forbidden" in called.text
    statuses = [each.status_code for each in (nobody, may_not, nowhere, host, origin, called)]
    assert statuses == [401, 403, 401, 421, 403, 200]
    assert [(each["status"], each["reason"], each["route"]) for each in told] == [
        (401, "unauthenticated", "/v1/runs/{run_id}"),
        (403, "forbidden", "/v1/threads/{thread_id}/slots"),
        (401, "unauthenticated", "unmatched"),
        (421, "misdirected_request", "/mcp"),
        (403, "forbidden", "/mcp"),
        (403, "forbidden", "/mcp tools/call add_memory"),
    ]
    assert "private-name" not in listed.text
    assert 'code="misdirected_request"' in counted
