"""Opening a store: the handle for one tenant, and the one for operators."""

from __future__ import annotations

import os
import threading
import time
import weakref
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

import msgspec

from pagefile.engines import URLS, open_engine, require_no_word
from pagefile.errors import Invalid, PagefileError, shown
from pagefile.settings import Settings
from pagefile.store.arguments import require_callable, require_count, require_seconds, require_type
from pagefile.store.commit.committer import Committer
from pagefile.store.commit.preparation import Clock, Entropy, Preparer
from pagefile.store.engine import Engine, Joinable, Limits
from pagefile.store.log.feed import Feed, feed_of
from pagefile.store.records import Durability, Head, Report, Stats
from pagefile.store.store import Store, kept_by

if TYPE_CHECKING:
    from collections.abc import Callable

    from pagefile.assembly.assembly import Assembly
    from pagefile.assembly.options import AssemblyOptions
    from pagefile.assembly.prompt import Prompt
    from pagefile.client.transport import Remote
    from pagefile.context.buffer import ContextBuffer
    from pagefile.context.registry import ThreadRegistry
    from pagefile.memory.items.store import LongTermItems
    from pagefile.memory.memory import Memory
    from pagefile.runs.runs import Runs
    from pagefile.runs.tokens import TokenCounter
    from pagefile.store.log.copy import CopyReport

_DAY_SECONDS = 86_400
#: A thousand years; what is longer does not fit the arithmetic of microseconds for ever.
_MOST_LIFETIME_SECONDS = 365_000 * _DAY_SECONDS
#: Which limits may be None, for none at all.
_LIMITLESS = ("logs", "documents")
_MOST_NAME = 255
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
        #: What other processes open to reach the same store, credentials included; "" if nothing.
        self.url = ""
        self.store = Store(engine, committer, preparer, tenant)
        self._making = threading.Lock()
        self._context: ContextBuffer | None = None
        self._registry: ThreadRegistry | None = None
        self._runs: Runs | None = None
        self._items: LongTermItems | None = None
        self._memory: Memory | None = None
        self._assembly: Assembly | None = None
        self.feed = feed_of(self.store)
        self._owned: Admin | None = None

    @property
    def context(self) -> ContextBuffer:
        """The threads of this tenant."""
        # Each room is imported when it is asked for: who does not enter does not pay.
        from pagefile.context.buffer import ContextBuffer

        with self._making:
            # One for all threads: limits and residency are this buffer's.
            if self._context is None:
                self._context = ContextBuffer(self.store)
        return self._context

    @property
    def registry(self) -> ThreadRegistry:
        """Which call paths the threads of this tenant stand for."""
        from pagefile.context.registry import ThreadRegistry

        with self._making:
            if self._registry is None:
                self._registry = ThreadRegistry(self.store)
        return self._registry

    @property
    def runs(self) -> Runs:
        """The runs of this tenant."""
        from pagefile.runs.runs import Runs

        items = self.items
        with self._making:
            if self._runs is None:
                self._runs = Runs(self.store, items)
        return self._runs

    @property
    def items(self) -> LongTermItems:
        """What this tenant's agents know for the long term."""
        from pagefile.memory.items.store import LongTermItems

        with self._making:
            if self._items is None:
                self._items = LongTermItems(self.store)
        return self._items

    @property
    def memory(self) -> Memory:
        """What this tenant's agents remember, for each user apart.

        With the defaults of `Memory`; build one on this handle to choose others.
        """
        from pagefile.memory.memory import Memory

        with self._making:
            if self._memory is None:
                self._memory = Memory(self.store)
        return self._memory

    @property
    def assembly(self) -> Assembly:
        """Prompts for this tenant's agents, and their receipts."""
        from pagefile.assembly.assembly import Assembly

        memory = self.memory
        with self._making:
            if self._assembly is None:
                self._assembly = Assembly(self.store, memory=memory)
        return self._assembly

    def assemble(
        self,
        source: Any = None,
        query: str | None = None,
        budget: int = 8_000,
        *,
        user_id: str | None = None,
        project_id: str | None = None,
        system: str = "",
        agent: str = "",
        counter: TokenCounter | str | None = None,
        at: int | None = None,
        record: bool = True,
        options: AssemblyOptions | None = None,
    ) -> Prompt:
        """See `Assembly.assemble`."""
        return self.assembly.assemble(
            source,
            query,
            budget,
            user_id=user_id,
            project_id=project_id,
            system=system,
            agent=agent,
            counter=counter,
            at=at,
            record=record,
            options=options,
        )

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

        Followers end. Commits under way in other threads and tasks are seen through
        first; later ones raise `Forbidden`.

        Raises:
            Unavailable: commits did not end in time; they go on. Close again later.
        """
        self.feed.close()
        if self._memory is not None:
            self._memory.close()
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

    url: str
    engine: Engine

    def __init__(
        self, url: str | os.PathLike[str] | None = None, *, options: Options | None = None
    ) -> None:
        self._options = options if options is not None else Options()
        require_type("options", self._options, Options)
        if url is None:
            url = Settings.from_environment().store_url()
        elif not isinstance(url, (str, os.PathLike)):
            raise Invalid("url", f"{shown(url)} names no store", URLS)
        if isinstance(url, str):
            require_no_word(url)
        self.url = os.fspath(url)
        _check(self._options)
        self.engine = open_engine(self.url, self._options)
        if isinstance(self.engine, Joinable):
            self.url = self.engine.url
        self._committer = Committer(self.engine)
        self._feeds: weakref.WeakSet[Feed] = weakref.WeakSet()

    def tenants(self) -> list[str]:
        """The names of all tenants that have committed something."""
        return self.engine.tenants()

    def open(self, tenant: str) -> Pagefile:
        """A handle for one tenant, on this store's connections."""
        handle = Pagefile(self.engine, self._committer, tenant, self._options)
        handle.url = self.url if self.engine.shared else ""
        self._feeds.add(handle.feed)
        return handle

    def size_bytes(self) -> int:
        """Bytes that all tenants together take."""
        return self.engine.size_bytes()

    def copy_to(
        self,
        target: Admin,
        tenant: str,
        *,
        progress: Callable[[CopyReport], object] | None = None,
        follow_seconds: float | None = None,
    ) -> CopyReport:
        """Copy a tenant, history and all, into another store; see `pagefile.store.log.copy`."""
        from pagefile.store.log.copy import copy_tenant

        require_type("target", target, Admin)
        report = copy_tenant(
            self.engine, target.engine, tenant, progress=progress, follow_seconds=follow_seconds
        )
        if kept_by(target.engine):
            from pagefile.recall.arms.synchronizer import KeptKeeper

            # Commits are copied as they were, without vectors: the index log has them.
            KeptKeeper(target.open(tenant).store).sync_all()
        return report

    def close(self) -> None:
        """See `Pagefile.close`; for all handles that `open` gave out."""
        for feed in list(self._feeds):
            feed.close()
        with self._committer.closing:
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
    key: str | None = None,
    user: str | None = None,
    remote: Remote | None = None,
) -> Pagefile:
    """Open one tenant of a store; the file is created when it is not there.

    `url` is a path, `sqlite:///path`, `postgresql://…`, `redis://…`, `manager:` or `memory:`;
    without one, PAGEFILE_URL or `pagefile.db`. `tenant` defaults to PAGEFILE_TENANT or "default".
    `durability="process"` trades power-cut safety for speed: a crash of the
    process still loses nothing.

    `http://…` and `https://…` are servers of Pagefile: what is given behaves as a
    `Pagefile`, as far as they offer it; see docs/reference/client.md. `key` defaults to
    PAGEFILE_API_KEY and says which tenant it is, `user` is whom calls are for that
    name no user, and `remote` says how the server is reached.

    Raises:
        Invalid: the URL, tenant or file is not usable; nothing was changed.
        Unsupported: the file has a newer format, or the engine lacks the level.
        Forbidden: the file or folder is read-only, or the server does not know the key.
    """
    if url is None:
        url = Settings.from_environment().store_url()
    if is_server(url, durability, options, key, user, remote):
        from pagefile.client.handle import open_remote

        server = cast(str, url)
        found = open_remote(server, key=key, tenant=tenant, user=user, options=remote)
        return cast(Pagefile, found)
    chosen = options if options is not None else Options()
    require_type("options", chosen, Options)
    if durability is not None:
        chosen = msgspec.structs.replace(chosen, durability=durability)
    settings = Settings.from_environment()
    if settings.tracing:
        from pagefile import tracing

        tracing.enable_if_set(settings)
    admin = Admin(url, options=chosen)
    try:
        handle = admin.open(settings.tenant if tenant is None else tenant)
    except PagefileError:
        admin.close()
        raise
    handle._owned = admin
    return handle


def is_server(url: object, durability: object, options: object, *remote: object) -> bool:
    """Whether a URL is a server's.

    Raises:
        Invalid: something was given that is for the other kind alone.
    """
    found = isinstance(url, str) and url.startswith(("http://", "https://"))
    if found and (durability is not None or options is not None):
        rule = "leave durability and options out"
        raise Invalid("url", f"{shown(url)} is a server, which has its own", rule)
    if not found and any(each is not None for each in remote):
        raise Invalid(
            "url", "key, user and remote are for a server", "give http://host:port, or leave them"
        )
    return found


def _check(options: Options) -> None:
    """Refuse what would weaken a promise or bound nothing, whatever its spelling."""
    if options.durability not in (None, "power", "process", "none"):
        raise Invalid(
            "durability",
            f"{shown(options.durability)} is no level",
            "use 'power', 'process' or 'none'",
        )
    require_count(options.key_lifetime_seconds, "key_lifetime_seconds", most=_MOST_LIFETIME_SECONDS)
    require_seconds(options.lock_seconds, "lock_seconds")
    require_callable("clock", options.clock)
    require_callable("entropy", options.entropy)
    if options.vfs is not None and not _is_name(options.vfs):
        raise Invalid("vfs", f"{shown(options.vfs)} is no name", "name a registered SQLite VFS")
    require_type("limits", options.limits, Limits)
    for field in options.limits.__struct_fields__:
        limit = getattr(options.limits, field)
        if limit is not None or field not in _LIMITLESS:
            require_count(limit, f"limits.{field}")


def _is_name(text: object) -> bool:
    return isinstance(text, str) and 0 < len(text) <= _MOST_NAME and text.isprintable()
