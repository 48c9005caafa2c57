"""A vector arm in this process: exact, gone with it. For tests, and the measure of the others."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from pagefile.errors import Unsupported
from pagefile.recall.arms.arm import NOTHING, Found, Mark, Part
from pagefile.recall.embed.embedder import Floats
from pagefile.recall.vectors.vector_index import VectorIndex


class MemoryArm:
    """The vectors of every user of every tenant, each user's compared one by one."""

    name = "memory"

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._model: tuple[str, int] | None = None
        self._kept: dict[tuple[str, str], _Kept] = {}

    def prepare(self, model: str, dimensions: int) -> None:
        with self._lock:
            if self._model not in (None, (model, dimensions)):
                held = f"{self._model[0]!r}" if self._model else "none"
                raise Unsupported(
                    f"this arm holds vectors of {held}, not of {model!r}",
                    "make another MemoryArm() for the other model",
                )
            self._model = (model, dimensions)

    def upsert(self, part: Part, ids: Sequence[bytes], vectors: Floats) -> None:
        with self._lock:
            self._kept.setdefault((part.tenant, part.owner), _Kept()).add(ids, vectors)

    def delete(self, part: Part, ids: Sequence[bytes]) -> None:
        with self._lock:
            self._of(part).remove(ids)

    def forget(self, part: Part) -> None:
        with self._lock:
            self._kept.pop((part.tenant, part.owner), None)

    def nearest(self, part: Part, query: Floats, count: int, named: Sequence[bytes] = ()) -> Found:
        with self._lock:
            return self._of(part).nearest(query, count, named)

    def ids(self, part: Part) -> set[bytes]:
        with self._lock:
            return set(self._of(part).row_of)

    def count(self, part: Part) -> int:
        with self._lock:
            return len(self._of(part).row_of)

    def mark(self, part: Part) -> Mark | None:
        with self._lock:
            return self._of(part).mark

    def set_mark(self, part: Part, mark: Mark) -> None:
        with self._lock:
            self._kept.setdefault((part.tenant, part.owner), _Kept()).mark = mark

    def owners(self, tenant: str) -> list[str]:
        with self._lock:
            return sorted(owner for its, owner in self._kept if its == tenant)

    def close(self) -> None:
        """Nothing is open: what is kept stays for who shares it."""

    def _of(self, part: Part) -> _Kept:
        return self._kept.get((part.tenant, part.owner)) or _Kept()


class _Kept:
    """What is kept of one user."""

    def __init__(self) -> None:
        self.mark: Mark | None = None
        self.row_of: dict[bytes, int] = {}
        self._ids: list[bytes] = []
        self._vectors = VectorIndex(quantised=False)

    def add(self, ids: Sequence[bytes], vectors: Floats) -> None:
        self.remove(ids)
        self.row_of.update(zip(ids, range(len(self._ids), len(self._ids) + len(ids)), strict=True))
        self._ids.extend(ids)
        self._vectors.add_many(vectors, np.ones(len(ids), np.bool_))

    def remove(self, ids: Sequence[bytes]) -> None:
        for one in ids:
            row = self.row_of.pop(one, None)
            if row is not None:
                self._vectors.kill(row)

    def nearest(self, query: Floats, count: int, named: Sequence[bytes]) -> Found:
        if not self.row_of:
            return NOTHING
        similar = self._vectors.nearest(query, None, 0.5, count)
        best = np.argsort(-similar.scores, kind="stable")[:count]
        nearest = [(self._ids[similar.rows[n]], float(similar.scores[n])) for n in best]
        known = [one for one in named if one in self.row_of]
        rows = np.array([self.row_of[one] for one in known], np.int64)
        scores = self._vectors.exact(query, rows).tolist()
        return Found(nearest, dict(zip(known, scores, strict=True)))
