"""Whoever turns text into vectors, and the check that what came back is fit to be compared."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from pagefile.errors import Invalid, PagefileError, Unavailable, shown
from pagefile.recall.vectors.embedding import Embedding

Floats = NDArray[np.float32]
_T = TypeVar("_T")

#: Room for every model in use; a longer vector is a mistake.
MOST_DIMENSIONS = 16_384
#: Sums of squares that are well within float32.
_SHORT, _LONG = 1e-20, 1e20
#: Of numpy 2 and later.
_vecdot = getattr(np, "vecdot", None)


class Embedder(Protocol):
    """Turns text into vectors of one length.

    `name` says which model it is: vectors of two names are never compared. An
    embedder that asks a question in another way than it stores a text has
    `embed_query(text)` besides; without it a question is a text like another.
    """

    @property
    def name(self) -> str: ...

    @property
    def dimensions(self) -> int: ...

    def embed(self, text: str) -> Sequence[float] | Floats:
        """The vector of one text."""
        ...

    def embed_batch(self, texts: Sequence[str]) -> Sequence[Sequence[float]] | Floats:
        """The vectors of several, in their order."""
        ...


class Guarded:
    """An embedder whose failures are told in our words: it is somebody else's code."""

    def __init__(self, embedder: Embedder) -> None:
        self._embedder = embedder
        self.name = embedder.name
        self.dimensions = embedder.dimensions

    def embed(self, text: str) -> Sequence[float] | Floats:
        return self._told(lambda: self._embedder.embed(text))

    def embed_query(self, text: str) -> Sequence[float] | Floats:
        ask: Callable[[str], Sequence[float] | Floats]
        ask = getattr(self._embedder, "embed_query", self._embedder.embed)
        return self._told(lambda: ask(text))

    def embed_batch(self, texts: Sequence[str]) -> Sequence[Sequence[float]] | Floats:
        return self._told(lambda: self._embedder.embed_batch(texts))

    def _told(self, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except PagefileError:
            raise
        except Exception as error:
            raise Unavailable(
                f"the embedder {shown(self.name)} failed ({type(error).__name__}: {error})",
                "nothing was stored or searched: mend it, or open with embedder=None and reindex()",
            ) from error


def embed_query(embedder: Embedder, text: str) -> Floats:
    """The vector of a question, of unit length."""
    ask = getattr(embedder, "embed_query", embedder.embed)
    return unit_vector(ask(text), embedder.dimensions)


def embed_texts(embedder: Embedder, texts: Sequence[str]) -> Floats:
    """One row of unit length for each text."""
    if not texts:
        return np.empty((0, embedder.dimensions), np.float32)
    return unit_rows(embedder.embed_batch(texts), len(texts), embedder.dimensions)


def unit_vector(values: object, dimensions: int | None = None) -> Floats:
    """The vector scaled to length 1; refused when it is none, or of another length."""
    row = _plain_row(values)
    if row is not None and (dimensions is None or len(row) == dimensions) and len(row):
        with np.errstate(over="ignore", under="ignore"):
            squares = float(np.dot(row, row))
        # Beyond, squares leave the range of float32; the slow way has none of that.
        if _SHORT < squares < _LONG and len(row) <= MOST_DIMENSIONS:
            unit: Floats = row / np.float32(math.sqrt(squares))
            return unit
    vector: Floats = unit_rows([values], 1, dimensions)[0]
    return vector


def packed_units(values: Sequence[object], dimensions: int) -> list[bytes]:
    """Each of the vectors as `packed(unit_vector(…))` has it; many take hardly longer than one."""
    wanted = 4 * dimensions
    raws = [each.raw for each in values if type(each) is Embedding and len(each.raw) == wanted]
    if len(raws) == len(values) > 1 and dimensions <= MOST_DIMENSIONS:
        rows = np.frombuffer(b"".join(raws), np.float32).reshape(-1, dimensions)
        with np.errstate(over="ignore", under="ignore"):
            squares = _squares(rows)
        if squares.min() > _SHORT and squares.max() < _LONG:
            lengths = np.sqrt(squares.astype(np.float64)).astype(np.float32)
            halves = packed(rows / lengths[:, None])
            size = 2 * dimensions
            return [halves[at : at + size] for at in range(0, len(halves), size)]
    return [packed(unit_vector(each, dimensions)) for each in values]


def _squares(rows: Floats) -> Floats:
    """Each row times itself, rounded as it is alone."""
    summed: Floats = (
        np.array([row.dot(row) for row in rows]) if _vecdot is None else _vecdot(rows, rows)
    )
    return summed


def _plain_row(values: object) -> Floats | None:
    """The numbers as a row, where that is what they are."""
    try:
        # Through an array of C's floats: numpy takes several times as long.
        if type(values) is Embedding:
            return np.frombuffer(values.raw, np.float32)
        if type(values) is tuple or type(values) is list:
            return np.frombuffer(array("f", values), np.float32)
        row = np.asarray(values)
    except (TypeError, ValueError, OverflowError):
        return None
    if row.ndim != 1 or row.dtype.kind != "f":
        return None
    with np.errstate(over="ignore"):
        return row.astype(np.float32, copy=False)


def unit_rows(values: object, count: int, dimensions: int | None = None) -> Floats:
    """The rows scaled to length 1 each. A row of zeros has no direction, and is refused."""
    try:
        rows = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise Invalid("vector", f"{shown(values)} is no list of numbers", "give numbers") from None
    if rows.ndim != 2 or rows.shape[0] != count or not 0 < rows.shape[1] <= MOST_DIMENSIONS:
        raise Invalid(
            "vector", f"of shape {shown(rows.shape)}", f"give {count} of 1 to {MOST_DIMENSIONS}"
        )
    if dimensions is not None and rows.shape[1] != dimensions:
        raise Invalid(
            "vector",
            f"of {rows.shape[1]} numbers where {dimensions} are kept",
            "embed with the model of this index, or index anew with the other one",
        )
    if not np.isfinite(rows).all():
        raise Invalid("vector", "holds a number that is not finite", "mend the embedder")
    # In two steps: the squares of very large or very small numbers leave the range.
    largest: NDArray[Any] = np.abs(rows).max(axis=1, keepdims=True)
    if not largest.all():
        raise Invalid("vector", "is all zeros and has no direction", "mend the embedder")
    rows = rows / largest
    unit: Floats = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return unit


def products(rows: Floats, query: Floats) -> Floats:
    """Each row times the query, by one thread, and of each row the same among any others.

    `@` rounds a row by its place in the matrix, so that removing one moves the others'
    scores; and it wakes a thread for each core, of which others have work of their own.
    """
    if _vecdot is None:
        summed: Floats = np.einsum("ij,j->i", rows, query)
        return summed
    found: Floats = _vecdot(rows, query)
    return found


def packed(vector: Floats) -> bytes:
    """A vector as it is kept: float16, little endian."""
    return vector.astype("<f2").tobytes()


def unpacked(raw: bytes) -> Floats:
    """The inverse of `packed`, of unit length again."""
    if len(raw) % 2:
        raise Invalid("vector", f"is {len(raw)} bytes long", "give two bytes for each number")
    return unit_vector(np.frombuffer(raw, "<f2"))
