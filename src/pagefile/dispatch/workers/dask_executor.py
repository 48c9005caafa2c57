"""CPU-bound handlers on a Dask cluster, through the interface of concurrent.futures.

Only bytes of the codec and the name of a function cross; the workers open the
store by its URL. Whoever reaches a Dask scheduler can run code on its workers:
a cluster is inside the boundary of what is trusted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from typing import Any
from urllib.parse import urlsplit

import distributed

from pagefile.errors import Invalid, shown

_CONNECT_SECONDS = 10


def executor_at(address: str) -> Executor:
    """The executor of the cluster whose scheduler is at `dask://host:port`.

    Raises:
        Invalid: it is no such address.
    """
    parts = urlsplit(address)
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
    if parts.scheme != "dask" or not host or port is None or parts.path not in ("", "/"):
        raise Invalid("executor", f"{shown(address)} is no address", "use dask://host:port")
    if parts.username is not None or parts.query or parts.fragment:
        raise Invalid("executor", f"{shown(address)} says too much", "use dask://host:port")
    return DaskExecutor(f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}")


class DaskExecutor(Executor):
    """Sends tasks to a cluster. It connects with the first one, off the caller's thread."""

    def __init__(self, scheduler: str) -> None:
        self._scheduler = scheduler
        self._client: Any = None
        self._cluster: Any = None
        # Everything that may wait for the network is done here, in order.
        self._helper = ThreadPoolExecutor(1, thread_name_prefix="pagefile-dask")
        self._lock = threading.Lock()
        self._closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a function of a module somewhere in the cluster."""
        answer: Future[Any] = Future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the executor is closed")
            self._helper.submit(self._send, answer, fn, args, kwargs)
        return answer

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster, which goes on; what was sent and not answered is cancelled."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._helper.submit(self._leave)
        self._helper.shutdown(wait=wait, cancel_futures=False)

    def _send(
        self, answer: Future[Any], fn: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> None:
        try:
            if answer.cancelled():
                return
            sent = self._connected().submit(fn, *args, **kwargs)
        except Exception as error:  # noqa: BLE001  Whatever a library raises while it connects.
            if answer.set_running_or_notify_cancel():
                answer.set_exception(_broken(self._scheduler, error))
            return
        sent.add_done_callback(lambda done: self._pass_on(done, answer))
        answer.add_done_callback(lambda done: sent.cancel() if done.cancelled() else None)

    def _connected(self) -> Any:
        if self._cluster is None:
            self._client = distributed.Client(
                self._scheduler, timeout=_CONNECT_SECONDS, set_as_default=False
            )
            # Not pure: two tasks of the same bytes are two tasks.
            self._cluster = self._client.get_executor(pure=False)
        return self._cluster

    def _pass_on(self, done: Future[Any], answer: Future[Any]) -> None:
        if done.cancelled():
            answer.cancel()
            return
        if not answer.set_running_or_notify_cancel():
            return
        error = done.exception()
        if error is None:
            answer.set_result(done.result())
        else:
            # A task tells its own errors as bytes; what is raised is the cluster's: a worker
            # that died again and again, a scheduler that is gone.
            answer.set_exception(_broken(self._scheduler, error))

    def _leave(self) -> None:
        client, self._client, self._cluster = self._client, None, None
        if client is not None:
            client.close(timeout=_CONNECT_SECONDS)


def _broken(scheduler: str, error: BaseException) -> BrokenExecutor:
    return BrokenExecutor(f"the cluster at {scheduler} failed ({type(error).__name__}: {error})")
