"""One registry per process, for those who want one."""

from __future__ import annotations

import threading

from pagefile.context.backend import Backend, is_same
from pagefile.context.registry import ThreadRegistry
from pagefile.errors import Invalid

_lock = threading.Lock()
_current: tuple[ThreadRegistry, Backend | None] | None = None


def get_registry(backend: Backend | None = None) -> ThreadRegistry:
    """The registry of this process; the first call makes it, on `backend`.

    Raises:
        Invalid: it was made on another backend.
    """
    global _current
    with _lock:
        if _current is None:
            _current = ThreadRegistry(backend), backend
        registry, chosen = _current
        if backend is not None and not is_same(backend, chosen):
            raise Invalid(
                "backend",
                "this process has a registry on another one",
                "call reset_registry() first, or make a ThreadRegistry of your own",
            )
        return registry


def reset_registry() -> None:
    """Forget the registry of this process. What a shared store holds stays there."""
    global _current
    with _lock:
        if _current is not None:
            registry, _ = _current
            _current = None
            registry.close()
