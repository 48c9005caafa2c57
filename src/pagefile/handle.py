"""Opening a store: the handle for one tenant, and the one for operators."""

from __future__ import annotations

import os
import threading
import time
from types import TracebackType
from typing import Self

import msgspec

from pagefile.committer import Committer
from pagefile.engine import Engine, Limits
from pagefile.errors import Invalid, Unsupported
from pagefile.naming import require_type
from pagefile.preparation import Clock, Entropy, Preparer
from pagefile.records import Durability, Head, Report, Stats
from pagefile.settings import Settings
from pagefile.store import Store

_DAY_SECONDS = 86_400
#: What a commit may take once it has the lock, before `close` gives up waiting for it.
_CLOSE_SECONDS = 30.0


def machine_clock() -> int:
    """Microseconds since 1970 UTC, by this machine."""
    return time.time_ns() // 1_000


class Options(msgspec.Struct, frozen=True):
    """How a store is opened. The defaults are the safe ones.

    `clock` and `entropy` can be replaced by a script's, so that the same story
    gives the same bytes. `vfs` names a registered SQLite VFS (tests, metering).
    """

    durability: Durability | None = None
    limits: Limits = Limits()
    key_lifetime_seconds: int = 7 * _DAY_SECONDS
    lock_seconds: float = 30.0
    clock: Clock = machine_clock
    entropy: Entropy = os.urandom
    vfs: str | None = None


class Pagefile:
    """One tenant of a store; a context manager."""

    def __init__(self, engine: Engine, committer: Committer, tenant: str, options: Options) -> None:
        preparer = Preparer(options.limits, options.entropy)
        preparer.naming.check_text("tenant", tenant)
        self.tenant = tenant
        self.store = Store(engine, committer, preparer, tenant)
        self._owned: Admin | None = None

    def verify(self, *, head: Head | None = None) -> Report:
        """See `Store.verify`."""
        return self.store.verify(head=head)

    def check(self) -> Report:
        """See `Store.check`."""
        return self.store.check()

    def stats(self) -> Stats:
        """See `Store.stats`."""
        return self.store.stats()

    def close(self) -> None:
        """Let go of files and threads. What was acknowledged is stored already.

        Commits under way in other threads and tasks are seen through first; later
        ones raise `Forbidden`.

        Raises:
            Unavailable: commits did not end in time; they go on. Close again later.
        """
        if self._owned is not None:
            self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Admin:
    """All tenants of a store, for operators. A tenant's handle reaches none of this."""

    def __init__(
        self, url: str | os.PathLike[str] | None = None, *, options: Options | None = None
    ) -> None:
        self._options = options or Options()
        self.url = os.fspath(url) if url is not None else Settings.from_environment().url
        self.engine = open_engine(self.url, self._options)
        self._committer = Committer(self.engine)
        # One closes at a time; a signal handler may do so while its own thread does.
        self._closing = threading.RLock()

    def tenants(self) -> list[str]:
        """The names of all tenants that have committed something."""
        return self.engine.tenants()

    def open(self, tenant: str) -> Pagefile:
        """A handle for one tenant, on this store's connections."""
        return Pagefile(self.engine, self._committer, tenant, self._options)

    def size_bytes(self) -> int:
        """Bytes that all tenants together take."""
        return self.engine.size_bytes()

    def close(self) -> None:
        """See `Pagefile.close`; for all handles that `open` gave out."""
        with self._closing:
            self._committer.close(self._options.lock_seconds + _CLOSE_SECONDS)
            self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open(
    url: str | os.PathLike[str] | None = None,
    *,
    tenant: str | None = None,
    durability: Durability | None = None,
    options: Options | None = None,
) -> Pagefile:
    """Open one tenant of a store; the file is created when it is not there.

    `url` is a path, `sqlite:///path`, or `memory:`; without one, PAGEFILE_URL or
    `pagefile.db`. `tenant` defaults to PAGEFILE_TENANT or "default".
    `durability="process"` trades power-cut safety for speed: a crash of the
    process still loses nothing.

    Raises:
        Invalid: the URL, tenant or file is not usable; nothing was changed.
        Unsupported: the file has a newer format, or the engine lacks the level.
        Forbidden: the file or folder is read-only.
    """
    chosen = options if options is not None else Options()
    require_type("options", chosen, Options)
    if durability is not None:
        chosen = msgspec.structs.replace(chosen, durability=durability)
    settings = Settings.from_environment()
    admin = Admin(settings.url if url is None else url, options=chosen)
    try:
        handle = admin.open(settings.tenant if tenant is None else tenant)
    except Invalid:
        admin.close()
        raise
    handle._owned = admin
    return handle


def open_engine(url: str, options: Options) -> Engine:
    """The engine behind a URL. Drivers are imported only when their engine is asked for."""
    if not isinstance(url, str) or not url or "\x00" in url:
        raise Invalid("url", f"{url!r} names no store", "give a path, sqlite:///path or memory:")
    if url == ":memory:":
        raise Invalid("url", "':memory:' is SQLite's word", "say 'memory:' for a store in memory")
    _check(options)
    lifetime_us = options.key_lifetime_seconds * 1_000_000
    if url == "memory:":
        from pagefile.engines.memory import MemoryEngine

        if options.durability not in (None, "none"):
            raise Unsupported(
                f"memory: cannot be durable to {options.durability!r}", "use a file instead"
            )
        return MemoryEngine(clock=options.clock, key_lifetime_us=lifetime_us)
    scheme, mark, rest = url.partition("://")
    if mark and scheme == "sqlite" and not rest.startswith("/"):
        raise Invalid("url", f"{url!r} has two slashes", "write sqlite:///path with three")
    if mark and scheme != "sqlite":
        raise Unsupported(f"there is no engine for {scheme}://", "use a path or memory:")
    if options.durability == "none":
        raise Unsupported("a file is never less durable than process", "use memory: instead")
    from pathlib import Path

    from pagefile.engines.sqlite import SqliteEngine

    return SqliteEngine(
        Path(rest.removeprefix("/") if mark else url).expanduser().absolute(),
        clock=options.clock,
        key_lifetime_us=lifetime_us,
        durability=options.durability or "power",
        lock_seconds=options.lock_seconds,
        vfs=options.vfs,
    )


def _check(options: Options) -> None:
    """Refuse what would weaken a promise or bound nothing, whatever its spelling."""
    if options.durability not in (None, "power", "process", "none"):
        raise Invalid(
            "durability", f"{options.durability!r} is no level", "use 'power', 'process' or 'none'"
        )
    for field in ("key_lifetime_seconds", "lock_seconds"):
        if not getattr(options, field) >= 0:
            raise Invalid(field, f"{getattr(options, field)!r} is negative", "give 0 or more")
    for field in options.limits.__struct_fields__:
        limit = getattr(options.limits, field)
        if limit is not None and not (isinstance(limit, int) and limit >= 0):
            raise Invalid(f"limits.{field}", f"{limit!r} is no limit", "give 0 or more")
