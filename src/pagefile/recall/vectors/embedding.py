"""A vector that was made elsewhere, kept in the form in which it was given."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from typing import Any, overload

from pagefile.errors import Invalid, shown

_MOST_DIMENSIONS = 8_192


class Embedding(Sequence[float]):
    """The numbers of a float32 array, which they were copied from as they are.

    Making Python's numbers of them, and an array of those again, would take
    longer than all else that is done to remember an episode.
    """

    __slots__ = ("raw",)

    def __init__(self, raw: bytes) -> None:
        #: float32, of this machine's byte order.
        self.raw = raw

    def __len__(self) -> int:
        return len(self.raw) // 4

    @overload
    def __getitem__(self, place: int) -> float: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[float]: ...
    def __getitem__(self, place: int | slice) -> float | Sequence[float]:
        numbers = memoryview(self.raw).cast("f")
        return tuple(numbers[place]) if isinstance(place, slice) else numbers[place]

    def __iter__(self) -> Iterator[float]:
        return iter(memoryview(self.raw).cast("f"))

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Embedding):
            return self.raw == other.raw or tuple(self) == tuple(other)
        return isinstance(other, (tuple, list)) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return f"Embedding({list(self)!r})"


def embedding_of(given: Any) -> Sequence[float]:
    """The numbers of a list, a tuple or an array, finite ones, that nobody can change.

    Raises:
        Invalid: they are none, or too many.
    """
    kind = getattr(given, "dtype", None)
    try:
        if getattr(kind, "str", "") == _FLOAT32 and given.ndim == 1:
            import numpy as np  # It is loaded: this is one of its arrays.

            # A number that is not finite makes the length so; looking at each would take longer,
            # and so would `dot`, which has to be kept from warning.
            squares = float(np.vdot(given, given))
            if 0 < len(given) <= _MOST_DIMENSIONS and math.isfinite(squares):
                return Embedding(given.tobytes())
        vector = _as_tuple(given)
        fits = 0 < len(vector) <= _MOST_DIMENSIONS and math.isfinite(math.hypot(*vector))
    except (TypeError, OverflowError):
        vector, fits = given, False
    if not fits:
        raise Invalid("embedding", shown(vector), "give finite numbers, or leave it out")
    return vector


#: As numpy writes it: of this machine's byte order.
_FLOAT32 = ("<" if array("h", [1]).tobytes()[0] else ">") + "f4"


def _as_tuple(given: Any) -> tuple[Any, ...]:
    if type(given) is tuple:
        return given
    if isinstance(given, (str, bytes)):
        raise Invalid("embedding", shown(given), "give a list")
    # Numbers of an array become Python's own, which every codec knows.
    return tuple(given.tolist() if hasattr(given, "tolist") else given)
