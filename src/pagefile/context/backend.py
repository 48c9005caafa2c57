"""What a part of the context is built on: a store, a handle, or where to find one."""

from __future__ import annotations

import os
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from pagefile.errors import Invalid, shown
from pagefile.store.store import Store


class ClosesItsStore:
    """A context manager over a store that `store_behind` gave, with what closes it."""

    _close: Callable[[], None]

    def close(self) -> None:
        """Close the store if this opened it; one that was handed in stays open."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class HasStore(Protocol):
    """A handle, as `pagefile.open` returns it."""

    @property
    def store(self) -> Store: ...


Backend = Store | HasStore | str | os.PathLike[str]


def store_behind(backend: Backend | None) -> tuple[Store, Callable[[], None]]:
    """The store, and what closes it if it was opened here; None opens a private `memory:`."""
    if isinstance(backend, Store):
        return backend, _nothing
    if backend is None or isinstance(backend, (str, os.PathLike)):
        import pagefile  # Here, and only when it is needed: handles stand above this room.

        handle = pagefile.open("memory:" if backend is None else backend)
        return handle.store, handle.close
    store = getattr(backend, "store", None)
    if not isinstance(store, Store):
        raise Invalid(
            "backend",
            f"{shown(backend)} is no store",
            "give a Store, a handle, a URL or None; of an async handle, its `sync`",
        )
    return store, _nothing


def place_of(backend: Backend | None) -> object:
    """What two backends have in common when they name the same place; opens neither.

    A file is told by its whole path as of now, however it is written.
    """
    if not isinstance(backend, (str, os.PathLike)):
        return getattr(backend, "store", backend)
    url = os.fspath(backend)
    if not isinstance(url, str) or url in ("memory:", "manager:"):
        return url
    scheme, mark, rest = url.partition("://")
    if mark and scheme != "sqlite":
        return url
    return os.path.realpath(rest.removeprefix("/") if mark else url)


def _nothing() -> None:
    """Whoever opened a store closes it."""
