"""One buffer per process, for those who want one; everything works as well without."""

from __future__ import annotations

import threading
from typing import Any

from pagefile.context.buffer import ContextBuffer
from pagefile.errors import Invalid

_lock = threading.Lock()
_buffer: ContextBuffer | None = None
_asked: dict[str, Any] = {}


def get_context_buffer(
    backend: object = None,
    *,
    max_slots_per_thread: int | None = None,
    max_threads: int | None = None,
    idle_seconds: float | None = None,
) -> ContextBuffer:
    """The buffer of this process, made at the first call.

    Later calls may leave everything out, or say the same again.

    Raises:
        Invalid: it exists with other settings; nothing was changed.
    """
    global _buffer, _asked
    wanted = {
        "backend": backend,
        "max_slots_per_thread": max_slots_per_thread,
        "max_threads": max_threads,
        "idle_seconds": idle_seconds,
    }
    given: dict[str, Any] = {name: it for name, it in wanted.items() if it is not None}
    with _lock:
        if _buffer is None:
            _buffer, _asked = ContextBuffer(**given), given
            return _buffer
        for name, value in given.items():
            if name not in _asked or _asked[name] != value:
                raise Invalid(
                    name,
                    "this process has a buffer with another setting",
                    "call reset_context_buffer() first, or make a ContextBuffer of your own",
                )
        return _buffer


def reset_context_buffer() -> None:
    """Let the buffer of this process go. What a store holds stays in it."""
    global _buffer, _asked
    with _lock:
        buffer, _buffer, _asked = _buffer, None, {}
    if buffer is not None:
        buffer.close()
