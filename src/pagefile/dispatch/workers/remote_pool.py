"""CPU-bound handlers on an executor that is named by its address."""

from __future__ import annotations

import os
from concurrent.futures import Executor

from pagefile.dispatch.workers.executors import executor_at
from pagefile.dispatch.workers.pool import Pool, ProcessPool, process_pool

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
