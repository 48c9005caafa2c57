"""How bytes are kept. Each engine implements `store/engine.py` and decides nothing else.

memory                    the whole contract in Python objects: read it first
sqlite/                   one file, many processes
postgres/                 one server, many machines
redis/                    a Redis or Valkey server or cluster
manager/                  the memory engine in a process of its own, used by many
common                    what several engines share

Which engine a URL means, and what is known of it before it is opened, is in this module and
nowhere else. A driver is imported when its engine is asked for.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Protocol

import msgspec

from pagefile.errors import Forbidden, Invalid, Unavailable, Unsupported, shown
from pagefile.settings import Settings
from pagefile.store.engine import Engine
from pagefile.store.records import Durability

#: What to do about a URL that names no store.
URLS = "give a path, sqlite:///path, postgresql://…, redis://…, manager:, or memory:"
#: What the system says of a path that can never be opened, whatever else is repaired.
_UNFIT_PATHS = (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EINVAL)


class EngineOptions(Protocol):
    """The options that an engine is opened with; `pagefile.Options` has them."""

    @property
    def durability(self) -> Durability | None: ...
    @property
    def key_lifetime_seconds(self) -> int: ...
    @property
    def lock_seconds(self) -> float: ...
    @property
    def clock(self) -> Callable[[], int]: ...
    @property
    def vfs(self) -> str | None: ...


#: The format that a store had (None: there was none) and has now, and the newest one known.
Formats = tuple[int | None, int | None, int]


class Scheme(msgspec.Struct, frozen=True):
    """What is known of an engine by its URL alone."""

    #: As the engine calls itself.
    name: str
    #: What stands before `://`.
    words: tuple[str, ...]
    open: Callable[[str, EngineOptions], Engine]
    #: Brings a store to the newest format: URL, check only, role to grant rights to, seconds
    #: to wait for locks. None: there is no format.
    migrate: Callable[[str, bool, str | None, EngineOptions], Formats] | None = None
    #: Whether rights to the tables can be granted to another role.
    grants: bool = False
    #: Whether opening a store makes tables in a database that may be somebody's own.
    makes_tables: bool = False
    #: Whether a store shows that it was made before its first commit.
    is_marked: bool = True


def open_engine(url: str, options: EngineOptions) -> Engine:
    """The engine behind a URL.

    Raises:
        Invalid: the URL names no store. Unsupported: no engine has it, or a driver is missing.
    """
    _require_url(url)
    return scheme_of(url).open(url, options)


def scheme_of(url: str) -> Scheme:
    """What is known of the engine behind a URL.

    Raises:
        Unsupported: there is none for it.
    """
    scheme, mark, _ = url.partition("://")
    if url in _WHOLE:
        return _WHOLE[url]
    if not mark:
        return _FILE
    if scheme not in _BY_WORD:
        raise Unsupported(f"there is no engine for {shown(scheme)}", URLS)
    return _BY_WORD[scheme]


def is_fleeting(url: str) -> bool:
    """Whether each handle that opens this URL has a store of its own, which ends with it."""
    return url in _WHOLE


def path_of(url: str) -> str | None:
    """The path of the file that a URL names, as it is written there; None when it is no file."""
    scheme, mark, rest = url.partition("://")
    if url in _WHOLE or (mark and scheme not in _FILE.words):
        return None
    return rest.removeprefix("/") if mark else url


def _lifetime_us(options: EngineOptions) -> int:
    return options.key_lifetime_seconds * 1_000_000


def _open_memory(_: str, options: EngineOptions) -> Engine:
    from pagefile.engines.memory import MemoryEngine

    if options.durability not in (None, "none"):
        raise Unsupported(
            f"memory: cannot be durable to {options.durability!r}", "use a file instead"
        )
    return MemoryEngine(clock=options.clock, key_lifetime_us=_lifetime_us(options))


def _open_postgres(url: str, options: EngineOptions) -> Engine:
    if options.vfs is not None:
        raise Unsupported("PostgreSQL has no SQLite VFS", "leave `vfs` out")
    try:
        from pagefile.engines.postgres.engine import PostgresEngine
    except ImportError as error:
        raise _no_postgres(error) from error
    return PostgresEngine(
        url,
        clock=options.clock,
        key_lifetime_us=_lifetime_us(options),
        durability=options.durability,
        lock_seconds=options.lock_seconds,
    )


def _migrate_postgres(url: str, check: bool, role: str | None, options: EngineOptions) -> Formats:
    try:
        from pagefile.engines.postgres.vectors import migrate
    except ImportError as error:
        raise _no_postgres(error) from error
    return migrate(url, check=check, role=role, lock_seconds=options.lock_seconds)


def _no_postgres(error: ImportError) -> Unsupported:
    return Unsupported(
        f"the PostgreSQL driver cannot be loaded ({error})", "pip install 'pagefile[postgres]'"
    )


def _open_redis(url: str, options: EngineOptions) -> Engine:
    if options.vfs is not None:
        raise Unsupported("Redis has no VFS", "leave `vfs` out")
    try:
        from pagefile.engines.redis.connection import address_of
        from pagefile.engines.redis.engine import RedisEngine
    except ModuleNotFoundError as error:
        if error.name != "redis":
            raise
        raise Unsupported(
            "the client for Redis is not installed", "pip install 'pagefile[redis]'"
        ) from error
    return RedisEngine(
        address_of(url),
        clock=options.clock,
        key_lifetime_us=_lifetime_us(options),
        durability=options.durability,
        lock_seconds=options.lock_seconds,
    )


def _open_manager(url: str, options: EngineOptions) -> Engine:
    from pagefile.engines.manager.engine import ManagerEngine

    if options.vfs is not None:
        raise Unsupported("a manager has no VFS", "leave `vfs` out")
    if options.durability not in (None, "none"):
        level = options.durability
        raise Unsupported(f"a manager cannot be durable to {level!r}", "use a file instead")
    return ManagerEngine.open(
        url,
        default_key=Settings.from_environment().manager_authkey,
        clock=options.clock,
        key_lifetime_us=_lifetime_us(options),
        lock_seconds=options.lock_seconds,
    )


def _open_file(url: str, options: EngineOptions) -> Engine:
    from pathlib import Path

    from pagefile.engines.sqlite.engine import SqliteEngine

    _, mark, rest = url.partition("://")
    if mark and not rest.startswith("/"):
        raise Invalid("url", f"{shown(url)} has two slashes", "write sqlite:///path with three")
    if mark and "?" in rest:
        raise Invalid(
            "url", f"{shown(url)} has settings after a question mark", "give them to open()"
        )
    if options.durability == "none":
        raise Unsupported("a file is never less durable than process", "use memory: instead")
    name = rest.removeprefix("/") if mark else url
    try:
        return SqliteEngine(
            Path(name).expanduser().absolute(),
            clock=options.clock,
            key_lifetime_us=_lifetime_us(options),
            durability=options.durability or "power",
            lock_seconds=options.lock_seconds,
            vfs=options.vfs,
        )
    except PermissionError as error:
        raise Forbidden(
            f"{shown(name)} cannot be reached ({error.strerror})", "check the permissions"
        ) from error
    except OSError as error:
        fact = f"{shown(name)} cannot be opened ({error.strerror})"
        if error.errno in _UNFIT_PATHS:
            raise Invalid("url", fact, "name another file") from error
        raise Unavailable(fact, "look at the disk and the process's limits, then retry") from error
    except RuntimeError as error:
        raise Invalid("url", f"{shown(name)}: no such user", "write the path in full") from error


def _migrate_file(url: str, check: bool, _: str | None, options: EngineOptions) -> Formats:
    from pathlib import Path

    from pagefile.engines.sqlite.format import read_format

    path = Path(path_of(url) or "").expanduser().absolute()
    before, known = read_format(path)
    after = before
    if not check and before != known:
        open_engine(url, options).close()
        after, _known = read_format(path)
    return before, after, known


_MEMORY = Scheme("memory", (), _open_memory)
_FILE = Scheme("sqlite", ("sqlite",), _open_file, _migrate_file)
_POSTGRES = Scheme(
    "postgresql",
    ("postgresql", "postgres"),
    _open_postgres,
    _migrate_postgres,
    grants=True,
    makes_tables=True,
)
# Redis has no other sign of a store that was made but its tenants.
_REDIS = Scheme("redis", ("redis", "rediss", "valkey", "valkeys"), _open_redis, is_marked=False)
_MANAGER = Scheme("manager", ("manager",), _open_manager)

_BY_WORD = {
    word: scheme for scheme in (_FILE, _POSTGRES, _REDIS, _MANAGER) for word in scheme.words
}
#: URLs that are a word and a colon: each handle has its own store.
_WHOLE = {"memory:": _MEMORY, "manager:": _MANAGER}


def _require_url(url: object) -> None:
    if not isinstance(url, str) or not url or "\x00" in url:
        named = shown(url) if not isinstance(url, str) or "@" not in url else "it"
        raise Invalid("url", f"{named} names no store", URLS)
    if url == ":memory:":
        raise Invalid("url", "':memory:' is SQLite's word", "say 'memory:' for a store in memory")
    if not url.isascii():
        try:
            url.encode()
        except UnicodeEncodeError:
            raise Invalid("url", f"{shown(url)} is no valid Unicode text", "rename it") from None


def require_no_word(url: str) -> None:
    """Refuse what reads like a URL and would silently become a file of that name."""
    word, colon, rest = url.partition(":")
    if not url.strip() and url:
        raise Invalid("url", f"{shown(url)} is blank", URLS)
    if url in ("memory", "inmemory"):
        step = f"say 'memory:' for a store in memory, './{url}' for a file"
        raise Invalid("url", f"{shown(url)} is no path", step)
    if word == "sqlite" and not rest.startswith("//"):
        step = f"write 'sqlite:///{rest}'" if rest else "say 'memory:', or 'sqlite:///path'"
        raise Invalid("url", f"{shown(url)} has no slashes", step)
    if word == "chroma" and (colon or not rest):
        step = "keep the store in a file or on a server, and vectors in vectors='qdrant'"
        raise Unsupported("there is no engine for 'chroma'", step)
