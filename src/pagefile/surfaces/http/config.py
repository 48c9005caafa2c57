"""How a server is set up: by arguments, by the environment. Plain data, for worker processes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_origin

import msgspec

from pagefile.errors import Invalid, shown
from pagefile.settings import Settings
from pagefile.store.arguments import require_count, require_seconds
from pagefile.store.codec.decoder import convert, json_decoder
from pagefile.store.records import Durability
from pagefile.surfaces.access.identity import is_loopback, require_tenant
from pagefile.surfaces.access.tokens import TokenSettings

_MEGABYTE = 1_048_576
_FLAGS = {"true": True, "on": True, "1": True, "false": False, "off": False, "0": False}


class ServerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of one server; the defaults are the safe ones.

    `local` lets everybody in who reaches the port, as the home tenant `tenant`
    with all rights; it is refused for addresses other than loopback. Rates and
    numbers of streams are for each worker process by itself.
    """

    url: str = "pagefile.db"
    tenant: str = "default"
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    local: bool = False
    durability: Durability | None = None
    #: Where packs wait to be downloaded; next to the file when it is not given.
    packs_dir: str = ""
    #: Where worker processes leave their counters for each other; `serve` makes one.
    metrics_dir: str = ""
    tokens: TokenSettings | None = None
    #: Other surfaces under this one's front, as `module:function`; each is given this
    #: configuration and returns a `Mounted`.
    mounts: tuple[str, ...] = ()
    #: Web pages of these origins may call from a browser.
    allow_origins: tuple[str, ...] = ()
    max_body_bytes: int = 16 * _MEGABYTE
    max_body_values: int = 200_000
    max_upload_bytes: int = 1_024 * _MEGABYTE
    max_packs: int = 1_000
    body_seconds: float = 20.0
    upload_seconds: float = 900.0
    request_seconds: float = 60.0
    #: Of one key; 0 for no limit. Twice as many may come at once.
    rate_per_second: int = 2_000
    #: Of refused credentials from one address.
    failures_per_second: int = 10
    max_streams: int = 1_000
    max_tenants: int = 1_000
    threads: int = 32
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    def checked(self) -> ServerConfig:
        """Itself, if a server can be started with it.

        Raises:
            Invalid: names the setting and the rule.
        """
        require_tenant(self.tenant)
        for name, least, most in (
            ("port", 0, 65_535),
            ("workers", 1, 256),
            ("max_body_bytes", 1_024, 1_024 * _MEGABYTE),
            ("max_body_values", 1_000, 100_000_000),
            ("max_upload_bytes", 1_024, 1_024 * 1_024 * _MEGABYTE),
            ("max_packs", 1, 1_000_000),
            ("rate_per_second", 0, 10_000_000),
            ("failures_per_second", 1, 1_000_000),
            ("max_streams", 1, 100_000),
            ("max_tenants", 1, 100_000),
            ("threads", 1, 1_024),
        ):
            require_count(getattr(self, name), name, least=least, most=most)
        for name in ("body_seconds", "upload_seconds", "request_seconds"):
            require_seconds(getattr(self, name), name)
        if self.local and not is_loopback(self.host):
            raise Invalid(
                "local",
                f"{shown(self.host)} can be reached from outside",
                "bind 127.0.0.1, or leave --local out and use keys",
            )
        if "*" in self.allow_origins:
            raise Invalid("allow_origins", "'*' is every web page", "name the origins")
        if self.workers > 1 and self.url == "memory:":
            raise Invalid("workers", "memory: lives in one process", "use a file, or one worker")
        return self

    @property
    def packs(self) -> Path:
        """The folder for packs that wait to be downloaded."""
        if self.packs_dir:
            return Path(self.packs_dir).expanduser().absolute()
        scheme, mark, rest = self.url.partition("://")
        if self.url == "memory:" or (mark and scheme != "sqlite"):
            return Path("pagefile-packs").absolute()
        file = Path(rest.removeprefix("/") if mark else self.url).expanduser().absolute()
        return file.with_name(f"{file.name}-packs")


def config_from(settings: dict[str, Any]) -> ServerConfig:
    """A configuration from what was given; what is None is left as it is."""
    given = {name: value for name, value in settings.items() if value is not None}
    try:
        return convert(given, ServerConfig).checked()
    except msgspec.ValidationError as error:
        raise Invalid("config", str(error), "see docs/howto/serve.md") from error


def set_by(settings: Settings) -> dict[str, Any]:
    """Fields of `ServerConfig` that variables set, and `tokens` where one of theirs does.

    Raises:
        Invalid: names the variable, and what it may be.
    """
    given = _fields(ServerConfig, settings.server, settings.origins, "server")
    tokens = _fields(TokenSettings, settings.jwt, settings.origins, "jwt")
    if tokens:
        given["tokens"] = _tokens(tokens)
    return given


def _tokens(given: dict[str, Any]) -> TokenSettings:
    for name in ("jwks", "issuer", "audience"):
        if name not in given:
            variable = f"PAGEFILE_JWT_{name.upper()}"
            raise Invalid(variable, "is not set, and others of tokens are", "set it too")
    try:
        return convert(given, TokenSettings)
    except msgspec.ValidationError as error:
        raise Invalid("PAGEFILE_JWT_…", str(error), "see docs/reference/http.md") from error


def _fields(
    shape: type, texts: Mapping[str, str], origins: Mapping[str, str], part: str
) -> dict[str, Any]:
    kinds = {field.name: field.type for field in msgspec.structs.fields(shape)}
    return {
        name: _value(origins[f"{part}.{name}"], text, kinds[name])
        for name, text in texts.items()
        if text
    }


def _value(variable: str, text: str, kind: Any) -> Any:
    if kind is bool:
        if text.lower() not in _FLAGS:
            raise Invalid(variable, f"{shown(text)} is not a switch", "set it to on or off")
        return _FLAGS[text.lower()]
    if kind in (int, float):
        try:
            return json_decoder(kind).decode(text)
        except (msgspec.MsgspecError, UnicodeEncodeError):
            raise Invalid(variable, f"{shown(text)} is not a number", "set it to one") from None
    return text.replace(",", " ").split() if get_origin(kind) is tuple else text
