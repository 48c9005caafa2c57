"""Keys, tenants and hostile input: the right status, nothing leaked, still serving."""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.testclient import TestClient

from pagefile.handle import Admin
from pagefile.surfaces.access.keys import KeyStore
from pagefile.surfaces.access.tokens import TokenSettings
from pagefile.surfaces.http.app import make_app
from pagefile.surfaces.http.config import ServerConfig

SECRET = "tuba-and-tungsten"
ISSUER, AUDIENCE = "https://issuer.example", "pagefile"
PUBLIC = {"/health", "/ready"}
FOREIGN = {"x-tenant": "theirs", "tenant": "theirs", "x-pagefile-tenant": "theirs"}
MCR = {
    "_schema_version": "2.1",
    "op": "add",
    "type": "fact",
    "scope": "global",
    "content": SECRET,
    "confidence": 0.9,
    "rationale": "seen",
    "source_refs": [],
}

pytestmark = [
    pytest.mark.filterwarnings("ignore::pagefile.memory.privacy.isolation.IsolationWarning"),
    pytest.mark.xdist_group("http-security"),
]


class Place(NamedTuple):
    """A server in this process, its keys, and what tenant `theirs` has stored in it."""

    client: TestClient
    keys: dict[str, dict[str, str]]
    theirs: dict[str, str]
    document: dict[str, Any]
    sign: Callable[..., str]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("security")
    signer = rsa.generate_private_key(public_exponent=65_537, key_size=2_048)
    jwk = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(signer.public_key()))
    (folder / "jwks.json").write_text(
        json.dumps({"keys": [jwk | {"kid": "k1", "alg": "RS256", "use": "sig"}]})
    )
    with Admin(f"{folder}/s.db") as admin:
        keys = made_keys(KeyStore(admin))
    config = ServerConfig(
        url=f"{folder}/s.db",
        durability="process",
        log_level="error",
        failures_per_second=1_000_000,
        tokens=TokenSettings(jwks=f"{folder}/jwks.json", issuer=ISSUER, audience=AUDIENCE),
    )

    def sign(headers: dict[str, Any] | None = None, **claims: Any) -> str:
        now = datetime.now(UTC)
        usual = {"iss": ISSUER, "aud": AUDIENCE, "exp": now + timedelta(hours=1), "sub": "ann"}
        held = {name: value for name, value in (usual | claims).items() if value is not None}
        return jwt.encode(held, signer, "RS256", headers or {"kid": "k1"})

    with TestClient(make_app(config), base_url="http://127.0.0.1:8000") as client:
        theirs = planted(client, keys["theirs"])
        document = client.get("/openapi.json").json()
        yield Place(client, keys, theirs, document, sign)


def made_keys(store: KeyStore) -> dict[str, dict[str, str]]:
    every = ("read", "write", "admin")
    secrets = {
        "home": store.create("default", every).secret,
        "theirs": store.create("theirs", every).secret,
        "ours": store.create("ours", every).secret,
        "reader": store.create("ours", ("read",)).secret,
        "writer": store.create("ours", ("write",)).secret,
        "ann": store.create("ours", every, user_id="ann").secret,
        "cat": store.create("shared", every, user_id="cat").secret,
        "dan": store.create("shared", every, user_id="dan").secret,
    }
    return {name: {"authorization": f"Bearer {secret}"} for name, secret in secrets.items()}


def planted(client: TestClient, key: dict[str, str], user_id: str | None = None) -> dict[str, str]:
    """Something of every kind in the tenant of a key; the ids by the names of parameters."""

    def post(path: str, body: Any) -> Any:
        made = client.post(path, json=body, headers=key)
        assert made.status_code < 300, (path, made.text)
        return made.json()

    client.put("/v1/blocks/persona", json={"content": SECRET}, headers=key)
    client.put("/v1/aliases/Bobby", json={"canonical": SECRET}, headers=key)
    run = post("/v1/runs", {"objective": SECRET, "run_id": "run-x", "gate": "none"})["run_id"]
    post("/v1/threads/thread-x/slots", {"payload": SECRET, "from_id": "a", "to_id": "b"})
    whose = {"memory_id": "item-x"}
    if user_id is not None:
        whose |= {"scope": "user", "user_id": user_id}
    else:
        post("/v1/registry/threads", {"initiator": SECRET, "target": "b", "thread_id": "thread-x"})
    batch = post(f"/v1/runs/{run}/batches", {"mcrs": [MCR | whose]})["batch_id"]
    post(f"/v1/batches/{batch}/commit", {"reviewer": "carl"})
    milestone = post(f"/v1/runs/{run}/milestones", {"reason": SECRET})
    pack = post(f"/v1/runs/{run}/packs", {})["pack_id"]
    episode = post("/v1/episodes", {"session_id": "session-x", "input": SECRET, "id": "ep-x"})["id"]
    fact = {"subject": SECRET, "predicate": "likes", "object": "tea", "id": "fact-x"}
    post("/v1/facts", {"facts": [fact]})
    receipt = post("/v1/context", {"query": SECRET})["receipt"]["receipt_id"]
    return {
        "run_id": run,
        "thread_id": "thread-x",
        "batch_id": batch,
        "pack_id": pack,
        "memory_id": "item-x",
        "fact_id": "fact-x",
        "name": "persona",
        "session_id": "session-x",
        "episode_id": milestone["episode_id"],
        "memory_episode": episode,
        "index": "0",
        "item_id": "i1",
        "predicate": "likes",
        "receipt_id": receipt,
    }


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (method.upper(), path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if path not in PUBLIC
    ]


def sample(schema: dict[str, Any], document: dict[str, Any], ids: dict[str, str]) -> Any:
    """A value of a schema; fields that are named like an id of theirs hold it."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return sample(document["components"]["schemas"][name], document, ids)
    if "properties" in schema:
        required = schema.get("required", [])
        return {
            name: ids.get(name) or sample(part, document, ids)
            for name, part in schema["properties"].items()
            if name in required or name in ids
        }
    if "enum" in schema:
        return schema["enum"][0]
    for choice in schema.get("anyOf", []):
        if choice.get("type") != "null":
            return sample(choice, document, ids)
    kind = schema.get("type")
    if kind == "array":
        return (
            [MCR] if not schema.get("items", {}).get("properties") and "minItems" in schema else []
        )
    return {"integer": 0, "number": 0.5, "boolean": False, "object": {}}.get(str(kind), "likes")


def request_for(
    place: Place, method: str, path: str, operation: dict[str, Any], ids: dict[str, str]
) -> dict[str, Any]:
    """The arguments of a request that names their ids wherever it can."""
    filled = path
    for name in re.findall(r"{(\w+)}", path):
        own = "memory_episode" if path.startswith("/v1/episodes/") else name
        filled = filled.replace(f"{{{name}}}", ids[own])
    params: dict[str, Any] = {}
    for parameter in operation.get("parameters", []):
        if parameter["in"] == "query" and (parameter.get("required") or parameter["name"] in ids):
            known = {"name": "run/run-x", "kind": "document", "subject": SECRET, "entity": SECRET}
            params[parameter["name"]] = known.get(
                parameter["name"], ids.get(parameter["name"], "likes")
            )
    if "follow" in path:
        params |= {"seconds": 0, "after": 0}
    if path.endswith("/diff"):
        params |= {"a": 0, "b": 0}
    content = operation.get("requestBody", {}).get("content", {})
    made: dict[str, Any] = {"method": method, "url": filled, "params": params}
    if "application/json" in content:
        made["json"] = sample(content["application/json"]["schema"], place.document, ids)
    elif content:
        media = next(iter(content))
        made |= {"content": b"nothing", "headers": {"content-type": media}}
    return made


def ask(place: Place, made: dict[str, Any], key: dict[str, str] | None) -> Any:
    made = {**made, "headers": {**made.get("headers", {}), **(key or {})}}
    return place.client.request(**made)


# Who is let in


def test_every_operation_asks_for_a_key(place: Place) -> None:
    let_in = []
    for method, path, operation in operations(place.document):
        made = request_for(place, method, path, operation, place.theirs)
        for key in (None, {"authorization": "Bearer pf_000000000000_" + "A" * 43}):
            answer = ask(place, made, key)
            if answer.status_code != 401 or SECRET in answer.text:
                let_in.append((method, path, answer.status_code))

    assert len(operations(place.document)) > 100
    assert let_in == []


def test_no_operation_shows_or_changes_anything_of_another_tenant(place: Place) -> None:
    before = place.client.get("/v1/store/head", headers=place.keys["theirs"]).json()
    leaks = []
    for method, path, operation in operations(place.document):
        made = request_for(place, method, path, operation, place.theirs)
        # What was sent may be answered with; their stored text is not in every request.
        sent = json.dumps(made, default=str)
        for headers in ({}, FOREIGN):
            answer = ask(place, made, place.keys["ours"] | headers)
            leaked = SECRET in answer.text and SECRET not in sent
            if leaked or answer.status_code >= 500:
                leaks.append((method, path, answer.status_code, answer.text[:200]))
    after = place.client.get("/v1/store/head", headers=place.keys["theirs"]).json()

    assert leaks == []
    assert after == before


def test_the_same_requests_do_reach_what_is_theirs(place: Place) -> None:
    """Otherwise the test above would prove nothing."""
    reached = 0
    for method, path, operation in operations(place.document):
        if method == "GET":
            made = request_for(place, method, path, operation, place.theirs)
            reached += ask(place, made, place.keys["theirs"]).status_code == 200

    assert reached >= 35


def test_a_key_that_only_reads_changes_nothing(place: Place) -> None:
    place.client.post(
        "/v1/runs", json={"objective": "x", "run_id": "run-x"}, headers=place.keys["ours"]
    )
    before = place.client.get("/v1/store/head", headers=place.keys["ours"]).json()
    wrong = []
    for method, path, operation in operations(place.document):
        made = request_for(place, method, path, operation, place.theirs)
        status = ask(place, made, place.keys["reader"]).status_code
        if method != "GET" and status not in (403, 404, 200, 400, 422):
            wrong.append((method, path, status))
    after = place.client.get("/v1/store/head", headers=place.keys["ours"]).json()
    written = place.client.get("/v1/runs", headers=place.keys["writer"])

    assert wrong == []
    assert after == before
    assert written.status_code == 403


def test_a_key_for_one_user_reaches_no_other(place: Place) -> None:
    client, ours, ann = place.client, place.keys["ours"], place.keys["ann"]
    said = {"session_id": "s", "user_id": "bob", "input": f"{SECRET} of Bob", "id": "ep-bob"}
    client.post("/v1/episodes", json=said, headers=ours)
    client.post(
        "/v1/runs",
        json={"objective": f"{SECRET} of Bob", "run_id": "run-bob", "user_id": "bob"},
        headers=ours,
    )
    slot = {"payload": f"{SECRET} of Bob", "from_id": "a", "to_id": "b", "user_id": "bob"}
    client.post("/v1/threads/thread-bob/slots", json=slot, headers=ours)
    ids = place.theirs | {
        "run_id": "run-bob",
        "thread_id": "thread-bob",
        "memory_episode": "ep-bob",
        "user_id": "bob",
    }
    before = client.get("/v1/store/head", headers=ours).json()
    leaks = []
    for method, path, operation in operations(place.document):
        made = request_for(place, method, path, operation, ids)
        answer = ask(place, made, ann)
        if "of Bob" in answer.text or answer.status_code >= 500:
            leaks.append((method, path, answer.status_code, answer.text[:150]))
    asked = client.post("/v1/recall", json={"query": SECRET}, headers=ann).json()

    assert leaks == []
    assert asked["items"] == []
    assert before["position"] > 0
    assert client.get("/v1/runs/run-bob", headers=ours).json()["_update_seq"] == 0


#: Where an id is a name in one space: to begin what another has already is refused, and so is
#: to wait for what another began.
TAKEN = {
    ("POST", "/v1/threads/{thread_id}/slots"),
    ("GET", "/v1/threads/{thread_id}/follow"),
    ("POST", "/v1/runs"),
    ("POST", "/runs"),
    ("POST", "/runs/boot"),
}


def test_what_is_anothers_is_refused_as_what_is_not_there(place: Place) -> None:
    """With the same status in the same words, whatever is asked for."""
    dan, cat = place.keys["dan"], place.keys["cat"]
    theirs = planted(place.client, dan, "dan")
    made_here = {"name", "predicate", "index", "item_id"}  # In a partition of the caller's own.
    differing = {}
    for number, (method, path, operation) in enumerate(operations(place.document)):
        nobodys = {
            name: f"{known}{number}" if known[-1] == "x" else known[:-1] + "01"[known[-1] == "0"]
            for name, known in theirs.items()
            if name not in made_here
        }
        seen: list[tuple[int, str]] = []
        both = [
            request_for(place, method, path, operation, ids) for ids in (theirs, theirs | nobodys)
        ]
        if both[0] == both[1]:
            continue  # It names nothing that could be another's.
        for made, ids in zip(both, (theirs, theirs | nobodys), strict=True):
            if isinstance(made.get("json"), dict):
                made["json"].pop("user_id", None)
            answer = ask(place, made, cat)
            told = answer.text.replace(answer.headers["x-request-id"], "")
            told = re.sub("pagefile-upload-[^/]+", "", told)
            for known in sorted({ids[name] for name in nobodys}, key=len, reverse=True):
                told = told.replace(known, "")
            seen.append((answer.status_code, told if answer.status_code >= 300 else ""))
        if seen[0] != seen[1]:
            differing[method, path] = seen

    assert {which: seen for which, seen in differing.items() if which not in TAKEN} == {}
    assert set(differing) == TAKEN


def test_a_key_that_is_known_is_refused_when_it_comes_with_another(place: Place) -> None:
    good = place.keys["ours"]["authorization"]
    other = place.keys["theirs"]["authorization"]
    assert place.client.get("/v1/whoami", headers={"authorization": good}).status_code == 200
    sent = [[good, other], [other, good], [good, good]]
    codes = [
        place.client.get(path, headers=[("authorization", each) for each in pair]).status_code
        for path in ("/v1/whoami", "/v1/runs/none")
        for pair in sent
    ]

    assert codes == [401] * 6


# Tokens


def test_a_good_token_names_its_tenant_user_and_rights(place: Place) -> None:
    token = place.sign(tenant="ours", scope="read pagefile:write")
    who = place.client.get("/v1/whoami", headers={"authorization": f"Bearer {token}"}).json()

    assert (who["tenant"], who["user_id"], who["rights"]) == ("ours", "ann", ["read", "write"])


def test_a_token_that_names_no_rights_may_only_read(place: Place) -> None:
    token = {"authorization": f"Bearer {place.sign(tenant='ours')}"}
    told = place.client.get("/v1/whoami", headers=token)
    refused = place.client.post("/v1/runs", json={"objective": "x"}, headers=token)

    assert told.status_code == 200
    assert refused.status_code == 403


def test_callers_who_choose_the_same_key_for_a_slot_each_store_one(place: Place) -> None:
    slot = {"payload": "x", "from_id": "a", "to_id": "b"}
    indexes = [
        place.client.post(
            "/v1/threads/same-key/slots",
            json=slot,
            headers=place.keys[who] | {"idempotency-key": "the-same"},
        ).json()["index"]
        for who in ("ours", "writer", "ours")
    ]

    assert indexes == [0, 1, 0]


def test_no_bad_token_is_let_in(place: Place) -> None:
    past = datetime.now(UTC) - timedelta(hours=1)
    good = place.sign(tenant="ours")
    head, body, signature = good.split(".")
    bad = {
        "expired": place.sign(tenant="ours", exp=past),
        "without end": place.sign(tenant="ours", exp=None),
        "not yet": place.sign(tenant="ours", nbf=datetime.now(UTC) + timedelta(hours=1)),
        "other issuer": place.sign(tenant="ours", iss="https://evil.example"),
        "other audience": place.sign(tenant="ours", aud="somebody"),
        "no tenant": place.sign(),
        "reserved tenant": place.sign(tenant="~access"),
        "tenant of another type": place.sign(tenant=["ours", "theirs"]),
        "no user": place.sign(tenant="ours", sub=None),
        "unknown key": place.sign({"kid": "k2"}, tenant="ours"),
        "none": jwt.encode({"tenant": "ours"}, "", "none"),
        "shared secret": jwt.encode(
            {"tenant": "ours", "iss": ISSUER, "aud": AUDIENCE}, "k" * 32, "HS256", {"kid": "k1"}
        ),
        "torn": f"{head}.{body}.",
        "forged": f"{head}.{body[:-4]}AAAA.{signature}",
        "no token": "a.b.c",
        "huge": "x." * 2 + "y" * 20_000,
    }
    answers = {
        name: place.client.get("/v1/whoami", headers={"authorization": f"Bearer {token}"})
        for name, token in bad.items()
    }

    assert {name: answer.status_code for name, answer in answers.items()} == dict.fromkeys(bad, 401)


def test_refused_callers_are_in_the_audit_log_without_their_secrets(place: Place) -> None:
    wrong = "pf_000000000000_" + "B" * 43
    headers = {"x-api-key": wrong, "x-request-id": "audit-me"}
    refused = place.client.get("/v1/runs/private-name", headers=headers)
    place.client.get("/metrics", headers=place.keys["ours"] | {"x-request-id": "audit-two"})
    found: list[dict[str, Any]] = []
    cursor: str | None = None
    while cursor is not None or not found:
        params = {"limit": 1_000} | ({"cursor": cursor} if cursor else {})
        page = place.client.get("/v1/refusals", params=params, headers=place.keys["home"]).json()
        found += page["items"]
        cursor = page["cursor"]
        if cursor is None:
            break
    by_id = {each["refusal"]["request_id"]: each["refusal"] for each in found}
    unlisted = sum(each["refusal"].get("unlisted", 0) for each in found)

    assert refused.status_code == 401
    assert "audit-me" in by_id or unlisted
    assert wrong not in json.dumps(found)
    assert "private-name" not in json.dumps(found)


@pytest.mark.parametrize(
    "sent",
    [
        [("authorization", "Bearer a"), ("x-api-key", "b")],
        [("authorization", "Basic cm9vdDpyb290")],
        [("authorization", "Bearer")],
        [("authorization", "Bearer \xff\xfe")],
        [("x-api-key", "")],
        [("x-api-key", "k" * 20_000)],
    ],
)
def test_odd_credentials_are_refused(place: Place, sent: list[tuple[str, str]]) -> None:
    headers = [(name.encode(), value.encode("latin-1")) for name, value in sent]

    assert place.client.get("/v1/whoami", headers=headers).status_code == 401


# What the document says


def declared(operation: dict[str, Any], where: str = "header") -> set[str]:
    return {each["name"] for each in operation.get("parameters", []) if each["in"] == where}


@pytest.mark.parametrize(
    ("name", "wrong"), [("Idempotency-Key", "two words"), ("If-Match", "not a version")]
)
def test_a_header_has_an_effect_where_the_document_says_so_and_nowhere_else(
    place: Place, name: str, wrong: str
) -> None:
    odd, seen = [], 0
    slot = {"payload": "x", "from_id": "a", "to_id": "b"}
    ids: dict[str, Any] = {**place.theirs, "payload": "x", "slots": [slot]}
    for method, path, operation in operations(place.document):
        if method == "GET":
            continue
        made = request_for(place, method, path, operation, ids)
        made["headers"] = {**made.get("headers", {}), name: wrong}
        answer = ask(place, made, place.keys["ours"])
        is_refused = answer.status_code == 400 and name in answer.text
        seen += is_refused
        if is_refused != (name in declared(operation)):
            odd.append((method, path, answer.status_code, answer.text[:150]))

    assert odd == []
    assert seen >= 6


def test_an_operation_lists_the_refusals_that_it_can_give(place: Place) -> None:
    paths = place.document["paths"]

    def refusals(method: str, path: str) -> set[str]:
        return {status for status in paths[path][method]["responses"] if status >= "4"}

    every = [refusals(method, path) for path in paths for method in paths[path]]
    assert refusals("get", "/health") == set()
    assert refusals("get", "/v1/whoami") == {"401", "403", "429", "503"}
    assert "405" not in set().union(*every)
    for path, methods in paths.items():
        for method, operation in methods.items():
            told = refusals(method, path)
            assert ("412" in told) == ("If-Match" in declared(operation))
            assert ("415" in told) == ("requestBody" in operation)
            assert "304" not in operation["responses"] or "If-None-Match" in declared(operation)
    follows = [path for path in paths if path.endswith("/follow")]
    assert [declared(paths[path]["get"]) for path in follows] == [{"Last-Event-ID"}] * 2


# Hostile input

TRAVERSALS = [
    "..",
    "../../etc/passwd",
    "..%2f..%2fetc%2fpasswd",
    "%2e%2e%2f%2e%2e%2fx",
    "..\\..\\x",
]
#: Each operation meets two of these.
OTHER_IDS = [
    "%00",
    "a%00b",
    "~access",
    "%0d%0aset-cookie:%20a=b",
    "x" * 3_000,
    "%ff%fe",
    "*",
    "'; DROP TABLE tenants; --",
    "\u202e",
]


#: Ids that stand in bodies and queries.
SAID_IDS = ("run_id", "new_run_id", "session_id", "user_id", "task_id", "memory_id", "project_id")


def test_no_odd_id_leads_anywhere(place: Place) -> None:
    wrong, meant = [], set()
    for number, (method, path, operation) in enumerate(operations(place.document)):
        turn = number % len(OTHER_IDS)
        for odd in [*TRAVERSALS, *OTHER_IDS[turn : turn + 2]]:
            said = dict.fromkeys((*place.theirs, *SAID_IDS), unquote(odd, errors="replace"))
            in_path = dict.fromkeys(re.findall(r"{(\w+)}", path), odd)
            ids = said | in_path | {"memory_episode": odd}
            made = request_for(place, method, path, operation, ids)
            named = {*in_path, *made["params"], *(made.get("json") or {})} & {*said}
            if not named:
                continue  # There is no id in it.
            meant |= named
            answer = ask(place, made, place.keys["ours"])
            known = answer.status_code in range(200, 500) or answer.status_code == 501
            text = answer.text
            if not known or "root:" in text or "set-cookie" in answer.headers:
                wrong.append((method, path, odd, answer.status_code))

    assert wrong == []
    assert set(SAID_IDS) <= meant


def test_a_pack_that_unpacks_to_more_than_it_may_is_refused(place: Place) -> None:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("working_set.json", b" " * 50_000_000)
    header = place.keys["ours"] | {"content-type": "application/zip"}
    answers = [
        place.client.post(path, content=held.getvalue(), headers=header)
        for path in ("/v1/packs", "/v1/packs/verify")
    ]
    names = ("../../evil", "/etc/evil", "a\\b")
    for name in names:
        other = io.BytesIO()
        with zipfile.ZipFile(other, "w") as archive:
            archive.writestr(name, "x")
        answers.append(place.client.post("/v1/packs", content=other.getvalue(), headers=header))

    assert [answer.status_code for answer in answers] == [413, 413, 422, 422, 422]


def test_wrong_content_types_are_refused_everywhere(place: Place) -> None:
    wrong = []
    for method, path, operation in operations(place.document):
        if "requestBody" in operation:
            made = request_for(place, method, path, operation, place.theirs)
            made.pop("json", None)
            made |= {"content": b"<a/>", "headers": {"content-type": "text/xml"}}
            status = ask(place, made, place.keys["ours"]).status_code
            if status not in (415, 403, 404):
                wrong.append((method, path, status))

    assert wrong == []


def test_no_header_of_the_callers_is_answered_with_unless_it_is_harmless(place: Place) -> None:
    for odd in ("a\r\nset-cookie: x=y", "ä", "x" * 65, "<script>"):
        answer = place.client.get("/health", headers=[(b"x-request-id", odd.encode("latin-1"))])
        assert odd not in str(answer.headers)
        assert "set-cookie" not in answer.headers


def test_a_local_server_answers_no_page_from_elsewhere(tmp_path: Path) -> None:
    config = ServerConfig(url="memory:", local=True, packs_dir=f"{tmp_path}/p", log_level="error")
    with TestClient(make_app(config), base_url="http://127.0.0.1:8000") as client:
        rebound = client.get("/v1/runs", headers={"host": "evil.example:8000"})
        foreign = client.get("/v1/runs", headers={"origin": "https://evil.example"})
        docs = client.get("/openapi.json", headers={"host": "evil.example"})
        own = client.get("/v1/runs", headers={"origin": "http://localhost:8000"})

    codes = [each.status_code for each in (rebound, foreign, docs, own)]
    assert codes == [403, 403, 403, 200]


def test_it_still_serves_after_all_of_this(place: Place) -> None:
    made = place.client.post("/v1/runs", json={"objective": "x"}, headers=place.keys["ours"])

    assert made.status_code == 201
    assert place.client.post("/v1/store/check", headers=place.keys["ours"]).json()["ok"] is True
