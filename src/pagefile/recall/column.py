"""An array that grows at its end."""

from __future__ import annotations

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
        self._make_room(self._count + 1)
        self._held[self._count] = value
        self._count += 1

    def extend(self, values: Any) -> None:
        wanted = self._count + len(values)
        self._make_room(wanted)
        self._held[self._count : wanted] = values
        self._count = wanted

    def keep(self, rows: NDArray[Any]) -> None:
        """Only these rows, in their order."""
        self._held = self._held[: self._count][rows]
        self._count = len(rows)

    def _make_room(self, wanted: int) -> None:
        have = len(self._held)
        if wanted <= have:
            return
        grown = have + (have // 8 if self._held.nbytes >= _LARGE else have)
        shape = (max(wanted, grown, _LEAST), *self._held.shape[1:])
        larger = np.zeros(shape, self._held.dtype)
        larger[: self._count] = self._held[: self._count]
        self._held = larger
