"""One buffer and one registry per process, for those who want them.

Everything works as well without: these are two variables and a lock.
"""

from __future__ import annotations

import threading
from typing import Any

from pagefile.context.backend import Backend, is_same
from pagefile.context.buffer import ContextBuffer
from pagefile.context.registry import ThreadRegistry
from pagefile.context.shared import SharedBackend
from pagefile.errors import Invalid

_lock = threading.Lock()
_buffer: tuple[ContextBuffer, dict[str, Any]] | None = None
_registry: tuple[ThreadRegistry, Backend | None] | None = None


def get_context_buffer(
    backend: Backend | None = None,
    *,
    max_slots_per_thread: int | None = None,
    max_threads: int | None = None,
    idle_seconds: float | None = None,
) -> ContextBuffer:
    """The buffer of this process, made at the first call.

    Later calls may leave everything out, or say the same again. A backend with
    settings of its own brings its limits along, where none are given here.

    Raises:
        Invalid: it exists with other settings; nothing was changed.
    """
    global _buffer
    if isinstance(backend, SharedBackend):
        if max_slots_per_thread is None:
            max_slots_per_thread = backend.config.max_slots_per_thread
        if max_threads is None:
            max_threads = backend.config.max_threads
    wanted = {
        "backend": backend,
        "max_slots_per_thread": max_slots_per_thread,
        "max_threads": max_threads,
        "idle_seconds": idle_seconds,
    }
    given: dict[str, Any] = {name: it for name, it in wanted.items() if it is not None}
    with _lock:
        if _buffer is None:
            _buffer = ContextBuffer(**given), given
        buffer, chosen = _buffer
    for name, value in given.items():
        same = is_same if name == "backend" else _is_equal
        if name not in chosen or not same(value, chosen[name]):
            raise _other(name, "buffer", "reset_context_buffer", "ContextBuffer")
    return buffer


def reset_context_buffer() -> None:
    """Let the buffer of this process go. What a store holds stays in it."""
    global _buffer
    with _lock:
        made, _buffer = _buffer, None
    if made is not None:
        made[0].close()


def get_registry(backend: Backend | None = None) -> ThreadRegistry:
    """The registry of this process; the first call makes it, on `backend`.

    Raises:
        Invalid: it was made on another backend.
    """
    global _registry
    with _lock:
        if _registry is None:
            _registry = ThreadRegistry(backend), backend
        registry, chosen = _registry
    if backend is not None and not is_same(backend, chosen):
        raise _other("backend", "registry", "reset_registry", "ThreadRegistry")
    return registry


def reset_registry() -> None:
    """Forget the registry of this process. What a shared store holds stays there."""
    global _registry
    with _lock:
        made, _registry = _registry, None
    if made is not None:
        made[0].close()


def _is_equal(one: object, other: object) -> bool:
    return one == other


def _other(field: str, what: str, reset: str, cls: str) -> Invalid:
    return Invalid(
        field,
        f"this process has a {what} with another setting",
        f"call {reset}() first, or make a {cls} of your own",
    )
