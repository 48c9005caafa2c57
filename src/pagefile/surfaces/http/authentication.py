"""Who is let in: keys, tokens, or everybody where the server is local."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from pagefile.surfaces.access.identity import RIGHTS, Identity, Right, is_loopback
from pagefile.surfaces.access.keys import KeyStore
from pagefile.surfaces.access.tokens import TokenVerifier
from pagefile.surfaces.http import pages
from pagefile.surfaces.http.config import ServerConfig
from pagefile.surfaces.http.limits import Rates
from pagefile.surfaces.http.problems import Refused
from pagefile.surfaces.http.table import ASKING

Headers = Iterable[tuple[bytes, bytes]]

#: What answers without a key: it says nothing about anybody's data.
PUBLIC = pages.PUBLIC | {"/health", "/ready", "/docs", "/redoc", "/openapi.json", "/"}
_READING = frozenset({"GET", "HEAD", "OPTIONS"})
_CHALLENGE = {"www-authenticate": 'Bearer realm="pagefile"'}
_MOST_CREDENTIAL = 16_384


def right_for(method: str, path: str) -> Right:
    """The least right that a request needs; a route may ask for more."""
    return "read" if method in _READING or path in ASKING else "write"


class Gate:
    """Tells who a request is from, or refuses it."""

    def __init__(self, config: ServerConfig, keys: KeyStore, tokens: TokenVerifier | None) -> None:
        self._keys = keys
        self._tokens = tokens
        self._fetcher = ThreadPoolExecutor(1, "pagefile-issuer")
        self._fetching: asyncio.Future[None] | None = None
        self._failures = Rates(config.failures_per_second)
        self._local: Identity | None = None
        if config.local:
            self._local = Identity("local", config.tenant, frozenset(RIGHTS))

    def known(self, heads: dict[bytes, bytes], count: int) -> Identity | None:
        """Whose request it is, if the same key was looked up moments ago.

        `count` is how many headers there were: where one came twice, `identify` looks closer.
        """
        given = heads.get(b"authorization")
        if (
            given is None
            or given[:7] != b"Bearer "
            or b"x-api-key" in heads
            or len(heads) != count
            or self._local is not None
        ):
            return None
        return self._keys.remembered(given[7:].decode("latin-1"))

    async def identify(self, headers: Headers, client: str) -> Identity:
        """Whose request it is.

        Raises:
            Refused: nobody's that we know; or too many such from this address.
        """
        if self._local is not None:
            _require_loopback(headers)
            return self._local
        given = _credentials(headers)
        if len(given) != 1 or len(given[0]) > _MOST_CREDENTIAL:
            many = "several keys were sent" if len(given) > 1 else "no key was sent"
            raise self._failed(client, f"{many}: send 'Authorization: Bearer pf_…'")
        # Looked up whatever came from that address before: many may share it, and a wrong key of
        # one must not shut out the others. 256 bits are not guessed, however often it is tried.
        found = await self._look(given[0])
        if found is None:
            raise self._failed(client, "the key is unknown, revoked or expired")
        return found

    async def _look(self, text: str) -> Identity | None:
        if text.startswith("pf_"):
            return await asyncio.to_thread(self._keys.authenticate, text)
        if self._tokens is None:
            return None
        if self._tokens.lacks_keys_for(text):
            await self._fetch_keys(self._tokens, text)
        return await asyncio.to_thread(self._tokens.verify, text)

    async def _fetch_keys(self, tokens: TokenVerifier, text: str) -> None:
        """Wait for the issuer with whoever else does; the threads that others need are not held."""
        if self._fetching is None or self._fetching.done():
            loop = asyncio.get_running_loop()
            self._fetching = loop.run_in_executor(self._fetcher, tokens.fetch_for, text)
            # Everybody who waits may have gone by the time it fails.
            self._fetching.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(self._fetching)

    def _failed(self, client: str, detail: str) -> Refused:
        if not self._failures.has(client, take=True):
            return Refused(429, "too many wrong keys", headers={"retry-after": "1"})
        return Refused(401, detail, headers=dict(_CHALLENGE))


def _credentials(headers: Headers) -> list[str]:
    found = []
    for name, value in headers:
        if name == b"x-api-key":
            found.append(value.decode("latin-1").strip())
        elif name == b"authorization":
            scheme, _, rest = value.decode("latin-1").strip().partition(" ")
            known = scheme.lower() in ("bearer", "token")
            found.append(rest.strip() if known else "")
    return found


def _require_loopback(headers: Headers) -> None:
    """Refuse what a web page elsewhere makes a browser send to a server without keys."""
    for name, value in headers:
        if name == b"host" and not is_loopback(_host_of(value.decode("latin-1"))):
            raise Refused(403, "a local server answers to 127.0.0.1 and localhost alone")
        if name == b"origin":
            _, _, place = value.decode("latin-1").partition("://")
            if not is_loopback(_host_of(place)):
                raise Refused(403, "a local server answers no page from elsewhere")


def _host_of(place: str) -> str:
    """The host in `host:port`; IPv6 addresses stand in brackets."""
    if place.startswith("["):
        return place.partition("]")[0] + "]"
    return place.partition(":")[0]
