"""Vectors that a store keeps in the commit of their entries, where its engine can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from pagefile.errors import Invalid, Unsupported, shown
from pagefile.store.arguments import Naming, require_count
from pagefile.store.batch import Vector
from pagefile.store.codec.vector import no_vectors, require_numbers, require_vector
from pagefile.store.engine import Engine, KeepsVectors, Near

_MOST_ASKED = 1_000_000


class VectorKeeping:
    """The part of `Store` that is about vectors; what they are of is not its business."""

    _engine: Engine
    _tenant: str
    _naming: Naming

    @property
    def vectors(self) -> str:
        """What keeps vectors in the commit of their entries, by name; "" where nothing does."""
        return kept_by(self._engine)

    @property
    def no_vectors(self) -> str:
        """Why none are kept, and what would change that; "" where they are, or never can be."""
        keeper = _keeper_of(self._engine)
        return "" if keeper is None else keeper.no_vectors

    def keep_vectors(self) -> None:
        """Keep vectors with their entries from now on, for every tenant of this store.

        Handles that are opened later do so by themselves.

        Raises:
            Unsupported: the engine or its server cannot.
            Forbidden: this user may not make it so.
        """
        keeper = _keeper_of(self._engine)
        if keeper is None:
            raise Unsupported(
                f"the engine {self._engine.name} keeps no vectors with the data",
                "use a store on PostgreSQL, or PgvectorArm('postgresql://…') beside this one",
            )
        keeper.keep_vectors()

    def nearest(self, log: str, query: bytes, count: int, numbers: Sequence[int] = ()) -> Near:
        """The `count` nearest of a log's vectors, best first, and the cosines of some entries.

        All vectors of the log are compared, and those of no other. `query` is as
        `Vector.numbers`. Entries without a vector are left out.
        """
        self._naming.check_text("log", log)
        if type(query) is not bytes:
            raise Invalid("query", shown(query), "give bytes of float32, little endian")
        require_numbers(query)
        require_count(count, "count", 0, _MOST_ASKED)
        return self._kept().nearest(self._tenant, log, query, count, numbers)

    def vector_numbers(self, log: str, first: int = 0) -> list[int]:
        """Which entries of a log, from `first` on, have a vector; in no order."""
        self._naming.check_text("log", log)
        require_count(first, "first")
        return self._kept().vector_numbers(self._tenant, log, first)

    def fill_vectors(self, log: str, vectors: Mapping[int, Vector]) -> None:
        """Give vectors to entries that came without: by their number, if they are still there.

        For what was stored before the store kept vectors, or copied into it. A slot
        that has a vector keeps it.
        """
        self._naming.check_text("log", log)
        for number, vector in vectors.items():
            require_count(number, "number")
            require_numbers(require_vector(vector).numbers)
        if vectors:
            self._kept().fill_vectors(self._tenant, log, vectors)

    def remove_vectors(self, log: str, numbers: Sequence[int]) -> None:
        """Let vectors go whose entries were replaced by somebody who knew of no vectors."""
        self._naming.check_text("log", log)
        for number in numbers:
            require_count(number, "number")
        if numbers:
            self._kept().remove_vectors(self._tenant, log, numbers)

    def _kept(self) -> KeepsVectors:
        keeper = _keeper_of(self._engine)
        if keeper is None or not keeper.vectors:
            raise no_vectors()
        return keeper


def kept_by(engine: Engine) -> str:
    """What keeps vectors behind an engine, by name; "" where nothing does."""
    keeper = _keeper_of(engine)
    return "" if keeper is None else keeper.vectors


#: Whether engines of a kind can: asking a protocol takes longer than preparing an entry.
_KINDS: dict[type[Engine], bool] = {}


def _keeper_of(engine: Engine) -> KeepsVectors | None:
    kind = type(engine)
    if kind not in _KINDS:
        _KINDS[kind] = isinstance(engine, KeepsVectors)
    return cast("KeepsVectors", engine) if _KINDS[kind] else None
