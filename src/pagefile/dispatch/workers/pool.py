"""CPU-bound handlers: run by any `concurrent.futures.Executor`, in processes of their own."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

import msgspec

from pagefile.context.slot import HandlerMetadata
from pagefile.dispatch.letter import Effects, HandlerResponse, Letter
from pagefile.dispatch.listener import Listener, Refused
from pagefile.dispatch.workers.own_thread import OwnThread
from pagefile.dispatch.workers.pool_entry import run_task
from pagefile.dispatch.workers.protocol import Task, decode_result, encode_task, encoded, outcome_of
from pagefile.errors import Invalid, Unsupported, shown
from pagefile.settings import Settings
from pagefile.store.arguments import require_count, require_seconds
from pagefile.store.store import Store

_MOST_WORKERS = 1_024


class WorkerDied(Exception):
    """The process that ran a handler is gone."""


class HandlerFailed(Exception):
    """A handler raised, in another process."""


class ProcessPool(msgspec.Struct, frozen=True):
    """How many processes, and after how many tasks one is replaced by a new one.

    A handler's own process interrupts it when its time is over. One that does
    not end within `grace_seconds` more, which include the start of the process,
    is ended together with the pool; the other tasks are tried again.
    """

    workers: int = 4
    max_tasks_per_child: int = 100
    grace_seconds: float = 30.0


class Pool:
    """Runs CPU-bound handlers on an executor, and starts it anew when a worker died."""

    def __init__(
        self,
        url: str,
        tenant: str,
        executor: Callable[[], Executor],
        *,
        owned: bool = True,
        workers: int = _MOST_WORKERS,
        grace_seconds: float = 30.0,
    ) -> None:
        self._url = url
        self._tenant = tenant
        self._make = executor
        self._owned = owned
        self._executor: Executor | None = None
        self._grace = grace_seconds
        #: Whoever waits for a process waits here, where no clock runs.
        self._free = asyncio.Semaphore(workers)
        self.deaths = 0

    async def run(
        self, listener: Listener, letter: Letter, metadata: HandlerMetadata, own: OwnThread
    ) -> tuple[Sequence[HandlerResponse], Effects]:
        """Run one handler.

        Raises:
            WorkerDied: its process is gone; whether it did anything is unknown.
            TimeoutError: it took too long. HandlerFailed, Refused: it raised.
        """
        task = self._task(listener, letter, metadata, own)
        async with self._free:
            raw = await self._sent(listener, encode_task(task))
        result = decode_result(raw)
        if result.failure is None:
            return outcome_of(result)
        code, text, may_help = result.failure
        if code == "timeout":
            raise TimeoutError(text)
        raise HandlerFailed(text) if may_help else Refused(text)

    async def _sent(self, listener: Listener, task: bytes) -> bytes:
        executor = self._living()
        future: Future[bytes] | None = None
        try:
            async with asyncio.timeout(listener.timeout + self._grace):
                future = executor.submit(run_task, task)
                return await asyncio.wrap_future(future)
        except asyncio.CancelledError as error:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            # Another task had the pool ended, this one with it.
            raise WorkerDied(f"the process that ran {listener.name!r} was ended") from error
        except TimeoutError:
            self._end_overdue(executor)
            raise
        except (BrokenProcessPool, OSError, RuntimeError) as error:
            self._discard(executor)
            raise WorkerDied(f"the process that ran {listener.name!r} died") from error

    def close(self) -> None:
        """End the processes."""
        executor, self._executor = self._executor, None
        if executor is not None and self._owned:
            _end(executor)

    def _task(
        self, listener: Listener, letter: Letter, metadata: HandlerMetadata, own: OwnThread
    ) -> Task:
        return Task(
            self._url,
            self._tenant,
            listener.entry,
            encoded(letter.payload),
            metadata.thread_id,
            metadata.from_id,
            metadata.own_name,
            metadata.is_self_call,
            metadata.usage_instructions,
            metadata.todo_nudge,
            listener.name,
            listener.takes,
            letter.id,
            letter.kind,
            own.attempt,
            own.user_id,
            own.tokens_left,
            own.most,
            listener.timeout,
            tuple(sorted({cls.__module__ for cls in listener.payload})),
        )

    def _living(self) -> Executor:
        if self._executor is None:
            self._executor = self._make()
        return self._executor

    def _discard(self, executor: Executor) -> None:
        """Whoever notices first lets the next task have a new executor."""
        if self._executor is executor and self._owned:
            self._executor = None
            self.deaths += 1
            executor.shutdown(wait=False, cancel_futures=True)

    def _end_overdue(self, executor: Executor) -> None:
        """A handler did not end when it was told to: its process has to."""
        if self._executor is executor and self._owned:
            self._executor = None
            self.deaths += 1
            _end(executor)


def pool_for(
    backend: object,
    store: Store,
    settings: ProcessPool | None,
    executor: Executor | str | None,
    url: str | None,
) -> Pool | None:
    """What runs CPU-bound handlers; its workers open the same store by its URL.

    Raises:
        Unsupported: other processes cannot open the store.
        Invalid: it is not known where they would find it.
    """
    if settings is None and executor is None:
        return None
    if not store.is_shared:
        raise Unsupported(
            "other processes cannot open this store, which lives in this one",
            "use a file, PostgreSQL or Redis for CPU-bound handlers",
        )
    place, tenant = place_of(backend)
    if url is None and place is None:
        raise Invalid("url", "is not known", "say where the workers find the store")
    at = str(url or place)
    if isinstance(executor, str):
        return remote_pool(at, tenant, executor, settings)
    if executor is not None:
        given = executor
        return Pool(at, tenant, lambda: given, owned=False)
    assert settings is not None
    return Pool(
        at,
        tenant,
        process_pool(settings),
        workers=settings.workers,
        grace_seconds=settings.grace_seconds,
    )


def place_of(backend: object) -> tuple[str | None, str]:
    """The URL and tenant that another process opens a backend by; None when it is not known."""
    if isinstance(backend, (str, os.PathLike)):
        return os.fspath(backend), Settings.from_environment().tenant
    tenant = getattr(backend, "tenant", None)
    owned = getattr(backend, "_owned", None)
    place = getattr(owned, "url", None)
    return place, tenant if isinstance(tenant, str) else Settings.from_environment().tenant


def process_pool(settings: ProcessPool) -> Callable[[], Executor]:
    """What makes the executor of a pool: new processes, that inherit nothing."""
    require_count(settings.workers, "process_pool.workers", least=1, most=_MOST_WORKERS)
    require_count(settings.max_tasks_per_child, "process_pool.max_tasks_per_child", least=1)
    require_seconds(settings.grace_seconds, "process_pool.grace_seconds")

    def make() -> Executor:
        return ProcessPoolExecutor(
            settings.workers,
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_ignore_interrupts,
            max_tasks_per_child=settings.max_tasks_per_child,
        )

    return make


def _ignore_interrupts() -> None:
    """Ctrl-C is for the organism, which then ends its workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _end(executor: Executor) -> None:
    # Python has no public way to end a process of a pool before 3.14, and
    # `shutdown` forgets which ones there are.
    processes: dict[int, Any] = getattr(executor, "_processes", None) or {}
    living = list(processes.values())
    executor.shutdown(wait=False, cancel_futures=True)
    for process in living:
        process.kill()


# Executors beyond this machine's own processes, by their address.


#: Which module makes the executor of an address; it has `executor_at(address) -> Executor`.
_SCHEMES = {"dask": "pagefile.dispatch.workers.dask_executor"}


def executor_at(address: str) -> Executor:
    """The executor behind an address such as `dask://host:port`.

    Raises:
        Invalid: nobody knows such addresses. Unsupported: its library is missing.
    """
    scheme = urlsplit(address).scheme
    module = _SCHEMES.get(scheme)
    if module is None:
        raise Invalid("executor", f"{shown(address)} is no address", "use dask://host:port")
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        raise Unsupported(
            f"executors at {scheme}:// need a library that is not installed",
            f"pip install 'pagefile[{scheme}]'",
        ) from error
    made: Executor = found.executor_at(address)
    return made


# CPU-bound handlers on an executor that is named by its address.


_AT_ONCE = 64
_FILE = "sqlite:///"


class RemotePool(Pool):
    """A pool whose executor outlives the death of a worker, and is left at the end."""

    def close(self) -> None:
        """Leave the cluster; what still runs there is not waited for."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.shutdown(wait=False, cancel_futures=True)


def remote_pool(url: str, tenant: str, address: str, settings: ProcessPool | None) -> RemotePool:
    """The pool of an address such as `dask://host:port`.

    Of the settings, `workers` is how many tasks are sent at once, and
    `grace_seconds` how much longer than its time a handler is waited for.
    """
    first: list[Executor] = [executor_at(address)]  # An address that is wrong is told at once.
    chosen = settings if settings is not None else ProcessPool(workers=_AT_ONCE)
    process_pool(chosen)
    return RemotePool(
        _everywhere(url),
        tenant,
        lambda: first.pop() if first else executor_at(address),
        owned=False,
        workers=chosen.workers,
        grace_seconds=chosen.grace_seconds,
    )


def _everywhere(url: str) -> str:
    """A URL as processes in other folders understand it."""
    if url.startswith(_FILE):
        return _FILE + os.path.abspath(url.removeprefix(_FILE))
    return url if ":" in url else os.path.abspath(os.path.expanduser(url))
