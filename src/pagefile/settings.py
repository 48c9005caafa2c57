"""The only reader of the environment, and of `pagefile.toml`.

An argument beats the environment, the environment beats the file, the file
beats the defaults. The file holds no key and no address that a key is sent to:
whoever can put a file into a folder must not be handed what is secret.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import msgspec

from pagefile.errors import Forbidden, Invalid, NotFound, Unavailable

CONFIG_FILE = "pagefile.toml"
_OPENAI = "https://api.openai.com/v1"
#: How long the vectors of well-known models are.
_DIMENSIONS = {"text-embedding-3-large": 3_072}
_USUAL_DIMENSIONS = 1_536
_MOST_FILE_BYTES = 65_536
_NOT_FILES = ("memory:", ":memory:", "manager:")

#: What a server takes from the environment besides its options: fields of `ServerConfig`.
SERVER = (
    *("host", "port", "workers", "log_level", "durability", "packs_dir", "allow_origins"),
    *("max_body_bytes", "max_body_values", "max_upload_bytes"),
    *("max_packs", "max_streams", "max_tenants"),
    *("body_seconds", "upload_seconds", "request_seconds"),
    *("rate_per_second", "failures_per_second", "threads"),
)
#: Which tokens count there: fields of `TokenSettings`.
JWT = (
    *("jwks", "issuer", "audience", "tenant_claim", "user_claim", "bind_user"),
    *("rights_claim", "default_rights"),
)
#: Which variable sets which field, nearest first; the first that is set counts. What stands
#: behind a dot is a name inside a field.
VARIABLES: Mapping[str, tuple[str, ...]] = {
    "url": ("PAGEFILE_URL",),
    "tenant": ("PAGEFILE_TENANT",),
    "user": ("PAGEFILE_USER",),
    "manager_authkey": ("PAGEFILE_MANAGER_AUTHKEY",),
    "embedder": ("PAGEFILE_EMBEDDER",),
    "embedding_model": ("PAGEFILE_EMBEDDING_MODEL",),
    "embedding_dimensions": ("PAGEFILE_EMBEDDING_DIMENSIONS",),
    "llm_model": ("PAGEFILE_LLM_MODEL",),
    "llm_base_url": ("PAGEFILE_LLM_BASE_URL", "OPENAI_BASE_URL"),
    "llm_api_key": ("PAGEFILE_LLM_API_KEY", "OPENAI_API_KEY"),
    "openai_base_url": ("OPENAI_BASE_URL",),
    "openai_api_key": ("OPENAI_API_KEY",),
    "vectors": ("PAGEFILE_VECTORS",),
    "vectors_every": ("PAGEFILE_VECTORS_EVERY",),
    "qdrant_url": ("QDRANT_URL",),
    "qdrant_collection": ("QDRANT_COLLECTION",),
    "qdrant_api_key": ("QDRANT_API_KEY",),
    "qdrant_grpc_port": ("QDRANT_GRPC_PORT",),
    "runs_root": ("AOS_RUNS_ROOT",),
    "memory_file": ("MEMORY_FILE_PATH",),
    "api_key": ("PAGEFILE_API_KEY",),
    "tracing": ("PAGEFILE_TRACING",),
    **{f"server.{name}": (f"PAGEFILE_SERVER_{name.upper()}",) for name in SERVER},
    **{f"jwt.{name}": (f"PAGEFILE_JWT_{name.upper()}",) for name in JWT},
}
#: Variables that other programs share, and the URLs in them that name a store of ours.
SHARED_URLS = {
    "DATABASE_URL": ("postgresql://", "postgres://"),
    "REDIS_URL": ("redis://", "rediss://", "valkey://", "valkeys://"),
}
#: What the file may set.
IN_FILE = (
    *("url", "tenant", "user", "embedder", "embedding_model", "embedding_dimensions"),
    "llm_model",
)
#: What is never shown.
SECRETS = ("manager_authkey", "llm_api_key", "openai_api_key", "qdrant_api_key", "api_key")


class Settings(msgspec.Struct, frozen=True):
    """What the environment and the file say, or the defaults."""

    url: str = "pagefile.db"
    tenant: str = "default"
    user: str = ""
    manager_authkey: str = ""
    embedder: str = ""
    embedding_model: str = "text-embedding-3-small"
    embedding_dimensions: int = _USUAL_DIMENSIONS
    llm_model: str = ""
    llm_base_url: str = _OPENAI
    llm_api_key: str = ""
    openai_base_url: str = _OPENAI
    openai_api_key: str = ""
    #: Where the vectors are kept beside the store; see `pagefile.recall.arms`.
    vectors: str = ""
    #: How many seconds pass between two looks at what the arm lacks; 0 is never.
    vectors_every: float = 0.0
    qdrant_url: str = ""
    qdrant_collection: str = "pagefile"
    qdrant_api_key: str = ""
    #: 0 is HTTP.
    qdrant_grpc_port: int = 0
    #: Where an earlier system kept its runs; see `pagefile restore`.
    runs_root: str = ""
    #: Where the reference memory server kept its graph; see `pagefile mcp`.
    memory_file: str = ""
    #: The key that is shown to a server, where the URL is one.
    api_key: str = ""
    #: "on" makes spans, "content" puts texts into them too; see `pagefile.tracing`.
    tracing: str = ""
    #: What is set of a server and its tokens, as texts; `pagefile serve` reads it.
    server: Mapping[str, str] = msgspec.field(default_factory=dict)
    jwt: Mapping[str, str] = msgspec.field(default_factory=dict)
    #: Which field comes from where; a field that is not here has its default.
    origins: Mapping[str, str] = msgspec.field(default_factory=dict)
    #: Shared variables that name different stores, when nothing says which is meant.
    rivals: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Without the keys, which must not end up in a log."""
        return f"Settings(url={self.url!r}, tenant={self.tenant!r}, …)"

    @staticmethod
    def is_vendors(base_url: str) -> bool:
        """Whether it is the vendor's own address, which takes nobody without a key."""
        return base_url == _OPENAI

    @classmethod
    def from_environment(cls) -> Self:
        """Read the environment and the file, now."""
        values, origins = _from_file()
        for field, variables in VARIABLES.items():
            for name in variables:
                if name in os.environ and (os.environ[name] or field != "url"):
                    values[field], origins[field] = os.environ[name], name
                    break
        for part in ("server", "jwt"):
            inner = [field for field in values if field.startswith(f"{part}.")]
            values[part] = {field.partition(".")[2]: values.pop(field) for field in inner}
        rivals: tuple[str, ...] = ()
        if "url" not in values:
            shared = _shared_urls()
            if len(shared) == 1:
                [(origins["url"], values["url"])] = shared.items()
            rivals = tuple(shared) if len(shared) > 1 else ()
        model = values.get("embedding_model", "")
        usual = _DIMENSIONS.get(model, _USUAL_DIMENSIONS)
        values["embedding_dimensions"] = _number(values, origins, "embedding_dimensions", usual)
        values["qdrant_grpc_port"] = _number(values, origins, "qdrant_grpc_port", 0)
        values["vectors_every"] = _seconds(values, origins, "vectors_every")
        return cls(**values, origins=origins, rivals=rivals)

    def store_url(self) -> str:
        """The store that is meant when none is named.

        Raises:
            Invalid: two variables each name one, and nothing says which.
        """
        if self.rivals:
            raise Invalid(
                "url",
                f"{' and '.join(self.rivals)} each name a store",
                "set PAGEFILE_URL to the one that is meant",
            )
        return self.url


def _shared_urls() -> dict[str, str]:
    """Shared variables that name a store we can open; others' databases are theirs."""
    found = {name: os.environ.get(name, "") for name in SHARED_URLS}
    return {name: url for name, url in found.items() if url.startswith(SHARED_URLS[name])}


def _number(values: Mapping[str, Any], origins: Mapping[str, str], field: str, default: int) -> int:
    given = values.get(field, "")
    if given == "":
        return default
    if isinstance(given, int):
        return given
    if not given.isascii() or not given.isdecimal():
        name = origins[field]
        raise Invalid(name, f"{given[:40]!r} is no whole number", "set it to one, or unset it")
    return int(given)


def _seconds(values: Mapping[str, Any], origins: Mapping[str, str], field: str) -> float:
    given = values.get(field, "")
    whole, _, part = given.partition(".")
    if not given:
        return 0.0
    if not given.isascii() or not whole.isdecimal() or (part and not part.isdecimal()):
        name = origins[field]
        raise Invalid(name, f"{given[:40]!r} is no number", "set it to seconds, or unset it")
    return float(given)


# The file


def config_file() -> Path:
    """Where the file is, or would be: PAGEFILE_CONFIG, or in the current folder."""
    return Path(os.environ.get("PAGEFILE_CONFIG") or CONFIG_FILE)


def _from_file() -> tuple[dict[str, Any], dict[str, str]]:
    path = config_file()
    try:
        with open(path, "rb") as file:
            text = file.read(_MOST_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        if os.environ.get("PAGEFILE_CONFIG"):
            raise NotFound(
                f"PAGEFILE_CONFIG names {str(path)!r}, and there is no such file",
                "make it, or unset the variable",
            ) from None
        return {}, {}
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise Unavailable(
                f"this process can open no more files ({error.strerror})",
                "close some, or raise its limit (ulimit -n), then retry",
            ) from error
        raise Forbidden(
            f"{path} cannot be read ({error.strerror})", "check it, or remove it"
        ) from error
    values = _parsed(path, text)
    url = values.get("url", "")
    if url and "://" not in url and url not in _NOT_FILES:
        # Beside the file, from whichever folder it is read; "~" is somebody's home.
        values["url"] = url if url.startswith("~") else str(path.parent / url)
    return values, dict.fromkeys(values, str(path))


def _parsed(path: Path, text: bytes) -> dict[str, Any]:
    import tomllib

    if len(text) > _MOST_FILE_BYTES:
        raise Invalid(str(path), "is too long", f"it has at most {_MOST_FILE_BYTES:,} bytes")
    try:
        values = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(str(path), f"is no TOML ({error})", "mend it, or remove it") from error
    for name, value in values.items():
        if name not in IN_FILE:
            raise Invalid(
                f"{path}: {name[:40]}", "is no setting of the file", f"it has {', '.join(IN_FILE)}"
            )
        wanted = int if name == "embedding_dimensions" else str
        if type(value) is not wanted:
            raise Invalid(f"{path}: {name}", f"{str(value)[:40]!r}", f"give a {wanted.__name__}")
    return values
