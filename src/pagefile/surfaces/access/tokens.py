"""JSON Web Tokens: whose they are, by the keys that an issuer publishes.

Only signatures by asymmetric keys count: with a shared secret, whoever can
check a token could also make one.
"""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from pagefile.errors import Invalid, Unavailable, Unsupported, shown
from pagefile.surfaces.access.identity import (
    RIGHTS,
    Identity,
    Right,
    digest_of,
    is_loopback,
    require_rights,
    require_tenant,
    require_user,
)

if TYPE_CHECKING:
    import jwt

_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_MOST_BYTES = 16_384
#: Of a key set, in a file or from an issuer.
_MOST_SET_BYTES = 1_048_576
_READ_AT_ONCE = 65_536
#: How long a key set may take to arrive.
_FETCH_SECONDS = 5
#: How long fetched keys count.
_KEYS_SECONDS = 300.0
#: How long an unknown key is not asked for again.
_FETCH_PAUSE_SECONDS = 30.0
#: How long an issuer that failed is not asked again.
_FAILURE_PAUSE_SECONDS = 5.0
_LEEWAY_SECONDS = 30
_MOST_SHOWN = 60
#: Claims that a new token for the same caller has anew.
_PASSING = frozenset({"exp", "iat", "nbf", "jti", "auth_time", "nonce", "sid"})


class TokenSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Which tokens count, and what their claims mean.

    `jwks` is a file or an https address with the issuer's keys. `rights_claim`
    holds words such as "read write", alone or after "pagefile:"; without the
    claim a token has `default_rights`.
    """

    jwks: str
    issuer: str
    audience: str
    tenant_claim: str = "tenant"
    user_claim: str = "sub"
    bind_user: bool = True
    rights_claim: str = "scope"
    default_rights: tuple[Right, ...] = ("read",)


class TokenVerifier:
    """Tells whose token it is.

    `authenticate` fetches keys if it has to, which blocks. Whoever must not wait with a
    thread asks `lacks_keys_for`, calls `fetch_for` elsewhere, and then `verify`.
    """

    def __init__(self, settings: TokenSettings) -> None:
        try:
            import jwt
        except ModuleNotFoundError as error:
            raise Unsupported(
                "tokens need PyJWT, which is not installed", "pip install 'pagefile[server]'"
            ) from error
        self._jwt = jwt
        #: When the keys were fetched, and before when nothing is fetched.
        self._fetched = self._next_fetch = -_KEYS_SECONDS
        self._fetching = threading.Lock()
        self._keys: dict[str, jwt.PyJWK] = {}
        self._settings = settings
        for field in ("issuer", "audience"):
            if not getattr(settings, field):
                raise Invalid(field, "is empty", "say which tokens are meant for this server")
        require_rights(settings.default_rights)
        self._is_remote = _is_safe_address(settings.jwks)
        if self._is_remote:
            return
        if "://" in settings.jwks:
            raise Invalid("jwks", shown(settings.jwks), "give a file or an https address")
        self._keys = _keys_in(settings.jwks)

    def authenticate(self, text: str) -> Identity | None:
        """Whose token this is; None when it is malformed, expired, or not for us.

        Raises:
            Unavailable: the issuer's keys cannot be fetched.
        """
        self.fetch_for(text)
        return self.verify(text)

    def lacks_keys_for(self, text: str) -> bool:
        """Whether the issuer has to be asked for its keys first; reads nothing."""
        if not self._is_remote:
            return False
        try:
            kid = self._kid_of(text)
        except self._jwt.PyJWTError:
            return False
        if self._is_stale():
            return True
        # Made-up names must not make us ask all the time.
        return self._known(kid) is None and time.monotonic() >= self._next_fetch

    def fetch_for(self, text: str) -> None:
        """Ask the issuer for its keys, if they are needed for this token; one asks at a time.

        Raises:
            Unavailable: they cannot be fetched, or that failed a moment ago.
        """
        with self._fetching:
            if not self.lacks_keys_for(text):
                return
            was_stale, now = self._is_stale(), time.monotonic()
            if now < self._next_fetch:
                raise _silent()
            try:
                self._keys = _published(self._settings.jwks)
            except (OSError, ValueError, self._jwt.PyJWTError) as error:
                self._next_fetch = time.monotonic() + _FAILURE_PAUSE_SECONDS
                raise _silent() from error
            self._fetched = now
            if not was_stale:
                self._next_fetch = now + _FETCH_PAUSE_SECONDS

    def verify(self, text: str) -> Identity | None:
        """Whose token this is by the keys that are here; see `authenticate`."""
        jwt = self._jwt
        try:
            key = self._known(self._kid_of(text))
            if key is None or self._is_stale():
                return None
            claims = jwt.decode(
                text,
                key.key,
                algorithms=[name for name in _ALGORITHMS if _fits(key, name)],
                issuer=self._settings.issuer,
                audience=self._settings.audience,
                leeway=_LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud"]},
            )
            return self._identity(claims)
        except (jwt.PyJWTError, Invalid, ValueError, TypeError):
            return None

    def _kid_of(self, text: str) -> object:
        if len(text) > _MOST_BYTES or text.count(".") != 2:
            raise self._jwt.InvalidTokenError("it is not a token")
        return self._jwt.get_unverified_header(text).get("kid")

    def _known(self, kid: object) -> jwt.PyJWK | None:
        keys = self._keys
        if kid is None and len(keys) == 1:
            return next(iter(keys.values()))
        return keys.get(kid) if isinstance(kid, str) else None

    def _is_stale(self) -> bool:
        return self._is_remote and time.monotonic() >= self._fetched + _KEYS_SECONDS

    def _identity(self, claims: Mapping[str, Any]) -> Identity:
        chosen = self._settings
        tenant = require_tenant(claims.get(chosen.tenant_claim))
        user = claims.get(chosen.user_claim) if chosen.bind_user else None
        if chosen.bind_user and user is None:
            raise Invalid(chosen.user_claim, "is missing", "name the user in the token")
        proof = digest_of("token", chosen.issuer, _who(claims))
        return Identity(
            _name(claims, proof), tenant, self._rights(claims), require_user(user), proof
        )

    def _rights(self, claims: Mapping[str, Any]) -> frozenset[Right]:
        given = claims.get(self._settings.rights_claim)
        if given is None:
            return frozenset(self._settings.default_rights)
        words = given.split() if isinstance(given, str) else given
        if not isinstance(words, list):
            raise Invalid(self._settings.rights_claim, shown(given), "give words")
        named = {str(word).removeprefix("pagefile:") for word in words}
        return frozenset(right for right in RIGHTS if right in named)


def _is_safe_address(jwks: str) -> bool:
    """Whether nobody on the way can put other keys in the place of the issuer's."""
    try:
        parts = urlsplit(jwks)
        host = parts.hostname or ""
    except ValueError:
        return False
    return bool(host) and (
        parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))
    )


def _who(claims: Mapping[str, Any]) -> str:
    """Who a token is about, in full; without a subject, all that lasts longer than the token."""
    if "sub" in claims:
        return json.dumps({"sub": claims["sub"]})
    lasting = {name: value for name, value in claims.items() if name not in _PASSING}
    return json.dumps(lasting, sort_keys=True)


def _name(claims: Mapping[str, Any], proof: str) -> str:
    """What people are shown: the subject, where it is short, otherwise with a digest."""
    sub = repr(claims.get("sub", ""))[1:-1]
    if 0 < len(sub) <= _MOST_SHOWN:
        return f"token:{sub}"
    return f"token:{sub[: _MOST_SHOWN - 9]}~{proof[:8]}"


def _keys_in(path: str) -> dict[str, jwt.PyJWK]:
    import jwt

    try:
        if Path(path).stat().st_size > _MOST_SET_BYTES:
            raise Invalid("jwks", f"{shown(path)} is too large", "give a JWKS file")
        held = jwt.PyJWKSet.from_json(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, jwt.PyJWTError) as error:
        raise Invalid(
            "jwks", f"{shown(path)} holds no keys ({error})", "give a JWKS file"
        ) from error
    return {key.key_id or "": key for key in held.keys}


def _published(address: str) -> dict[str, jwt.PyJWK]:
    """The keys that an issuer publishes; no more is read, and for no longer, than one can have."""
    import jwt

    until = time.monotonic() + _FETCH_SECONDS
    with urllib.request.urlopen(address, timeout=_FETCH_SECONDS) as answer:
        if not _is_safe_address(answer.url):
            raise ValueError("it leads to an address that anybody could answer for")
        raw = b""
        while part := answer.read1(_READ_AT_ONCE):
            raw += part
            if len(raw) > _MOST_SET_BYTES or time.monotonic() > until:
                raise ValueError("it is too large, or too slow")
    held = jwt.PyJWKSet.from_json(raw.decode())
    return {key.key_id or "": key for key in held.keys}


def _silent() -> Unavailable:
    return Unavailable("the keys of the token's issuer cannot be fetched", "try again later")


def _fits(key: jwt.PyJWK, algorithm: str) -> bool:
    """Whether a key is one for this algorithm; the token has no say in it."""
    name = key.algorithm_name
    if name in _ALGORITHMS:
        families = {"RS": ("RS", "PS"), "PS": ("RS", "PS")}
        return algorithm == name or algorithm[:2] in families.get(name[:2], ())
    return False
