"""Inserting records: the one-row statement of `queries.sql`, widened to many rows.

A statement costs a server more than a row, so a group of commits is sent as few
statements; and a group that is nothing but records of one tenant, as a single one
that waits for the tenant's turn, inserts and commits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

#: How many records one statement takes when there are as many; the rest go one by one.
_SIZES = (64, 32, 16, 8, 4, 2, 1)
#: The largest group that is one statement as it is: each size is prepared by itself.
MOST_IN_TURN = 16
_PARAMETER = re.compile(r"\$(\d+)")


class Inserts:
    """The statements, made when first needed."""

    def __init__(self, one: str) -> None:
        self._head, _, self._values = one.rpartition("VALUES ")
        self._width = self._values.count("$")
        self._made: dict[tuple[int, str], str] = {}

    def chunks(self, rows: list[Any]) -> Iterator[tuple[str, list[Any]]]:
        """Statements and parameters that insert all the rows."""
        at = 0
        for size in _SIZES:
            while len(rows) - at >= size:
                yield self._statement(size), _flat(rows[at : at + size])
                at += size

    def in_turn(self, rows: list[Any], turn: str, number: int) -> tuple[str, list[Any]]:
        """One statement that takes the turn and inserts the rows; `turn` names its `number` {}."""
        return self._statement(len(rows), turn), [*_flat(rows), number]

    def _statement(self, size: int, turn: str = "") -> str:
        made = self._made.get((size, turn))
        if made is None:
            rows = "VALUES " + ", ".join(self._shifted(at * self._width) for at in range(size))
            made = f"{self._head}{rows}"
            if turn:
                taken = turn.format(f"${size * self._width + 1}::bigint")
                # Materialized, and every row is joined to it: no row without the turn.
                made = (
                    f"WITH turn AS MATERIALIZED ({taken}) "
                    f"{self._head}SELECT v.* FROM turn CROSS JOIN ({rows}) v"
                )
            self._made[size, turn] = made
        return made

    def _shifted(self, by: int) -> str:
        return _PARAMETER.sub(lambda found: f"${int(found[1]) + by}", self._values)


def _flat(rows: list[Any]) -> list[Any]:
    return [value for row in rows for value in row]
