"""The vectors of one partition that lie elsewhere: what is there, and the tail that is not.

The fold of the log knows which vectors live. Those that the place has are asked
of it; the others are held here and merged in, so that a search sees what was
stored before it, however much the place lacks.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Self

import numpy as np
from numpy.typing import NDArray

from pagefile.errors import Invalid
from pagefile.recall.arms.arm import Found, VectorArm, VectorLog
from pagefile.recall.columns import Column, Rows
from pagefile.recall.embed.embedder import Floats
from pagefile.recall.vectors.vector_index import Similar, VectorIndex

#: How many of the nearest an arm is asked for; a larger filter widens it so many times at most.
_NEAREST = 512
_WIDENED = 4
#: From how many rows the floor of similarities is taken.
_SAMPLE = 256
#: With fewer left by a filter, what it lets through is asked for by name.
_ENOUGH = 64
#: How many are asked for by name at once.
_NAMED = 5_000


class Lost(Exception):
    """The place does not have what it was taken to have."""


class RowsElsewhere:
    """At most one vector for each row, in another place or held here.

    Who derives from it says how the place is asked (`_finds`), what of it is held
    here (`_settled`), and what then if it lacks something (`_without`).
    """

    #: Each row looked at costs a place in an answer, so fewer partitions are scored whole.
    whole_rows = 1_000

    def __init__(self, name: str, log: VectorLog) -> None:
        self._name = name
        self._log = log
        self._ids: list[bytes] = []
        self._row_of: dict[bytes, int] = {}
        self._having = Column(np.bool_)
        #: What the arm has not; None until the arm was asked how far it has come.
        self._tail: VectorIndex | None = None
        self._dead: list[bytes] = []
        self._looked_at = 0

    def __len__(self) -> int:
        return len(self._row_of)

    @property
    def dimensions(self) -> int:
        return self._log.part.dimensions

    @property
    def size_bytes(self) -> int:
        tail = 0 if self._tail is None else self._tail.size_bytes
        # An id is an object in a list and in a dictionary.
        return tail + self._having.size_bytes + 200 * len(self._ids)

    def add_many(
        self, vectors: Floats, having: NDArray[np.bool_], ids: list[bytes] | None = None
    ) -> None:
        """Give the next rows vectors, in their order, to those that are `having` one."""
        assert ids is not None
        if len(vectors):
            self.require_dimensions(vectors.shape[1])
        for row, one in enumerate(ids, len(self._ids)):
            if one:
                self._row_of[one] = row
        self._ids.extend(ids)
        self._having.extend(having)
        if self._tail is not None:
            self._tail.add_many(vectors, having)

    def require_dimensions(self, length: int) -> None:
        """Refuse a vector of another length than the model's."""
        if length != self.dimensions:
            raise Invalid(
                "vector",
                f"of {length} numbers among vectors of {self.dimensions}",
                "embed with the model of this index, or index anew with the other one",
            )

    def kill(self, row: int) -> None:
        """Forget the vector of a row; the arm lets it go when it is next filled."""
        one = self._ids[row]
        if one:
            self._ids[row] = b""
            self._having.values[row] = False
            del self._row_of[one]
            if self._tail is None or not self._is_held(row):
                self._dead.append(one)
            else:
                self._tail.kill(row)

    def _fresh(self) -> Self:
        """One like this, with nothing in it."""
        raise NotImplementedError

    def compacted(self, rows: Rows) -> Self:
        """The same of these rows only, numbered anew in their order."""
        fresh = self._fresh()
        fresh._ids = [self._ids[row] for row in rows]
        fresh._row_of = {one: row for row, one in enumerate(fresh._ids) if one}
        fresh._having.extend(self._having.values[rows])
        fresh._tail = None if self._tail is None else self._tail.compacted(rows)
        fresh._dead, fresh._looked_at = self._dead, self._looked_at
        return fresh

    def having(self, rows: Rows) -> NDArray[np.bool_]:
        """Which of the rows have a vector."""
        found: NDArray[np.bool_] = self._having.values[rows]
        return found

    def where(self, row: int) -> str:
        """Who compared the vector of a row: the arm, by its name, or the tail that is held here."""
        return "tail" if self._is_held(row) else self._name

    def _is_held(self, row: int) -> bool:
        return self._tail is not None and bool(self._tail.having(np.array([row]))[0])

    # Asking

    def nearest(
        self,
        query: Floats,
        allowed: NDArray[np.bool_] | None,
        floor: float,
        least: int = 0,
        beside: Rows | None = None,
    ) -> Similar:
        """The nearest of the allowed rows, and those of `beside` that are, with their cosines."""
        self.require_dimensions(len(query))
        living = self._having.values
        wanted = np.flatnonzero(living if allowed is None else living & allowed)
        if not len(wanted):
            return Similar(np.zeros(0, np.int64), np.zeros(0, np.float32), 0.0, 0.0)
        is_few = len(wanted) <= self.whole_rows
        sample = wanted if is_few else wanted[:: max(1, len(wanted) // _SAMPLE)]
        others = sample
        if beside is not None and not is_few:
            may = np.zeros(len(living), np.bool_)
            may[wanted] = True
            others = np.union1d(sample, beside[may[beside]])
        most = min(max(_NEAREST, least), len(wanted))
        scores = self._scores(query, wanted, others, most, least)
        rows = wanted[~np.isnan(scores[wanted])]
        if not len(rows):
            return Similar(rows, np.zeros(0, np.float32), 0.0, 0.0)
        seen = scores[sample]
        seen = seen[~np.isnan(seen)] if np.isnan(seen).any() else seen
        seen = seen if len(seen) else scores[rows]
        middle = int(floor * (len(seen) - 1))
        lowest = min(float(seen.min()), float(scores[rows].min()))
        return Similar(rows, scores[rows], float(np.partition(seen, middle)[middle]), lowest)

    def exact(self, query: Floats, rows: Rows) -> Floats:
        """The cosine of each row; NaN for one without a vector."""
        wanted = rows[self._having.values[rows]]
        if not len(wanted):
            return np.full(len(rows), np.nan, np.float32)
        return self._scores(query, wanted, wanted, 0, 0)[rows]

    def _scores(self, query: Floats, wanted: Rows, named: Rows, most: int, least: int) -> Floats:
        """For every row the cosine or NaN: of the nearest of the wanted, and of all `named`."""
        tail = self._settled()
        scores = np.full(len(self._ids), np.nan, np.float32)
        for is_last in (False, True):
            there = wanted[~tail.having(wanted)]
            if not len(there):
                break
            try:
                self._ask_arm(query, there, named[~tail.having(named)], most, least, scores)
                break
            except Lost:
                tail = self._without(is_last=is_last)
        held = wanted[tail.having(wanted)]
        if len(held) > self.whole_rows and most:
            may = np.zeros(len(scores), np.bool_)
            may[held] = True
            similar = tail.nearest(query, may, 0.5, most)
            scores[similar.rows] = similar.scores
            held = named[tail.having(named)]
        if len(held):
            scores[held] = tail.exact(query, held)
        return scores

    def _settled(self) -> VectorIndex:
        """What the place has not."""
        raise NotImplementedError

    def _without(self, *, is_last: bool) -> VectorIndex:
        """What is held here once the place was found to lack what it should have."""
        raise NotImplementedError

    def _finds(self, query: Floats, count: int, named: list[bytes]) -> Found:
        """The nearest, and those asked for by name, of the place."""
        raise NotImplementedError

    def _ask_arm(
        self, query: Floats, there: Rows, named: Rows, most: int, least: int, scores: Floats
    ) -> None:
        kept = len(self._row_of) - len(self._tail or ())
        is_all = len(named) == kept
        if is_all:  # The nearest of all, in one list.
            count, named = kept + len(self._dead), named[:0]
        elif len(named) == len(there) or not most:
            count = 0
        else:
            most = min(most, len(there))
            wider = min(_WIDENED, -(-kept // len(there)))
            count = min(kept, most * wider) + len(self._dead)
        found = self._arm_finds(query, count, named)
        if len(found.nearest) < min(count, kept):
            raise Lost
        may = np.zeros(len(scores), np.bool_)
        may[there] = True
        seen = 0
        for one, score in found.nearest:
            row = self._row_of.get(one, -1)
            if row >= 0 and may[row]:
                scores[row] = score
                seen += 1
        self._take_named(found, named, scores)
        enough = len(there) if is_all else min(max(least, _ENOUGH), len(there))
        if count and seen < enough:
            # A filter, or what is dead there, left too few: ask for every one by its name.
            rest = there[np.isnan(scores[there])]
            self._take_named(self._arm_finds(query, 0, rest), rest, scores)

    def _arm_finds(self, query: Floats, count: int, named: Rows) -> Found:
        if len(named) <= _NAMED:
            return self._finds(query, count, [self._ids[row] for row in named])
        whole = self._finds(query, count, []) if count else Found([], {})
        for start in range(0, len(named), _NAMED):
            ids = [self._ids[row] for row in named[start : start + _NAMED]]
            whole.named.update(self._finds(query, 0, ids).named)
        return whole

    def _take_named(self, found: Found, named: Rows, scores: Floats) -> None:
        try:
            scores[named] = [found.named[self._ids[row]] for row in named]
        except KeyError:
            raise Lost from None

    # Keeping

    def living(self) -> set[bytes]:
        """The ids of all vectors that there are."""
        return set(self._row_of)

    def take_dead(self) -> list[bytes]:
        """Ids that the arm may still have, and that nobody needs."""
        dead, self._dead = self._dead, []
        return dead

    def hold_from(self, start: int) -> VectorIndex:
        """Hold the vectors of the entries from `start` on here, and no others.

        To the end of the log, which may be further than what is folded: an id that
        is not known yet comes with its own row.
        """
        return self._hold(start, self._row_of)

    def _hold(self, start: int, wanted: Container[bytes]) -> VectorIndex:
        """Hold here what the log has of these, from an entry on, and no others."""
        rows: list[int] = []
        blocks: list[Floats] = []
        for ids, vectors in self._log.vectors(start):
            living = [n for n, one in enumerate(ids) if one in self._row_of and one in wanted]
            rows += [self._row_of[ids[n]] for n in living]
            blocks.append(vectors[living])
        having = np.zeros(len(self._ids), np.bool_)
        having[rows] = True
        tail = VectorIndex()
        if rows:
            tail.add_many(np.concatenate(blocks)[np.argsort(rows)], having)
        else:
            tail.add_many(np.zeros((0, self.dimensions), np.float32), having)
        self._tail, self._looked_at = tail, len(rows)
        return tail


# The vectors of one partition when an arm keeps them: asked of it as far as its mark goes.
#
# Later ones are held here. When the arm lacks what its mark promises, all are held
# here until somebody has filled it again.


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
