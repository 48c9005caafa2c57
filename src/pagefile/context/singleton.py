"""One buffer and one registry per process, for those who want them.

Everything works as well without: these are two variables and a lock.
"""

from __future__ import annotations

import threading

from pagefile.context.backend import Backend, place_of
from pagefile.context.buffer import ContextBuffer
from pagefile.context.registry import ThreadRegistry
from pagefile.context.shared_backend import SharedBackend
from pagefile.errors import Invalid

_lock = threading.Lock()
#: Each with the place it was made on, as `place_of` tells it.
_buffer: tuple[ContextBuffer, object] | None = None
_registry: tuple[ThreadRegistry, object] | None = None


def get_context_buffer(
    backend: Backend | None = None,
    *,
    max_slots_per_thread: int | None = None,
    max_threads: int | None = None,
    idle_seconds: float | None = None,
) -> ContextBuffer:
    """The buffer of this process, made at the first call.

    Later calls may leave everything out, or say how it is by now. A backend with
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
    limits: dict[str, int | float | None] = {
        "max_slots_per_thread": max_slots_per_thread,
        "max_threads": max_threads,
        "idle_seconds": idle_seconds,
    }
    given = {name: value for name, value in limits.items() if value is not None}
    with _lock:
        if _buffer is None:
            # What is given is checked there, limit by limit.
            _buffer = ContextBuffer(backend, **given), place_of(backend)  # type: ignore[arg-type]
        buffer, place = _buffer
    changed = [name for name, value in given.items() if value != getattr(buffer, name)]
    if backend is not None and place_of(backend) != place:
        changed.insert(0, "backend")
    if changed:
        raise _other(changed[0], "buffer", "reset_context_buffer", "ContextBuffer")
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
            _registry = ThreadRegistry(backend), place_of(backend)
        registry, place = _registry
    if backend is not None and place_of(backend) != place:
        raise _other("backend", "registry", "reset_registry", "ThreadRegistry")
    return registry


def reset_registry() -> None:
    """Forget the registry of this process. What a shared store holds stays there."""
    global _registry
    with _lock:
        made, _registry = _registry, None
    if made is not None:
        made[0].close()


def _other(field: str, what: str, reset: str, cls: str) -> Invalid:
    return Invalid(
        field,
        f"this process has a {what} with another setting",
        f"call {reset}() first, or make a {cls} of your own",
    )
