"""An array that grows at its end."""

from __future__ import annotations

import math
import mmap
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_LEAST = 16
#: From this many bytes on an array grows by an eighth, no longer twofold.
_LARGE = 1 << 20


class Column:
    """Values of one type, one for each row; `width` numbers each, where it is given."""

    def __init__(self, dtype: DTypeLike, width: int | None = None) -> None:
        shape = (_LEAST,) if width is None else (_LEAST, width)
        self._held: NDArray[Any] = np.zeros(shape, dtype)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def values(self) -> NDArray[Any]:
        """What is held. Valid until the next change."""
        return self._held[: self._count]

    @property
    def size_bytes(self) -> int:
        return self._held.nbytes

    def append(self, value: Any) -> None:
        self._makeroom(self._count + 1)
        self._held[self._count] = value
        self._count += 1

    def extend(self, values: Any) -> None:
        wanted = self._count + len(values)
        self._makeroom(wanted)
        self._held[self._count : wanted] = values
        self._count = wanted

    def clear(self) -> None:
        """Nothing, and no room kept for more."""
        self._held = self._held[:_LEAST].copy()
        self._count = 0

    def fit(self, highest: int) -> None:
        """Make every value wide enough for a number as high as this."""
        if highest > np.iinfo(self._held.dtype).max:
            self._held = self._held.astype(np.min_scalar_type(highest))

    def keep(self, rows: NDArray[Any]) -> None:
        """Only these rows, in their order."""
        held = self._held[: self._count][rows]
        self._held = room((max(len(rows), _LEAST), *held.shape[1:]), held.dtype)
        self._count = 0
        self.extend(held)

    def _makeroom(self, wanted: int) -> None:
        have = len(self._held)
        if wanted <= have:
            return
        grown = have + (have // 8 if self._held.nbytes >= _LARGE else have)
        shape = (max(wanted, grown, _LEAST), *self._held.shape[1:])
        larger = room(shape, self._held.dtype)
        larger[: self._count] = self._held[: self._count]
        self._held = larger


def room(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Zeros. Large ones lie outside of the heap, which would keep the holes that growing leaves."""
    size = math.prod(shape) * dtype.itemsize
    if size < _LARGE:
        return np.zeros(shape, dtype)
    # Of this process alone: a child that is forked writes into a copy.
    pages = mmap.mmap(-1, size, access=mmap.ACCESS_COPY)
    return np.frombuffer(pages, dtype).reshape(shape)
