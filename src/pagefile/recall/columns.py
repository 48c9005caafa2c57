"""Arrays that grow at their end, and the keys of rows in one."""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

_LEAST = 16
#: From this many bytes on an array grows by an eighth, no longer twofold.
_LARGE = 1 << 20

Rows = NDArray[np.int64]


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


# The key of each row, and the row of each key that lives, in bytes instead of objects.
#
# Keys that begin alike, as those of one user's episodes do, keep their beginning once.
# Rows are found by a hash: what is settled lies sorted by it, what came since in a dictionary.
# A hash only says where to look; the key itself decides.


_HASH = 0xFFFFFFFF
_NOBODY = 0xFFFFFFFF
#: So many stay in the dictionary, or one in so many of those that are settled.
_LEAST_LATE = 1_024
_LATE_SHARE = 16
#: About what a key takes in the dictionary.
_LATE_BYTES = 230


class Keys:
    """Rows are counted from 0 in the order they came; each living key has one of them."""

    def __init__(self) -> None:
        self._stems: list[str] = []
        self._stem_numbers: dict[str, int] = {}
        self._stem = Column(np.uint8)
        #: What follows the stem, of all rows one after the other, and where each ends.
        self._rests = Column(np.uint8)
        self._ends = Column(np.uint32)
        self._late: dict[str, int] = {}
        self._hashes = np.zeros(0, np.uint32)
        self._rows = np.zeros(0, np.uint32)
        self._living = 0

    def __len__(self) -> int:
        """The number of rows, living and dead."""
        return len(self._ends)

    @property
    def living(self) -> int:
        """How many keys have a row."""
        return self._living

    @property
    def size_bytes(self) -> int:
        columns = (self._stem, self._rests, self._ends)
        arrays = self._hashes.nbytes + self._rows.nbytes + sum(c.size_bytes for c in columns)
        return arrays + _LATE_BYTES * len(self._late) + 200 * len(self._stems)

    def __getitem__(self, row: int) -> str:
        """The key of a row, dead ones included."""
        return self.of((row,))[0]

    def of(self, rows: Sequence[int]) -> list[str]:
        """The keys of some rows."""
        ends, rests, stem = self._ends.values, self._rests.values, self._stem.values
        return [
            self._stems[stem[row]]
            + rests[ends[row - 1] if row else 0 : ends[row]].tobytes().decode()
            for row in rows
        ]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and self.row_of(key) is not None

    def row_of(self, key: str) -> int | None:
        """The row of a living key."""
        row = self._late.get(key)
        if row is None and len(self._hashes):
            place = self._place(key, int(np.searchsorted(self._hashes, np.uint32(_hash(key)))))
            row = None if place is None else int(self._rows[place])
        return row

    def extend(self, keys: Sequence[str]) -> None:
        """Give the next rows to these keys, none of which has one."""
        first = len(self)
        stems: list[int] = []
        rests: list[bytes] = []
        for key in keys:
            cut = key.rfind("/") + 1
            stems.append(self._stem_number(key[:cut]))
            rests.append(key[cut:].encode())
        self._stem.fit(len(self._stems))
        self._stem.extend(stems)
        start = len(self._rests)
        self._rests.extend(np.frombuffer(b"".join(rests), np.uint8))
        self._ends.fit(len(self._rests))
        self._ends.extend(start + np.cumsum([len(rest) for rest in rests], dtype=np.int64))
        self._late.update(zip(keys, range(first, first + len(keys)), strict=True))
        self._living += len(keys)
        if len(self._late) > max(_LEAST_LATE, len(self._hashes) // _LATE_SHARE):
            self._settle()

    def take_out(self, keys: Sequence[str]) -> list[int]:
        """Let keys have no row any more; the rows of those that had one."""
        found: list[int] = []
        missing: list[str] = []
        for key in keys:
            row = self._late.pop(key, None)
            if row is None:
                missing.append(key)
            else:
                found.append(row)
        if missing and len(self._hashes):
            wanted = np.fromiter(map(_hash, missing), np.uint32, len(missing))
            at = np.searchsorted(self._hashes, wanted)
            there = self._hashes[np.minimum(at, len(self._hashes) - 1)] == wanted
            for which in np.flatnonzero(there).tolist():
                place = self._place(missing[which], int(at[which]))
                if place is not None:
                    found.append(int(self._rows[place]))
                    self._rows[place] = _NOBODY
        self._living -= len(found)
        return found

    def compacted(self, rows: Rows) -> Keys:
        """The keys of these living rows only, numbered anew in their order."""
        fresh = Keys()
        fresh.extend(self.of(rows.tolist()))
        return fresh

    def _stem_number(self, stem: str) -> int:
        number = self._stem_numbers.get(stem)
        if number is None:
            number = self._stem_numbers[stem] = len(self._stems)
            self._stems.append(stem)
        return number

    def _place(self, key: str, first: int) -> int | None:
        """Where among the settled a living key is, from the first place of its hash on."""
        wanted = _hash(key)
        for place in range(first, len(self._hashes)):
            if self._hashes[place] != wanted:
                break
            row = int(self._rows[place])
            if row != _NOBODY and self[row] == key:
                return place
        return None

    def _settle(self) -> None:
        """Sort what is in the dictionary in, and what has no row out."""
        held = self._rows != _NOBODY
        count = len(self._late)
        hashes = np.fromiter(map(_hash, self._late), np.uint32, count)
        rows: NDArray[np.uint32] = np.fromiter(self._late.values(), np.uint32, count)
        hashes = np.concatenate((self._hashes[held], hashes))
        order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[order]
        self._rows = np.concatenate((self._rows[held], rows))[order]
        self._late = {}


def _hash(key: str) -> int:
    return hash(key) & _HASH
