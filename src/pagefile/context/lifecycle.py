"""Closing what was opened: the same for everything that is built on a `Backend`."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self


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
