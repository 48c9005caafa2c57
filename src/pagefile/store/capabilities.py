"""What engines and their transactions can have besides: each named, each optional.

Whoever can do with less asks whether it is there (`isinstance`), and goes the
general way where it is not. What an engine must have is in `engine.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from pagefile.store.batch import Vector
from pagefile.store.engine import IndexKey, Lone, RawCommit, Row, Sealed, Stream, Transaction
from pagefile.store.records import StreamKind


class AddsLone(Transaction, Protocol):
    """What a transaction has besides when its engine `TakesLone` or is `instant`."""

    def add_lone(
        self, stream: Stream, row: Row, keys: Sequence[IndexKey], commit: RawCommit
    ) -> None:
        """`add` of one entry, then `seal`."""


@runtime_checkable
class ReadsAhead(Protocol):
    """What a transaction has besides when each question is a journey: many asked at once."""

    def expect_names(self, names: Sequence[tuple[StreamKind, str]]) -> None:
        """`incarnations` of these names comes next, before anything is written."""

    def expect_rows(self, streams: Sequence[Stream]) -> None:
        """`rows` of these comes next, in this order, before anything is written."""


@runtime_checkable
class TakesVectors(Protocol):
    """What a transaction has besides when its engine `KeepsVectors`."""

    def add_vectors(self, stream: Stream, first: int, vectors: Sequence[Vector | None]) -> None:
        """Store the vectors of the entries numbered from `first` on, None for one without."""


class Near(NamedTuple):
    """Entries of a log by their numbers, with their cosines: the nearest, and those asked for."""

    nearest: list[tuple[int, float]]
    named: dict[int, float]


@runtime_checkable
class KeepsVectors(Protocol):
    """What an engine has besides when it can store vectors in the commit of their entries.

    A vector is its entry's: it goes in the commit that erases or prunes the entry
    or drops the log, whoever makes that.
    """

    @property
    def vectors(self) -> str:
        """What keeps them, by name; "" while nothing does."""

    @property
    def no_vectors(self) -> str:
        """Why nothing does, and what would change that; "" while something does."""

    def keep_vectors(self) -> None:
        """Keep vectors from now on, of every tenant.

        Raises:
            Unsupported, Forbidden: this cannot be done here, or not by this user.
        """

    def nearest(
        self, tenant: str, log: str, query: bytes, count: int, numbers: Sequence[int]
    ) -> Near:
        """The `count` nearest of all vectors of a log, best first, and those of `numbers`."""

    def vector_numbers(self, tenant: str, log: str, first: int) -> list[int]:
        """Which entries of a log, from `first` on, have a vector."""

    def fill_vectors(self, tenant: str, log: str, vectors: Mapping[int, Vector]) -> None:
        """Store vectors of entries that came without, if these are still there."""

    def remove_vectors(self, tenant: str, log: str, numbers: Sequence[int]) -> None:
        """Let vectors go that no entry needs any more."""


@runtime_checkable
class TakesLone(Protocol):
    """What an engine has besides when it stores a single append with less than a batch needs."""

    def apply_lone(self, tenant: str, one: Lone) -> Sealed:
        """Commit a single append: `apply` of a batch with nothing else in it.

        Raises:
            PagefileError: it was refused, or the disk failed; as with `apply`.
        """


@runtime_checkable
class Instant(Protocol):
    """What an engine has besides when it is `instant`."""

    def append_one(self, tenant: str, one: Lone) -> tuple[int, int, int]:
        """Commit a single append: position, time and index."""


@runtime_checkable
class Finds(Protocol):
    """What an engine has besides when it finds a document and its row in one step."""

    def current(self, tenant: str, names: Sequence[str]) -> list[Row | None]:
        """The last row of each living document, None where there is none."""


@runtime_checkable
class Stamps(Protocol):
    """What an engine has besides when it can tell in microseconds that nothing has changed."""

    def stamp(self, tenant: str) -> int:
        """A number that is another one after every commit that a read would show.

        What was read after it was taken is still so while it is the same.
        """


@runtime_checkable
class Joinable(Protocol):
    """What an engine has besides when others reach it by another URL than it was opened with."""

    url: str


@runtime_checkable
class Gathers(Protocol):
    """What an engine has besides when each question is a journey: many asked at once."""

    def gather(self, tenant: str, places: Sequence[tuple[int, int]]) -> dict[tuple[int, int], Row]:
        """The rows at these pairs of a stream's number and a row's, where there are any."""

    def streams(self, tenant: str, oids: Sequence[int]) -> dict[int, Stream]:
        """The streams with these numbers, living or dropped, where there are any."""
