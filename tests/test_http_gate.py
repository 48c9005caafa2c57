"""Who is who at the server's door, and what a key for repeats may do and tell."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from starlette.testclient import TestClient

from pagefile.access.identity import Identity
from pagefile.access.keys import KeyStore
from pagefile.access.tokens import TokenSettings
from pagefile.handle import Admin
from pagefile.surfaces.http.app import make_app
from pagefile.surfaces.http.config import ServerConfig

Sign = Callable[..., dict[str, str]]

pytestmark = [
    pytest.mark.filterwarnings("ignore::pagefile.memory.isolation.IsolationWarning"),
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


def test_wrong_keys_shut_nobody_out_who_has_a_right_one(tmp_path: Path) -> None:
    with Admin(str(tmp_path / "s.db")) as admin:
        bob = key(admin, "read")
    with serving(tmp_path, failures_per_second=1) as client:
        wrong = [{"authorization": f"Bearer pf_{n:012x}_{'x' * 43}"} for n in range(9)]
        codes = [client.get("/v1/whoami", headers=each).status_code for each in wrong]
        right = client.get("/v1/whoami", headers=bob).status_code

    assert (codes[0], codes[-1], right) == (401, 429, 200)
