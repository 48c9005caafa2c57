"""Which row has which vector: rows are numbered by the index, slots by the vectors themselves.

Almost always every row has one and none was removed; then both numbers are the same, and
nothing is kept. Slots are given in the order of rows.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pagefile.recall.growable_array import Column
from pagefile.recall.text.inverted_index import Rows

NOBODY = -1


class Slots:
    """The slot of each row, and the row of each slot; -1 for none."""

    def __init__(self) -> None:
        self._count = 0
        self._dead = 0
        self._row_of: Column | None = None
        self._slot_of: Column | None = None

    def __len__(self) -> int:
        """How many slots were given, those of removed rows included."""
        return self._count if self._row_of is None else len(self._row_of)

    @property
    def living(self) -> int:
        """How many rows have one."""
        return len(self) - self._dead

    @property
    def size_bytes(self) -> int:
        return sum(c.size_bytes for c in (self._row_of, self._slot_of) if c is not None)

    def extend(self, having: NDArray[np.bool_]) -> None:
        """Give slots to those of the next rows that have a vector."""
        if self._row_of is None and having.all():
            self._count += len(having)
            return
        row_of, slot_of = self._kept()
        first_slot, first_row = len(row_of), len(slot_of)
        slots = np.full(len(having), NOBODY, np.int32)
        slots[having] = np.arange(first_slot, first_slot + np.count_nonzero(having))
        slot_of.extend(slots)
        row_of.extend(first_row + np.flatnonzero(having))

    def free(self, row: int) -> None:
        """Let a row have none."""
        row_of, slot_of = self._kept()
        slot = int(slot_of.values[row])
        if slot != NOBODY:
            slot_of.values[row] = NOBODY
            row_of.values[slot] = NOBODY
            self._dead += 1

    def of(self, rows: Rows) -> Rows:
        """The slots of rows; -1 where one has none."""
        return rows if self._slot_of is None else self._slot_of.values[rows].astype(np.int64)

    def rows(self, slots: Rows) -> Rows:
        """The rows of slots that are in use."""
        return slots if self._row_of is None else self._row_of.values[slots].astype(np.int64)

    def having(self, rows: Rows) -> NDArray[np.bool_]:
        """Which of the rows have one."""
        if self._slot_of is None:
            return np.ones(len(rows), np.bool_)
        found: NDArray[np.bool_] = self._slot_of.values[rows] != NOBODY
        return found

    def allowed(self, allowed: NDArray[np.bool_] | None) -> Rows | None:
        """The slots of the rows that are allowed; None where that is every slot."""
        if self._row_of is None:
            return None if allowed is None else np.flatnonzero(allowed)
        if allowed is None and not self._dead:
            return None
        rows = self._row_of.values
        living = rows != NOBODY
        if allowed is not None:
            living &= allowed[rows]
        return np.flatnonzero(living)

    def _kept(self) -> tuple[Column, Column]:
        """Both numbers of each, written down from now on."""
        if self._row_of is None or self._slot_of is None:
            self._row_of, self._slot_of = Column(np.int32), Column(np.int32)
            for column in (self._row_of, self._slot_of):
                column.extend(np.arange(self._count))
        return self._row_of, self._slot_of
