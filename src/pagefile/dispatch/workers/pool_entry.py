"""What runs in a worker process: one function that takes bytes and returns bytes."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import inspect
import os
import signal
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pagefile
from pagefile.dispatch.letter import responses_of
from pagefile.dispatch.listener import STATES, Refused
from pagefile.dispatch.workers.own_thread import OwnThread, Reach
from pagefile.dispatch.workers.protocol import Result, Task, decode_task, encode_result, result_of
from pagefile.errors import Forbidden, Invalid, LimitExceeded, NotFound, Unsupported
from pagefile.handle import Pagefile

_FINAL = (Refused, Invalid, Forbidden, LimitExceeded, Unsupported)
_MOST_OPEN = 8

#: The stores this process has open, by URL and tenant; one for all tasks.
_opened: dict[tuple[int, str, str], Pagefile] = {}
_opening = threading.Lock()


def run_task(raw: bytes) -> bytes:
    """Run one handler; whatever it raises is told, not raised."""
    task = decode_task(raw)
    try:
        result = _run(task)
    except TimeoutError:
        result = Result(failure=("timeout", "the listener did not answer in time", True))
    except Exception as error:  # noqa: BLE001  A handler is somebody else's code.
        text = f"{type(error).__name__}: {error}"
        result = Result(failure=("handler", text, not isinstance(error, _FINAL)))
    return encode_result(result)


def _run(task: Task) -> Result:
    handler = _found(task.entry)
    for module in task.modules:
        importlib.import_module(module)
    handle = _store(task.url, task.tenant)
    own = OwnThread(
        task.listener,
        task.thread_id,
        task.message_id,
        task.kind,
        task.from_id,
        task.attempt,
        task.user_id,
        _reach(handle, task.thread_id),
        task.tokens_left,
        task.most,
    )
    arguments = (task.payload.value(), task.metadata(), own)[: task.takes]
    with _time_limit(task.timeout):
        returned = handler(*arguments)
        if inspect.iscoroutine(returned):
            returned = asyncio.run(returned)
    return result_of(responses_of(returned), own.close())


def _found(entry: str) -> Callable[..., Any]:
    module, _, name = entry.partition(":")
    found = getattr(importlib.import_module(module), name, None)
    if not callable(found):
        raise NotFound(f"there is no function {entry!r} here", "install the same code everywhere")
    handler: Callable[..., Any] = found
    return handler


def _store(url: str, tenant: str) -> Pagefile:
    place = os.getpid(), url, tenant
    with _opening:
        if place not in _opened:
            if len(_opened) >= _MOST_OPEN:
                _opened.pop(next(iter(_opened))).close()
            _opened[place] = pagefile.open(url, tenant=tenant)
        return _opened[place]


def _reach(handle: Pagefile, thread: str) -> Reach:
    def state(name: str) -> Any:
        found = handle.store.get(f"{STATES}{thread}/{name}")
        return None if found is None or found.erased else found.value

    return Reach(lambda: handle.context.handle(thread), state, lambda: uuid.uuid4().hex)


@contextlib.contextmanager
def _time_limit(seconds: float) -> Iterator[None]:
    """Interrupt what takes longer, where the system can: in the first thread of a process."""
    if threading.current_thread() is not threading.main_thread() or not hasattr(
        signal, "setitimer"
    ):
        yield
        return

    def over(number: int, frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
