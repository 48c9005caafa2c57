"""What a walk over the commit log learns: how streams came, forked and ended, what went."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from pagefile.store.engine import Stream
from pagefile.store.records import Action


class Life(msgspec.Struct, gc=False):
    """What the commits say of one stream."""

    oid: int
    created: int
    base: int = 0
    base_at: int = 0
    pruned: int = 0
    dropped: int = 0

    def is_of(self, stream: Stream) -> bool:
        """Whether the stored stream says the same."""
        return (self.created, self.base, self.base_at, self.pruned, self.dropped) == (
            stream.created,
            stream.base,
            stream.base_at,
            stream.pruned,
            stream.dropped,
        )


class Lives:
    """All streams of one tenant, as its commits tell them."""

    def __init__(self) -> None:
        self._all: dict[int, Life] = {}
        self._forks: dict[int, list[Life]] = {}

    def __iter__(self) -> Iterator[Life]:
        return iter(self._all.values())

    @property
    def last_oid(self) -> int:
        return max(self._all, default=0)

    def note(self, position: int, action: int, entry: tuple[int | bytes, ...]) -> None:
        """Take in one manifest entry."""
        oid = int(entry[1])
        life = self._all.get(oid)
        if life is None:
            life = self._all[oid] = Life(oid, position)
        if action == Action.FORK:
            life.base_at, life.base, life.pruned = int(entry[2]), int(entry[4]), int(entry[5])
            if life.base >= oid:
                # Whoever follows forks to their bases would never come to an end.
                raise ValueError("a fork of what came after it")
            self._forks.setdefault(life.base, []).append(life)
        elif action == Action.PRUNE:
            life.pruned = max(life.pruned, int(entry[2]))
        elif action == Action.DROP:
            life.dropped = position

    def shared_up_to(self, oid: int) -> int:
        """How much of a log its forks share that live now, or have living forks."""
        most = 0
        kin = [(fork, fork.base_at) for fork in self._forks.get(oid, ())]
        while kin:
            fork, reach = kin.pop()
            if not fork.dropped:
                most = max(most, reach)
            kin += [(child, min(reach, child.base_at)) for child in self._forks.get(fork.oid, ())]
        return most


class Gone:
    """Records without content, and the runs of numbers that were pruned or erased.

    Erasing leaves the record's place, pruning does not: a record that is not
    there at all must have been pruned.
    """

    def __init__(self) -> None:
        self._emptied: dict[int, list[tuple[int, int]]] = {}
        self._removed: dict[int, list[tuple[int, int]]] = {}
        self._erasures: dict[int, list[tuple[int, int]]] = {}
        self._prunings: dict[int, list[tuple[int, int]]] = {}

    def miss(self, oid: int, number: int, position: int, *, removed: bool) -> None:
        """A record that the commit at `position` stored has no content, or is not there at all."""
        missing = self._removed if removed else self._emptied
        missing.setdefault(oid, []).append((number, position))

    def erase(self, oid: int, first: int, last: int) -> None:
        """The content of these numbers was erased."""
        self._erasures.setdefault(oid, []).append((first, last))

    def prune(self, oid: int, first: int, last: int) -> None:
        """These numbers were let go."""
        self._prunings.setdefault(oid, []).append((first, last))

    def unaccounted(self) -> list[tuple[int, int, int]]:
        """What is missing and was never let go: stream, number and position."""
        found: list[tuple[int, int, int]] = []
        for oid, missing in self._removed.items():
            found += _outside(oid, missing, self._prunings.get(oid, []))
        for oid, missing in self._emptied.items():
            runs = self._prunings.get(oid, []) + self._erasures.get(oid, [])
            found += _outside(oid, missing, runs)
        return found


def _outside(
    oid: int, missing: list[tuple[int, int]], runs: list[tuple[int, int]]
) -> Iterator[tuple[int, int, int]]:
    """What is missing and in none of the runs."""
    runs = sorted(runs)
    at, reach = 0, -1
    for number, position in sorted(missing):
        while at < len(runs) and runs[at][0] <= number:
            reach = max(reach, runs[at][1])
            at += 1
        if number > reach:
            yield oid, number, position
