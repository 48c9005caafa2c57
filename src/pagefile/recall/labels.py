"""What rows are labelled with: kind, speaker, status, scope, each a small number for a name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from pagefile.recall.entry import IndexEntry
from pagefile.recall.growable_array import Column
from pagefile.recall.text.inverted_index import Rows

LABELS = ("kind", "speaker", "status", "scope")


class Label:
    """One label of every row; 0 is the empty name."""

    def __init__(self) -> None:
        self.column = Column(np.uint8)
        self.names = [""]
        self._numbers: dict[str, int] = {"": 0}

    @property
    def values(self) -> NDArray[np.unsignedinteger]:
        """The number of each row's name."""
        return self.column.values

    def extend(self, names: Sequence[str]) -> None:
        """Label the next rows."""
        numbers = self._numbers
        for name in names:
            if name not in numbers:
                numbers[name] = len(self.names)
                self.names.append(name)
        self.column.fit(len(self.names))
        self.column.extend([numbers[name] for name in names])

    def of(self, rows: Rows) -> list[str]:
        """The names of some rows."""
        names = self.names
        if len(names) == 1:
            return names * len(rows)
        return [names[number] for number in self.values[rows].tolist()]

    def is_one_of(self, names: Sequence[str]) -> NDArray[np.bool_]:
        """Which rows have one of these names."""
        numbers = [self._numbers[name] for name in names if name in self._numbers]
        return among(self.values, numbers)


class Labels:
    """Every label of every row."""

    def __init__(self) -> None:
        self._labels = {name: Label() for name in LABELS}
        self.kind, self.speaker = self._labels["kind"], self._labels["speaker"]

    def __getitem__(self, name: str) -> Label:
        return self._labels[name]

    @property
    def columns(self) -> list[Column]:
        return [label.column for label in self._labels.values()]

    def extend(self, entries: Sequence[IndexEntry]) -> None:
        """Label the next rows as the entries say."""
        for name, label in self._labels.items():
            label.extend([getattr(entry, name) for entry in entries])

    def of(self, rows: Rows) -> Iterator[tuple[str, ...]]:
        """What some rows are labelled with, in the order of `LABELS`."""
        # A label at a time: looking up each row in each would take longer.
        return zip(*(label.of(rows) for label in self._labels.values()), strict=True)


def among(values: NDArray[np.integer], numbers: Sequence[int]) -> NDArray[np.bool_]:
    """Where the value is one of the numbers; most often there is one."""
    if len(numbers) == 1:
        found: NDArray[np.bool_] = values == numbers[0]
        return found
    return np.isin(values, numbers)
