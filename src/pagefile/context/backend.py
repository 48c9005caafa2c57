"""What `backend=` may be: a store, a handle that has one, or a URL."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol

from pagefile.errors import Invalid, shown
from pagefile.store import Store


class Handle(Protocol):
    """What opening a URL gives."""

    store: Store

    def close(self) -> None: ...


#: `pagefile.open`, put here by its own module: handles stand above this room.
_opener: list[Callable[..., Handle]] = []


def open_with(opener: Callable[..., Handle]) -> None:
    """Say how a URL is opened."""
    _opener[:] = [opener]


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
    handle = _opener[0]("memory:" if backend is None else backend)
    return handle.store, handle.close


def _nothing() -> None:
    """Whoever opened it closes it."""
