"""What `backend=` may be: a store, a handle that has one, or a URL."""

from __future__ import annotations

import os
from collections.abc import Callable

from pagefile.errors import Invalid, shown
from pagefile.store import Store


def opened(backend: object) -> tuple[Store, Callable[[], None]]:
    """The store that a caller means, and what closes it if it was opened here.

    None is a new store in memory. A URL is opened for the tenant of the settings.
    """
    if isinstance(backend, Store):
        return backend, _nothing
    store = getattr(backend, "store", None)
    if isinstance(store, Store):
        return store, _nothing
    if backend is not None and not isinstance(backend, (str, os.PathLike)):
        raise Invalid("backend", f"{shown(backend)} is no store", "give a Store, a handle or a URL")
    # Only here: handles stand above this room, and know it.
    from pagefile.handle import open as open_handle

    handle = open_handle("memory:" if backend is None else backend)
    return handle.store, handle.close


def _nothing() -> None:
    """Whoever opened it closes it."""
