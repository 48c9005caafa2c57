"""Keys, identities and the record of refusals, without a server."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from pagefile.errors import Forbidden, Invalid, NotFound, Unavailable
from pagefile.handle import Admin
from pagefile.surfaces.access.identity import ACCESS_TENANT, Identity
from pagefile.surfaces.access.keys import KeyStore
from pagefile.surfaces.access.refusals import Refusal, RefusalLog
from pagefile.surfaces.access.tokens import TokenSettings, TokenVerifier
from pagefile.surfaces.http.config import ServerConfig
from pagefile.surfaces.http.server import serve


@pytest.fixture
def admin() -> Iterator[Admin]:
    with Admin("memory:") as admin:
        yield admin


def test_a_key_is_for_one_tenant_with_its_rights(admin: Admin) -> None:
    keys = KeyStore(admin)
    made = keys.create("acme", "read, write", user_id="ann", name="bot")

    assert keys.authenticate(made.secret) == Identity(
        f"key:{made.key.key_id}", "acme", frozenset({"read", "write"}), "ann"
    )
    assert not keys.is_empty()


def test_no_secret_is_stored_or_shown_again(tmp_path: Path) -> None:
    with Admin(f"{tmp_path}/k.db") as admin:
        made = KeyStore(admin).create("acme")
        shown = repr(made)
        listed = KeyStore(admin).list()
    secret = made.secret.removeprefix(f"pf_{made.key.key_id}_")
    stored = b"".join(file.read_bytes() for file in tmp_path.iterdir())

    assert len(secret) == 43
    assert secret.encode() not in stored
    assert secret not in shown
    assert secret not in repr(listed)


@pytest.mark.parametrize(
    "wrong", ["", "pf_", "pf_000000000000_short", "pf_000000000000_" + "A" * 43, "x" * 10_000]
)
def test_what_is_no_key_is_nobodys(admin: Admin, wrong: str) -> None:
    assert KeyStore(admin).authenticate(wrong) is None


def test_a_key_with_one_character_changed_is_nobodys(admin: Admin) -> None:
    keys = KeyStore(admin)
    secret = keys.create("acme").secret
    other = secret[:-1] + ("A" if secret[-1] != "A" else "B")

    assert keys.authenticate(other) is None


def test_a_revoked_key_is_let_in_no_more_and_stays_listed(admin: Admin) -> None:
    keys = KeyStore(admin)
    made = keys.create("acme")
    keys.authenticate(made.secret)
    revoked = keys.revoke(made.key.key_id)

    assert keys.authenticate(made.secret) is None
    assert keys.remembered(made.secret) is None
    assert keys.revoke(made.key.key_id) == revoked
    assert [key.revoked_at is not None for key in keys.list("acme")] == [True]
    stored = keys._store.get(f"key/{made.key.key_id}")
    assert stored is not None
    assert stored.value["digest"] == ""
    with pytest.raises(NotFound):
        keys.revoke("0" * 12)


def test_a_key_expires(admin: Admin) -> None:
    now = [1_000_000_000_000_000]
    keys = KeyStore(admin, clock=lambda: now[0])
    secret = keys.create("acme", days=1).secret
    before = keys.authenticate(secret)
    now[0] += 86_400_000_000

    assert before is not None
    assert keys.authenticate(secret) is None


def test_an_expired_key_is_not_remembered_as_good(admin: Admin) -> None:
    now = [1_000_000_000_000_000]
    keys = KeyStore(admin, clock=lambda: now[0], remembered_seconds=3_600)
    secret = keys.create("acme", days=1).secret
    assert keys.authenticate(secret) is not None
    remembered_long_before = keys.remembered(secret)
    now[0] += 86_400_000_000 - 1
    assert keys.authenticate(secret) is not None
    passed = time.monotonic() + 0.001
    while time.monotonic() < passed:
        """The microsecond for which the key was still good is over."""

    assert remembered_long_before is not None
    assert keys.remembered(secret) is None


@pytest.mark.parametrize(("seconds_ago", "is_let_in"), [(-60, True), (5, True), (120, False)])
def test_a_token_counts_for_half_a_minute_after_it_expired(
    tmp_path: Path, seconds_ago: int, is_let_in: bool
) -> None:
    signer = ec.generate_private_key(ec.SECP256R1())
    jwk = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(signer.public_key()))
    file = tmp_path / "jwks.json"
    file.write_text(json.dumps({"keys": [jwk | {"kid": "k1", "alg": "ES256"}]}))
    verifier = TokenVerifier(TokenSettings(jwks=str(file), issuer="i", audience="a"))
    until = datetime.now(UTC) - timedelta(seconds=seconds_ago)
    claims = {"iss": "i", "aud": "a", "exp": until, "sub": "ann", "tenant": "acme"}
    token = jwt.encode(claims, signer, "ES256", {"kid": "k1"})

    assert (verifier.authenticate(token) is not None) == is_let_in


@pytest.mark.parametrize(
    ("tenant", "rights", "user"),
    [
        (ACCESS_TENANT, "read", None),
        ("~other", "read", None),
        ("", "read", None),
        ("a\nb", "read", None),
        ("acme", "", None),
        ("acme", "root", None),
        ("acme", "read", ""),
    ],
)
def test_no_key_is_made_for_what_is_reserved_or_odd(
    admin: Admin, tenant: str, rights: str, user: str | None
) -> None:
    with pytest.raises(Invalid):
        KeyStore(admin).create(tenant, rights, user_id=user)
    assert KeyStore(admin).list() == []


def test_a_caller_bound_to_a_user_speaks_for_no_other() -> None:
    bound = Identity("key:1", "acme", frozenset({"read"}), "ann")

    assert (bound.of_user(None), bound.of_user("ann")) == ("ann", "ann")
    with pytest.raises(Forbidden):
        bound.of_user("bob")
    with pytest.raises(Forbidden):
        bound.require_whole_tenant()
    with pytest.raises(Forbidden):
        bound.require("admin")


def test_refusals_beyond_so_many_a_second_are_counted_in_the_next_entry(admin: Admin) -> None:
    now = [0.0]
    log = RefusalLog(admin, per_second=2, clock=lambda: now[0])
    refusal = Refusal(status=401, reason="unauthenticated", method="GET", route="/", request_id="r")

    async def record() -> None:
        for _ in range(5):
            await log.record(refusal)
        now[0] = 1.0
        await log.record(refusal)

    asyncio.run(record())

    assert [each.unlisted for _, each in log.list()] == [0, 0, 3]


class _Issuer(BaseHTTPRequestHandler):
    keys = b""
    asked = 0

    def do_GET(self) -> None:
        type(self).asked += 1
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.keys)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


def test_keys_of_an_issuer_are_fetched_and_made_up_names_do_not_fetch_them_again() -> None:
    signer = ec.generate_private_key(ec.SECP256R1())
    jwk = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(signer.public_key()))
    _Issuer.keys = json.dumps({"keys": [jwk | {"kid": "k1", "alg": "ES256"}]}).encode()
    with HTTPServer(("127.0.0.1", 0), _Issuer) as issuer:
        threading.Thread(target=issuer.serve_forever, daemon=True).start()
        where = f"http://127.0.0.1:{issuer.server_address[1]}/jwks"
        verifier = TokenVerifier(TokenSettings(jwks=where, issuer="i", audience="a"))

        def token(kid: str) -> str:
            until = datetime.now(UTC) + timedelta(hours=1)
            claims = {"iss": "i", "aud": "a", "exp": until, "sub": "ann", "tenant": "acme"}
            return jwt.encode(claims, signer, "ES256", {"kid": kid})

        good = [verifier.authenticate(token("k1")) for _ in range(3)]
        bad = [verifier.authenticate(token(f"x{n}")) for n in range(5)]
        issuer.shutdown()

    assert [who.tenant for who in good if who is not None] == ["acme"] * 3
    assert bad == [None] * 5
    assert _Issuer.asked == 2
    with pytest.raises(Unavailable):
        TokenVerifier(TokenSettings(jwks=where, issuer="i", audience="a")).authenticate(token("k1"))


def test_fetched_keys_grow_old(monkeypatch: pytest.MonkeyPatch) -> None:
    signer = ec.generate_private_key(ec.SECP256R1())
    jwk = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(signer.public_key()))

    class Issuer(_Issuer):
        keys = json.dumps({"keys": [jwk | {"kid": "k1", "alg": "ES256"}]}).encode()

    until = datetime.now(UTC) + timedelta(hours=1)
    claims = {"iss": "i", "aud": "a", "exp": until, "sub": "ann", "tenant": "acme"}
    token = jwt.encode(claims, signer, "ES256", {"kid": "k1"})
    with HTTPServer(("127.0.0.1", 0), Issuer) as issuer:
        threading.Thread(target=issuer.serve_forever, daemon=True).start()
        where = f"http://127.0.0.1:{issuer.server_address[1]}/jwks"
        verifier = TokenVerifier(TokenSettings(jwks=where, issuer="i", audience="a"))
        before = verifier.lacks_keys_for(token)
        assert verifier.authenticate(token) is not None
        after = verifier.lacks_keys_for(token)
        monkeypatch.setattr("pagefile.surfaces.access.tokens._KEYS_SECONDS", 0.0)
        old = verifier.lacks_keys_for(token), verifier.verify(token)
        issuer.shutdown()

    assert (before, after) == (True, False)
    assert old == (True, None)


def test_no_keys_are_taken_from_where_anybody_could_answer() -> None:
    """A redirect leads to the same keys under an address that is not this machine's own."""
    signer = ec.generate_private_key(ec.SECP256R1())
    jwk = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(signer.public_key()))

    class Moved(_Issuer):
        keys = json.dumps({"keys": [jwk | {"kid": "k1", "alg": "ES256"}]}).encode()

        def do_GET(self) -> None:
            if self.path == "/there":
                super().do_GET()
                return
            self.send_response(302)
            self.send_header("location", f"http://0.0.0.0:{issuer.server_address[1]}/there")
            self.end_headers()

    claims = {"iss": "i", "aud": "a", "exp": datetime.now(UTC) + timedelta(hours=1)}
    token = jwt.encode(claims | {"sub": "ann", "tenant": "acme"}, signer, "ES256", {"kid": "k1"})
    with HTTPServer(("127.0.0.1", 0), Moved) as issuer:
        threading.Thread(target=issuer.serve_forever, daemon=True).start()
        settings = TokenSettings(
            jwks=f"http://127.0.0.1:{issuer.server_address[1]}/jwks", issuer="i", audience="a"
        )
        with pytest.raises(Unavailable):
            TokenVerifier(settings).authenticate(token)
        issuer.shutdown()


def junk(number: int) -> str:
    """Looks like a token, and is signed by nobody."""
    return jwt.encode({"sub": "x"}, "s" * 32, "HS256", {"kid": f"k{number}"})


class _Endless(BaseHTTPRequestHandler):
    """A key set of 300 MB."""

    sent = 0

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"keys": [')
        with suppress(OSError):
            for _ in range(300):
                self.wfile.write(b" " * 1_000_000)
                type(self).sent += 1_000_000

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed."""


def test_no_more_of_a_key_set_is_read_than_one_can_have() -> None:
    with HTTPServer(("127.0.0.1", 0), _Endless) as issuer:
        thread = threading.Thread(target=issuer.serve_forever, daemon=True)
        thread.start()
        where = f"http://127.0.0.1:{issuer.server_address[1]}/jwks"
        verifier = TokenVerifier(TokenSettings(jwks=where, issuer="i", audience="a"))
        with pytest.raises(Unavailable):
            verifier.authenticate(junk(1))
        issuer.shutdown()

    # What was under way may fill the buffers between the two.
    assert _Endless.sent < 100_000_000


@pytest.mark.parametrize("pause", [3_600.0, 0.0])
def test_an_issuer_that_fails_is_asked_again_after_a_pause(
    monkeypatch: pytest.MonkeyPatch, pause: float
) -> None:
    monkeypatch.setattr("pagefile.surfaces.access.tokens._FAILURE_PAUSE_SECONDS", pause)
    asked = []

    class Failing(_Issuer):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_error(500)

    with HTTPServer(("127.0.0.1", 0), Failing) as issuer:
        threading.Thread(target=issuer.serve_forever, daemon=True).start()
        where = f"http://127.0.0.1:{issuer.server_address[1]}/jwks"
        verifier = TokenVerifier(TokenSettings(jwks=where, issuer="i", audience="a"))
        for number in range(5):
            with pytest.raises(Unavailable):
                verifier.authenticate(junk(number))
        issuer.shutdown()

    assert len(asked) == (5 if pause == 0 else 1)


@pytest.mark.parametrize(
    "jwks",
    [
        "http://issuer.example/jwks",
        "http://127.0.0.1.evil.example/jwks",
        "http://127.0.0.1@evil.example/jwks",
        "http://[::1/jwks",
        "https:///jwks",
        "ftp://x",
        "/nowhere/jwks.json",
    ],
)
def test_tokens_need_keys_from_a_file_or_a_safe_address(jwks: str) -> None:
    with pytest.raises(Invalid):
        TokenVerifier(TokenSettings(jwks=jwks, issuer="i", audience="a"))


def test_a_store_in_memory_is_not_served_where_it_would_let_nobody_in() -> None:
    with pytest.raises(Invalid):
        serve(ServerConfig(url="memory:"))


@pytest.mark.parametrize(
    "settings",
    [
        {"local": True, "host": "0.0.0.0"},
        {"local": True, "host": "example.org"},
        {"allow_origins": ("*",)},
        {"url": "memory:", "workers": 2},
        {"port": 70_000},
        {"tenant": ACCESS_TENANT},
    ],
)
def test_a_configuration_that_would_open_a_door_is_refused(settings: dict[str, object]) -> None:
    with pytest.raises(Invalid):
        ServerConfig(**settings).checked()  # type: ignore[arg-type]
