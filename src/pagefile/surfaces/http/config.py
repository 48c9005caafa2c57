"""How a server is set up. It crosses to worker processes, so it is plain data."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from pagefile.errors import Invalid, shown
from pagefile.store.arguments import require_count, require_seconds
from pagefile.store.records import Durability
from pagefile.surfaces.access.identity import is_loopback, require_tenant
from pagefile.surfaces.access.tokens import TokenSettings

_MEGABYTE = 1_048_576


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
