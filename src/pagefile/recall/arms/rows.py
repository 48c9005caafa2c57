"""The vectors of one partition when an arm keeps them: asked of it as far as its mark goes.

Later ones are held here. When the arm lacks what its mark promises, all are held
here until somebody has filled it again.
"""

from __future__ import annotations

from typing import Self

from pagefile.recall.arms.arm import Found, VectorArm
from pagefile.recall.arms.index_log import VectorLog
from pagefile.recall.arms.remote_vectors import RowsElsewhere
from pagefile.recall.embed.embedder import Floats
from pagefile.recall.vectors.vector_index import VectorIndex

#: When so many more are held here, the arm is asked again how far it has come.
_LOOK_AGAIN = 1_000


class ArmRows(RowsElsewhere):
    """At most one vector for each row, in an arm or held here."""

    def __init__(self, arm: VectorArm, log: VectorLog) -> None:
        super().__init__(arm.name, log)
        self._arm = arm

    def _fresh(self) -> Self:
        return type(self)(self._arm, self._log)

    def _finds(self, query: Floats, count: int, named: list[bytes]) -> Found:
        return self._arm.nearest(self._log.part, query, count, named)

    def _without(self, *, is_last: bool) -> VectorIndex:
        return self.hold_from(0)

    def _settled(self) -> VectorIndex:
        """The tail; what the arm has is asked once, and found out again only when it lacks it."""
        if self._tail is not None and len(self._tail) < self._looked_at + _LOOK_AGAIN:
            return self._tail
        mark = self._arm.mark(self._log.part)
        if mark is None or not self._log.holds(mark):
            return self.hold_from(0)
        is_whole = self._arm.count(self._log.part) >= mark.count
        return self.hold_from(mark.seen if is_whole else 0)
