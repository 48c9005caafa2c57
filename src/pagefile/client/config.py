"""What a client is told once: where, as whom, how long, how much."""

from __future__ import annotations

import importlib
from typing import Any
from urllib.parse import urlsplit

import msgspec

from pagefile.client.request import require_header
from pagefile.errors import Invalid, Unavailable, shown
from pagefile.settings import Settings
from pagefile.store.arguments import Naming, require_count, require_seconds

MOST_ANSWER_BYTES = 64 << 20
MOST_DOWNLOAD_BYTES = 4 << 30
_MOST_RETRIES = 20
_CONNECT_SECONDS = 5.0
#: The server sends something every 15 seconds; three times that is silence.
FOLLOW_SECONDS = 45.0
_USERS = Naming(512)


class ClientConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Checked; its text shows no key."""

    base_url: str
    api_key: str
    user_id: str | None
    timeout: float
    retries: int
    connections: int
    max_answer_bytes: int
    max_download_bytes: int

    def __repr__(self) -> str:
        return f"ClientConfig(base_url={self.base_url!r}, user_id={self.user_id!r}, …)"

    @property
    def headers(self) -> dict[str, str]:
        """What every request has."""
        sent = {"accept": "application/json", "user-agent": "pagefile-client"}
        return sent | ({"authorization": f"Bearer {self.api_key}"} if self.api_key else {})

    def user(self, user_id: str | None) -> str | None:
        """The user that a call names, else the client's own."""
        return self.user_id if user_id is None else user_id

    def owned(self, things: Any) -> Any:
        """Things that say whose they are; those that do not are the client's own user's."""
        if self.user_id is None or not isinstance(things, (list, tuple)):
            return things
        plain = [msgspec.to_builtins(each) for each in things]
        return [
            each
            if not isinstance(each, dict) or each.get("user_id") is not None
            else each | {"user_id": self.user_id}
            for each in plain
        ]


def configured(
    base_url: str | None,
    api_key: str | None,
    user_id: str | None,
    timeout: float,
    retries: int,
    connections: int,
    max_answer_bytes: int,
    max_download_bytes: int,
) -> ClientConfig:
    """What was given, else what the environment says.

    Raises:
        Invalid: something cannot be used.
    """
    said = Settings.from_environment() if base_url is None or api_key is None else Settings()
    require_seconds(timeout)
    if timeout == 0:
        raise Invalid("timeout", "0 seconds", "give the server some time")
    return ClientConfig(
        base_url=_address(said.base_url if base_url is None else base_url),
        api_key=require_header("api_key", said.api_key if api_key is None else api_key),
        user_id=_user(user_id),
        timeout=float(timeout),
        retries=require_count(retries, "retries", 0, _MOST_RETRIES),
        connections=require_count(connections, "connections", 1, 10_000),
        max_answer_bytes=require_count(max_answer_bytes, "max_answer_bytes", 1),
        max_download_bytes=require_count(max_download_bytes, "max_download_bytes", 1),
    )


def _user(user_id: object) -> str | None:
    if user_id is not None:
        _USERS.check_text("user_id", user_id)
    return user_id  # type: ignore[return-value]


def _address(base_url: object) -> str:
    rule = "give http://host:port or https://host, without a password"
    if not isinstance(base_url, str):
        raise Invalid("base_url", shown(base_url), rule)
    try:
        parts = urlsplit(base_url)
        parts.port  # noqa: B018  A number that no port has is told when it is asked for.
    except ValueError as error:
        raise Invalid("base_url", f"{shown(base_url)} is no address ({error})", rule) from None
    if parts.username is not None or parts.password is not None:
        raise Invalid("base_url", "has a password in it", rule)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise Invalid("base_url", f"{shown(base_url)} is no address", rule)
    return base_url.rstrip("/")


def httpx() -> Any:
    """The library that carries requests.

    Raises:
        Unavailable: it is not installed.
    """
    try:
        return importlib.import_module("httpx")
    except ImportError as error:
        raise Unavailable("httpx is not installed", "pip install 'pagefile[client]'") from error


def options_of(config: ClientConfig, transport: Any) -> dict[str, Any]:
    """How either kind of client is opened: connections are kept, no proxy of the environment."""
    library = httpx()
    limits = library.Limits(
        max_connections=config.connections, max_keepalive_connections=config.connections
    )
    return {
        "base_url": config.base_url,
        "headers": config.headers,
        "timeout": library.Timeout(config.timeout, connect=min(config.timeout, _CONNECT_SECONDS)),
        "limits": limits,
        "transport": transport,
        "trust_env": False,
        "follow_redirects": False,
    }
