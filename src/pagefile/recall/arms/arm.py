"""What a vector arm is: a place that is asked for the nearest of one user's vectors.

An arm is derived. The index log of the store says which vectors there are; an
arm holds a copy of them up to a mark, and may be wiped at any time. It knows
neither words nor scores: it gives candidates, and how near they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec
import numpy as np

from pagefile.recall.embed.embedder import Floats, unit_rows
from pagefile.recall.records import IndexEntry, decoded, log_of
from pagefile.store.records import Entry
from pagefile.store.store import Store

_ID_BYTES = 16


class Part(msgspec.Struct, frozen=True):
    """One user's vectors within one tenant, and the model they are of.

    Tenant and owner stand in every request, so that neither leaks into the other
    nor takes its places. Forgetting and counting do not look at the model.
    """

    tenant: str
    owner: str
    model: str
    dimensions: int

    def point(self, key: str, position: int, index: int) -> bytes:
        """The id of the vector that an entry of the index log gives to a key.

        Never used twice: an id stands for one vector for ever, so that a late
        write of another process can be late, but not wrong.
        """
        named = "\x00".join((self.tenant, self.owner, key, str(position), str(index)))
        return hashlib.blake2b(named.encode(), digest_size=_ID_BYTES).digest()

    @property
    def digest(self) -> str:
        """Tenant and owner in one short word."""
        named = f"{self.tenant}\x00{self.owner}".encode()
        return hashlib.blake2b(named, digest_size=_ID_BYTES).hexdigest()


class Mark(msgspec.Struct, frozen=True):
    """How much of an index log an arm holds: everything living before entry `seen`.

    `position` is that of the last of these entries, `count` how many vectors are
    there. With fewer than that, or another entry in that place, the mark is void.
    """

    generation: int
    seen: int
    position: int
    count: int


class Found(NamedTuple):
    """The nearest with their cosines, best first; and those of the ids asked for by name."""

    nearest: list[tuple[bytes, float]]
    named: dict[bytes, float]


#: What an arm answers where it has nothing.
NOTHING = Found([], {})


@runtime_checkable
class VectorArm(Protocol):
    """A place for vectors. Every call may raise `Unavailable`; writes may be repeated."""

    @property
    def name(self) -> str:
        """What it is called in statistics and explanations."""
        ...

    def prepare(self, model: str, dimensions: int) -> None:
        """Make room for vectors of this model.

        Raises:
            Unsupported: it holds those of another model.
        """
        ...

    def upsert(self, part: Part, ids: Sequence[bytes], vectors: Floats) -> None:
        """Keep these; they are found when it returns. `prepare` comes first."""
        ...

    def delete(self, part: Part, ids: Sequence[bytes]) -> None:
        """Let these go; ids that are not there are none to worry about."""
        ...

    def forget(self, part: Part) -> None:
        """Let everything of this user go, the mark too."""
        ...

    def nearest(self, part: Part, query: Floats, count: int, named: Sequence[bytes] = ()) -> Found:
        """The nearest of this user's vectors, and the cosines of `named`, in one request."""
        ...

    def ids(self, part: Part) -> set[bytes]:
        """All that is kept of this user."""
        ...

    def count(self, part: Part) -> int:
        """How many vectors are kept of this user."""
        ...

    def mark(self, part: Part) -> Mark | None:
        """How far it has come; None where nothing was kept yet, or all is gone."""
        ...

    def set_mark(self, part: Part, mark: Mark) -> None:
        """Say how far it has come."""
        ...

    def owners(self, tenant: str) -> list[str]:
        """Of whom something is kept, in order."""
        ...

    def close(self) -> None:
        """Let go of connections."""
        ...


# One user's index log as a vector arm reads it: ids and vectors, from an entry on.


#: How many entries are read, and vectors sent, at once.
BATCH = 500


class VectorLog:
    """The log behind one partition."""

    def __init__(self, store: Store, part: Part, generation: int) -> None:
        self._store = store
        self.part = part
        self.generation = generation
        self._log = log_of(generation, part.owner)

    def ids(self, stored: Sequence[Entry], entries: Sequence[IndexEntry]) -> list[bytes]:
        """The ids of the vectors of these entries; empty for one without."""
        point = self.part.point
        return [
            point(entry.key, at.position, at.index) if entry.vector else b""
            for at, entry in zip(stored, entries, strict=True)
        ]

    def holds(self, mark: Mark | None) -> bool:
        """Whether the mark speaks of this log, and of what it still is."""
        if mark is None or mark.generation != self.generation:
            return False
        if not mark.seen:
            return True
        found = self._store.read(self._log, mark.seen - 1, limit=1)
        return bool(found) and (found[0].index, found[0].position) == (
            mark.seen - 1,
            mark.position,
        )

    def length(self) -> int:
        """How many entries the log has now."""
        return self._store.length(self._log)

    def vectors(self, start: int) -> Iterator[tuple[list[bytes], Floats]]:
        """Ids and vectors of the entries from `start` on, batch by batch."""
        while page := self._store.read(self._log, start, limit=BATCH):
            start = page[-1].index + 1
            stored = [entry for entry in page if not entry.erased]
            entries = [decoded(entry) for entry in stored]
            ids = self.ids(stored, entries)
            raws = [e.vector for e in entries if e.vector]
            if raws:
                numbers = np.frombuffer(b"".join(raws), "<f2").reshape(len(raws), -1)
                rows = unit_rows(numbers, len(raws), self.part.dimensions)
                yield [one for one in ids if one], rows
